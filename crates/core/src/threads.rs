//! Starts threads; a thread that cannot be started is an error, not a panic.
//!
//! A limit on processes (`ulimit -u`, `pids.max`) or on address space (`ulimit -v`) may leave a job with only some of
//! its threads. The starter then stops the job by [`Halt`](crate::halt::Halt), so that the running threads end by
//! themselves.

use std::hint::black_box;
use std::io;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, PoisonError};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

use crate::error::{Error, Result};
use crate::io::Memory;

/// Stack of each thread, in bytes. Codecs and SQLite keep their work on the heap: the tests of the whole program pass,
/// built without optimisation, with a quarter of it.
const STACK: usize = 1 << 20;

/// Address space that has to be left after a new stack, in bytes. A thread maps its signal stack and its heap before
/// its first line of ours. If that fails, the process ends without an error, so there must be room before.
const ROOM: usize = 8 << 20;

/// Runs `work` in a thread of `scope`; `name` says what it is for, as "reader 3".
///
/// # Errors
/// The thread cannot be started; `work` has been dropped then.
pub fn start_in<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let (settled, begun) = settled(work);
    let started = builder(name).and_then(|builder| builder.spawn_scoped(scope, settled));
    wait_until(&begun);
    started.map_err(|error| refused(name, error))
}

/// Runs `work` in a thread that no other thread has to wait for; `name` as for [`start_in`].
///
/// # Errors
/// As [`start_in`].
pub fn start<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let (settled, begun) = settled(work);
    let started = builder(name).and_then(|builder| builder.spawn(settled));
    wait_until(&begun);
    started.map_err(|error| refused(name, error))
}

/// Does `work` with each of the items and its place, in a thread each; gives the results in the order of the items. For
/// work that mostly waits for others, such as for the answers of a store.
///
/// # Errors
/// The error of the first item, in their order, for which `work` failed; a thread that cannot be started.
pub fn side_by_side<T: Send, R: Send>(
    name: &str,
    items: impl IntoIterator<Item = T>,
    work: impl Fn(usize, T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let work = &work;
    std::thread::scope(|scope| {
        let start = |(at, item)| start_in(scope, &format!("{name} {}", at + 1), move || work(at, item));
        // All of them are started before the first is waited for.
        let started: Vec<_> = items.into_iter().enumerate().map(start).collect();
        // And all are waited for, also after an error.
        let ended: Vec<Result<R>> =
            started.into_iter().map(|thread| thread?.join().unwrap_or_else(|panic| resume_unwind(panic))).collect();
        ended.into_iter().collect()
    })
}

/// Does `work` with each of the items, at most `at_once` of them at a time: this thread and others take the next item
/// when they are free. For many small pieces that mostly wait for a disk. A thread that cannot be started does no harm:
/// the others take its share.
///
/// # Errors
/// An error of `work`; its thread takes no other item, and so some may be left.
pub fn in_turns<T: Send>(
    name: &str,
    at_once: usize,
    items: impl IntoIterator<Item = T, IntoIter: Send>,
    work: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let left = Mutex::new(items.into_iter());
    let next = || left.lock().unwrap_or_else(PoisonError::into_inner).next();
    let take = || std::iter::from_fn(next).try_for_each(&work);
    std::thread::scope(|scope| {
        let started: Vec<_> = (1..at_once).map_while(|n| start_in(scope, &format!("{name} {n}"), take).ok()).collect();
        let own = take();
        let ended = started.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        ended.fold(own, Result::and)
    })
}

/// `work` after the first line of every thread. That line takes the heap that the allocator has for it, and lets the
/// starter continue.
///
/// For a moment an allocator maps twice the address space that it keeps (glibc: 128 MiB for a heap of 64). A thread
/// that starts at that moment would have no room for its signal stack, which ends the process: so one thread starts
/// after another.
fn settled<T>(work: impl FnOnce() -> T + Send) -> (impl FnOnce() -> T + Send, Receiver<()>) {
    let (begins, begun) = mpsc::channel();
    let first = move || {
        drop(black_box(Box::new(0_u8)));
        drop(begins);
        work()
    };
    (first, begun)
}

/// Until the thread runs, or it is sure that it never will: nothing is ever sent, and an error says both.
fn wait_until(begun: &Receiver<()>) {
    let _ = begun.recv();
}

fn builder(name: &str) -> io::Result<Builder> {
    // Only asked for, never touched, and given back at once.
    Memory::new(STACK + ROOM).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    Ok(Builder::new().name(name.to_owned()).stack_size(STACK))
}

fn refused(name: &str, source: io::Error) -> Error {
    let hint = "lower --workers, --readers or --stripes, or raise the limit on processes (`ulimit -u`, TasksMax) or on \
                address space (`ulimit -v`)";
    Error::Io { action: "start a thread for".into(), thing: name.into(), source, hint: hint.into() }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_thread_has_the_name_that_an_error_would_say() {
        let name = || std::thread::current().name().map(str::to_owned);
        assert_eq!(start("reader 3", name).unwrap().join().unwrap().as_deref(), Some("reader 3"));
        let scoped = std::thread::scope(|scope| start_in(scope, "worker 1", name).unwrap().join().unwrap());
        assert_eq!(scoped.as_deref(), Some("worker 1"));
    }

    #[test]
    fn parallel_work_returns_in_order_with_the_first_error() {
        let doubled = side_by_side("twice", [3, 1, 2], |at, item| Ok((at, item * 2))).unwrap();
        assert_eq!(doubled, [(0, 6), (1, 2), (2, 4)]);
        let all = std::sync::Barrier::new(3);
        let failed = side_by_side("fails", ["item a", "item b", "item c"], |at, item| {
            all.wait(); // All are under way.
            if at == 0 { Ok(()) } else { Err(Error::refused(item, "is wrong", "")) }
        });
        let text = failed.unwrap_err().to_string();
        assert!(text.contains("item b") && text.contains("is wrong"), "{text}");
    }

    #[test]
    fn each_item_is_taken_once_by_any_thread_and_an_error_is_told() {
        for at_once in [0, 1, 3, 20] {
            let taken = Mutex::new(Vec::new());
            let take = |item| {
                taken.lock().unwrap().push(item);
                Ok(())
            };
            in_turns("take", at_once, 0..10, take).unwrap();
            let mut taken = taken.into_inner().unwrap();
            taken.sort_unstable();
            assert_eq!(taken, (0..10).collect::<Vec<_>>(), "{at_once} at once");
        }
        let failed =
            in_turns(
                "fail",
                4,
                0..10,
                |item| if item == 7 { Err(Error::refused("item 7", "is wrong", "")) } else { Ok(()) },
            );
        assert!(failed.unwrap_err().to_string().contains("item 7"));
    }

    #[test]
    fn an_error_says_what_the_thread_is_for_and_what_to_do() {
        let text = refused("writer 64", io::Error::from_raw_os_error(11)).to_string();
        for word in ["cannot start a thread for `writer 64`", "os error 11", "hint: lower --workers", "ulimit -u"] {
            assert!(text.contains(word), "{word}: {text}");
        }
    }
}
