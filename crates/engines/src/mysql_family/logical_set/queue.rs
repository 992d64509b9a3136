//! The work of all readers. A reader takes whole tables, or many small ones. When nothing is left, it takes the rear half
//! of what another reader has not read yet.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};

use super::key::{KeyValue, Range};
use super::listing::Listing;

/// A table with fewer estimated bytes is read together with others, in one batch of statements.
const SMALL_BYTES: u64 = 1 << 20;
/// Small tables in a batch, and their estimated bytes.
const BATCH: usize = 32;
/// The same.
const BATCH_BYTES: u64 = 4 << 20;
/// How often a reader without work looks whether the job has ended.
const TICK: Duration = Duration::from_millis(100);

/// What a reader does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// The catalog of the database at this place in the listing.
    Catalog(usize),
    /// The accounts of the server.
    Accounts,
    /// The tables at these places.
    Small(Vec<usize>),
    /// A range of the table at this place.
    Part(usize, Range),
    /// Rows of the table at this place, in the order of a scan.
    Share(usize, Share),
}

/// Rows of a table without a key that can be cut: how many the scan passes over, and how many it gives at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Rows before it.
    pub skip: u64,
    /// None: all others.
    pub most: Option<u64>,
}

/// What a row costs the server that is passed over, against one that is sent.
const SKIPPED: f64 = 0.35;

impl Share {
    /// Shares of about `rows` rows which as many readers read in the same time: later ones pass over more, and give less.
    fn of(rows: u64, readers: usize) -> Vec<Self> {
        let left = 1.0 - SKIPPED;
        let first = rows as f64 * SKIPPED / (1.0 - left.powi(readers as i32));
        let (mut shares, mut skip) = (Vec::new(), 0.0);
        for number in 1..=readers {
            let end = first + left * skip;
            let most = (number < readers).then(|| (end as u64).saturating_sub(skip as u64));
            shares.push(Self { skip: skip as u64, most });
            skip = end;
        }
        shares
    }
}

/// What a reader does now, as far as another one can take a part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// The place of the table.
    pub table: usize,
    /// From the first row of the query that runs now.
    pub range: Range,
    /// How many rows that query reads at most.
    pub rows: u64,
    /// Rows that are probably left.
    pub left: u64,
}

#[derive(Debug)]
enum Reader {
    /// It has no table that can be cut.
    Busy,
    /// Its rest can be cut. True while another reader does that.
    Cuttable(Running, bool),
    /// It waits for work, or has ended.
    Idle,
}

struct State {
    waiting: VecDeque<Work>,
    /// The catalogs: the definitions of tables come with their rows.
    last: VecDeque<Work>,
    readers: Vec<Reader>,
}

/// All work that no reader has taken yet, and what the readers do.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

/// The next work of a reader.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// To do.
    Work(Work),
    /// The rest of this reader can be cut in two: find the place, and call [`Queue::cut`].
    Cut(usize, Running),
    /// Everything is done.
    End,
}

impl Queue {
    /// For a listing: tables, the largest first, then catalogs.
    pub fn new(listing: &Listing, readers: usize, accounts: bool) -> Self {
        let last = (0..listing.databases.len()).map(Work::Catalog).collect();
        let mut waiting: VecDeque<Work> = accounts.then_some(Work::Accounts).into_iter().collect();
        let tables = || listing.tables.iter().enumerate().filter(|(_, table)| table.has_rows());
        let mut large: Vec<_> = tables().filter(|(_, table)| table.bytes > SMALL_BYTES).collect();
        large.sort_by_key(|(_, table)| std::cmp::Reverse(table.bytes));
        // A scan of a table that is longer than the share of a reader: the others would wait for its end.
        let share = tables().map(|(_, table)| table.bytes).sum::<u64>() / readers.max(1) as u64;
        for (place, table) in large {
            match readers > 1 && table.bytes > share && table.is_scanned() {
                true => waiting.extend(Share::of(table.rows, readers).into_iter().map(|it| Work::Share(place, it))),
                false => waiting.push_back(Work::Part(place, Range::default())),
            }
        }
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for (place, table) in tables().filter(|(_, table)| table.bytes <= SMALL_BYTES) {
            if batch.len() == BATCH || bytes + table.bytes > BATCH_BYTES {
                waiting.push_back(Work::Small(std::mem::take(&mut batch)));
                bytes = 0;
            }
            batch.push(place);
            bytes += table.bytes;
        }
        if !batch.is_empty() {
            waiting.push_back(Work::Small(batch));
        }
        let readers = (0..readers).map(|_| Reader::Busy).collect();
        Self { state: Mutex::new(State { waiting, last, readers }), changed: Condvar::new() }
    }

    /// What reader number `index` does next. Waits while others may still give something.
    ///
    /// # Errors
    /// The job ends.
    pub fn next(&self, index: usize, halt: Option<&Halt>) -> Result<Next> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.waiting.pop_front() {
                state.set(index, Reader::Busy);
                return Ok(Next::Work(work));
            }
            state.set(index, Reader::Idle);
            if let Some((victim, running)) = state.longest() {
                state.set(index, Reader::Busy);
                return Ok(Next::Cut(victim, running));
            }
            if state.readers.iter().all(|reader| matches!(reader, Reader::Idle)) {
                if let Some(work) = state.last.pop_front() {
                    state.set(index, Reader::Busy);
                    return Ok(Next::Work(work));
                }
                self.changed.notify_all();
                return Ok(Next::End);
            }
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            if halt.is_some_and(Halt::is_stopped) {
                return Err(Error::Halted);
            }
        }
    }

    /// Reader `index` begins a query whose rest can be cut. Waits while another reader looks for the place. Gives the
    /// range, which may have become shorter.
    ///
    /// # Errors
    /// The job ends.
    pub fn begins(&self, index: usize, running: Running, halt: Option<&Halt>) -> Result<Range> {
        let mut state = self.lock();
        while let Some(Reader::Cuttable(_, true)) = state.readers.get(index) {
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            if halt.is_some_and(Halt::is_stopped) {
                return Err(Error::Halted);
            }
        }
        let below = match state.readers.get(index) {
            Some(Reader::Cuttable(before, _)) if before.table == running.table => before.range.below.clone(),
            _ => running.range.below.clone(),
        };
        let range = Range { below, ..running.range.clone() };
        state.set(index, Reader::Cuttable(Running { range: range.clone(), ..running }, false));
        self.changed.notify_all();
        Ok(range)
    }

    /// Reader `index` has nothing more that can be cut.
    ///
    /// # Errors
    /// The job ends while another reader looks for a place.
    pub fn ends(&self, index: usize, halt: Option<&Halt>) -> Result<()> {
        let mut state = self.lock();
        while let Some(Reader::Cuttable(_, true)) = state.readers.get(index) {
            state = self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0;
            if halt.is_some_and(Halt::is_stopped) {
                return Err(Error::Halted);
            }
        }
        state.set(index, Reader::Busy);
        Ok(())
    }

    /// The rest of reader `victim` ends where `rest` begins; None: no place was found, and it is whole until its next
    /// query.
    pub fn cut(&self, victim: usize, at: Option<KeyValue>) {
        let mut state = self.lock();
        if let Some(Reader::Cuttable(running, cutting)) = state.readers.get_mut(victim) {
            *cutting = false;
            running.left = if at.is_some() { running.left / 2 } else { 0 };
            if at.is_some() {
                running.range.below = at;
            }
        }
        self.changed.notify_all();
    }

    /// A reader gives up before the end: no other one waits for it.
    pub fn leave(&self, index: usize) {
        self.lock().set(index, Reader::Idle);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn set(&mut self, index: usize, reader: Reader) {
        if let Some(place) = self.readers.get_mut(index) {
            *place = reader;
        }
    }

    /// The reader with the longest rest, if one is worth cutting. It is marked.
    fn longest(&mut self) -> Option<(usize, Running)> {
        let rests = self.readers.iter_mut().enumerate().filter_map(|(index, reader)| match reader {
            Reader::Cuttable(running, cutting) if !*cutting && running.left > 2 * running.rows => {
                Some((index, running, cutting))
            }
            _ => None,
        });
        let (index, running, cutting) = rests.max_by_key(|(_, running, _)| running.left)?;
        *cutting = true;
        Some((index, running.clone()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::key::From;
    use super::super::listing::KeyColumn;
    use super::*;

    fn key(value: &[u8]) -> KeyValue {
        let column = KeyColumn { name: "k".into(), data_type: "int".into(), character_set: String::new() };
        KeyValue::of(&[column], &[Some(value)]).unwrap()
    }

    fn running(from: &[u8], left: u64) -> Running {
        Running { table: 0, range: Range { from: Some(From::After(key(from))), ..Range::default() }, rows: 10, left }
    }

    #[test]
    fn a_reader_without_work_takes_the_rear_of_the_longest_rest() {
        let queue = Queue::new(&Listing::default(), 3, false);
        queue.begins(0, running(b"1", 100), None).unwrap();
        queue.begins(1, running(b"2", 500), None).unwrap();
        let Next::Cut(victim, rest) = queue.next(2, None).unwrap() else { panic!() };
        assert_eq!((victim, rest.left), (1, 500));
        queue.cut(1, Some(key(b"250")));
        let range = queue.begins(1, running(b"20", 480), None).unwrap();
        assert_eq!(range.below, Some(key(b"250")));
        assert_eq!(range.from, Some(From::After(key(b"20"))));
        queue.ends(1, None).unwrap();
        queue.ends(0, None).unwrap();
        // The end comes only when all three ask.
        let ends = std::thread::scope(|scope| {
            let queue = &queue;
            let ask = |index| scope.spawn(move || queue.next(index, None).unwrap());
            [ask(0), ask(1), ask(2)].map(|thread| thread.join().unwrap())
        });
        assert_eq!(ends, [Next::End, Next::End, Next::End]);
    }

    #[test]
    fn the_shares_of_a_scan_hold_each_row_once_and_cost_the_same() {
        for (rows, readers) in [(1_000_000, 2), (1_000_000, 5), (7, 3), (0, 2)] {
            let shares = Share::of(rows, readers);
            assert_eq!(shares.len(), readers);
            let mut next = 0;
            for share in &shares {
                assert_eq!(share.skip, next);
                next += share.most.unwrap_or(0);
            }
            assert!(shares.iter().rposition(|share| share.most.is_none()) == Some(readers - 1) && next <= rows);
            let costs = shares.iter().map(|it| it.skip as f64 * SKIPPED + it.most.unwrap_or(rows - it.skip) as f64);
            assert!(costs.clone().all(|cost| (cost - costs.clone().next().unwrap()).abs() <= 3.0));
        }
    }

    #[test]
    fn a_rest_without_a_middle_stays_whole() {
        let queue = Queue::new(&Listing::default(), 2, false);
        queue.begins(0, running(b"1", 100), None).unwrap();
        assert!(matches!(queue.next(1, None).unwrap(), Next::Cut(0, _)));
        queue.cut(0, None);
        assert_eq!(queue.begins(0, running(b"9", 90), None).unwrap().below, None);
    }
}
