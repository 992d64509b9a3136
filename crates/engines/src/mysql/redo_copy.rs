//! Keeps the redo log of a clone in a scratch file, and searches it for the binary log's position when it is complete.
//!
//! It comes over several connections in no order, and the position is the last in it. The scratch file needs as much
//! room as the server wrote redo during the clone. The position is useful, but a backup does not fail without it: if
//! there is no room, fullbore does not search for it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fullbore_core::Result;
use fullbore_core::io::ScratchFile;

use super::position::LogStatus;
use super::redo_position::{self, FILE_HEADER, RedoPosition, RedoScan};

const BLOCK: usize = 512;
/// Bytes read at once while it is searched.
const STEP: usize = 1 << 20;

/// The received files of the log.
#[derive(Default)]
pub struct RedoCopy(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    file: Option<ScratchFile>,
    /// Where each redo file begins in the scratch file, and its size in bytes.
    places: BTreeMap<u32, (u64, u64)>,
    /// The place of the binary log in the latest received TRX_SYS page.
    page: Option<RedoPosition>,
    /// The scratch file could not take all.
    lost: bool,
}

impl RedoCopy {
    /// Keeps `bytes` at `offset` of redo file `index`, which has `size` bytes.
    pub fn keep(&self, index: u32, size: u64, offset: u64, bytes: &[u8]) {
        let mut kept = self.lock();
        if !kept.lost && kept.write((index, size), offset, bytes).is_err() {
            *kept = Kept { lost: true, ..Kept::default() };
        }
    }

    /// Looks at a page that may be the TRX_SYS page; a later one counts.
    pub fn look_at(&self, page: &[u8]) {
        if let Some(place) = redo_position::in_trx_sys_page(page) {
            self.lock().page = Some(place);
        }
    }

    /// The place of the binary log at the end of the redo log. `None`: it was not found, or not all of the log was
    /// kept.
    pub fn search(&self, page_size: u32) -> Option<RedoPosition> {
        let kept = self.lock();
        if kept.lost {
            return None;
        }
        let mut scan = RedoScan::new(page_size);
        let mut buffer = vec![0; STEP];
        for &(start, size) in kept.places.values() {
            let mut at = FILE_HEADER as u64;
            while at < size {
                let length = (size - at).min(STEP as u64) as usize;
                kept.file.as_ref()?.read(start + at, &mut buffer[..length]).ok()?;
                if !buffer[..length].as_chunks::<BLOCK>().0.iter().all(|block| scan.block(block)) {
                    return scan.end_over(kept.page.clone());
                }
                at += length as u64;
            }
        }
        scan.end_over(kept.page.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn write(&mut self, (index, size): (u32, u64), offset: u64, bytes: &[u8]) -> Result<()> {
        let end = self.places.values().map(|&(start, size)| start + size).max().unwrap_or(0);
        let &mut (start, _) = self.places.entry(index).or_insert((end, size));
        let file = match &self.file {
            Some(file) => file,
            None => self.file.insert(ScratchFile::new()?),
        };
        file.write(start + offset, bytes)
    }
}

/// The place of a clone, if it is exact. InnoDB's place is that of its last commit. Where commits reach InnoDB in another order than
/// the log (`binlog_order_commits = OFF`), a commit before it may be missing: then it counts only if nothing was committed.
pub fn exact(found: &RedoPosition, before: &LogStatus, after: &LogStatus, ordered: bool) -> Option<LogStatus> {
    between(found, before, after).filter(|_| ordered || before == after)
}

/// The place of the binary log from the redo log, if it is between two readings. Only the lower half of the offset is
/// known: the upper half is chosen so that the place is between them.
fn between(found: &RedoPosition, before: &LogStatus, after: &LogStatus) -> Option<LogStatus> {
    let file = found.file.rsplit('/').next()?.to_owned();
    let gtid_executed =
        if before.gtid_executed == after.gtid_executed { after.gtid_executed.clone() } else { String::new() };
    let place = |upper: u64| LogStatus {
        file: file.clone(),
        position: upper << 32 | u64::from(found.offset),
        gtid_executed: gtid_executed.clone(),
    };
    let most = before.position.max(after.position) >> 32;
    let fits = |place: &LogStatus| before.is_not_after(place) && place.is_not_after(after);
    let mut fitting = (0..=most.min(1 << 16)).map(place).filter(fits);
    // Two upper halves fit: the place is ambiguous.
    fitting.next().filter(|_| fitting.next().is_none())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn status(file: &str, position: u64) -> LogStatus {
        LogStatus { file: file.into(), position, gtid_executed: String::new() }
    }

    #[test]
    fn a_place_is_exact_if_commits_are_in_the_order_of_the_log_or_if_there_were_none() {
        let found = RedoPosition { file: "./binlog.000007".into(), offset: 500 };
        let [before, at, after] = [400, 500, 600].map(|position| status("binlog.000007", position));
        assert_eq!(exact(&found, &before, &after, true), Some(at.clone()));
        assert_eq!(exact(&found, &before, &after, false), None);
        assert_eq!(exact(&found, &at, &at, false), Some(at));
    }

    #[test]
    fn a_place_is_believed_between_two_readings_only() {
        let found = RedoPosition { file: "./binlog.000007".into(), offset: 500 };
        let (before, after) = (status("binlog.000007", 400), status("binlog.000007", 600));
        assert_eq!(between(&found, &before, &after).unwrap(), status("binlog.000007", 500));
        assert_eq!(between(&found, &status("binlog.000006", 9999), &after).unwrap().position, 500);
        assert_eq!(between(&found, &status("binlog.000007", 501), &after), None);
        assert_eq!(between(&found, &before, &status("binlog.000007", 499)), None);
        assert_eq!(between(&found, &LogStatus::default(), &LogStatus::default()), None, "no binary log");
        // Beyond 4 GiB.
        let (before, after) = (status("binlog.000007", (3 << 32) + 400), status("binlog.000007", (3 << 32) + 600));
        assert_eq!(between(&found, &before, &after).unwrap().position, (3 << 32) + 500);
        assert_eq!(between(&found, &status("binlog.000007", 0), &after), None, "four places fit");
    }

    #[test]
    fn redo_that_comes_in_no_order_is_searched_in_its_own() {
        let block = |number: u32, payload: &[u8]| {
            let mut block = [0; BLOCK];
            block[..4].copy_from_slice(&number.to_be_bytes());
            block[4..6].copy_from_slice(&(12 + payload.len() as u16).to_be_bytes());
            block[12..12 + payload.len()].copy_from_slice(payload);
            block
        };
        let record = |low: u8, name: &str| {
            let head =
                [&[0x84, 0, 5, 0x3C, 0x46, low, 0x1E, 0, 5, 0x3C, 0x4A, 0, name.len() as u8][..], name.as_bytes()];
            let mut bytes = head.concat();
            bytes.resize(496, 0x55);
            bytes
        };
        let mut full = block(9, &record(7, "./b.000001"));
        full[4..6].copy_from_slice(&(BLOCK as u16).to_be_bytes());
        let copy = RedoCopy::default();
        let size = (FILE_HEADER + BLOCK) as u64;
        copy.keep(4, size, FILE_HEADER as u64, &block(10, &record(9, "./b.000002")[..60]));
        copy.keep(3, size, FILE_HEADER as u64, &full);
        assert_eq!(copy.search(16384), Some(RedoPosition { file: "./b.000002".into(), offset: 9 }));
        assert_eq!(RedoCopy::default().search(16384), None);
    }
}
