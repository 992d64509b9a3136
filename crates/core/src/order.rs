//! Ordered streams: one count for the blocks of all of them, and how far these may be apart
//! (`docs/decisions/0020-ordered-streams.md`).

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::halt::Halt;
use crate::media::{Flaw, WINDOW_BYTES_MAX, WINDOW_MAX, broken};

/// How often a thread that waits looks whether the job has ended.
const TICK: Duration = Duration::from_millis(100);

/// The window of a set with so many workers, in blocks: no worker waits for long, and a restore needs few buffers.
pub fn window_of(workers: usize, transfer_size: u32) -> u32 {
    let most = (WINDOW_BYTES_MAX / u64::from(transfer_size.max(1))) as u32;
    u32::try_from(workers.saturating_mul(4)).unwrap_or(WINDOW_MAX).clamp(16, WINDOW_MAX).min(most)
}

/// Lets a numbered block in when all blocks up to `window` before it are done. `T` is what a finished block leaves
/// until its turn comes.
pub(crate) struct OrderWindow<T> {
    window: u32,
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    /// Numbers given out so far: the count of a writer.
    given: u32,
    /// The lowest number that is not done.
    lowest: u32,
    /// Done, and above the lowest.
    done: BTreeMap<u32, T>,
    /// Let in, and not done.
    inside: usize,
    /// The numbers that threads wait with.
    waiting: Vec<u32>,
}

impl<T> State<T> {
    fn admits(&self, number: u32, window: u32) -> bool {
        u64::from(number) < u64::from(self.lowest) + u64::from(window)
    }
}

/// How many threads let numbers in, and how many of them wait for something else, such as the next layer.
pub(crate) struct Threads {
    /// Those that have not ended.
    pub running: usize,
    /// Those that wait elsewhere.
    pub waiting: usize,
}

impl<T> OrderWindow<T> {
    /// For numbers from 1.
    pub fn new(window: u32) -> Self {
        let state = State { given: 0, lowest: 1, done: BTreeMap::new(), inside: 0, waiting: Vec::new() };
        Self { window, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Gives out the next number, and waits until it may be let in. The caller then calls [`done`](Self::done).
    ///
    /// # Errors
    /// No number is left, or the job ends meanwhile.
    pub fn enter(&self, halt: &Halt) -> Result<u32> {
        let mut state = self.lock();
        let number = state.given.checked_add(1).ok_or_else(|| {
            let why = "its ordered streams have more than 4,294,967,295 blocks";
            Error::refused("backup set", why, "take it with a larger --max-transfer-size")
        })?;
        state.given = number;
        while !state.admits(number, self.window) {
            state = self.wait(state);
            halt.check()?;
        }
        state.inside += 1;
        Ok(number)
    }

    /// Lets in a number that media name. `threads` tells the state of the threads that do this.
    ///
    /// # Errors
    /// A flaw when the number came before, or when a lower number is missing; an error when the job ends meanwhile.
    pub fn admit(&self, number: u32, halt: &Halt, threads: impl Fn() -> Threads) -> Result<Result<(), Flaw>> {
        let mut state = self.lock();
        if number < state.lowest || state.done.contains_key(&number) {
            return Ok(Err(twice(number)));
        }
        state.waiting.push(number);
        while !state.admits(number, self.window) {
            let next = state.waiting.iter().min().is_some_and(|&next| state.admits(next, self.window));
            let others = threads();
            if !next && state.inside == 0 && state.waiting.len() + others.waiting >= others.running {
                return Ok(Err(missing(state.lowest)));
            }
            state = self.wait(state);
            halt.check()?;
        }
        if let Some(at) = state.waiting.iter().position(|&waiting| waiting == number) {
            state.waiting.swap_remove(at);
        }
        state.inside += 1;
        Ok(Ok(()))
    }

    /// A number is done; `release` gets what each block left, in the order of the numbers, as soon as no lower number
    /// is missing.
    ///
    /// # Errors
    /// The number came before, or `release` says what is wrong.
    pub fn done(&self, number: u32, left: T, mut release: impl FnMut(T) -> Result<(), Flaw>) -> Result<(), Flaw> {
        let mut state = self.lock();
        if number < state.lowest || state.done.insert(number, left).is_some() {
            return Err(twice(number));
        }
        let mut lowest = state.lowest;
        while let Some(left) = state.done.remove(&lowest) {
            lowest = lowest.saturating_add(1);
            state.lowest = lowest;
            release(left)?;
        }
        // A block with an error stays inside: those behind it end with the job, and do not call it missing.
        state.inside -= 1;
        self.changed.notify_all();
        Ok(())
    }

    /// Checks that nothing is left.
    ///
    /// # Errors
    /// Names the number that is missing.
    pub fn finish(&self) -> Result<(), Flaw> {
        let state = self.lock();
        if state.done.is_empty() { Ok(()) } else { Err(missing(state.lowest)) }
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        self.changed.wait_timeout(state, TICK).unwrap_or_else(PoisonError::into_inner).0
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn twice(number: u32) -> Flaw {
    broken(format!("block {number} of the ordered streams is there twice"))
}

fn missing(number: u32) -> Flaw {
    broken(format!("block {number} of the ordered streams is missing, or too far behind the others"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    const ALONE: fn() -> Threads = || Threads { running: 1, waiting: 0 };

    #[test]
    fn a_number_waits_until_the_window_reaches_it() {
        let (order, halt, done) = (OrderWindow::<()>::new(2), Halt::new(), AtomicBool::new(false));
        assert_eq!((order.enter(&halt).unwrap(), order.enter(&halt).unwrap()), (1, 2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(order.enter(&halt).unwrap(), 3);
                assert!(done.load(Ordering::SeqCst), "number 3 was let in before number 1 was done");
            });
            order.done(2, (), |()| Ok(())).unwrap();
            std::thread::sleep(Duration::from_millis(20));
            done.store(true, Ordering::SeqCst);
            order.done(1, (), |()| Ok(())).unwrap();
        });
    }

    #[test]
    fn blocks_are_released_in_the_order_of_their_numbers() {
        let (order, halt) = (OrderWindow::new(4), Halt::new());
        let mut released = Vec::new();
        for number in [2, 4, 1, 3] {
            order.admit(number, &halt, ALONE).unwrap().unwrap();
            order
                .done(number, number * 10, |left| {
                    released.push(left);
                    Ok(())
                })
                .unwrap();
        }
        assert_eq!(released, [10, 20, 30, 40]);
        order.finish().unwrap();
    }

    #[test]
    fn a_number_that_comes_twice_is_refused() {
        let (order, halt) = (OrderWindow::new(4), Halt::new());
        for number in [1, 3] {
            order.admit(number, &halt, ALONE).unwrap().unwrap();
            order.done(number, (), |()| Ok(())).unwrap();
        }
        for number in [1, 3] {
            let flaw = order.admit(number, &halt, ALONE).unwrap().unwrap_err().to_string();
            assert_eq!(flaw, format!("block {number} of the ordered streams is there twice"));
        }
    }

    #[test]
    fn a_missing_number_is_named_instead_of_waited_for() {
        let (order, halt) = (OrderWindow::new(2), Halt::new());
        order.admit(2, &halt, ALONE).unwrap().unwrap();
        order.done(2, (), |()| Ok(())).unwrap();
        let two = || Threads { running: 2, waiting: 1 };
        for threads in [&ALONE as &dyn Fn() -> Threads, &two] {
            let flaw = order.admit(3, &halt, threads).unwrap().unwrap_err().to_string();
            assert!(flaw.contains("block 1 of the ordered streams is missing"), "{flaw}");
            // The thread that waited has ended with the job.
            order.lock().waiting.clear();
        }
        assert!(order.finish().is_err());
    }

    #[test]
    fn a_block_with_an_error_is_not_called_missing_by_those_that_wait_for_it() {
        let (order, halt) = (OrderWindow::new(1), Halt::new());
        order.admit(1, &halt, ALONE).unwrap().unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| order.admit(3, &halt, ALONE));
            order.done(1, (), |()| Err(broken("it strays"))).unwrap_err();
            std::thread::sleep(3 * TICK);
            halt.stop(Error::Halted);
            assert!(waiting.join().unwrap().is_err(), "the job ends with the error of block 1");
        });
    }

    #[test]
    fn a_thread_that_waits_ends_with_the_job() {
        let (order, halt) = (OrderWindow::<()>::new(1), Halt::new());
        order.enter(&halt).unwrap();
        halt.stop(Error::Halted);
        assert!(order.enter(&halt).is_err());
    }
}
