//! One reader of a logical backup: a connection, and the streams that it fills.

use fullbore_core::source::{Extent, Reader};
use fullbore_core::{Error, Result};

use super::ahead::{Ahead, Step};
use super::catalogs::CatalogOut;
use super::describe::{create_of, not_described};
use super::key::{From, Range};
use super::listing::Listed;
use super::out::{Out, STEP};
use super::query::{changed, explained, middle, rows_ahead, rows_of, select, select_share};
use super::queue::{Next, Running, Work};
use super::rowing::{Part, Reading, Rowing};
use super::server::first_row;
use super::session::LogicalSession;
use super::small::{SMALL_MAX, Section};
use super::snapshot::GIVE_BACK;
use super::tsv::Tally;
use crate::mysql_family::connection::{Connection, Failure, Rows};

/// A chunk ends with the row that makes it longer than this, in bytes.
const CHUNK: u64 = 32 << 20;
/// A stream of small tables ends with the table that makes it longer than this, in bytes.
const SMALL_STREAM: u64 = 8 << 20;
/// How many bytes a statement reads of a table that can be cut, at most and at least.
const QUERY: u64 = 16 << 20;
/// The same.
const QUERY_LEAST: u64 = 4 << 20;
/// Each reader reads a table with about so many statements: at the end, no reader waits long for another.
const QUERIES: u64 = 16;

/// A reader.
pub struct TableReader<'a> {
    session: &'a LogicalSession,
    index: usize,
    connection: Connection,
    rowing: Option<Rowing>,
    /// Small tables that were asked for.
    ahead: Ahead,
    catalog: Option<CatalogOut>,
    chunk: Option<Out>,
    small: Option<Out>,
    /// Streams that have ended, with text that was not given yet.
    ended: Vec<Out>,
    row: Vec<u8>,
    scratch: Vec<u8>,
    /// Memory for the text of a small table.
    spare: Vec<u8>,
    at_end: bool,
    /// It has read tables whose definitions are locked.
    holds_tables: bool,
}

impl<'a> TableReader<'a> {
    /// On a connection with the snapshot.
    pub fn new(session: &'a LogicalSession, index: usize, connection: Connection) -> Self {
        let (ahead, ended, row, scratch) = (Ahead::default(), Vec::new(), Vec::new(), vec![0; 64 << 10]);
        let (rowing, catalog, chunk, small, spare) = (None, None, None, None, Vec::new());
        let (at_end, holds_tables) = (false, false);
        Self {
            session,
            index,
            connection,
            rowing,
            ahead,
            catalog,
            chunk,
            small,
            ended,
            row,
            scratch,
            spare,
            at_end,
            holds_tables,
        }
    }

    fn give(&mut self, buffer: &mut [u8]) -> Option<Extent> {
        let catalog = self.catalog.iter_mut().map(|catalog| &mut catalog.out);
        let outs = self.ended.iter_mut().chain(catalog).chain(&mut self.chunk).chain(&mut self.small);
        let extent = outs.into_iter().find_map(|out| out.give(buffer));
        let session = self.session;
        self.ended.retain(|out| {
            if out.is_done() {
                session.finished(&out.stream, out.given());
            }
            !out.is_done()
        });
        extent
    }

    /// Goes on; false at the end of all work.
    fn step(&mut self) -> Result<bool> {
        if self.at_end {
            return Ok(false);
        }
        if self.rowing.is_some() {
            self.read_rows()?;
            return Ok(true);
        }
        if let Some(step) = self.ahead.next(&mut self.connection)? {
            self.answered(step)?;
            return Ok(true);
        }
        if let Some(catalog) = &mut self.catalog {
            self.session.fill(catalog);
            self.ended.extend(self.catalog.take_if(|catalog| catalog.out.closed).map(|catalog| catalog.out));
            return Ok(true);
        }
        if std::mem::take(&mut self.holds_tables) {
            self.connection.query(GIVE_BACK)?;
        }
        match self.session.queue.next(self.index, self.session.halt())? {
            Next::Work(Work::Catalog(place)) => self.catalog = Some(self.session.catalog(place)?),
            Next::Work(Work::Accounts) => {
                let (stream, text) = self.session.accounts()?;
                self.ended.push(Out::whole(stream, text));
            }
            Next::Work(Work::Small(tables)) => {
                let session = self.session;
                let listed =
                    |place: usize| Some((place, session.listing.tables.get(place)?, session.is_described(place)));
                self.ahead = Ahead::of(tables.into_iter().filter_map(listed))?;
            }
            Next::Work(Work::Part(table, range)) => self.begin_part(table, range)?,
            Next::Work(Work::Share(place, share)) => {
                self.describe(place)?;
                self.ask_rows(place, &select_share(self.table(place)?, share)?, None)?;
            }
            Next::Cut(victim, running) => self.cut(victim, running)?,
            Next::End => {
                for mut out in self.chunk.take().into_iter().chain(self.small.take()) {
                    out.closed = true;
                    self.ended.push(out);
                }
                self.at_end = true;
            }
        }
        Ok(true)
    }

    fn table(&self, place: usize) -> Result<&'a Listed> {
        self.session.listing.tables.get(place).ok_or(Error::Halted)
    }

    /// Takes the next answer of what was sent ahead, or begins to.
    fn answered(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Definition(place) => {
                let table = self.table(place)?;
                let row = first_row(&mut self.connection).map_err(|failure| match failure {
                    Failure::Server(error) => not_described(format!("table {}", table.object.shown()), &error),
                    Failure::Fault(error) => error,
                })?;
                self.session.has_come(place, create_of(table, &row.unwrap_or_default())?);
            }
            Step::Rows(place) => {
                let rows = rows_ahead(&mut self.connection);
                self.begin_rows(place, rows, None)?;
            }
            Step::Done => drop(self.connection.answer()?),
        }
        Ok(())
    }

    /// Asks for the definition of a table, if it is not there.
    fn describe(&mut self, place: usize) -> Result<()> {
        if !self.session.is_described(place) {
            let mut asked = Ahead::definition(place, self.table(place)?);
            while let Some(step) = asked.next(&mut self.connection)? {
                self.answered(step)?;
            }
        }
        Ok(())
    }

    fn begin_part(&mut self, place: usize, range: Range) -> Result<()> {
        self.describe(place)?;
        let table = self.table(place)?;
        if !table.is_large() || table.is_scanned() {
            return self.ask_rows(place, &select(table, &range, None)?, None);
        }
        let row = (table.bytes / table.rows.max(1)).max(1);
        let places = table.key.iter().map(|key| table.object.columns.iter().position(|it| it.name == key.name));
        let key = places.collect::<Option<Vec<_>>>().ok_or(Error::Halted)?;
        let lanes = self.session.connections().max(1) as u64;
        let query = (table.bytes / (QUERIES * lanes)).clamp(QUERY_LEAST, QUERY);
        let most = (query / row).clamp(64, 200_000);
        let share = if range == Range::default() { table.rows } else { table.rows / 2 };
        let (last, last_row, stop) = (None, Vec::new(), None);
        let part = Part { range, key, most, read: 0, left: share, last, last_row, stop, is_met: false };
        self.begin_query(place, part)
    }

    /// Reads the next rows of a part.
    fn begin_query(&mut self, place: usize, mut part: Part) -> Result<()> {
        let table = self.table(place)?;
        let running =
            Running { table: place, range: part.range.clone(), rows: part.most, left: part.left.max(3 * part.most) };
        let whole = part.range.below.clone();
        part.range = self.session.queue.begins(self.index, running, self.session.halt())?;
        if part.range.below != whole {
            part.left /= 2;
        }
        part.read = 0;
        let mut asked = part.range.clone();
        if table.ends_by_row() {
            // Near its end, the server would send many rows for nothing.
            asked.inclusive = true;
            part.stop = if part.left > 2 * part.most { asked.below.take() } else { asked.below.clone() };
        }
        let statement = select(table, &asked, Some(part.most))?;
        self.ask_rows(place, &statement, Some(part))
    }

    /// The rows of one statement.
    fn ask_rows(&mut self, place: usize, statement: &str, part: Option<Part>) -> Result<()> {
        let columns = self.table(place)?.object.forms()?;
        let rows = rows_of(&mut self.connection, &columns, statement);
        self.holds_tables = true;
        self.begin_rows(place, rows, part)
    }

    fn begin_rows(&mut self, place: usize, rows: Result<Rows, Failure>, part: Option<Part>) -> Result<()> {
        let table = self.table(place)?;
        let columns = table.object.forms()?;
        let rows = rows.map_err(|failure| explained(table, failure))?;
        if rows.columns() != columns.len().max(1) {
            return Err(changed(table, "the server sends other columns than it has listed"));
        }
        let held = if self.chunk.is_some() { None } else { Some(std::mem::take(&mut self.spare)) };
        self.rowing = Some(Rowing { table: place, columns, rows, held, tally: Tally::default(), long: None, part });
        Ok(())
    }

    fn read_rows(&mut self) -> Result<()> {
        let Some(mut rowing) = self.rowing.take() else { return Ok(()) };
        let table = self.table(rowing.table)?;
        let mut held = rowing.held.take();
        let begun = self.chunk.as_ref().map_or(0, Out::length);
        let mut more = true;
        while more {
            if held.as_ref().is_some_and(|held| held.len() > SMALL_MAX) {
                let text = held.take().unwrap_or_default();
                self.chunk = Some(Out::begun(self.session.chunk(table)?, text));
                break;
            }
            let length = self.chunk.as_ref().map_or(0, Out::length);
            if held.is_none() && rowing.long.is_none() && length >= CHUNK {
                self.close_chunk(&mut rowing.tally);
                self.chunk = Some(Out::new(self.session.chunk(table)?));
                break;
            }
            if held.is_none() && length.saturating_sub(begun) >= STEP as u64 {
                break;
            }
            let out = match (&mut held, &mut self.chunk) {
                (Some(held), _) => held,
                (None, Some(chunk)) => &mut chunk.text,
                (None, None) => return Err(Error::Halted),
            };
            let mut reading =
                Reading { table, connection: &mut self.connection, row: &mut self.row, scratch: &mut self.scratch };
            more = reading.next(&mut rowing, out)?;
        }
        rowing.held = held;
        match more {
            true => self.rowing = Some(rowing),
            false => self.end_rows(rowing)?,
        }
        Ok(())
    }

    /// All rows of a statement came.
    fn end_rows(&mut self, mut rowing: Rowing) -> Result<()> {
        let table = self.table(rowing.table)?;
        if let Some(mut part) = rowing.part.take() {
            part.left = part.left.saturating_sub(part.read);
            if part.read >= part.most {
                let last =
                    part.last.take().ok_or_else(|| changed(table, "a key has a value that does not fit its type"))?;
                part.range.from = Some(From::After(last));
                let (held, tally) = (rowing.held.take(), rowing.tally);
                self.begin_query(rowing.table, part)?;
                if let Some(next) = &mut self.rowing {
                    (next.held, next.tally) = (held, tally);
                }
                return Ok(());
            }
            if part.stop.is_some() && !part.is_met {
                return Err(changed(table, "the row in which another range of its key begins did not come"));
            }
            self.session.queue.ends(self.index, self.session.halt())?;
        }
        match rowing.held {
            None => self.close_chunk(&mut rowing.tally),
            Some(mut text) => {
                self.add_small(table, &text, rowing.tally)?;
                text.clear();
                self.spare = text;
            }
        }
        Ok(())
    }

    fn close_chunk(&mut self, tally: &mut Tally) {
        // A chunk that just began has no rows.
        if let Some(mut chunk) = self.chunk.take().filter(|chunk| chunk.length() > 0) {
            chunk.closed = true;
            chunk.stream.tally = std::mem::take(tally);
            self.ended.push(chunk);
        }
    }

    fn add_small(&mut self, table: &Listed, text: &[u8], tally: Tally) -> Result<()> {
        let mut small = match self.small.take() {
            Some(small) => small,
            None => Out::new(self.session.small()?),
        };
        let (schema, name) = (table.object.schema.clone(), table.object.name.clone());
        Section { schema, table: name, bytes: text.len() as u64, tally }.write(text, &mut small.text);
        small.stream.tables += 1;
        small.stream.tally.join(tally);
        small.closed = small.length() >= SMALL_STREAM;
        match small.closed {
            true => self.ended.push(small),
            false => self.small = Some(small),
        }
        Ok(())
    }

    /// Takes the rear of what another reader has not read.
    fn cut(&mut self, victim: usize, running: Running) -> Result<()> {
        let table = self.table(running.table)?;
        let found = middle(&mut self.connection, table, &running);
        let at = found.as_ref().ok().cloned().flatten();
        self.session.queue.cut(victim, at.clone());
        found?;
        match at {
            Some(at) => self.begin_part(running.table, Range { from: Some(From::At(at)), ..running.range }),
            None => Ok(()),
        }
    }
}

impl Reader for TableReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        loop {
            if let Some(extent) = self.give(buffer) {
                return Ok(Some(extent));
            }
            if !self.step()? {
                return Ok(None);
            }
        }
    }
}
