//! Files of a few pages that are made durable, as many at once as in the restore of a server: most of its files are
//! small.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_core::unpack::SYNCS_AT_ONCE;
use fullbore_core::{Error, Result, threads};

use super::disk::LEAST_SECONDS;
use super::pace::{Pace, thread_seconds};
use super::probe_file::ProbeFile;
use super::stream::LEAD_IN;
use fullbore_model::profile::{Access, AccessPattern, Order, Round};

/// Bytes of one file: 185 of the 209 files of a small MariaDB are no larger.
const BYTES: u64 = 16 << 10;
/// Files that are made at a time, and the most of a round. This is about the number of a small server's files: a commit
/// of the journal serves all waiting files, and each of 32 files took half as long again as each of 230.
const BATCH: usize = 16 * SYNCS_AT_ONCE;
const MOST: u64 = 1024;
/// A round is this many times as long as others: a sync takes as long as several operations, and it has only one cell.
/// In rounds of 200 ms, with 8 to 50 files one after the other, a figure was wrong by 2.5 on a busy machine.
const LONGER: u32 = 3;

/// Their shape in a profile.
pub(super) fn shape() -> AccessPattern {
    AccessPattern {
        way: Access::Write,
        order: Order::Files,
        block_bytes: BYTES,
        queue_depth: SYNCS_AT_ONCE as u64,
        streams: 1,
        direct: false,
    }
}

/// The length of a round.
pub(super) fn length(pace: &Pace<'_>) -> Duration {
    LEAD_IN + pace.on_device * LONGER
}

/// One round in `directory`: the batches of syncs that end after the lead-in of a device. Making and writing files is
/// in the page cache, and does not count. The files have no names.
///
/// # Errors
/// A file cannot be made there, or not be written.
pub(super) fn round(directory: &Path, pace: &Pace<'_>) -> Result<Option<Round>> {
    let (begun, processor) = (Instant::now(), thread_seconds());
    let until = begun + length(pace);
    let (mut synced, mut counted, mut seconds) = (0_u64, 0_u64, 0.0);
    // If all batches end too early, the last one counts.
    let mut last = None;
    while Instant::now() < until && synced < MOST {
        let mut admitted = Vec::with_capacity(BATCH);
        for file in batch(directory)? {
            if !pace.admits(BYTES, until)? {
                break;
            }
            admitted.push(file);
        }
        if admitted.is_empty() {
            break;
        }
        let (files, syncing) = (admitted.len() as u64, Instant::now());
        // As in a restore.
        threads::in_turns("sync", SYNCS_AT_ONCE, &admitted, |file| file.buffered.sync())?;
        let took = syncing.elapsed().as_secs_f64();
        // Files without a name are freed here; a restore does not wait for this.
        drop(admitted);
        (synced, last) = (synced + files, Some((files, took)));
        if begun.elapsed() >= LEAD_IN {
            (counted, seconds) = (counted + files, seconds + took);
        }
    }
    let Some(last) = last else { return Ok(None) };
    let (files, seconds) = if counted == 0 { last } else { (counted, seconds) };
    let seconds = seconds.max(LEAST_SECONDS);
    let cpu_seconds = (thread_seconds() - processor).max(0.0) * files as f64 / synced as f64;
    Ok(Some(Round { bytes: files * BYTES, seconds, sync_seconds: seconds, cpu_seconds, moving_seconds: None }))
}

/// Files that are written, but not durable yet.
fn batch(directory: &Path) -> Result<Vec<ProbeFile>> {
    let content = [1; BYTES as usize];
    let make = |_| {
        let file = ProbeFile::create(directory)?;
        let failed = |e| Error::io("write to", file.buffered.path.display().to_string(), e);
        file.buffered.file.write_all_at(&content, 0).map_err(failed)?;
        Ok(file)
    };
    (0..BATCH).map(make).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use fullbore_core::conduct::Conduct;

    #[test]
    fn files_are_synced_and_none_of_them_is_left() {
        let directory = super::super::disk::tests::directory_on_disk();
        let conduct = Conduct::default();
        let pace = Pace::new(Duration::from_millis(20), None, &conduct);
        let made = round(directory.path(), &pace).unwrap().unwrap();
        assert!(made.bytes >= BYTES && made.bytes <= MOST * BYTES && made.bytes.is_multiple_of(BYTES), "{made:?}");
        assert!(made.seconds > 0.0 && made.sync_seconds == made.seconds);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let capped = Pace::new(Duration::from_millis(20), Some(1), &conduct);
        assert_eq!(round(directory.path(), &capped).unwrap(), None, "one byte a second lets no file pass");
    }
}
