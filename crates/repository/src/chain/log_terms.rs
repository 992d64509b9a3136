//! For tests: commits with numbers, as positions in the logs of two kinds of engine.

use fullbore_core::media::{LogPosition, LogSpan};

/// How an engine writes down its position after a commit. Tests run with each of [`LogTerms::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogTerms {
    /// Frames of one log, as in SQLite.
    Frames,
    /// LSNs above 64 bits, of a server with fail-overs. The server fails after each of these commits. Another server
    /// continues on the next timeline.
    Timelines(&'static [u64]),
}

/// Bytes of log for one commit.
const RECORD: u128 = 100;

impl LogTerms {
    /// One log; a server that never failed; fail-overs between and within the log sets of most tests.
    pub const ALL: [Self; 3] = [Self::Frames, Self::Timelines(&[]), Self::Timelines(&[8, 10, 14])];

    /// The position after that commit. Where a server fails after it, the position is on the older timeline.
    pub fn place(self, commit: u64) -> LogPosition {
        let (history, at) = match self {
            Self::Frames => (vec![7], commit.into()),
            Self::Timelines(_) => (self.timeline(commit), Self::lsn(commit)),
        };
        LogPosition { history, at, proof: None }
    }

    /// The log from one commit to another.
    pub fn spans(self, from: u64, to: u64) -> Vec<LogSpan> {
        let Self::Timelines(forks) = self else {
            return vec![LogSpan { history: vec![7], from: from.into(), to: to.into() }];
        };
        let within = forks.iter().copied().filter(|fork| (from + 1..to).contains(fork));
        let ends: Vec<u64> = within.chain([to]).collect();
        let begins = [from].into_iter().chain(ends.iter().copied());
        let span =
            |(from, &to): (u64, &u64)| LogSpan { history: self.timeline(to), from: Self::lsn(from), to: Self::lsn(to) };
        begins.zip(&ends).map(span).collect()
    }

    fn timeline(self, commit: u64) -> Vec<u8> {
        let Self::Timelines(forks) = self else { return vec![7] };
        let before = forks.iter().filter(|fork| **fork < commit).count() as u32;
        (1 + before).to_be_bytes().to_vec()
    }

    fn lsn(commit: u64) -> u128 {
        (1 << 70) + RECORD * u128::from(commit)
    }
}
