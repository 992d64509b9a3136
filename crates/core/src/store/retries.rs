//! Notes about requests that fail and are tried again: as long as they fail, and ever more rarely.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How long a request fails before the first note; each further note takes twice as long.
const FIRST_TOLD: Duration = Duration::from_secs(3);
/// A request without a failure for this long starts anew.
const FORGOTTEN: Duration = Duration::from_secs(120);
/// The most requests that are watched, each by its method and path.
const LOOKED_AT: usize = 64;

type Tell = Box<dyn Fn(&str) + Send + Sync>;

/// The requests of a job that are failing now, and the function that gets the notes.
#[derive(Default)]
pub(super) struct Retries {
    failing: Mutex<BTreeMap<String, Failing>>,
    tell: OnceLock<Tell>,
}

impl fmt::Debug for Retries {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Retries")
    }
}

struct Failing {
    since: Instant,
    last: Instant,
    times: u32,
    told_after: Duration,
}

impl Retries {
    /// From now on `tell` gets the notes.
    pub fn tell(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.tell.set(Box::new(tell)); // A job has one.
    }

    /// `request` has failed for this cause, and is tried again.
    pub fn failed(&self, request: &str, why: &str) {
        let Some(tell) = self.tell.get() else { return };
        let now = Instant::now();
        let mut failing = self.failing.lock().unwrap_or_else(PoisonError::into_inner);
        failing.retain(|_, known| now.duration_since(known.last) < FORGOTTEN);
        if failing.len() >= LOOKED_AT && !failing.contains_key(request) {
            return;
        }
        let known = failing.entry(request.to_owned()).or_insert(Failing {
            since: now,
            last: now,
            times: 0,
            told_after: FIRST_TOLD,
        });
        (known.last, known.times) = (now, known.times + 1);
        if now.duration_since(known.since) < known.told_after {
            return;
        }
        known.told_after *= 2;
        let (times, seconds) = (nth(known.times), now.duration_since(known.since).as_secs());
        drop(failing);
        tell(&format!("retrying {request} ({times} time, since {seconds} s): {why}"));
    }

    /// `request` was answered.
    pub fn answered(&self, request: &str) {
        if self.tell.get().is_some() {
            self.failing.lock().unwrap_or_else(PoisonError::into_inner).remove(request);
        }
    }
}

/// `3` → `3rd`.
fn nth(number: u32) -> String {
    let end = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{number}{end}")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_request_that_fails_for_long_is_told_of_and_one_that_failed_once_is_not() {
        let (retries, told) = (Retries::default(), Arc::new(Mutex::new(Vec::new())));
        let kept = Arc::clone(&told);
        retries.tell(move |text| kept.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned()));
        let earlier = |by: Duration| {
            for known in retries.failing.lock().unwrap_or_else(PoisonError::into_inner).values_mut() {
                known.since = known.since.checked_sub(by).unwrap_or(known.since);
            }
        };
        let said = || std::mem::take(&mut *told.lock().unwrap_or_else(PoisonError::into_inner));
        retries.failed("PUT /b/k", "InternalError");
        assert!(said().is_empty());
        earlier(Duration::from_secs(4));
        retries.failed("PUT /b/k", "InternalError");
        assert_eq!(said(), ["retrying PUT /b/k (2nd time, since 4 s): InternalError"]);
        retries.failed("PUT /b/k", "InternalError");
        assert!(said().is_empty(), "not each time");
        earlier(Duration::from_secs(4));
        retries.failed("PUT /b/k", "SlowDown");
        assert_eq!(said(), ["retrying PUT /b/k (4th time, since 8 s): SlowDown"]);
        retries.answered("PUT /b/k");
        retries.failed("PUT /b/k", "InternalError");
        assert!(said().is_empty());
        assert_eq!([11, 21, 112, 123].map(nth), ["11th", "21st", "112th", "123rd"]);
    }
}
