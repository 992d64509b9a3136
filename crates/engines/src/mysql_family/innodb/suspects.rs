//! Pages that look damaged during a copy that comes in pieces and in layers.
//!
//! A page of a lower layer may be torn: a server's clone sends it again, whole, in a higher layer. So a bad page is
//! only a suspect until the end, and is dropped when the page comes again.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::page::{Fault, PageFormat, PageState};
use crate::mysql_family::Dialect;

/// Most suspects at once: a database with more is reported as damaged anyway.
const SUSPECTS_MAX: usize = 1 << 16;

/// How the pages of one file of a tablespace are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judge {
    format: PageFormat,
    /// In the system tablespace, a second file continues the page numbers of the first.
    numbered: bool,
}

impl Judge {
    /// From the flags in page 0; `identity` is the stream's (`space:N` or `space:0:NAME`). `None` for invalid flags.
    pub fn new(dialect: Dialect, fsp_flags: u32, identity: &str) -> Option<Self> {
        let format = PageFormat::from_flags(fsp_flags, dialect).ok()?;
        Some(Self { format, numbered: !identity.starts_with("space:0") })
    }

    /// The format of its pages; `None` for the system tablespace, whose files share one sequence of page numbers.
    pub fn numbered_format(&self) -> Option<PageFormat> {
        self.numbered.then_some(self.format)
    }

    /// The damage of a page.
    fn fault(&self, page: &[u8], number: u64) -> Option<Fault> {
        match self.format.check(page, number as u32) {
            PageState::Corrupt(Fault::Number { found }) if !self.numbered => self.fault(page, found.into()),
            PageState::Corrupt(fault) => Some(fault),
            PageState::Valid | PageState::Empty | PageState::Unchecked(_) => None,
        }
    }
}

/// Which pages look damaged so far. All methods may be called by several threads at once.
#[derive(Default)]
pub struct Suspects(Mutex<State>);

#[derive(Default)]
struct State {
    /// By stream and number, with the reason.
    pages: BTreeMap<(u32, u64), String>,
    /// There were more suspects than the limit.
    more: bool,
}

/// A page that is still damaged at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspect {
    /// Its stream.
    pub stream: u32,
    /// Its number in the file.
    pub page: u64,
    /// The kind of damage.
    pub why: String,
}

impl Suspects {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the whole pages among `bytes`, which are at `offset` in a file of `size` bytes.
    pub fn look(&self, stream: u32, judge: &Judge, size: u64, offset: u64, bytes: &[u8]) {
        let page_size = u64::from(judge.format.physical_size());
        // The rest of a page at the start of the bytes cannot be checked.
        let skipped = (offset.next_multiple_of(page_size) - offset).min(bytes.len() as u64) as usize;
        let first = offset.div_ceil(page_size);
        let mut bad = Vec::new();
        let mut end = first;
        for (number, page) in (first..).zip(bytes[skipped..].chunks_exact(page_size as usize)) {
            end = number + 1;
            if end * page_size <= size
                && let Some(fault) = judge.fault(page, number)
            {
                bad.push((number, fault));
            }
        }
        let mut state = self.state();
        state.forget(stream, first..end);
        for (number, fault) in bad {
            state.more |= state.pages.len() == SUSPECTS_MAX;
            if state.pages.len() < SUSPECTS_MAX {
                state.pages.insert((stream, number), fault.to_string());
            }
        }
    }

    /// A part of a file became zero.
    pub fn zero(&self, stream: u32, judge: &Judge, offset: u64, length: u64) {
        let page_size = u64::from(judge.format.physical_size());
        self.state().forget(stream, offset.div_ceil(page_size)..offset.saturating_add(length) / page_size);
    }

    /// The current suspects, by stream and page, and whether there were more than the limit.
    pub fn left(&self) -> (Vec<Suspect>, bool) {
        let state = self.state();
        let left = state.pages.iter().map(|(&(stream, page), why)| Suspect { stream, page, why: why.clone() });
        (left.collect(), state.more)
    }
}

impl State {
    /// Drops the suspects among pages that came again.
    fn forget(&mut self, stream: u32, pages: Range<u64>) {
        if self.pages.is_empty() || pages.is_empty() {
            return;
        }
        let range = (stream, pages.start)..(stream, pages.end);
        let known: Vec<(u32, u64)> = self.pages.range(range).map(|(&page, _)| page).collect();
        known.iter().for_each(|page| drop(self.pages.remove(page)));
    }
}
