//! The state while the events of a log pass, one after the other: the place, the GTIDs up to it, and what is known of
//! its groups. It checks that no event is missing.

use std::collections::BTreeSet;

use super::event::{Body, Group, Header, MAGIC, file_number};
use super::gtid::{Gtid, Gtids};

/// Most ids of servers that are kept: of a log with more, one is drawn at random that is probably in none.
const SERVERS_MAX: usize = 4096;

/// Times of groups that are committed one after the other may differ by so much in the other direction, in microseconds:
/// MariaDB has whole seconds.
const SLACK: i64 = 1_000_000;
/// A time that is so far in the future, in microseconds, is not the server's clock. A replica has times of its source.
const FUTURE: i64 = 60_000_000;

/// The last event before a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Tail {
    /// Where it begins in its file.
    pub at: u64,
    /// Its CRC-32.
    pub crc: u32,
}

/// A walk along the events of files.
#[derive(Debug, Clone)]
pub struct Walk {
    /// The current file.
    pub file: String,
    /// Where the next event begins in it.
    pub offset: u64,
    /// The CRC-32 of the file's first event: the identity of the file.
    pub file_crc: Option<u32>,
    /// When the file was begun, in seconds since 1970 by the server's clock.
    pub file_begun: Option<u32>,
    /// The last event before `offset`.
    pub tail: Option<Tail>,
    /// All GTIDs up to here; `None` until they are known.
    pub gtids: Option<Gtids>,
    /// When the newest group was committed, in microseconds since 1970. Groups without a [certain](Self::is_certain)
    /// time do not count.
    pub newest: Option<i64>,
    /// The earliest time of a group, in microseconds since 1970.
    pub earliest: Option<i64>,
    /// A time behind this one is not believed, in microseconds since 1970.
    pub believed_until: i64,
    /// Groups so far.
    pub groups: u64,
    /// Groups without a GTID among them.
    pub anonymous: u64,
    /// The servers that made the events.
    pub servers: BTreeSet<u32>,
}

impl Walk {
    /// A walk that begins before the first event of a file.
    pub fn new(file: &str, gtids: Option<Gtids>) -> Self {
        Self {
            file: file.to_owned(),
            offset: MAGIC.len() as u64,
            file_crc: None,
            file_begun: None,
            tail: None,
            gtids,
            newest: None,
            earliest: None,
            believed_until: i64::MAX,
            groups: 0,
            anonymous: 0,
            servers: BTreeSet::new(),
        }
    }

    /// Believes times up to a little after `now`, in microseconds since 1970.
    pub fn believe_until(&mut self, now: i64) {
        self.believed_until = now.saturating_add(FUTURE);
    }

    /// Goes to another file, which must be the next one.
    ///
    /// # Errors
    /// A file is missing between the two.
    pub fn enter(&mut self, file: &str, offset: u64) -> Result<(), String> {
        if self.file != file {
            let number = |name: &str| file_number(name).map(u64::from);
            if number(file) != number(&self.file).map(|before| before + 1) {
                return Err(format!("{file} follows it, so a file is missing between the two"));
            }
            self.file_crc = None;
            self.file_begun = None;
            self.tail = None;
            file.clone_into(&mut self.file);
        }
        self.offset = offset;
        Ok(())
    }

    /// Forgets the groups so far, but not their GTIDs.
    pub fn forget_groups(&mut self) {
        (self.newest, self.earliest) = (None, None);
        (self.groups, self.anonymous) = (0, 0);
        self.servers.clear();
    }

    /// Passes an event of the file. `crc` is its checksum, which was found right.
    ///
    /// # Errors
    /// An event is missing before it, or a group is there twice.
    pub fn pass(&mut self, header: &Header, body: &Body, crc: u32) -> Result<(), String> {
        let end = self.offset.checked_add(header.size.into()).ok_or("its place is beyond any file")?;
        if header.end != 0 && end as u32 != header.end {
            return Err(format!(
                "the event at {} says that it ends at {}, but it ends at {end}: events are missing",
                self.offset, header.end
            ));
        }
        match body {
            Body::Format { checksums: false } => {
                return Err("its events have no checksums (binlog_checksum = NONE)".into());
            }
            Body::Format { .. } if self.offset == MAGIC.len() as u64 => {
                self.file_crc = Some(crc);
                self.file_begun = Some(header.timestamp);
            }
            Body::Previous(set) => self.compare(&Gtids::MySql(set.clone()))?,
            Body::PreviousList(list) => self.compare(&Gtids::MariaDb(list.clone()))?,
            Body::Group(group) => self.begin(group)?,
            _ => {}
        }
        if self.servers.len() < SERVERS_MAX {
            self.servers.insert(header.server_id);
        }
        self.tail = Some(Tail { at: self.offset, crc });
        self.offset = end;
        Ok(())
    }

    /// A file says which GTIDs are before it.
    fn compare(&mut self, before: &Gtids) -> Result<(), String> {
        let known = match &self.gtids {
            None => true,
            Some(known) => holds(known, before),
        };
        if !known {
            let known = self.gtids.as_ref().map(ToString::to_string).unwrap_or_default();
            return Err(format!(
                "transactions are missing before it: it follows `{before}`, but `{known}` came before"
            ));
        }
        self.gtids.get_or_insert_with(|| before.clone()).learn(before);
        Ok(())
    }

    fn begin(&mut self, group: &Group) -> Result<(), String> {
        match &group.gtid {
            Some(gtid) => {
                let empty = || match gtid {
                    Gtid::MySql { .. } => Gtids::MySql(Default::default()),
                    Gtid::MariaDb(_) => Gtids::MariaDb(Default::default()),
                };
                self.gtids.get_or_insert_with(empty).add(gtid)?;
            }
            None => self.anonymous += 1,
        }
        self.groups += 1;
        self.earliest = Some(self.earliest.map_or(group.time, |earliest| earliest.min(group.time)));
        if self.is_certain(group) {
            self.newest = Some(self.newest.map_or(group.time, |newest| newest.max(group.time)));
        }
        Ok(())
    }

    /// False for a group whose time says little about when it was committed: it is before that of an earlier group, or
    /// in the future. `SET timestamp` makes such times in MariaDB, so does a long statement, and a clock that is set.
    pub fn is_certain(&self, group: &Group) -> bool {
        let goes_back = self.newest.is_some_and(|newest| goes_back(group.time, newest));
        !goes_back && group.time <= self.believed_until
    }
}

/// Whether a group has an earlier time than one that is before it in the log.
pub fn goes_back(time: i64, before: i64) -> bool {
    time.saturating_add(SLACK) < before
}

/// Whether all GTIDs of `before` are known.
fn holds(known: &Gtids, before: &Gtids) -> bool {
    match (known, before) {
        (Gtids::MySql(known), Gtids::MySql(before)) => before.is_within(known),
        (Gtids::MariaDb(known), Gtids::MariaDb(before)) => {
            before.all().all(|gtid| known.of(gtid.domain).is_some_and(|known| known == *gtid))
        }
        _ => false,
    }
}
