//! Outlasting a store that is away: fullbore repeats what it can repeat, for as long as an outage may last in this job.

use std::time::{Duration, Instant};

use object_store::Error as StoreError;

use super::connection::{REDIRECTS, TOO_LONG};
use super::errors::whole_text;
use super::xml::{UNREADABLE, said};
use super::{Control, explained, silent};
use crate::error::{Error, Result};

/// The wait before a failed request is tried again; each further wait is twice as long, up to the second value.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Answers of a store that will work later. Answers without a code come from the network, or from a proxy before the
/// store.
const LATER: [&str; 9] = [
    "InternalError",
    "ServerBusy",
    "OperationTimedOut",
    "ServiceUnavailable",
    "SlowDown",
    "RequestTimeout",
    "OperationAborted",
    "XMinioServerNotInitialized",
    "XMinioStorageResourceUnavailable",
];

/// How one try ended.
pub(super) enum Tried<T> {
    /// It is final.
    Done(Result<T>),
    /// The store is away, or has too much to do.
    Away(Error),
}

impl<T> Tried<T> {
    /// The result of a request about `thing`; `action` is what was tried, as a verb.
    pub fn of(result: object_store::Result<T>, action: &str, thing: &str) -> Self {
        match result {
            Ok(value) => Self::Done(Ok(value)),
            Err(error) if is_away(&error) => Self::Away(explained(action, thing, &error)),
            Err(error) => Self::Done(Err(explained(action, thing, &error))),
        }
    }
}

/// True for an answer that is the same on each try: a redirect, or an answer that is too long or cannot be read.
pub(super) fn stays(error: &StoreError) -> bool {
    let text = whole_text(error);
    [REDIRECTS, TOO_LONG, UNREADABLE].iter().any(|mark| text.contains(mark))
}

/// True for an error that may be gone the next time: no connection, no answer, or an answer that says so.
fn is_away(error: &StoreError) -> bool {
    let StoreError::Generic { .. } = error else { return false };
    let text = whole_text(error);
    match said(&text, "Code") {
        Some(code) => LATER.contains(&code.as_str()),
        // A connection that is not trusted now is not trusted later, and a name or a key does not appear by itself.
        None => {
            let never =
                ["certificate", "/latest/api/token", "performing token request", REDIRECTS, TOO_LONG, UNREADABLE];
            !never.iter().any(|word| text.contains(word))
        }
    }
}

/// True for an error that may be gone the next time, and for bytes that changed on the way.
pub(super) fn may_pass(error: &StoreError) -> bool {
    is_away(error) || said(&error.to_string(), "Code").is_some_and(|code| code == "BadDigest")
}

/// A part of the pause, another one for each caller, so that not all come at once when the store is back.
pub(super) fn jittered(pause: Duration) -> Duration {
    let share = 50 + u32::from(uuid::Uuid::new_v4().as_bytes()[0]) * 50 / 255;
    pause * share / 100
}

/// Tries until it has a result, or the outage has lasted too long.
pub(super) struct Endurance<'a> {
    control: &'a Control,
    thing: &'a str,
    away_since: Option<Instant>,
    pause: Duration,
}

impl<'a> Endurance<'a> {
    pub fn new(control: &'a Control, thing: &'a str) -> Self {
        Self { control, thing, away_since: None, pause: FIRST_PAUSE }
    }

    /// One try, which has the job's patience. Gives its result; nothing when it is to be tried again, after the pause
    /// made here.
    pub async fn tried<T>(&mut self, once: impl Future<Output = Tried<T>>) -> Result<Option<T>> {
        let begun = Instant::now();
        let answer = self.control.unless_stopped(tokio::time::timeout(self.control.patience, once)).await?;
        let error = match answer {
            Ok(Tried::Done(result)) => return result.map(Some),
            Ok(Tried::Away(error)) => error,
            Err(_) => silent(self.thing, self.control.patience),
        };
        let since = *self.away_since.get_or_insert(begun);
        let outage = self.control.objects.outage;
        if outage.is_zero() {
            return Err(error);
        }
        if since.elapsed() + self.pause > outage {
            let more = format!(
                "the store was away for {} s; --outage sets how long it may be away",
                since.elapsed().as_secs()
            );
            return Err(error.noting(&more));
        }
        self.control.unless_stopped(tokio::time::sleep(jittered(self.pause))).await?;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generic(text: &str) -> StoreError {
        StoreError::Generic { store: "S3", source: text.to_owned().into() }
    }

    #[test]
    fn a_store_that_is_away_is_told_from_one_that_refuses() {
        for text in [
            "<Code>SlowDown</Code>",
            "<Code>InternalError</Code>",
            "Connection refused",
            "operation timed out",
            "status 502",
        ] {
            assert!(is_away(&generic(text)), "{text}");
        }
        for text in [
            "<Code>EntityTooLarge</Code>",
            "<Code>NoSuchUpload</Code>",
            "<Code>BadDigest</Code>",
            "invalid certificate",
            "the store's answer cannot be read: at byte 0: it has a DOCTYPE",
        ] {
            assert!(!is_away(&generic(text)), "{text}");
        }
        assert!(!is_away(&StoreError::NotFound { path: "k".into(), source: "".into() }));
    }
}
