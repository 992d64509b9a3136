//! A logical backup as a session: the snapshot, the catalogs, and the streams that the readers fill.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::source::{Extent, Reader, Source, Stream};
use serde_json::{Value, json};

use super::catalog::Object;
use super::describe::{Described, describe};
use super::listing::{Kind, Listed, Listing, Versioned};
use super::queue::Queue;
use super::reader::TableReader;
use super::selection::Selection;
use super::server::{Facts as ServerFacts, Login};
use super::set::{self, Detail};
use super::snapshot::{self, How};
use super::tsv::Tally;
use super::{accounts, computed, judge, lock};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::preflight::status;
use crate::mysql_family::binlog::through::settings::{Names, names};
use crate::mysql_family::connection::Connection;
use crate::mysql_family::server_options::{LOGICAL, USERS};
use crate::mysql_family::system_zone::{self, SystemZone};
use crate::{ExtraWork, Facts, Options, Session, streams};

/// Text has no pages.
const UNIT: u32 = 4096;
/// How often the snapshot is taken again because a table changed before it.
const ATTEMPTS: usize = 3;
/// A table of more bytes gets its indexes after its rows in a migration: then they are made at once.
const LARGE: u64 = 8 << 20;

/// A stream that a reader fills.
pub struct NewStream {
    /// Its number.
    pub id: u32,
    name: String,
    detail: NewDetail,
    /// Its rows so far.
    pub tally: Tally,
    /// Its sections so far.
    pub tables: u64,
}

/// What a stream holds that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NewDetail {
    /// The catalog of a database.
    Catalog(String),
    /// The accounts of the server.
    Accounts,
    /// Rows of the table with this database and name.
    Chunk(String, String),
    /// Rows of many tables.
    Small,
}

/// What the readers have finished.
#[derive(Default)]
pub(super) struct Streams {
    given: u64,
    small: u32,
    chunks: HashMap<String, u32>,
    /// What each stream holds.
    contents: HashMap<u32, NewDetail>,
    found: Vec<(Stream, Detail)>,
}

/// A logical backup that is under way.
pub struct LogicalSession {
    login: Login,
    facts: ServerFacts,
    selection: Selection,
    /// The tables.
    pub(super) listing: Listing,
    /// The work of the readers.
    pub(super) queue: Queue,
    pub(super) described: Mutex<Described>,
    /// With `--users`.
    pub(super) accounts: Mutex<Vec<Object>>,
    connections: Mutex<Vec<Connection>>,
    pub(super) control: Mutex<Connection>,
    /// For long lists, beside the control connection.
    beside: Mutex<Option<Connection>>,
    readers: usize,
    how: How,
    place: Value,
    /// When it was read, by the clock of this host.
    placed: jiff::Timestamp,
    blocked: Duration,
    warnings: Vec<String>,
    /// The account sees a part of what was asked for.
    sees_a_part: bool,
    streams: Mutex<Streams>,
    expected: [Stream; 1],
}

impl LogicalSession {
    /// Lists the tables, makes the snapshot, and asks for the statements.
    ///
    /// # Errors
    /// The server refuses, or has something that a set cannot hold.
    pub fn open(url: &str, options: &Options) -> Result<Self> {
        let login = Login::of(url, &options.given, options.halt.clone())?;
        let selection = Selection::of(&login.address, &options.given)?;
        let mut control = login.ask()?;
        // An account may have no further connection.
        let mut beside = login.ask().ok();
        let facts = ServerFacts::ask(&mut control, login.address.dialect)?;
        judge::demand_known(&login, &facts)?;
        let mut attempt = 0;
        let (listing, taken, placed) = loop {
            let listing = Listing::ask(&mut control, &mut beside, facts.dialect, &selection)?;
            let taken = snapshot::take(&login, options.readers, &mut control, &facts, &listing, options.lock_timeout)?;
            let placed = jiff::Timestamp::now();
            attempt += 1;
            let [changed, new] = listing.changed(&mut control, &mut beside, facts.dialect, &selection)?;
            match changed.or(new) {
                None => break (listing, taken, placed),
                Some(_) if attempt < ATTEMPTS => {}
                Some(what) => return Err(judge::changed(&login, &what)),
            }
        };
        judge::demand_selected(&login, &selection, &listing)?;
        judge::demand_sight(&login, &facts, &listing)?;
        judge::demand_types(&listing)?;
        let described = describe(&mut control, &facts, &selection, &listing)?;
        let accounts = if options.given.has(&USERS) { accounts::ask(&mut control, &facts)? } else { Vec::new() };
        let unseen = judge::unseen(&login, &facts, &selection, &listing);
        let sees_a_part = unseen.is_some();
        let mut warnings = described.warnings.clone();
        warnings.extend(unseen);
        warnings.extend(computed::warning(&mut control, facts.dialect, &selection)?);
        warnings.extend(judge::warnings_of(&facts, &selection, &listing, &taken));
        let size = listing.tables.iter().map(|table| table.bytes).fold(0, u64::saturating_add);
        let expected = [Stream { id: 1, name: String::new(), unit: UNIT, size: size.max(1) }];
        let readers = taken.connections.len();
        Ok(Self {
            queue: Queue::new(&listing, readers, !accounts.is_empty()),
            accounts: Mutex::new(accounts),
            login,
            facts,
            selection,
            listing,
            described: Mutex::new(described),
            connections: Mutex::new(taken.connections),
            control: Mutex::new(control),
            beside: Mutex::new(beside),
            readers,
            how: taken.how,
            place: taken.place,
            placed,
            blocked: taken.blocked,
            warnings,
            sees_a_part,
            streams: Mutex::default(),
            expected,
        })
    }

    /// Ends all waiting.
    pub(super) fn halt(&self) -> Option<&Halt> {
        self.login.halt.as_ref()
    }

    pub(super) fn new_stream(&self, name: impl FnOnce(&mut Streams) -> String, detail: NewDetail) -> Result<NewStream> {
        let mut streams = lock(&self.streams);
        let id = streams::number(streams.given)?;
        streams.given += 1;
        let name = name(&mut streams);
        streams.contents.insert(id, detail.clone());
        Ok(NewStream { id, name, detail, tally: Tally::default(), tables: 0 })
    }

    /// The next chunk of a table.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn chunk(&self, table: &Listed) -> Result<NewStream> {
        let object = &table.object;
        let of_schema = self.listing.databases.binary_search(&object.schema).unwrap_or(0);
        let number = self.listing.place(&object.schema, &object.name).unwrap_or(0);
        let folder = set::table_folder(&object.schema, of_schema, &object.name, number);
        let name = |streams: &mut Streams| {
            let number = streams.chunks.entry(folder.clone()).or_default();
            *number += 1;
            set::chunk_name(&folder, *number)
        };
        self.new_stream(name, NewDetail::Chunk(object.schema.clone(), object.name.clone()))
    }

    /// The next stream with small tables.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn small(&self) -> Result<NewStream> {
        let name = |streams: &mut Streams| {
            streams.small += 1;
            set::small_name(streams.small)
        };
        self.new_stream(name, NewDetail::Small)
    }

    /// A stream was given to its end.
    pub(super) fn finished(&self, stream: &NewStream, size: u64) {
        let tally = stream.tally;
        let detail = match &stream.detail {
            NewDetail::Catalog(schema) => Detail::Catalog { schema: schema.clone() },
            NewDetail::Accounts => Detail::Accounts { accounts: stream.tables },
            NewDetail::Chunk(schema, table) => Detail::Chunk { schema: schema.clone(), table: table.clone(), tally },
            NewDetail::Small => Detail::Small { tables: stream.tables, rows: tally.rows },
        };
        let found = Stream { id: stream.id, name: stream.name.clone(), unit: UNIT, size };
        lock(&self.streams).found.push((found, detail));
    }

    /// What a stream holds, also one that a reader fills now.
    pub fn content(&self, stream: u32) -> Option<NewDetail> {
        lock(&self.streams).contents.get(&stream).cloned()
    }

    /// The rows of each table that has streams of its own, as far as these streams have ended.
    pub fn chunks(&self) -> Vec<((String, String), Tally)> {
        let chunk = |(_, detail): &(Stream, Detail)| match detail {
            Detail::Chunk { schema, table, tally } => Some(((schema.clone(), table.clone()), *tally)),
            _ => None,
        };
        lock(&self.streams).found.iter().filter_map(chunk).collect()
    }

    /// A reader ends before it has read everything.
    pub fn leave(&self, lane: usize) {
        self.queue.leave(lane);
    }

    /// The databases of the snapshot.
    pub fn databases(&self) -> Vec<String> {
        lock(&self.described).catalogs.keys().cloned().collect()
    }

    /// The tables that readers split into streams of their own, by the estimates of the server.
    pub fn large(&self) -> Vec<(String, String)> {
        let large = self.listing.tables.iter().filter(|table| table.bytes > LARGE);
        large.map(|table| (table.object.schema.clone(), table.object.name.clone())).collect()
    }

    /// The tables that have rows, with their storage engines, and bytes on disk as the server estimates them.
    pub fn tables(&self) -> impl Iterator<Item = (String, &str, u64)> {
        let tables = self.listing.tables.iter().filter(|table| table.kind == Kind::Table);
        tables.map(|table| (table.object.shown(), table.object.engine.as_str(), table.bytes))
    }

    /// The tables whose history the snapshot has.
    pub fn versioned(&self) -> Vec<String> {
        let versioned = self.listing.tables.iter().filter(|table| table.versioned == Versioned::ByTime);
        versioned.map(|table| table.object.shown()).collect()
    }

    /// How many connections have the snapshot.
    pub fn connections(&self) -> usize {
        self.readers
    }

    /// The tables must still be what they were when they were listed.
    ///
    /// # Errors
    /// It names a table that is not.
    pub fn demand_unchanged(&self) -> Result<()> {
        let [changed, new] = self.changes()?;
        changed.or(new).map_or(Ok(()), |what| Err(judge::changed(&self.login, &what)))
    }

    /// The same, but there may be new tables: the log has them.
    ///
    /// # Errors
    /// It names a table that is not what it was.
    pub fn demand_kept(&self) -> Result<()> {
        let [changed, _] = self.changes()?;
        changed.map_or(Ok(()), |what| Err(judge::changed(&self.login, &what)))
    }

    fn changes(&self) -> Result<[Option<String>; 2]> {
        let (mut control, mut beside) = (lock(&self.control), lock(&self.beside));
        self.listing.changed(&mut control, &mut beside, self.facts.dialect, &self.selection)
    }
}

/// A reader without a connection.
struct Nothing;

impl Reader for Nothing {
    fn next(&mut self, _: &mut [u8]) -> Result<Option<Extent>> {
        Ok(None)
    }
}

impl Source for LogicalSession {
    fn streams(&self) -> &[Stream] {
        &self.expected
    }

    fn is_open(&self) -> bool {
        true
    }

    fn is_ordered(&self, _: u32) -> bool {
        true
    }

    /// Also a stream that is not complete: its size is known at the end.
    fn stream(&self, id: u32) -> Option<Stream> {
        let given = u64::from(id) <= lock(&self.streams).given;
        (id > 0 && given).then(|| Stream { id, name: String::new(), unit: UNIT, size: 0 })
    }

    fn detail(&self, id: u32) -> Option<Value> {
        let streams = lock(&self.streams);
        let place = streams.found.binary_search_by_key(&id, |(stream, _)| stream.id).ok()?;
        serde_json::to_value(&streams.found.get(place)?.1).ok()
    }

    /// After the last row: the tables must still be what they were.
    fn found(&self) -> Result<Vec<Stream>> {
        self.demand_unchanged()?;
        let mut streams = lock(&self.streams);
        streams.found.sort_by_key(|(stream, _)| stream.id);
        Ok(streams.found.iter().map(|(stream, _)| stream.clone()).collect())
    }

    fn reader(&self, index: usize, _: usize) -> Result<Box<dyn Reader + '_>> {
        let connection = if index < self.readers { lock(&self.connections).pop() } else { None };
        Ok(match connection {
            Some(connection) => Box::new(TableReader::new(self, index, connection)),
            None => Box::new(Nothing),
        })
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl Session for LogicalSession {
    fn engine(&self) -> &'static str {
        self.facts.dialect.name()
    }

    fn source(&self) -> &dyn Source {
        self
    }

    /// The place in the binary log has the fields of the engine's physical sets.
    fn position(&self) -> Result<Value> {
        // Tables without transactions and definitions may be of any moment up to here.
        let now = status(&mut lock(&self.control)).ok().flatten();
        // A log names collations by number. Without a place, no log set follows.
        let collations = match self.place {
            Value::Null => Names::new(),
            _ => names(&mut lock(&self.control)).unwrap_or_default(),
        };
        let zone = match self.place {
            Value::Null => None,
            _ => SystemZone::ask(&mut lock(&self.control)).ok(),
        };
        let place = if self.facts.dialect == Dialect::MySql { "binary_log_exact" } else { "binary_log" };
        Ok(json!({
            super::METHOD_FIELD: LOGICAL,
            "vendor": self.facts.dialect.title(),
            "version": self.facts.version,
            "hostname": self.facts.hostname,
            "server_id": self.facts.server_id,
            "server_uuid": self.facts.server_uuid,
            "lower_case_table_names": self.facts.lower_case_table_names,
            "snapshot": {
                "by": self.how.told(),
                "connections": self.readers,
                "writers_blocked_ms": (self.blocked.as_secs_f64() * 1e4).round() / 10.0,
            },
            "databases": self.listing.databases.len(),
            "tables": self.listing.tables.len(),
            place: self.place,
            "place_at": self.placed.to_string(),
            "collations": collations,
            system_zone::MEMBER: zone,
            "complete_at": now.map(|now| format!("{}:{}", now.file, now.offset)),
        }))
    }

    fn holds_a_part(&self) -> bool {
        self.sees_a_part || self.selection.is_part(&self.login.address)
    }

    fn accepts_base(&self, _: &Value) -> Result<(), String> {
        Err("of no use for a logical backup, which has no differentials: take a full".to_owned())
    }

    fn facts(&self) -> Facts {
        Facts {
            warnings: self.warnings.clone(),
            writers_blocked: self.blocked,
            free_bytes: 0,
            library: self.facts.named(),
            direct: false,
        }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Err("a logical backup reads rows, and no files".to_owned())
    }

    fn extra_work(&self) -> ExtraWork {
        ExtraWork { files: self.listing.tables.len() as u64, ..ExtraWork::default() }
    }
}
