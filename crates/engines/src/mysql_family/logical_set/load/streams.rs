//! The streams of a load: pieces of rows come in the order of each stream, and become statements.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};

use super::plan::{Plan, PlannedTable};
use super::rows::Loader;
use super::{ServerLoad, notes};
use crate::engine::LoadOrder;
use crate::mysql_family::connection::Failure;
use crate::mysql_family::logical_set::lock;
use crate::mysql_family::logical_set::set::Detail;
use crate::mysql_family::logical_set::small::Sections;
use crate::mysql_family::logical_set::tsv::Tally;

/// A row with more bytes goes to the server in pieces, as they come.
const LONG_ROW: usize = 4 << 20;
/// The longest row that is held in memory, in bytes: the target takes no row in pieces.
const ROW_MAX: usize = 1 << 30;

/// Tables in a transaction of the target. A server looks through the locks of a transaction for each table that it opens:
/// MariaDB 11.8 loaded 50,000 tables in 692 s with one transaction, and in 158 s with many.
const TABLES: u64 = 100;

/// A stream that is being loaded.
pub struct StreamLoad {
    size: u64,
    taken: u64,
    carry: Carry,
    into: Content,
    /// The note of the target has all of it already: a table is loaded again.
    is_noted: bool,
    by: Loaders,
}

/// The begin of a row whose end has not come.
#[derive(Default)]
pub struct Carry {
    /// Its bytes that wait here.
    bytes: Vec<u8>,
    /// The server has bytes of it: its statement waits for the rest.
    is_open: bool,
}

impl Carry {
    /// Whether the last row has come to its end.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty() && !self.is_open
    }

    /// Whether a statement waits for the rest of a row: its connection takes nothing else.
    pub fn is_open(&self) -> bool {
        self.is_open
    }
}

/// The connections that load a stream.
#[derive(Default)]
pub struct Loaders {
    /// In the transaction that ends with the note of the stream.
    joined: Option<Loader>,
    /// For tables without transactions: each statement is for itself. A server with GTIDs allows nothing else.
    alone: Option<Loader>,
}

impl Loaders {
    /// Commits, and gives the connections back.
    ///
    /// # Errors
    /// The server refuses.
    pub fn commit(&mut self, load: &ServerLoad) -> Result<()> {
        if let Some(loader) = &mut self.joined {
            loader.connection.query("COMMIT")?;
        }
        let Self { joined, alone } = std::mem::take(self);
        lock(load.spare(true)).extend(joined);
        lock(load.spare(false)).extend(alone);
        Ok(())
    }

    fn within(&mut self, load: &ServerLoad, transaction: bool) -> Result<&mut Loader> {
        let place = if transaction { &mut self.joined } else { &mut self.alone };
        if place.is_none() {
            let mut loader = load.loader(transaction)?;
            if transaction {
                loader.connection.query("START TRANSACTION")?;
            }
            *place = Some(loader);
        }
        place.as_mut().ok_or(Error::Halted)
    }
}

impl StreamLoad {
    /// Gives back the memory for pieces of rows: a set has a stream for each 32 MiB of a large table.
    fn release(&mut self) {
        self.carry = Carry::default();
        if let Content::Small(small) = &mut self.into {
            small.sections = Sections::default();
        }
    }

    /// Whether all of its bytes came.
    pub fn is_complete(&self) -> bool {
        self.taken >= self.size
    }
}

enum Content {
    /// Rows of the table at this place.
    Chunk(usize),
    /// Sections of many tables.
    Small(SmallTables),
}

/// A stream with the rows of many tables.
#[derive(Default)]
pub struct SmallTables {
    sections: Sections,
    /// Tables so far.
    tables: u64,
    /// The number of the stream, where the target has notes.
    noted: Option<u32>,
    /// So many tables have their rows in the target, by its note: `u64::MAX` is all of them. None without a note.
    done: Option<u64>,
}

impl SmallTables {
    /// Whether the stream may end here.
    pub fn is_at_end(&self) -> bool {
        self.sections.is_at_end()
    }
}

impl ServerLoad {
    fn take(&self, stream: u32, load: &mut StreamLoad, offset: u64, bytes: &[u8]) -> Result<()> {
        if offset != load.taken {
            return Err(Error::refused(
                "the load",
                "its bytes came out of order",
                "this is a defect: please report it",
            ));
        }
        load.taken += bytes.len() as u64;
        let StreamLoad { carry, into, by, .. } = load;
        match into {
            Content::Chunk(place) => self.take_rows(*place, carry, bytes, by)?,
            Content::Small(small) => self.take_sections(small, bytes, by)?,
        }
        if load.taken < load.size {
            return Ok(());
        }
        let complete = match &load.into {
            Content::Chunk(_) => load.carry.is_empty(),
            Content::Small(small) => small.is_at_end(),
        };
        if !complete {
            let why = format!("its stream {stream} ends inside a row");
            return Err(Error::incomplete("media set", why, "use another set"));
        }
        self.end(stream, load)?;
        load.release();
        Ok(())
    }

    /// Notes the stream in the transaction of its rows.
    fn end(&self, stream: u32, load: &mut StreamLoad) -> Result<()> {
        if !load.is_noted {
            let before = if let Content::Small(small) = &load.into { small.done } else { None };
            notes::note(&mut load.by.within(self, true)?.connection, stream, before, None)?;
        }
        load.by.commit(self)
    }

    /// Loads the whole rows of a piece; `carry` has the bytes after the last one.
    ///
    /// # Errors
    /// The server refuses.
    pub fn take_rows(&self, place: usize, carry: &mut Carry, bytes: &[u8], by: &mut Loaders) -> Result<()> {
        let table = self.plan.tables.get(place).ok_or(Error::Halted)?;
        let bytes = if carry.is_open { self.take_piece(table, carry, bytes, by)? } else { bytes };
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let (rows, rest) = bytes.split_at(end);
        if !table.object.has_rows() {
            carry.bytes = rest.to_vec();
            return Ok(());
        }
        if !rows.is_empty() {
            match carry.bytes.is_empty() {
                true => self.load_rows(place, rows, by)?,
                false => {
                    carry.bytes.extend_from_slice(rows);
                    self.load_rows(place, &carry.bytes, by)?;
                    carry.bytes.clear();
                }
            }
        }
        carry.bytes.extend_from_slice(rest);
        if carry.bytes.len() > LONG_ROW {
            self.begin_row(table, carry, by)?;
        }
        Ok(())
    }

    /// Sends a long row to the server, as far as it has come. The row of a table whose history stays away has to be whole.
    fn begin_row(&self, table: &PlannedTable, carry: &mut Carry, by: &mut Loaders) -> Result<()> {
        let loader = by.within(self, table.transactional)?;
        if table.dropped.is_none() && loader.takes_pieces() {
            loader.begin_row(table)?;
            loader.send_piece(table, &std::mem::take(&mut carry.bytes))?;
            carry.is_open = true;
        } else if carry.bytes.len() > ROW_MAX {
            let why = "a row in the set is longer than 1 GiB, and this target takes no row in pieces";
            let hint = "allow LOAD DATA LOCAL on the target (local_infile = ON)";
            return Err(Error::incomplete(format!("table {}", table.shown()), why, hint));
        }
        Ok(())
    }

    /// Sends the next piece of a long row, and gives the bytes behind its end.
    fn take_piece<'b>(
        &self,
        table: &PlannedTable,
        carry: &mut Carry,
        bytes: &'b [u8],
        by: &mut Loaders,
    ) -> Result<&'b [u8]> {
        let loader = by.within(self, table.transactional)?;
        let end = bytes.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        loader.send_piece(table, piece)?;
        if end.is_some() {
            carry.is_open = false;
            self.loaded_rows.fetch_add(loader.end_row(table)?, Ordering::Relaxed);
        }
        Ok(rest)
    }

    /// Loads whole rows. Without the history, the current rows are what the target should have.
    fn load_rows(&self, place: usize, rows: &[u8], by: &mut Loaders) -> Result<()> {
        let table = self.plan.tables.get(place).ok_or(Error::Halted)?;
        let current = table.dropped.as_ref().map(|dropped| dropped.current_rows(rows));
        if let Some(rows) = &current {
            let mut tally = Tally::default();
            rows.split_inclusive(|byte| *byte == b'\n').for_each(|row| tally.add(row));
            lock(&self.expected).get_mut(place).into_iter().for_each(|expected| expected.join(tally));
        }
        let rows = current.as_deref().unwrap_or(rows);
        if !rows.is_empty() {
            let alone = !table.transactional && table.takes_one_at_a_time();
            let turn = alone.then(|| lock(&self.one_at_a_time));
            let loaded = by.within(self, table.transactional)?.load(table, rows)?;
            drop(turn);
            self.loaded_rows.fetch_add(loaded, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds what the set says of rows to what the target should have.
    pub fn expect(&self, place: usize, tally: Tally) {
        expect(&self.plan, &mut lock(&self.expected), place, tally);
    }

    /// Loads the whole sections of a piece.
    ///
    /// # Errors
    /// The server refuses, or they are not sections.
    pub fn take_sections(&self, small: &mut SmallTables, bytes: &[u8], by: &mut Loaders) -> Result<()> {
        let SmallTables { sections, tables, noted, done } = small;
        let taken = sections.take::<SectionError>(bytes, |section, rows| {
            *tables += 1;
            let is_new = done.is_none_or(|done| *tables > done);
            let place = self.plan.places.get(&(section.schema.clone(), section.table.clone())).copied();
            if let Some((place, table)) = place.and_then(|place| Some((place, self.plan.tables.get(place)?))) {
                self.expect(place, section.tally);
                // A set of an earlier version has rows of MERGE tables, which are rows of other tables.
                if (is_new || table.again) && !rows.is_empty() && table.object.has_rows() {
                    self.load_rows(place, rows, by)?;
                }
            }
            if is_new && *tables % TABLES == 0 {
                if let Some(stream) = noted {
                    notes::note(&mut by.within(self, true)?.connection, *stream, *done, Some(*tables))?;
                    *done = Some(*tables);
                }
                by.commit(self)?;
            }
            Ok(())
        });
        taken.map_err(|error| match error {
            SectionError::Failed(error) => error,
            SectionError::Bad(why) => Error::incomplete("media set", why, "use another set"),
        })
    }
}

enum SectionError {
    Bad(&'static str),
    Failed(Error),
}

impl From<Error> for SectionError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Failure> for SectionError {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure.into())
    }
}

impl From<&'static str> for SectionError {
    fn from(why: &'static str) -> Self {
        Self::Bad(why)
    }
}

/// Rows of a table whose history stays away are counted when they are loaded.
fn expect(plan: &Plan, expected: &mut [Tally], place: usize, tally: Tally) {
    if plan.tables.get(place).is_some_and(|table| table.dropped.is_none()) {
        expected.get_mut(place).into_iter().for_each(|expected| expected.join(tally));
    }
}

/// The streams to load, and those to pass over. Adds the rows of all chunks to `expected`.
pub fn of_order(
    order: &LoadOrder,
    plan: &Plan,
    done: &HashMap<u32, Option<u64>>,
    expected: &mut [Tally],
) -> (HashMap<u32, Mutex<StreamLoad>>, HashSet<u32>) {
    let (mut streams, mut passed) = (HashMap::new(), HashSet::new());
    for stream in &order.streams {
        let noted = done.get(&stream.id);
        let (is_done, is_noted) = (noted.is_some(), matches!(noted, Some(None)));
        let into = match Detail::of(stream) {
            Some(Detail::Chunk { schema, table, tally }) => {
                let place = plan.places.get(&(schema, table)).copied();
                place.into_iter().for_each(|place| expect(plan, expected, place, tally));
                let again = place.is_some_and(|place| plan.tables.get(place).is_some_and(|table| table.again));
                place.filter(|_| !is_done || again).map(Content::Chunk)
            }
            Some(Detail::Small { .. }) => {
                let done = noted.map(|tables| tables.unwrap_or(u64::MAX));
                Some(Content::Small(SmallTables { done, noted: Some(stream.id), ..SmallTables::default() }))
            }
            _ => None,
        };
        match into {
            Some(into) => {
                let (carry, by) = (Carry::default(), Loaders::default());
                let load = StreamLoad { size: stream.size, taken: 0, carry, into, is_noted, by };
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
