//! Backup files of other programs, checked while they are uploaded. Their checks need the bytes in order. Parts may come a
//! little early: they wait, as long as there is memory for them. If that does not do, nothing is lost: the object is read
//! back after it was stored.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use fullbore_core::{Result, threads};
use fullbore_engines::{FOREIGN_HEAD, ForeignFamily, ForeignMedia, ForeignVerification, InOrder};
use fullbore_gateway::FinishedPart;
use fullbore_gateway::budget::{Budget, Lease};

/// Bytes of parts that wait for earlier ones, at most.
const WINDOW: u64 = 64 << 20;
/// Bytes of the beginning that are kept: the descriptions are there.
pub(super) const FIRST: usize = 1 << 20;
/// Attempts at part 1 whose beginning is kept: a client that waits for too long sends it again.
const FIRSTS: usize = 2;

/// The verdict of a check.
pub(super) enum Outcome {
    /// They are no backup file that this program knows.
    Other,
    /// They are of this kind, and could not be checked in passing, because of this.
    Unchecked(&'static dyn ForeignMedia, &'static str),
    /// Nobody has seen what they are: the first bytes of the object are not those that came first.
    Unknown,
    /// They were checked.
    Checked(&'static dyn ForeignMedia, Box<ForeignVerification>),
}

/// A part that waits for an earlier one.
struct Waiting {
    piece: u32,
    bytes: Vec<(Vec<u8>, Lease)>,
    /// Its sum, once it is whole.
    whole: Option<[u8; 16]>,
}

/// The check in its thread.
struct Checking {
    to_check: SyncSender<Vec<u8>>,
    thread: JoinHandle<Result<ForeignVerification>>,
}

#[derive(Default)]
struct State {
    /// The number of the part of each piece that is not whole.
    pieces: BTreeMap<u32, u16>,
    waiting: BTreeMap<u16, Waiting>,
    waiting_bytes: u64,
    /// The sums of the parts that were checked, from part 1 on.
    checked: Vec<[u8; 16]>,
    /// The piece of the part behind them, if some of it was checked.
    current: Option<u32>,
    /// The first bytes of the last attempts at part 1.
    firsts: VecDeque<(u32, Vec<u8>)>,
    /// True once there were enough bytes to know the kind.
    known: bool,
    other: bool,
    /// Bytes until then.
    head: Vec<u8>,
    media: Option<&'static dyn ForeignMedia>,
    checking: Option<Checking>,
    given_up: Option<&'static str>,
}

/// The check of one upload.
pub(super) struct InPassing {
    state: Mutex<State>,
    budget: Budget,
    /// The object in messages.
    name: String,
}

impl InPassing {
    /// Of an object with this name; parts that wait take memory from `budget`.
    pub fn new(name: &str, budget: Budget) -> Self {
        Self { state: Mutex::default(), budget, name: name.to_owned() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A piece of this part begins.
    pub fn begins(&self, piece: u32, number: u16) {
        self.lock().pieces.insert(piece, number);
    }

    /// The next bytes of a piece.
    pub fn bytes(&self, piece: u32, bytes: &[u8]) {
        let mut state = self.lock();
        let Some(number) = state.pieces.get(&piece).copied() else { return };
        if number == 1 {
            state.keep_first(piece, bytes);
        }
        let next = state.next();
        if state.is_over() || number < next {
            return; // It was checked already. Its sum tells whether it is the same.
        }
        if number == next && !state.waiting.contains_key(&number) {
            match state.current {
                Some(current) if current != piece => state.give_up("a part was sent again before it was whole"),
                _ => {
                    state.current = Some(piece);
                    state.check(bytes, &self.name);
                }
            }
            return;
        }
        self.wait(&mut state, piece, number, bytes);
    }

    fn wait(&self, state: &mut State, piece: u32, number: u16, bytes: &[u8]) {
        if state.waiting.get(&number).is_none_or(|waiting| waiting.piece != piece) {
            state.forget(number);
            state.waiting.insert(number, Waiting { piece, bytes: Vec::new(), whole: None });
        }
        let length = bytes.len() as u64;
        let lease = self.budget.take(length).filter(|_| state.waiting_bytes + length <= WINDOW);
        match (lease, state.waiting.get_mut(&number)) {
            (Some(lease), Some(waiting)) => {
                waiting.bytes.push((bytes.to_vec(), lease));
                state.waiting_bytes += length;
            }
            _ => state.give_up("its parts came too far out of order"),
        }
    }

    /// A piece is whole.
    pub fn is_whole(&self, piece: u32, sum: [u8; 16]) {
        let mut state = self.lock();
        let removed = state.pieces.remove(&piece);
        let Some(number) = removed.filter(|_| !state.is_over()) else { return };
        let next = state.next();
        if number < next {
            if state.checked.get(usize::from(number).wrapping_sub(1)) != Some(&sum) {
                state.give_up("a part was sent again with other bytes");
            }
            return;
        }
        if let Some(waiting) = state.waiting.get_mut(&number) {
            if waiting.piece == piece {
                waiting.whole = Some(sum);
            }
        } else if number == next {
            // A part without bytes has no current piece.
            if state.current.is_some_and(|current| current != piece) {
                return state.give_up("a part was sent again before it was whole");
            }
            state.passed(sum);
        } else {
            state.waiting.insert(number, Waiting { piece, bytes: Vec::new(), whole: Some(sum) });
        }
        state.go_on(&self.name);
    }

    /// Ends the check, with the parts that are the object. Gives the first bytes, too: descriptions are there.
    pub fn finish(&self, parts: &[FinishedPart]) -> (Outcome, Vec<u8>) {
        let mut state = std::mem::take(&mut *self.lock());
        let numbered = parts.iter().zip(1..).all(|(part, number): (_, u16)| part.number == number);
        let same = numbered && parts.iter().map(|part| part.md5).eq(state.checked.iter().copied());
        if !same && !state.is_over() {
            state.give_up("the listed parts are not those that were checked");
        }
        if same && !state.known {
            state.recognise(true, &self.name);
        }
        let head = state.head_of(parts);
        // What was checked counts only if it is the object.
        let checking = state.checking.take().filter(|_| same && state.given_up.is_none());
        let verified = checking.and_then(|Checking { to_check, thread }| {
            drop(to_check);
            thread.join().ok()?.ok()
        });
        let otherwise = if state.other { "it was sent again" } else { "the check could not read it" };
        let outcome = match (verified, state.media, &head) {
            (Some(verification), Some(media), _) => Outcome::Checked(media, Box::new(verification)),
            (_, _, None) => Outcome::Unknown,
            (_, _, Some(head)) => match fullbore_engines::foreign(head) {
                Some(media) => Outcome::Unchecked(media, state.given_up.unwrap_or(otherwise)),
                None => Outcome::Other,
            },
        };
        (outcome, head.unwrap_or_default())
    }
}

impl State {
    fn is_over(&self) -> bool {
        self.other || self.given_up.is_some()
    }

    /// Keeps the beginning of an attempt at part 1, also if it is not checked in passing: what the object is can be told all
    /// the same.
    fn keep_first(&mut self, piece: u32, bytes: &[u8]) {
        if !self.firsts.iter().any(|(of, _)| *of == piece) {
            if self.firsts.len() == FIRSTS {
                self.firsts.pop_front();
            }
            self.firsts.push_back((piece, Vec::new()));
        }
        let Some((_, first)) = self.firsts.iter_mut().find(|(of, _)| *of == piece) else { return };
        let room = FIRST.saturating_sub(first.len()).min(bytes.len());
        first.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    /// The first bytes of the object with these parts, if they were kept, and are enough to know what it is.
    fn head_of(&mut self, parts: &[FinishedPart]) -> Option<Vec<u8>> {
        let first = parts.first()?;
        let at = self.firsts.iter().position(|(piece, _)| *piece == first.piece)?;
        let (_, head) = self.firsts.remove(at)?;
        Some(head).filter(|head| head.len() >= FOREIGN_HEAD || parts.len() == 1)
    }

    /// The number of the next part to check.
    fn next(&self) -> u16 {
        u16::try_from(self.checked.len() + 1).unwrap_or(u16::MAX)
    }

    fn forget(&mut self, number: u16) {
        let Some(waiting) = self.waiting.remove(&number) else { return };
        let bytes: u64 = waiting.bytes.iter().map(|(bytes, _)| bytes.len() as u64).sum();
        self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes);
    }

    fn give_up(&mut self, why: &'static str) {
        self.given_up.get_or_insert(why);
        self.waiting.clear();
        self.waiting_bytes = 0;
        // Its thread then finds a file that ends early, and what it says does not count.
        self.checking = None;
    }

    /// The current part is whole.
    fn passed(&mut self, sum: [u8; 16]) {
        self.checked.push(sum);
        self.current = None;
    }

    /// Checks the parts that have waited for this moment.
    fn go_on(&mut self, name: &str) {
        while !self.is_over() {
            let number = self.next();
            let Some(waiting) = self.waiting.remove(&number) else { return };
            for (bytes, lease) in waiting.bytes {
                self.waiting_bytes = self.waiting_bytes.saturating_sub(bytes.len() as u64);
                self.check(&bytes, name);
                drop(lease);
            }
            match waiting.whole {
                Some(sum) => self.passed(sum),
                None => return self.current = Some(waiting.piece),
            }
        }
    }

    fn check(&mut self, bytes: &[u8], name: &str) {
        if !self.known {
            self.head.extend_from_slice(bytes);
            return self.recognise(false, name);
        }
        self.hand_on(bytes.to_vec());
    }

    /// Finds out what it is, once there are enough bytes, or all of them.
    fn recognise(&mut self, all: bool, name: &str) {
        if self.head.len() < FOREIGN_HEAD && !all {
            return;
        }
        self.known = true;
        let Some(media) = fullbore_engines::foreign(&self.head) else {
            self.other = true;
            self.waiting.clear();
            return;
        };
        self.media = Some(media);
        let (to_check, from_upload) = sync_channel(1);
        let family = ForeignFamily { device: name.to_owned(), bytes: Box::new(InOrder(Uploaded::new(from_upload))) };
        match threads::start("check", move || media.verify(vec![family], None)) {
            Ok(thread) => self.checking = Some(Checking { to_check, thread }),
            Err(_) => return self.give_up("no thread could be started for it"),
        }
        let head = std::mem::take(&mut self.head);
        self.hand_on(head);
    }

    fn hand_on(&mut self, bytes: Vec<u8>) {
        let Some(checking) = &self.checking else { return };
        // A check that has ended at damage reads no further: it has its verdict.
        let _ = checking.to_check.send(bytes);
    }
}

/// The bytes of an upload, in order.
struct Uploaded {
    from_upload: Receiver<Vec<u8>>,
    current: Vec<u8>,
    taken: usize,
}

impl Uploaded {
    fn new(from_upload: Receiver<Vec<u8>>) -> Self {
        Self { from_upload, current: Vec::new(), taken: 0 }
    }
}

impl Read for Uploaded {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.current.len() {
            let Ok(next) = self.from_upload.recv() else { return Ok(0) };
            (self.current, self.taken) = (next, 0);
        }
        let left = self.current.get(self.taken..).unwrap_or_default();
        let count = left.len().min(into.len());
        into.iter_mut().zip(left).for_each(|(into, byte)| *into = *byte);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fullbore_engines::sample_media;

    use super::*;

    fn part(number: u16, piece: u32) -> FinishedPart {
        FinishedPart { number, piece, bytes: 0, md5: [piece as u8; 16] }
    }

    /// Sends whole pieces: their number, the number of their part, and their bytes.
    fn sent(check: &InPassing, pieces: &[(u32, u16, &[u8])]) {
        for (piece, number, bytes) in pieces {
            check.begins(*piece, *number);
            check.bytes(*piece, bytes);
            check.is_whole(*piece, [*piece as u8; 16]);
        }
    }

    #[test]
    fn parts_that_come_too_early_for_the_memory_end_the_check_and_what_it_is_is_known_all_the_same() {
        let bytes = sample_media(true);
        let (first, rest) = bytes.split_at(100_000);
        for (memory, is_checked) in [(1 << 20, true), (1000, false)] {
            let budget = Budget::new(memory);
            let check = InPassing::new("k", budget.clone());
            sent(&check, &[(1, 2, rest), (2, 1, first)]);
            let (outcome, head) = check.finish(&[part(1, 2), part(2, 1)]);
            assert_eq!(matches!(outcome, Outcome::Checked(..)), is_checked);
            assert_eq!(matches!(outcome, Outcome::Unchecked(..)), !is_checked);
            assert!(head == first);
            assert!(budget.take(memory).is_some(), "all memory is back");
        }
    }

    /// The outcome for pieces, of which these are the object.
    fn outcome(pieces: &[(u32, u16, &[u8])], parts: &[FinishedPart]) -> Outcome {
        let check = InPassing::new("k", Budget::new(1 << 20));
        sent(&check, pieces);
        check.finish(parts).0
    }

    #[test]
    fn what_an_object_is_is_told_by_its_own_bytes_only() {
        let (bytes, junk) = (&sample_media(true)[..], &[b'J'; 1000][..]);
        // The first attempt at part 1 was something else.
        let late = outcome(&[(1, 1, junk), (2, 1, bytes)], &[part(1, 2)]);
        assert!(matches!(late, Outcome::Unchecked(..)));
        // The backup file was replaced by something else.
        let replaced = outcome(&[(1, 1, bytes), (2, 1, junk)], &[part(1, 2)]);
        assert!(matches!(replaced, Outcome::Other));
        // The list leaves part 1 out, or there was none.
        assert!(matches!(outcome(&[(1, 1, bytes), (2, 2, junk)], &[part(2, 2)]), Outcome::Unknown));
        assert!(matches!(outcome(&[(1, 1, junk), (2, 2, bytes)], &[part(2, 2)]), Outcome::Unknown));
        assert!(matches!(outcome(&[(1, 2, bytes)], &[part(2, 1)]), Outcome::Unknown));
        // A first part that is too short to tell.
        assert!(matches!(
            outcome(&[(1, 1, &junk[..3]), (2, 1, b"TA"), (3, 2, bytes)], &[part(1, 2), part(2, 3)]),
            Outcome::Unknown
        ));
    }

    #[test]
    fn a_list_with_other_parts_than_those_that_were_checked_does_not_count_as_checked() {
        let bytes = sample_media(true);
        let (first, rest) = bytes.split_at(100_000);
        for parts in [vec![part(1, 1)], vec![part(1, 1), part(3, 2)], vec![part(1, 1), part(2, 7)]] {
            let check = InPassing::new("k", Budget::new(1 << 20));
            sent(&check, &[(1, 1, first), (2, 2, rest)]);
            assert!(matches!(check.finish(&parts).0, Outcome::Unchecked(..)), "{parts:?}");
        }
        let check = InPassing::new("k", Budget::new(1 << 20));
        sent(&check, &[(1, 1, b"TAP")]);
        assert!(matches!(check.finish(&[part(1, 1)]).0, Outcome::Other));
    }
}
