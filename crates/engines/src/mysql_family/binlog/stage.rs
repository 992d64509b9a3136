//! Log sets as relay logs in a restored directory, up to the place where a restore stops. Nothing is applied yet.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use fullbore_core::checksum::Crc32;
use fullbore_core::media::Position;
use fullbore_core::{Error, Result};

use super::end::{End, LogEnd, Piece, Place, micros, show_time};
use super::event::{BODY_MAX, Body, CRC, Group, HEADER, Header, MAGIC, is_file_name, kind};
use super::gtid::{Gtid, GtidList, GtidSet, Gtids, MariaGtid};
use super::range::place;
use super::session::bytes_of;
use super::walk::Walk;
use crate::engine::{LogStop, UnpackedLog};
use crate::mysql_family::Dialect;

/// The base name of the relay logs. The server removes them when it forgets its source.
pub(super) const RELAY: &str = "fullbore-relay";
const BUFFER: usize = 1 << 20;
/// How much of a long event is in memory.
const CHUNK: usize = 64 << 10;

/// The staged sets.
pub(super) struct Stage {
    dialect: Dialect,
    directory: PathBuf,
    /// The end of the base.
    pub base: End,
    /// The end of what is staged.
    pub stands: End,
    /// The GTIDs of the staged groups.
    pub groups: Gtids,
    /// How many groups are staged, and how many of them have no GTID.
    pub counts: (u64, u64),
    /// The servers that made the events.
    pub servers: BTreeSet<u32>,
    /// The relay logs, in order.
    pub relays: Vec<String>,
    /// The first source file, for MariaDB.
    pub first_file: String,
    relay: Option<Relay>,
    /// The group to stop behind is staged.
    last_group: bool,
    /// The stop was reached.
    pub stopped: bool,
    /// The first group since the last certain time whose time is not certain.
    uncertain: Option<String>,
    /// All groups up to this time are staged, in microseconds since 1970.
    until: i64,
}

/// The relay log that is being written.
struct Relay {
    out: BufWriter<File>,
    path: PathBuf,
    /// The source file.
    file: String,
}

impl Relay {
    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("write", self.path.display().to_string(), error)
    }
}

impl Stage {
    /// Nothing is staged yet.
    pub fn new(dialect: Dialect, directory: &Path, base: &End) -> Self {
        let groups = match dialect {
            Dialect::MySql => Gtids::MySql(GtidSet::default()),
            Dialect::MariaDb => Gtids::MariaDb(GtidList::default()),
        };
        Self {
            dialect,
            directory: directory.to_owned(),
            base: base.clone(),
            stands: base.clone(),
            groups,
            counts: (0, 0),
            servers: BTreeSet::new(),
            relays: Vec::new(),
            first_file: base.binlog.file.clone(),
            relay: None,
            last_group: false,
            stopped: false,
            uncertain: None,
            until: i64::MIN,
        }
    }

    /// Stages a set, up to `stop`.
    ///
    /// # Errors
    /// The set does not continue what is staged, or breaks its format, or `stop` is inside of a group.
    pub fn add(&mut self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<()> {
        if self.stopped {
            return Ok(());
        }
        let broken = |why: String| Error::incomplete(set.name, why, "use another copy of the set");
        let first = End::read(self.dialect, &set.position.first.value()).map_err(broken)?;
        let last = LogEnd::read(self.dialect, &set.position.last.value()).map_err(broken)?;
        let [stream] = set.streams else { return Err(broken("it does not have one stream".into())) };
        let size = stream.metadata().map_err(|error| Error::io("look at", set.name, error))?.len();
        if size != bytes_of(&last.pieces) {
            return Err(broken("the pieces in its manifest are not as long as its stream".into()));
        }
        self.must_continue(set.name, &first, &last)?;
        let mut walk = Walk::new(&first.binlog.file, Gtids::parse(self.dialect, &first.binlog.gtid));
        walk.offset = first.binlog.offset;
        self.until = micros(&last.until).ok_or_else(|| broken("its position is invalid: the time".into()))?;
        walk.believe(self.stands.time(), self.until);
        let mut reader = Events { from: BufReader::with_capacity(BUFFER, stream), set: set.name, event: Vec::new() };
        for piece in &last.pieces {
            if self.stopped {
                break;
            }
            self.piece(&mut reader, piece, &mut walk, stop)?;
        }
        if self.last_group {
            self.stopped = true;
        }
        if !self.stopped && (walk.file != last.end.binlog.file || walk.offset != last.end.binlog.offset) {
            return Err(broken("its end contradicts its manifest".into()));
        }
        if let Some(relay) = &mut self.relay {
            relay.out.flush().map_err(|error| relay.failed(error))?;
        }
        let file_crc = walk.file_crc.or(last.end.binlog.file_crc.filter(|_| walk.file == last.end.binlog.file));
        let gtid = walk.gtids.as_ref().map(ToString::to_string).unwrap_or_default();
        let newest = walk.newest.max(self.stands.time());
        self.stands = End {
            binlog: Place { file: walk.file, offset: walk.offset, gtid, file_crc, tail: walk.tail },
            server: last.end.server,
            at: newest.map(show_time).unwrap_or_default(),
            finished: None,
        };
        self.servers.extend(walk.servers);
        Ok(())
    }

    /// What is staged must end where the set begins, or within it.
    fn must_continue(&self, name: &str, first: &End, last: &LogEnd) -> Result<()> {
        let (stands, from, to) = (place(&self.stands.binlog), place(&first.binlog), place(&last.end.binlog));
        let crcs =
            |one: &Place, other: &Place| one.file_crc.zip(other.file_crc).is_none_or(|(one, other)| one == other);
        let same_file = first.binlog.file != self.stands.binlog.file || crcs(&first.binlog, &self.stands.binlog);
        let within = from <= stands && stands <= to && (self.relays.is_empty() || from == stands);
        if self.stands.server == first.server && first.server == last.end.server && within && same_file {
            return Ok(());
        }
        let (stands, first) = (self.stands.binlog.show(), first.binlog.show());
        Err(Error::incomplete(
            name,
            format!(
                "it begins at {first}, but the database and the sets before it reach to {stands}: a set is missing"
            ),
            "name the sets in between too, with --from; or restore to a time before this set, with --stop-at",
        ))
    }

    /// Stages the events of a piece.
    fn piece(&mut self, reader: &mut Events<'_>, piece: &Piece, walk: &mut Walk, stop: Option<&LogStop>) -> Result<()> {
        let head = reader.bytes(piece.head)?;
        let broken = |why: String| Error::incomplete(reader.set, why, "use another copy of the set");
        if piece.file == walk.file && piece.from == walk.offset {
            // It continues the same file.
        } else if piece.from == MAGIC.len() as u64 {
            walk.enter(&piece.file, piece.from).map_err(broken)?;
        } else {
            return Err(broken(format!("a piece of {} does not continue the one before", piece.file)));
        }
        let end = piece.from + piece.bytes;
        while walk.offset < end {
            let header = reader.header()?;
            if u64::from(header.size) > end - walk.offset {
                return Err(reader.broken("an event is longer than its piece"));
            }
            let body = reader.body(&header)?;
            if self.is_cut_by(&header, &body, walk, stop)? {
                self.stopped = true;
                return Ok(());
            }
            let crc = self.stage(walk.offset, (&header, &body), reader, piece, &head)?;
            walk.pass(&header, &body, crc).map_err(|why| reader.broken(&why))?;
        }
        Ok(())
    }

    /// True if the restore stops before this event.
    fn is_cut_by(&mut self, header: &Header, body: &Body, walk: &Walk, stop: Option<&LogStop>) -> Result<bool> {
        if self.is_in_base(&walk.file, walk.offset) {
            return Ok(false);
        }
        if let Some((stop, target)) = stop.zip(stop.and_then(place_of_stop)) {
            let at = |offset: u64| place_of(&walk.file, offset);
            if at(walk.offset) == Some(target) && !is_between_groups(header, body) {
                return Err(inside(stop, format!("the transaction before {}:{}", walk.file, walk.offset)));
            }
            if at(walk.offset) >= Some(target) {
                return Ok(true);
            }
            // Groups end where the next one, or the next file, begins.
            if at(walk.offset + u64::from(header.size)) > Some(target) {
                return Err(inside(stop, format!("the event at {}:{}", walk.file, walk.offset)));
            }
            return Ok(false);
        }
        let Body::Group(group) = body else { return Ok(false) };
        if let Some(LogStop::Time(time)) = stop {
            return self.is_later(walk, group, *time);
        }
        Ok(self.last_group || is_behind(stop, group, &mut self.last_group))
    }

    /// True if a group was committed after `time`.
    fn is_later(&mut self, walk: &Walk, group: &Group, time: i64) -> Result<bool> {
        if !walk.is_certain(group) {
            self.uncertain.get_or_insert_with(|| format!("{}:{}", walk.file, walk.offset));
            return Ok(false);
        }
        if group.time > time {
            self.refuse_uncertain()?;
            return Ok(true);
        }
        self.uncertain = None;
        Ok(false)
    }

    /// The error if a group may have been committed before or after the time to stop at.
    fn refuse_uncertain(&self) -> Result<()> {
        let Some(place) = &self.uncertain else { return Ok(()) };
        Err(Error::refused(
            "--stop-at",
            format!(
                "nobody knows whether the transaction at {place} was committed before that time: its own time is before \
                 that of an earlier transaction, or in the future (SET timestamp, a long statement, a clock that was set)"
            ),
            "stop at a place or a GTID: --stop-at FILE:OFFSET, --stop-at-gtid or --stop-before-gtid",
        ))
    }

    fn is_in_base(&self, file: &str, offset: u64) -> bool {
        place_of(file, offset) < place(&self.base.binlog)
    }

    /// Writes an event into its relay log, unless the base has it. Returns its checksum.
    fn stage(
        &mut self,
        at: u64,
        (header, body): (&Header, &Body),
        reader: &mut Events<'_>,
        piece: &Piece,
        head: &[u8],
    ) -> Result<u32> {
        // Of the file that the base ends in, the first events are needed.
        let first = matches!(header.kind, kind::FORMAT | kind::PREVIOUS_GTIDS | kind::MARIADB_GTID_LIST);
        if self.is_in_base(&piece.file, at) && !(first && piece.file == self.base.binlog.file) {
            return reader.pass(header, None);
        }
        if let Body::Group(group) = body {
            self.counts.0 += 1;
            match &group.gtid {
                Some(gtid) => self.groups.add(gtid).map_err(|why| reader.broken(&why))?,
                None => self.counts.1 += 1,
            }
        }
        if self.relay.as_ref().is_none_or(|relay| relay.file != piece.file) {
            self.next_relay(piece, head)?;
        }
        let relay = self.relay.as_mut().ok_or(Error::Halted)?;
        reader.pass(header, Some(relay))
    }

    /// Begins a relay log for a source file.
    fn next_relay(&mut self, piece: &Piece, head: &[u8]) -> Result<()> {
        self.close()?;
        if self.relays.is_empty() {
            self.first_file.clone_from(&piece.file);
        }
        let name = format!("{RELAY}.{:06}", self.relays.len() + 1);
        let path = self.directory.join(&name);
        let failed = |error| Error::io("write", path.display().to_string(), error);
        let mut out = BufWriter::with_capacity(BUFFER, File::create_new(&path).map_err(failed)?);
        out.write_all(MAGIC).and_then(|()| out.write_all(head)).map_err(failed)?;
        self.relays.push(name);
        self.relay = Some(Relay { out, path, file: piece.file.clone() });
        Ok(())
    }

    /// Closes the last relay log.
    pub fn close(&mut self) -> Result<()> {
        self.relay.take().map_or(Ok(()), |mut relay| relay.out.flush().map_err(|error| relay.failed(error)))
    }

    /// The error if a stop by GTID or by place was never reached.
    ///
    /// # Errors
    /// The staged sets do not have it.
    pub fn demand(&self, stop: Option<&LogStop>) -> Result<()> {
        let stop = match stop {
            None => return Ok(()),
            Some(LogStop::Time(time)) if !self.stopped && *time < self.until => return self.refuse_uncertain(),
            Some(LogStop::Time(_)) => return Ok(()),
            Some(_) if self.stopped => return Ok(()),
            Some(LogStop::Place(_)) if stop.and_then(place_of_stop) == place(&self.stands.binlog) => return Ok(()),
            Some(stop) => stop,
        };
        let (base, stands) = (&self.base.binlog, &self.stands.binlog);
        Err(Error::refused(
            stop.option(),
            format!("no log set has it: the sets reach from {} to {} ({})", base.show(), stands.show(), stands.gtid),
            "give one that is between these places; `fullbore list` shows the sets",
        ))
    }
}

/// Removes relay logs from a directory.
pub(super) fn clear(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(RELAY)));
    ours.for_each(|entry| drop(fs::remove_file(entry.path()))); // What stays does no harm.
}

/// True for an event that is not within a group.
fn is_between_groups(header: &Header, body: &Body) -> bool {
    !matches!(body, Body::Other)
        || matches!(header.kind, kind::STOP | kind::MARIADB_CHECKPOINT | kind::MARIADB_ENCRYPTION)
}

fn inside(stop: &LogStop, what: String) -> Error {
    let hint = "give a place where a transaction begins: `mysqlbinlog` shows them as `# at`";
    Error::usage(stop.option(), format!("is inside of {what}"), hint)
}

/// True if a restore stops before a group. `last` becomes true at the group to stop behind.
fn is_behind(stop: Option<&LogStop>, group: &Group, last: &mut bool) -> bool {
    match stop {
        Some(LogStop::BeforeGtid(wanted)) => group.gtid.as_ref().is_some_and(|gtid| is_gtid(gtid, wanted)),
        Some(LogStop::ThroughGtid(wanted)) => {
            *last = group.gtid.as_ref().is_some_and(|gtid| is_gtid(gtid, wanted));
            false
        }
        Some(LogStop::Place(_) | LogStop::Time(_)) | None => false,
    }
}

fn is_gtid(gtid: &Gtid, wanted: &str) -> bool {
    match gtid {
        Gtid::MariaDb(gtid) => MariaGtid::parse(wanted) == Some(*gtid),
        gtid => gtid.to_string().eq_ignore_ascii_case(wanted.trim()),
    }
}

fn place_of(file: &str, offset: u64) -> Option<u128> {
    Some(u128::from(super::event::file_number(file)?) << 64 | u128::from(offset))
}

/// True if a stop is in a log set, or at its end.
pub(super) fn holds(dialect: Dialect, position: &Position, stop: &LogStop) -> bool {
    let first = End::read(dialect, &position.first.value());
    let last = End::read(dialect, &position.last.value());
    let (Ok(first), Ok(last)) = (first, last) else { return false };
    let gtids = |end: &End| Gtids::parse(dialect, &end.binlog.gtid);
    match stop {
        LogStop::Time(_) => false,
        LogStop::Place(_) => {
            let target = place_of_stop(stop);
            place(&first.binlog) < target && target <= place(&last.binlog)
        }
        LogStop::ThroughGtid(wanted) | LogStop::BeforeGtid(wanted) => {
            let has = |end: &End| gtids(end).is_some_and(|gtids| gtids.has(wanted));
            has(&last) && !has(&first)
        }
    }
}

/// The place of `file:offset`.
pub(super) fn place_of_stop(stop: &LogStop) -> Option<u128> {
    let LogStop::Place(text) = stop else { return None };
    let (file, offset) = text.rsplit_once(':')?;
    place_of(is_file_name(file).then_some(file)?, offset.parse().ok()?)
}

/// Events in a stream.
struct Events<'a> {
    from: BufReader<&'a File>,
    set: &'a str,
    /// The bytes of the current event that were read.
    event: Vec<u8>,
}

impl Events<'_> {
    fn broken(&self, why: &str) -> Error {
        Error::incomplete(self.set, why, "use another copy of the set")
    }

    fn bytes(&mut self, length: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if length > BODY_MAX as u64 {
            return Err(self.broken("an event about GTIDs or files is too long"));
        }
        let read = (&mut self.from).take(length).read_to_end(&mut bytes);
        read.map_err(|error| Error::io("read", self.set, error))?;
        if (bytes.len() as u64) < length { Err(self.broken("its stream is too short")) } else { Ok(bytes) }
    }

    fn header(&mut self) -> Result<Header> {
        let mut bytes = [0; HEADER];
        let read = self.from.read_exact(&mut bytes);
        read.map_err(|error| Error::io("read", self.set, error))?;
        self.event.clear();
        self.event.extend_from_slice(&bytes);
        Header::parse(&bytes).ok_or_else(|| self.broken("an event is shorter than its header"))
    }

    /// Reads the body of an event that matters; of another event nothing.
    fn body(&mut self, header: &Header) -> Result<Body> {
        if !header.has_known_body() {
            return Ok(Body::Other);
        }
        let rest = self.bytes(u64::from(header.size) - HEADER as u64)?;
        self.event.extend_from_slice(&rest);
        let body = rest.get(..rest.len() - CRC).unwrap_or_default();
        Body::parse(header, body).map_err(|why| self.broken(why))
    }

    /// Reads the rest of the current event, and writes all of it. Returns its checksum, which must be right.
    fn pass(&mut self, header: &Header, mut to: Option<&mut Relay>) -> Result<u32> {
        let (mut crc, mut left) = (Crc32::new(), header.size as usize - self.event.len());
        let mut chunk = std::mem::take(&mut self.event);
        let mut stored = Vec::with_capacity(2 * CRC);
        loop {
            if let Some(relay) = &mut to {
                relay.out.write_all(&chunk).map_err(|error| relay.failed(error))?;
            }
            // The last four bytes so far may be the checksum.
            stored.extend_from_slice(&chunk);
            let end = stored.len().saturating_sub(CRC);
            crc.update(&stored[..end]);
            stored.drain(..end);
            if left == 0 {
                break;
            }
            chunk.resize(left.min(CHUNK), 0);
            let read = self.from.read_exact(&mut chunk);
            read.map_err(|error| Error::io("read", self.set, error))?;
            left -= chunk.len();
        }
        self.event = chunk;
        if stored.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)) != Some(crc.finish()) {
            return Err(self.broken("the checksum of an event is wrong"));
        }
        Ok(crc.finish())
    }
}
