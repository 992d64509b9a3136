//! Why a set is kept, in words that a DBA understands.

use std::fmt;
use std::time::Duration;

use fullbore_core::media::SetKind;
use uuid::Uuid;

use super::policy::Rule;
use crate::chain::show_time;
use crate::ids;
use fullbore_core::units;

/// One reason to keep a set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reason {
    /// It is the newest point of a period that a rule keeps.
    Place {
        /// The rule.
        rule: Rule,
        /// Which of its places, from 1, the newest first.
        place: u32,
        /// How many it has.
        of: u32,
        /// The period: `2026-11-20`. `None` for `last`.
        period: Option<String>,
        /// Copy-only sets have places of their own.
        copy_only: bool,
        /// It would have the place if its chain were whole. It takes no place from whole sets.
        if_whole: bool,
    },
    /// It is not older than the full with which the recovery window begins.
    Window(Duration),
    /// Kept sets depend on it.
    NeededBy {
        /// What one of them contains.
        kind: SetKind,
        /// Its id.
        id: Uuid,
        /// How many others.
        others: usize,
    },
    /// The store refuses to delete it before this time, in microseconds since 1970.
    LockedUntil(i64),
    /// A task reads it, or makes a set on top of it.
    LeasedBy(String),
    /// It is one of the verified chains that must stay.
    VerifiedChain {
        /// Which, from 1, the newest first.
        place: u32,
        /// How many have to stay.
        of: u32,
    },
    /// No newer chain of its database is verified.
    NoNewerVerifiedChain,
    /// Its database has fewer verified chains than must stay.
    TooFewVerifiedChains {
        /// How many are.
        have: u32,
        /// How many have to stay.
        need: u32,
    },
    /// It was never committed: it is not a backup, and the planner leaves it alone.
    Unfinished,
    /// Its database is unknown without a key.
    Unknown,
    /// Its time cannot be right.
    DatedInTheFuture,
    /// Its id was given more than once.
    Twice,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Place { rule, place, of, period, copy_only, if_whole } => {
                let own = if *copy_only { "copy-only, " } else { "" };
                let period = period.as_ref().map_or_else(String::new, |period| format!(" ({period})"));
                let would = if *if_whole { ", if its chain were complete" } else { "" };
                write!(f, "{own}{rule} {place} of {of}{period}{would}")
            }
            Reason::Window(window) => write!(f, "within the recovery window of {}", units::show_duration(*window)),
            Reason::NeededBy { kind, id, others: 0 } => write!(f, "needed by {kind} {}", short(*id)),
            Reason::NeededBy { kind, id, others } => {
                write!(f, "needed by {kind} {} and {others} more", short(*id))
            }
            // A legal hold, or the account may not read the lock.
            Reason::LockedUntil(time) if *time >= jiff::Timestamp::MAX.as_microsecond() => {
                f.write_str("locked, and the end of the lock is not known")
            }
            Reason::LockedUntil(time) => write!(f, "locked until {}", show_time(*time)),
            Reason::LeasedBy(who) => write!(f, "leased by {who}"),
            Reason::VerifiedChain { place: 1, .. } => f.write_str("the newest verified chain"),
            Reason::VerifiedChain { place, of } => write!(f, "verified chain {place} of {of}"),
            Reason::NoNewerVerifiedChain => f.write_str("its database has no newer verified chain"),
            Reason::TooFewVerifiedChains { have: 0, .. } => f.write_str("no chain of its database is verified"),
            Reason::TooFewVerifiedChains { have, need } => {
                write!(f, "its database has {have} of the {need} verified chains that must stay")
            }
            Reason::Unfinished => f.write_str("unfinished: it was never committed"),
            Reason::Unknown => f.write_str("its database is not known without a key"),
            Reason::DatedInTheFuture => f.write_str("dated in the future"),
            Reason::Twice => f.write_str("its id was found more than once"),
        }
    }
}

/// An id in short.
pub(super) fn short(id: Uuid) -> String {
    ids::short(&id.to_string()).to_owned()
}
