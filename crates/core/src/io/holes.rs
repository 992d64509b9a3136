//! Holes: parts of a file that are not on the disk, and are read as zeros.

use std::fs::File;
use std::ops::Range;

use rustix::fs::SeekFrom;

/// The most runs of one file that are asked for: later ones are ignored.
const MOST_RUNS: usize = 1 << 16;

/// Bytes of a file of `size` bytes that are holes, or were reserved and never written; 0 where the file system does not
/// tell.
pub fn hole_bytes(file: &File, size: u64) -> u64 {
    let Some(runs) = data_runs(file, size) else { return 0 };
    let starts = runs.iter().map(|run| run.start).chain([size]);
    let ends = [0].into_iter().chain(runs.iter().map(|run| run.end));
    starts.zip(ends).map(|(start, end)| start.saturating_sub(end)).sum()
}

/// The written ranges of a file of `size` bytes, in order; all of it if the file system does not tell, or if the file
/// is one hole.
pub fn written_ranges(file: &File, size: u64) -> Vec<Range<u64>> {
    data_runs(file, size).filter(|runs| !runs.is_empty()).unwrap_or_else(|| std::iter::once(0..size).collect())
}

/// The written ranges, in order; `None` if the file system does not tell.
fn data_runs(file: &File, size: u64) -> Option<Vec<Range<u64>>> {
    let (mut runs, mut at) = (Vec::new(), 0);
    while at < size {
        if runs.len() == MOST_RUNS {
            return None;
        }
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) if start < size => start,
            Ok(_) | Err(rustix::io::Errno::NXIO) => break, // There is no data after it.
            Err(_) => return None,
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(start)).ok()?.clamp(start + 1, size);
        runs.push(start..end);
        at = end;
    }
    Some(runs)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn holes_are_counted_and_written_zeros_are_not() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(hole_bytes(&file, 0), 0);
        file.set_len(8 * MIB).unwrap();
        let whole = hole_bytes(&file, 8 * MIB);
        if whole == 0 {
            return; // A file system without holes.
        }
        assert_eq!(whole, 8 * MIB);
        file.write_all_at(&vec![0; MIB as usize], 2 * MIB).unwrap();
        file.write_all_at(&vec![1; MIB as usize], 5 * MIB).unwrap();
        assert_eq!(hole_bytes(&file, 8 * MIB), 6 * MIB);
        assert_eq!(hole_bytes(&file, 4 * MIB), 3 * MIB, "no more than the size that was asked for");
        assert_eq!(written_ranges(&file, 8 * MIB), [2 * MIB..3 * MIB, 5 * MIB..6 * MIB]);
        assert_eq!(written_ranges(&file, MIB).first(), Some(&(0..MIB)), "nothing but a hole");
        file.write_all_at(&[1], 8 * MIB - 1).unwrap();
        assert!(hole_bytes(&file, 8 * MIB) < 6 * MIB);
    }
}
