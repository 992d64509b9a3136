//! The thread that reads the wal-index regularly and notes the time of each new frame.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fullbore_core::{Result, threads};

use super::super::connection::read_index;
use super::super::open_files::RawFile;
use super::end::now;
use super::stretch::Sighting;

/// How often it looks: the recorded time of a commit may be late by this.
pub const LOOK: Duration = Duration::from_millis(10);
/// Most sightings to keep. If there are more, every second sighting is dropped: its commits get the time of the next
/// sighting.
const SIGHTINGS: usize = 16_384;

/// Looks until it is dropped.
pub(super) struct Lookout {
    seen: Arc<Mutex<Vec<Sighting>>>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Lookout {
    /// Starts to look at `index`.
    pub fn start(index: Arc<RawFile>) -> Result<Self> {
        let (seen, ended) = (Arc::<Mutex<Vec<Sighting>>>::default(), Arc::<AtomicBool>::default());
        let (kept, end) = (Arc::clone(&seen), Arc::clone(&ended));
        let look = move || {
            while !end.load(Ordering::Relaxed) {
                // If the index cannot be read or is changing, the next look tries again; the follower reports errors.
                if let Ok(Some(header)) = read_index(&index) {
                    let sighting = Sighting { salts: header.salts, max_frame: header.max_frame, time: now() };
                    note(&mut kept.lock().unwrap_or_else(PoisonError::into_inner), sighting);
                }
                std::thread::sleep(LOOK);
            }
        };
        Ok(Self { thread: Some(threads::start("lookout", look)?), seen, ended })
    }

    /// The sightings so far.
    pub fn seen(&self) -> Vec<Sighting> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Drops all sightings up to this frame of this log.
    pub fn forget(&self, salts: [u8; 8], max_frame: u32) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let shipped = |seen: &Sighting| seen.salts == salts && seen.max_frame <= max_frame;
        if let Some(last) = seen.iter().rposition(shipped) {
            seen.drain(..=last);
        }
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic was already printed; commits then get the time at which they are shipped.
        }
    }
}

fn note(seen: &mut Vec<Sighting>, sighting: Sighting) {
    let same = |last: &Sighting| (last.salts, last.max_frame) == (sighting.salts, sighting.max_frame);
    if sighting.max_frame == 0 || seen.last().is_some_and(same) {
        return;
    }
    if seen.len() >= SIGHTINGS {
        let mut odd = false;
        seen.retain(|_| {
            odd = !odd;
            !odd
        });
    }
    // If the clock is set back, the times of commits do not go back.
    let time = seen.last().map_or(sighting.time, |last| last.time.max(sighting.time));
    seen.push(Sighting { time, ..sighting });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sightings_are_bounded_and_their_times_never_go_back() {
        let mut seen = Vec::new();
        for frame in 1..40_000_u32 {
            let time = if frame == 30_000 { 5 } else { i64::from(frame) };
            note(&mut seen, Sighting { salts: [1; 8], max_frame: frame, time });
            note(&mut seen, Sighting { salts: [1; 8], max_frame: frame, time: time + 1 });
        }
        assert!(seen.len() <= SIGHTINGS && seen.is_sorted_by_key(|seen| (seen.time, seen.max_frame)));
        assert_eq!(seen.last().map(|seen| seen.max_frame), Some(39_999));
    }
}
