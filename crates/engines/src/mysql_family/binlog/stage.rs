//! Log sets on their way into a restored database, up to the place where a restore stops: as relay logs, or as statements.

use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

use fullbore_core::{Error, Result};

use super::cut::{Cut, holds_place, is_at, place_of};
use super::end::{End, LogEnd, Piece, Place, micros, show_time};
use super::event::{Body, CRC, Group, HEADER, Header, MAGIC, format_in, kind};
use super::events::Events;
use super::gtid::{GtidList, GtidSet, Gtids};
use super::range::place;
use super::relays::{Relays, Rows};
use super::replay::logged_events::LoggedEvents;
use super::replay::without_rows::DefinedNames;
use super::session::bytes_of;
use super::statement::{Kind, Statement};
use super::through::batch::is_rows;
use super::through::statements::Statements;
use super::walk::Walk;
use crate::engine::{LogStop, Replayed, UnpackedLog};
use crate::mysql_family::Dialect;
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::system_zone::SystemZone;

/// Where the events go.
pub enum Way {
    /// Into relay logs: nothing is applied yet.
    Relays(Box<Relays>),
    /// To a running server, at once.
    Statements(Box<Statements>),
    /// To a running server that remembers how far it is.
    Kept(Box<dyn Kept>),
    /// Nowhere: they are only looked at.
    Nowhere,
}

/// Takes events one after the other, and remembers the place behind them.
pub trait Kept {
    /// The longest event that it takes, in bytes.
    fn longest(&self) -> usize;

    /// The format of the events that follow.
    ///
    /// # Errors
    /// The server refuses it.
    fn describe(&mut self, format: &[u8]) -> Result<()>;

    /// Takes an event. `walk` is behind it.
    ///
    /// # Errors
    /// The server does not take it.
    fn event(&mut self, event: &[u8], walk: &Walk) -> Result<()>;

    /// A set ends here, or the restore stops here.
    ///
    /// # Errors
    /// It ends within a group, or the server refuses.
    fn end_of_set(&mut self, end: &End) -> Result<()>;

    /// The system time zone and the settings of the server whose log follows.
    fn enter_source(&mut self, zone: Option<&SystemZone>, defaults: &ServerDefaults);

    /// The log of another server follows, from this place on.
    fn leave_server(&mut self, begin: End);

    /// The result.
    fn told(&self) -> Replayed;
}

/// The longest statement that is looked at, in bytes.
const STATEMENT_MAX: u32 = 1 << 20;

/// The staged sets.
pub struct Stage {
    dialect: Dialect,
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
    /// Where it stops.
    pub(super) cut: Cut,
    /// Where the events go.
    pub way: Way,
    /// The first set is staged.
    begun: bool,
    /// The place where the base ends was passed.
    met_base: bool,
    /// The place in the log up to which a logical base may hold definitions that the log makes.
    pub complete: Option<u128>,
    /// Before that place, the log changes definitions.
    pub redefines: bool,
    /// The log prepares an XA transaction without rows.
    pub prepares_nothing: bool,
    /// The group that is staged has rows.
    has_rows: bool,
    /// The group that is staged is a transaction of MariaDB, and no single statement.
    is_open: bool,
    /// What the log does to events, for a server that applies it itself.
    pub(super) events: LoggedEvents,
    /// The names in statements that define something.
    pub(super) defined: DefinedNames,
    /// Where the log has the first ALTER SEQUENCE.
    pub(super) alters_sequence: Option<String>,
    /// The system time zone in which statements of the relay logs ran, if it is known.
    pub system_zone: Option<SystemZone>,
    /// The set that is staged has such statements.
    uses_system_zone: bool,
    /// The settings of the server whose log is staged.
    pub(super) defaults: ServerDefaults,
    /// The event on its way to [`Kept`].
    event: Vec<u8>,
}

impl Stage {
    /// Nothing is staged yet; relay logs go into `directory`.
    pub fn new(dialect: Dialect, directory: &Path, base: &End) -> Self {
        Self::by(Way::Relays(Box::new(Relays::new(directory, &base.binlog.file))), dialect, base)
    }

    /// Nothing is staged yet.
    pub fn by(way: Way, dialect: Dialect, base: &End) -> Self {
        let groups = match dialect {
            Dialect::MySql => Gtids::MySql(GtidSet::default()),
            Dialect::MariaDb => Gtids::MariaDb(GtidList::default()),
        };
        Self {
            dialect,
            base: base.clone(),
            stands: base.clone(),
            groups,
            counts: (0, 0),
            servers: BTreeSet::new(),
            cut: Cut::new(base),
            way,
            begun: false,
            met_base: false,
            complete: None,
            redefines: false,
            prepares_nothing: false,
            has_rows: false,
            is_open: false,
            events: LoggedEvents::default(),
            defined: DefinedNames::default(),
            alters_sequence: None,
            system_zone: None,
            uses_system_zone: false,
            defaults: ServerDefaults::default(),
            event: Vec::new(),
        }
    }

    /// Stages a set, up to `stop`.
    ///
    /// # Errors
    /// The set does not continue what is staged, or breaks its format, or `stop` is inside of a group.
    pub fn add(&mut self, set: &UnpackedLog<'_>, stop: Option<&LogStop>) -> Result<()> {
        let broken = |why: String| Error::incomplete(set.name, why, "use another copy of the set");
        let first = End::read(self.dialect, &set.position.first.value()).map_err(broken)?;
        let last = LogEnd::read(self.dialect, &set.position.last.value()).map_err(broken)?;
        let [stream] = set.streams else { return Err(broken("it does not have one stream".into())) };
        let size = stream.metadata().map_err(|error| Error::io("look at", set.name, error))?.len();
        if size != bytes_of(&last.pieces) {
            return Err(broken("the pieces in its manifest are not as long as its stream".into()));
        }
        if self.cut.stopped {
            return self.look_behind_in(stream, set.name, &last, stop);
        }
        let begin = last.begin(&first).ok_or_else(|| broken("it holds nothing".into()))?;
        self.must_continue(set.name, &first, &begin, &last)?;
        self.enter_source(last.system_zone.as_ref(), &last.defaults);
        self.cut.begin_set(is_at(&begin, stop) || holds_place(&begin, &last.end.binlog, stop));
        let mut walk = Walk::new(&begin.file, Gtids::parse(self.dialect, &first.binlog.gtid));
        walk.offset = begin.offset;
        walk.file_crc = [&last.end.binlog, &first.binlog]
            .iter()
            .find(|place| place.file == begin.file)
            .and_then(|place| place.file_crc);
        let until = micros(&last.until).ok_or_else(|| broken("its position is invalid: the time".into()))?;
        self.cut.until = until;
        walk.newest = self.stands.time();
        walk.believe_until(until);
        let mut reader = Events::new(stream, set.name);
        for piece in &last.pieces {
            match self.cut.stopped {
                true => self.look_behind(&mut reader, piece, stop)?,
                false => self.piece(&mut reader, piece, &mut walk, stop)?,
            }
        }
        self.cut.end_of_set();
        if !self.cut.stopped && (walk.file != last.end.binlog.file || walk.offset != last.end.binlog.offset) {
            return Err(broken("its end contradicts its manifest".into()));
        }
        match &mut self.way {
            Way::Relays(relays) => relays.flush()?,
            Way::Statements(statements) => statements.end_of_set()?,
            Way::Kept(_) | Way::Nowhere => {}
        }
        self.demand_one_zone(set.name, last.system_zone)?;
        self.begun = true;
        let file_crc = walk.file_crc.or(last.end.binlog.file_crc.filter(|_| walk.file == last.end.binlog.file));
        let gtid = walk.gtids.as_ref().map(ToString::to_string).unwrap_or_default();
        let newest = walk.newest.max(self.stands.time());
        self.stands = End {
            binlog: Place {
                file: walk.file,
                offset: walk.offset,
                gtid,
                servers: String::new(),
                file_crc,
                tail: walk.tail,
            },
            server: last.end.server,
            at: newest.map(show_time).unwrap_or_default(),
            finished: None,
            taken: None,
        };
        if let Way::Kept(kept) = &mut self.way {
            kept.end_of_set(&self.stands)?;
        }
        self.servers.extend(walk.servers);
        Ok(())
    }

    /// A set follows whose server has this system time zone and these settings.
    fn enter_source(&mut self, zone: Option<&SystemZone>, defaults: &ServerDefaults) {
        self.defaults.clone_from(defaults);
        match &mut self.way {
            Way::Relays(_) => self.uses_system_zone = false,
            Way::Statements(statements) => statements.enter_source(zone, defaults),
            Way::Kept(kept) => kept.enter_source(zone, defaults),
            Way::Nowhere => {}
        }
    }

    /// One run of a server applies all relay logs, and it has one system time zone.
    fn demand_one_zone(&mut self, name: &str, zone: Option<SystemZone>) -> Result<()> {
        if !self.uses_system_zone {
            return Ok(());
        }
        if let (Some(known), Some(zone)) = (&self.system_zone, &zone)
            && known != zone
        {
            let (known, zone) = (known.shown(), zone.shown());
            let why =
                format!("it has statements with the system time zone {zone}, and the sets before it with {known}");
            let hint = "restore to a time before this set, or a logical full into a running server";
            return Err(Error::refused(name, why, hint));
        }
        self.system_zone = zone.or(self.system_zone.take());
        Ok(())
    }

    /// What is staged must end where the set begins, or within it. `begin` is the place of the set in its own log: after a
    /// fail-over, this is another place than that of `first`.
    fn must_continue(&mut self, name: &str, first: &End, begin: &Place, last: &LogEnd) -> Result<()> {
        let fails_over = first.server != last.end.server;
        if fails_over && self.stands.server == first.server && self.ends_at(&first.binlog) {
            return self.leave_server(name, first, End { binlog: begin.clone(), ..last.end.clone() });
        }
        let (stands, from, to) = (place(&self.stands.binlog), place(begin), place(&last.end.binlog));
        let same_file = begin.file != self.stands.binlog.file || agree(begin.file_crc, self.stands.binlog.file_crc);
        let within = from <= stands && stands <= to && (!self.begun || from == stands);
        // A base within a set with two servers is of the second one.
        if self.stands.server == last.end.server && (!fails_over || !self.begun) && within && same_file {
            return Ok(());
        }
        let shown = |end: &End, other: &End| match end.server == other.server {
            true => end.binlog.show(),
            false => format!("{} of server {}", end.binlog.show(), end.server),
        };
        let (stands, first) = (shown(&self.stands, first), shown(first, &self.stands));
        Err(Error::incomplete(
            name,
            format!(
                "it begins at {first}, but the database and the sets before it reach to {stands}: a set is missing"
            ),
            "name the sets in between too, with --from; or restore to a time before this set, with --stop-at",
        ))
    }

    /// Whether what is staged ends at a place of its log.
    fn ends_at(&self, first: &Place) -> bool {
        let stands = &self.stands.binlog;
        place(stands) == place(first)
            && agree(stands.file_crc, first.file_crc)
            && agree(stands.tail.map(|tail| tail.crc), first.tail.map(|tail| tail.crc))
    }

    /// The log of another server follows: from now on, places are in its files.
    fn leave_server(&mut self, name: &str, first: &End, begin: End) -> Result<()> {
        let known = [&self.stands, first].map(|end| Gtids::parse(self.dialect, &end.binlog.gtid));
        if let [Some(stands), Some(first)] = &known
            && !self.stands.binlog.gtid.is_empty()
            && !(first.may_follow(stands) && stands.may_follow(first))
        {
            let why =
                format!("it follows the GTIDs `{first}`, but the database and the sets before it have `{stands}`");
            return Err(Error::incomplete(name, why, "use another copy of the set, or an older full: --set ID"));
        }
        if self.base.binlog.gtid.is_empty() {
            self.base.binlog.gtid.clone_from(&first.binlog.gtid);
        }
        self.met_base = true;
        self.cut.leave_server();
        match &mut self.way {
            Way::Relays(relays) => relays.close(),
            Way::Statements(statements) => {
                statements.leave_server(&first.binlog);
                Ok(())
            }
            Way::Kept(kept) => {
                kept.leave_server(begin);
                Ok(())
            }
            Way::Nowhere => Ok(()),
        }
    }

    /// Stages the events of a piece.
    fn piece(&mut self, reader: &mut Events<'_>, piece: &Piece, walk: &mut Walk, stop: Option<&LogStop>) -> Result<()> {
        let head = reader.bytes(piece.head)?;
        if let (Way::Kept(kept), Some(format)) = (&mut self.way, format_in(&head)) {
            kept.describe(format)?;
        }
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
            let header = header_within(reader, end - walk.offset)?;
            self.meet_base(walk).map_err(|why| reader.broken(&why))?;
            let body = reader.body(&header)?;
            let timed = self.with_its_end(&body, reader)?;
            if self.cut.is_before(&header, timed.as_ref().unwrap_or(&body), walk, stop)? {
                self.cut.stopped = true;
                let Some(LogStop::Time(time)) = stop else { return Ok(()) };
                reader.pass(&header, |_| Ok(()))?;
                return self.look_at_groups(reader, piece, walk.offset + u64::from(header.size), *time);
            }
            let crc = self.stage(walk.offset, (&header, &body), reader, piece, &head)?;
            walk.pass(&header, &body, crc).map_err(|why| reader.broken(&why))?;
            if let (Way::Kept(kept), false) = (&mut self.way, self.event.is_empty()) {
                kept.event(&self.event, walk)?;
                self.event.clear();
            }
        }
        self.meet_base(walk).map_err(|why| reader.broken(&why))
    }

    /// Behind a stop at a time: looks at the groups of a later set.
    fn look_behind_in(&mut self, stream: &File, name: &str, last: &LogEnd, stop: Option<&LogStop>) -> Result<()> {
        let mut reader = Events::new(stream, name);
        last.pieces.iter().try_for_each(|piece| self.look_behind(&mut reader, piece, stop))
    }

    /// Behind a stop at a time: looks at the groups of a piece.
    fn look_behind(&mut self, reader: &mut Events<'_>, piece: &Piece, stop: Option<&LogStop>) -> Result<()> {
        let Some(LogStop::Time(time)) = stop else { return Ok(()) };
        reader.bytes(piece.head)?;
        self.look_at_groups(reader, piece, piece.from, *time)
    }

    /// The same for the other groups of the piece, from `at` on.
    fn look_at_groups(&mut self, reader: &mut Events<'_>, piece: &Piece, mut at: u64, time: i64) -> Result<()> {
        let end = piece.from + piece.bytes;
        while at < end {
            let header = header_within(reader, end - at)?;
            let body = reader.body(&header)?;
            let timed = self.with_its_end(&body, reader)?;
            if let Body::Group(group) = timed.as_ref().unwrap_or(&body) {
                self.cut.look_behind(group, time, (&piece.file, at))?;
            }
            reader.pass(&header, |_| Ok(()))?;
            at += u64::from(header.size);
        }
        Ok(())
    }

    /// MariaDB: the time of a group is that of its beginning. A statement says how long it took.
    fn with_its_end(&self, body: &Body, reader: &mut Events<'_>) -> Result<Option<Body>> {
        let Body::Group(group) = body else { return Ok(None) };
        if self.dialect != Dialect::MariaDb {
            return Ok(None);
        }
        let end = reader.end_of_next_statement()?;
        let later = end.map(|end| i64::from(end) * 1_000_000).filter(|end| *end > group.time);
        Ok(later.map(|time| Body::Group(Group { time, ..group.clone() })))
    }

    /// At the place where the base ends, the log must have the GTIDs that the base says, as far as it says them.
    fn meet_base(&mut self, walk: &Walk) -> Result<(), String> {
        let base = &mut self.base.binlog;
        if self.met_base || place_of(&walk.file, walk.offset) < place(base) {
            return Ok(());
        }
        if walk.offset != base.offset || walk.file != base.file {
            return Err(format!("no event begins at {}, where the full ends", base.show()));
        }
        self.met_base = true;
        let Some(found) = &walk.gtids else { return Ok(()) };
        if base.gtid.is_empty() {
            // A full of a server that is written to knows its place, but not the GTIDs there.
            base.gtid = found.to_string();
            return Ok(());
        }
        match Gtids::parse(self.dialect, &base.gtid) {
            Some(known) if !known.may_follow(found) => {
                Err(format!("at {} the log has the GTIDs `{found}`, but the full says `{known}`", base.show()))
            }
            _ => Ok(()),
        }
    }

    /// Notes what a statement of the relay logs means for the server that applies them. None: it is compressed, too long, or cannot be read.
    fn learn(&mut self, statement: Option<&Statement>, is_early: bool, place: impl FnOnce() -> String) {
        self.redefines |= is_early && statement.is_none_or(is_redefinition);
        self.uses_system_zone |= statement.is_none_or(changes_in_system_zone);
        let Some(statement) = statement else {
            self.defined.take_all();
            return;
        };
        if is_redefinition(statement) {
            self.defined.take(statement);
        }
        if statement.alters_sequence() {
            self.alters_sequence.get_or_insert_with(place);
        }
        self.events.take(statement);
    }

    /// Gives an event its way, unless the base has it. Returns its checksum.
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
        let is_in_base = self.cut.is_in_base(&piece.file, at);
        if is_in_base && !(first && piece.file == self.base.binlog.file) {
            return reader.pass(header, |_| Ok(()));
        }
        if let Body::Group(group) = body {
            self.counts.0 += 1;
            self.is_open = group.opens;
            match &group.gtid {
                Some(gtid) => self.groups.add(gtid).map_err(|why| reader.broken(&why))?,
                None => self.counts.1 += 1,
            }
        }
        match &mut self.way {
            Way::Relays(relays) => {
                relays.enter(piece, head)?;
                self.has_rows = !matches!(body, Body::Group(_)) && self.has_rows
                    || is_rows(header.kind)
                    || header.kind == kind::PAYLOAD;
                self.prepares_nothing |= header.kind == kind::XA_PREPARE && !self.has_rows;
                let looks = header.kind == kind::QUERY && header.size <= STATEMENT_MAX;
                let (mut event, mut rows) = (Vec::new(), is_rows(header.kind).then(|| Rows::new(header)));
                let crc = reader.pass(header, |bytes| {
                    if !looks {
                        return relays.write(rows.as_mut().map_or(bytes, |rows| rows.pass(bytes)));
                    }
                    event.extend_from_slice(bytes);
                    Ok(())
                })?;
                if matches!(header.kind, kind::QUERY | kind::MARIADB_COMPRESSED_QUERY) {
                    let body = event.get(HEADER..event.len().saturating_sub(CRC)).unwrap_or_default();
                    let statement = looks.then(|| Statement::parse(self.dialect, header, body).ok()).flatten();
                    statement.iter().for_each(|statement| statement.correct(self.dialect, self.is_open, &mut event));
                    relays.write(&event)?;
                    let is_early = header.kind == kind::QUERY && place_of(&piece.file, at) < self.complete;
                    self.learn(statement.as_ref(), is_early, || format!("{}:{at}", piece.file));
                }
                Ok(crc)
            }
            Way::Statements(statements) => {
                statements.enter(piece, head)?;
                let mut event = statements.buffer(header)?;
                let crc = reader.pass(header, |bytes| {
                    event.extend_from_slice(bytes);
                    Ok(())
                })?;
                statements.event(at, header, body, event)?;
                Ok(crc)
            }
            Way::Kept(kept) => keep(kept.as_mut(), &mut self.event, (header, is_in_base), reader),
            Way::Nowhere => reader.pass(header, |_| Ok(())),
        }
    }

    /// Whether the place to stop at was reached.
    pub fn is_stopped(&self) -> bool {
        self.cut.stopped
    }

    /// The error if a stop by GTID or by place was never reached.
    ///
    /// # Errors
    /// The staged sets do not have it.
    pub fn demand(&self, stop: Option<&LogStop>) -> Result<()> {
        self.cut.demand(stop, &self.base.binlog, &self.stands.binlog)
    }

    /// The relay logs.
    pub(super) fn relays(&mut self) -> Result<&mut Relays> {
        match &mut self.way {
            Way::Relays(relays) => Ok(relays),
            _ => Err(Error::Halted),
        }
    }
}

/// The header of the next event of a piece that has so many bytes left.
fn header_within(reader: &mut Events<'_>, left: u64) -> Result<Header> {
    let header = reader.header()?;
    match u64::from(header.size) > left {
        true => Err(reader.broken("an event is longer than its piece")),
        false => Ok(header),
    }
}

/// Reads an event for [`Kept`] into `event`. Of what the base has, it gets the format only.
fn keep(
    kept: &mut dyn Kept,
    event: &mut Vec<u8>,
    (header, is_in_base): (&Header, bool),
    reader: &mut Events<'_>,
) -> Result<u32> {
    let longest = kept.longest();
    if header.size as usize > longest {
        let why = format!("an event has {} bytes, and a packet of the target takes {longest}", header.size);
        return Err(Error::refused(reader.set, why, "raise max_allowed_packet on the target, up to 1 GiB"));
    }
    let crc = reader.pass(header, |bytes| {
        event.extend_from_slice(bytes);
        Ok(())
    })?;
    if is_in_base {
        format_in(event).map_or(Ok(()), |format| kept.describe(format))?;
        event.clear();
    }
    Ok(crc)
}

/// Whether two checksums are equal, as far as both are known.
fn agree(one: Option<u32>, other: Option<u32>) -> bool {
    one.zip(other).is_none_or(|(one, other)| one == other)
}

/// Whether a statement that is more than a part of how transactions begin and end uses the system time zone.
fn changes_in_system_zone(statement: &Statement) -> bool {
    let is_part = matches!(Kind::of(&statement.text), Kind::Begin | Kind::Commit | Kind::Rollback | Kind::Savepoint);
    statement.uses_system_zone() && !is_part
}

/// Whether a statement changes definitions or accounts.
fn is_redefinition(statement: &Statement) -> bool {
    matches!(Kind::of(&statement.text), Kind::Definition | Kind::Event | Kind::Account)
}
