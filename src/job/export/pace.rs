//! The progress of an export: its first half is the reading of the media, its second half the writing of the rows.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use fullbore_core::meter::Progress;

/// The second half.
pub struct Pace<'a> {
    progress: &'a Progress,
    /// Bytes of the first half. The second one counts as many.
    half: u64,
    /// Rows to read.
    rows: u64,
    read: Cell<u64>,
}

impl<'a> Pace<'a> {
    /// Begins when the media were read. `rows` is how many rows the database has counted.
    pub fn begin(progress: &'a Progress, rows: u64) -> Self {
        let half = progress.done.load(Ordering::Relaxed);
        progress.total.store(half.saturating_mul(2), Ordering::Relaxed);
        Self { progress, half, rows: rows.max(1), read: Cell::new(0) }
    }

    /// So many more rows were read. There may be more than the database has counted.
    pub fn add(&self, rows: u64) {
        self.read.set(self.read.get().saturating_add(rows));
        let share = u128::from(self.read.get().min(self.rows)) * u128::from(self.half) / u128::from(self.rows);
        let due = self.half.saturating_add(u64::try_from(share).unwrap_or(self.half));
        self.progress.done.fetch_max(due, Ordering::Relaxed);
    }

    /// All rows were written.
    pub fn end(&self) {
        self.progress.done.store(self.progress.total.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_the_second_half_and_never_more() {
        let progress = Progress::default();
        progress.advance(1000);
        let done = || progress.done.load(Ordering::Relaxed);
        let pace = Pace::begin(&progress, 200);
        pace.add(50);
        assert_eq!((done(), progress.total.load(Ordering::Relaxed)), (1250, 2000));
        pace.add(500);
        assert_eq!(done(), 2000);
        pace.end();
        assert_eq!(done(), 2000);
        // Without a count, the end is the only step.
        let pace = Pace::begin(&progress, 0);
        pace.add(0);
        assert_eq!(done(), 2000);
        pace.end();
        assert_eq!(done(), 4000);
    }
}
