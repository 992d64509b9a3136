//! A logical set into a running server: tables first, then each chunk of rows as it comes, then everything else.

pub mod check;
mod ddl;
mod notes;
pub mod objects;
mod plan;
mod rows;
mod straight;
mod vendor;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fullbore_core::error::counted;
use fullbore_core::threads::in_turns;
use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};

use super::lock;
use super::server::{Facts, Login};
use super::set::Detail;
use super::small::Sections;
use super::tsv::Tally;
use crate::Options;
use crate::engine::{Load, LoadOrder, Loaded};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use plan::{Plan, PlannedTable};
use rows::{Loader, Way};

/// The mode for loading: no value is cut off or replaced silently, and all dates that can be stored are accepted.
const MODE: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION,NO_DIR_IN_CREATE";
/// How long the server may be silent: it may create an index of a large table.
const SILENCE: Duration = Duration::from_secs(24 * 3600);
/// The longest row that is held in memory, in bytes.
const ROW_MAX: usize = 1 << 30;

/// The settings of names and modes, for objects.
fn session_names() -> [String; 2] {
    let set = format!("SET SESSION sql_mode = '{MODE},STRICT_ALL_TABLES', time_zone = '+00:00'");
    ["SET NAMES utf8mb4".to_owned(), set]
}

/// A stream that is being loaded.
struct StreamLoad {
    size: u64,
    taken: u64,
    /// Bytes after the last row that was loaded.
    carry: Vec<u8>,
    into: Content,
    loader: Option<Loader>,
}

enum Content {
    /// Rows of the table at this place.
    Chunk(usize),
    /// Sections of many tables. True: its rows are in the target already.
    Small(Sections, bool),
}

/// A load into a server.
pub struct ServerLoad {
    login: Login,
    dialect: Dialect,
    way: Way,
    order: LoadOrder,
    plan: Plan,
    streams: HashMap<u32, Mutex<StreamLoad>>,
    /// The other streams of the set: not chosen, or loaded already.
    passed: HashSet<u32>,
    control: Mutex<Connection>,
    spare: Mutex<Vec<Loader>>,
    /// The rows of each table, by the set.
    expected: Mutex<Vec<Tally>>,
    loaded_rows: AtomicU64,
    begun: Mutex<&'static str>,
    notes: Vec<String>,
}

impl ServerLoad {
    /// Connects, checks, and creates databases and tables.
    ///
    /// # Errors
    /// As for [`LogicalEngine::load`](crate::engine::LogicalEngine::load).
    pub fn begin(url: &str, order: LoadOrder, options: &Options) -> Result<Self> {
        let login = Login::of(url, &options.given, options.halt.clone())?;
        let dialect = login.address.dialect;
        if login.address.database.is_some() {
            let why = "a load goes into the databases of the set";
            return Err(Error::usage("--into", why, "leave the database out, and rename with --map OLD=NEW"));
        }
        let mut control = control(&login)?;
        let facts = Facts::ask(&mut control, dialect)?;
        let other_vendor = order.engine != dialect.name();
        let mut plan = Plan::of(&order, other_vendor)?;
        vendor::fit_collations(&mut control, &mut plan)?;
        let local = control.query("SELECT @@local_infile")?;
        let way = if local.single() == Some("1") { Way::LoadData } else { Way::Insert };
        let mut notes = Vec::new();
        if way == Way::Insert {
            notes.push(
                "the target does not allow LOAD DATA LOCAL (local_infile = OFF): INSERT is slower. SET GLOBAL local_infile = \
                 ON allows it"
                    .to_owned(),
            );
        }
        let earlier = prepared(&mut control, &login, &order, &plan, &facts)?;
        let expected = Mutex::new(vec![Tally::default(); plan.tables.len()]);
        let (streams, passed) = streams_of(&order, &plan, &earlier.streams, &mut lock(&expected));
        if !earlier.streams.is_empty() {
            let count = counted(earlier.streams.len() as u64, "stream");
            notes.push(format!("the target already has {count} of the set"));
        }
        let spare = Mutex::default();
        let (loaded_rows, begun) = (AtomicU64::new(0), Mutex::new("its tables, without all of their rows"));
        let control = Mutex::new(control);
        Ok(Self {
            login,
            dialect,
            way,
            order,
            plan,
            streams,
            passed,
            control,
            spare,
            expected,
            loaded_rows,
            begun,
            notes,
        })
    }

    fn loader(&self) -> Result<Loader> {
        if let Some(loader) = lock(&self.spare).pop() {
            return Ok(loader);
        }
        let mut connection = control(&self.login)?;
        if self.way == Way::Insert {
            connection.query("SET NAMES binary")?;
        }
        Ok(Loader::new(connection, self.way))
    }

    fn take(&self, stream: u32, load: &mut StreamLoad, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset != load.taken {
            return Err(Error::refused(
                "the load",
                "its bytes came out of order",
                "this is a defect: please report it",
            ));
        }
        let mut loader = match load.loader.take() {
            Some(loader) => loader,
            None => {
                let mut loader = self.loader()?;
                loader.connection.query("START TRANSACTION")?;
                loader
            }
        };
        load.taken += bytes.len() as u64;
        match &mut load.into {
            Content::Chunk(place) => self.take_rows(*place, &mut load.carry, bytes, &mut loader)?,
            Content::Small(sections, done) => self.take_sections(sections, *done, bytes, &mut loader)?,
        }
        if load.taken < load.size {
            load.loader = Some(loader);
            return Ok(());
        }
        let complete = match &load.into {
            Content::Chunk(_) => load.carry.is_empty(),
            Content::Small(sections, _) => sections.is_at_end(),
        };
        if !complete {
            let why = format!("its stream {stream} ends inside a row");
            return Err(Error::incomplete("media set", why, "use another set"));
        }
        if !matches!(load.into, Content::Small(_, true)) {
            loader.connection.query(&notes::done(stream))?;
        }
        loader.connection.query("COMMIT")?;
        lock(&self.spare).push(loader);
        Ok(())
    }

    fn take_rows(&self, place: usize, carry: &mut Vec<u8>, bytes: &[u8], loader: &mut Loader) -> Result<()> {
        let table = self.plan.tables.get(place).ok_or(Error::Halted)?;
        let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n').map(|end| end + 1) else {
            carry.extend_from_slice(bytes);
            if carry.len() > ROW_MAX {
                let why = "a row in the set is longer than 1 GiB";
                return Err(Error::incomplete(format!("table {}", table.shown()), why, "use another set"));
            }
            return Ok(());
        };
        let (rows, rest) = bytes.split_at(end);
        if !table.object.has_rows() {
            *carry = rest.to_vec();
            return Ok(());
        }
        let loaded = match carry.is_empty() {
            true => loader.load(table, rows)?,
            false => {
                carry.extend_from_slice(rows);
                let loaded = loader.load(table, carry)?;
                carry.clear();
                loaded
            }
        };
        self.loaded_rows.fetch_add(loaded, Ordering::Relaxed);
        carry.extend_from_slice(rest);
        Ok(())
    }

    fn take_sections(&self, sections: &mut Sections, done: bool, bytes: &[u8], loader: &mut Loader) -> Result<()> {
        let taken = sections.take::<SectionError>(bytes, |section, rows| {
            let place = self.plan.places.get(&(section.schema.clone(), section.table.clone()));
            let Some((place, table)) = place.and_then(|place| Some((*place, self.plan.tables.get(*place)?))) else {
                return Ok(());
            };
            if let Some(expected) = lock(&self.expected).get_mut(place) {
                expected.join(section.tally);
            }
            // A set of an earlier version has rows of MERGE tables, which are rows of other tables.
            if !done && !rows.is_empty() && table.object.has_rows() {
                let loaded = loader.load(table, rows).map_err(SectionError::Failed)?;
                self.loaded_rows.fetch_add(loaded, Ordering::Relaxed);
            }
            Ok(())
        });
        taken.map_err(|error| match error {
            SectionError::Failed(error) => error,
            SectionError::Bad(why) => Error::incomplete("media set", why, "use another set"),
        })
    }

    /// Leaves out the events of the set: they would run on the target.
    pub fn leave_events(&mut self) {
        self.plan.code.retain(|code| code.kind != "EVENT");
    }

    /// Does something with each table, on several connections.
    fn each_table(&self, work: impl Fn(&mut Connection, usize) -> Result<()> + Sync) -> Result<()> {
        in_turns("load", self.order.at_once.max(1), 0..self.plan.tables.len(), |place| {
            let mut loader = self.loader()?;
            work(&mut loader.connection, place)?;
            lock(&self.spare).push(loader);
            Ok(())
        })
    }

    fn add_indexes(&self) -> Result<()> {
        let table = |place: usize| self.plan.tables.get(place).ok_or(Error::Halted);
        self.each_wanted(
            |place| table(place).is_ok_and(|table| !table.split.indexes.is_empty()),
            |connection, place| {
                let table = table(place)?;
                table.split.indexes.iter().try_for_each(|what| objects::add(connection, table, what))
            },
        )?;
        self.each_wanted(
            |place| table(place).is_ok_and(|table| table.split.foreign_keys.is_some()),
            |connection, place| {
                let table = table(place)?;
                table.split.foreign_keys.iter().try_for_each(|what| objects::add(connection, table, what))
            },
        )
    }

    fn each_wanted(
        &self,
        wanted: impl Fn(usize) -> bool + Sync,
        work: impl Fn(&mut Connection, usize) -> Result<()> + Sync,
    ) -> Result<()> {
        if !(0..self.plan.tables.len()).any(&wanted) {
            return Ok(());
        }
        self.each_table(|connection, place| if wanted(place) { work(connection, place) } else { Ok(()) })
    }

    fn demand_complete(&self) -> Result<()> {
        let is_incomplete = |load: &StreamLoad| load.taken < load.size;
        let incomplete = self.streams.iter().find(|(_, load)| is_incomplete(&lock(load)));
        match incomplete {
            None => Ok(()),
            Some((stream, _)) => {
                let why = format!("its stream {stream} did not come to its end");
                Err(Error::incomplete("media set", why, "use another set"))
            }
        }
    }
}

enum SectionError {
    Bad(&'static str),
    Failed(Error),
}

impl From<&'static str> for SectionError {
    fn from(why: &'static str) -> Self {
        Self::Bad(why)
    }
}

/// A connection with the settings of a load.
///
/// # Errors
/// The server cannot be reached, or refuses.
pub fn control(login: &Login) -> Result<Connection> {
    let mut connection = Connection::open_loading(&login.address, &login.credentials, login.halt.clone())?;
    connection.set_silence(SILENCE);
    for statement in session_names() {
        connection.query(&statement)?;
    }
    connection.query("SET SESSION foreign_key_checks = 0, autocommit = 1")?;
    connection.query(&format!("SET SESSION max_error_count = {}", rows::SHOWN_MAX))?;
    let of_dialect: &[&str] = match login.address.dialect {
        Dialect::MySql => {
            &["SET SESSION sql_require_primary_key = 0", "SET SESSION sql_generate_invisible_primary_key = 0"]
        }
        Dialect::MariaDb => &["SET SESSION max_statement_time = 0, idle_transaction_timeout = 0"],
    };
    for statement in of_dialect {
        // Some accounts may not set them, and some versions do not have them.
        if let Err(Failure::Fault(error)) = connection.query(statement) {
            return Err(error);
        }
    }
    Ok(connection)
}

/// Checks the target and makes everything that comes before the rows. Gives what an earlier load left.
fn prepared(
    control: &mut Connection,
    login: &Login,
    order: &LoadOrder,
    plan: &Plan,
    facts: &Facts,
) -> Result<notes::Earlier> {
    let server = login.address.name();
    let (earlier, selection) = (notes::read(control)?, notes::selection(order));
    let same = earlier.set.as_deref() == Some(&order.set.to_string());
    if order.resume && same && earlier.created {
        return if earlier.selection == selection { Ok(earlier) } else { Err(other_selection(server)) };
    }
    if earlier.set.is_some() && !order.replace {
        let why = "the target holds a load that was interrupted";
        let hint = if same && earlier.created {
            "continue it with --resume, or begin again with --replace"
        } else {
            "begin again with --replace"
        };
        return Err(Error::refused(server, why, hint));
    }
    if facts.lower_case_table_names != 0 {
        demand_names(plan, &server)?;
    }
    let found = objects::existing(control, plan)?;
    if !found.is_empty() && !order.replace {
        return Err(objects::not_empty(&server, &found));
    }
    if order.dry_run {
        return Ok(notes::Earlier::default());
    }
    if order.replace {
        objects::drop_all(control, plan)?;
        notes::remove(control)?;
    }
    notes::begin(control, order.set, &selection)?;
    objects::create(control, plan)?;
    notes::created(control)?;
    Ok(notes::Earlier::default())
}

/// The error of a load that goes on with other tables or names: rows that the first run passed over would be missing.
fn other_selection(server: String) -> Error {
    let why = "the interrupted load in the target has other --table or --map options";
    let hint = "give the same options as in its first run, or begin again with --replace and without --resume";
    Error::refused(server, why, hint)
}

/// Refuses names that are one for the target.
fn demand_names(plan: &Plan, server: &str) -> Result<()> {
    let mut seen = HashMap::new();
    let databases = plan.databases.iter().map(|database| database.name.clone());
    for shown in databases.chain(plan.tables.iter().map(PlannedTable::shown)) {
        if let Some(other) = seen.insert(shown.to_lowercase(), shown.clone()) {
            let why = format!("it compares names without case, and the set has both {other} and {shown}");
            return Err(Error::refused(server, why, "load into a server with lower_case_table_names = 0"));
        }
    }
    Ok(())
}

/// The streams to load, and those to pass over. Adds the rows of all chunks to `expected`.
fn streams_of(
    order: &LoadOrder,
    plan: &Plan,
    done: &HashSet<u32>,
    expected: &mut [Tally],
) -> (HashMap<u32, Mutex<StreamLoad>>, HashSet<u32>) {
    let (mut streams, mut passed) = (HashMap::new(), HashSet::new());
    for stream in &order.streams {
        let is_done = done.contains(&stream.id);
        let into = match Detail::of(stream) {
            Some(Detail::Chunk { schema, table, tally }) => {
                let place = plan.places.get(&(schema, table)).copied();
                if let Some(expected) = place.and_then(|place| expected.get_mut(place)) {
                    expected.join(tally);
                }
                place.filter(|_| !is_done).map(Content::Chunk)
            }
            Some(Detail::Small { .. }) => Some(Content::Small(Sections::default(), is_done)),
            _ => None,
        };
        match into {
            Some(into) => {
                let load = StreamLoad { size: stream.size, taken: 0, carry: Vec::new(), into, loader: None };
                streams.insert(stream.id, Mutex::new(load));
            }
            None => {
                passed.insert(stream.id);
            }
        }
    }
    (streams, passed)
}

impl Target for ServerLoad {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.streams.get(&stream) {
            Some(load) => self.take(stream, &mut lock(load), offset, bytes),
            None if self.passed.contains(&stream) => Ok(()),
            None => {
                let why = format!("it has blocks of stream {stream}, which its manifest does not name");
                Err(Error::incomplete("media set", why, "use another set"))
            }
        }
    }

    fn zero(&self, _: u32, _: u64, _: u64) -> Result<()> {
        Err(Error::incomplete("media set", "it has zeros in a stream of rows", "use another set"))
    }
}

impl Load for ServerLoad {
    fn plan(&self) -> Loaded {
        let (tables, rows) = (self.plan.tables.len() as u64, 0);
        Loaded { tables, rows, warnings: self.plan.warnings.clone(), notes: self.notes.clone() }
    }

    fn finish(&self) -> Result<Loaded> {
        self.demand_complete()?;
        *lock(&self.begun) = "all rows, without all indexes, keys and other objects";
        self.add_indexes()?;
        objects::create_code(&mut lock(&self.control), &self.plan)?;
        if self.order.check {
            *lock(&self.begun) = "everything, but the check of its rows did not end well";
            let expected = lock(&self.expected).clone();
            let readers = Mutex::new(Vec::new());
            in_turns("check", self.order.at_once.max(1), 0..self.plan.tables.len(), |place| {
                let spare = lock(&readers).pop();
                let mut connection = spare.map_or_else(|| self.login.read(), Ok)?;
                check::compare(&mut connection, &self.plan, place, &expected)?;
                lock(&readers).push(connection);
                Ok(())
            })?;
        }
        notes::remove(&mut lock(&self.control))?;
        lock(&self.spare).drain(..).for_each(|loader| loader.connection.quit());
        let mut loaded = self.plan();
        loaded.rows = self.loaded_rows.load(Ordering::Relaxed);
        loaded.notes.push(format!(
            "loaded into {}: {} with {}",
            self.dialect.title(),
            counted(loaded.tables, "table"),
            counted(loaded.rows, "row")
        ));
        if self.order.check {
            loaded.notes.push("the rows of each table were read again: they are the rows of the set".to_owned());
        }
        Ok(loaded)
    }

    fn left(&self) -> String {
        format!(
            "{} holds {}; its database `{}` marks it as not complete. The same restore with --resume continues it, and \
             with --replace begins again",
            self.login.address.name(),
            lock(&self.begun),
            super::selection::NOTES
        )
    }
}
