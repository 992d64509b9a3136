//! GTIDs: MySQL's sets of intervals, MariaDB's last number of each domain.

mod list;
mod set;

use std::fmt;

pub use list::{GtidList, MariaGtid};
pub use set::GtidSet;

/// The name of a group in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gtid {
    /// MySQL's.
    MySql {
        /// The server's UUID.
        uuid: [u8; 16],
        /// The tag; mostly empty.
        tag: String,
        /// Its number, from 1 on.
        number: u64,
    },
    /// MariaDB's.
    MariaDb(MariaGtid),
}

impl fmt::Display for Gtid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MySql { uuid, tag, number } => {
                write!(out, "{}", uuid::Uuid::from_bytes(*uuid))?;
                if !tag.is_empty() {
                    write!(out, ":{tag}")?;
                }
                write!(out, ":{number}")
            }
            Self::MariaDb(gtid) => gtid.fmt(out),
        }
    }
}

/// The GTIDs up to a place, of either server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gtids {
    /// MySQL's set.
    MySql(GtidSet),
    /// MariaDB's list.
    MariaDb(GtidList),
}

impl Gtids {
    /// Parses the words of a server.
    pub fn parse(dialect: crate::mysql_family::Dialect, text: &str) -> Option<Self> {
        use crate::mysql_family::Dialect;
        match dialect {
            Dialect::MySql => GtidSet::parse(text).map(Self::MySql),
            Dialect::MariaDb => GtidList::parse(text).map(Self::MariaDb),
        }
    }

    /// The GTIDs up to a place. With all servers of MariaDB, if the place knows them.
    pub fn of_place(dialect: crate::mysql_family::Dialect, place: &super::end::Place) -> Option<Self> {
        match place.servers.is_empty() {
            true => Self::parse(dialect, &place.gtid),
            false => GtidList::parse_state(&place.servers).map(Self::MariaDb),
        }
    }

    /// MariaDB: the last GTID of each server, if they are known.
    pub fn servers(&self) -> String {
        match self {
            Self::MySql(_) => String::new(),
            Self::MariaDb(list) => list.state(),
        }
    }

    /// MariaDB: takes the servers from GTIDs of the same place, if they are not known.
    pub fn learn(&mut self, other: &Self) {
        if let (Self::MariaDb(list), Self::MariaDb(other)) = (self, other) {
            list.learn(other);
        }
    }

    /// The GTIDs of `end`, the end of another log, that are not among them; empty if none is missing.
    pub fn lack(&self, end: &Self) -> String {
        match (self, end) {
            (Self::MySql(set), Self::MySql(end)) => end.without(set).to_string(),
            (Self::MariaDb(list), Self::MariaDb(end)) => {
                let newest: Vec<MariaGtid> = end.all().copied().collect();
                shown(list.lacks(&newest).unwrap_or(newest))
            }
            _ => end.to_string(),
        }
    }

    /// Those that `end`, the end of another log, does not have; empty if there are none. `None` if that is unknown.
    pub fn beyond(&self, end: &Self) -> Option<String> {
        match (self, end) {
            (Self::MySql(set), Self::MySql(end)) => Some(set.without(end).to_string()),
            (Self::MariaDb(list), Self::MariaDb(end)) => list.beyond(end).map(shown),
            _ => None,
        }
    }

    /// MariaDB: whether the numbers of each domain have grown since `before`. MySQL's need not.
    pub fn has_grown(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::MariaDb(list), Self::MariaDb(before)) => list.has_grown(before),
            _ => true,
        }
    }

    /// Whether a GTID, in the words of the server, is among them.
    pub fn has(&self, wanted: &str) -> bool {
        match self {
            Self::MySql(set) => {
                GtidSet::parse(wanted).is_some_and(|wanted| !wanted.is_empty() && wanted.is_within(set))
            }
            Self::MariaDb(list) => MariaGtid::parse(wanted)
                .is_some_and(|wanted| list.of(wanted.domain).is_some_and(|newest| wanted.sequence <= newest.sequence)),
        }
    }

    /// Whether a backup with these GTIDs may end at a place of the log with the GTIDs `found`. A set of MySQL may have
    /// more: the log may begin behind the first GTIDs.
    pub fn may_follow(&self, found: &Self) -> bool {
        match (self, found) {
            (Self::MySql(known), Self::MySql(found)) => found.is_within(known),
            (Self::MariaDb(known), Self::MariaDb(found)) => {
                found.all().all(|gtid| known.of(gtid.domain) == Some(*gtid))
            }
            _ => false,
        }
    }

    /// Adds the GTID of a group.
    ///
    /// # Errors
    /// MySQL: the set has it already.
    pub fn add(&mut self, gtid: &Gtid) -> Result<(), String> {
        match (self, gtid) {
            (Self::MySql(set), Gtid::MySql { uuid, tag, number }) => {
                if set.add(*uuid, tag, *number) {
                    Ok(())
                } else {
                    Err(format!("transaction {gtid} is in it twice"))
                }
            }
            (Self::MariaDb(list), Gtid::MariaDb(gtid)) => {
                list.add(*gtid);
                Ok(())
            }
            _ => Err("it has GTIDs of another kind of server".into()),
        }
    }
}

fn shown(gtids: Vec<MariaGtid>) -> String {
    gtids.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

impl fmt::Display for Gtids {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MySql(set) => set.fmt(out),
            Self::MariaDb(list) => list.fmt(out),
        }
    }
}
