//! One reader of a logical backup: a connection, and the streams that it fills.

use std::collections::VecDeque;

use fullbore_core::source::{Extent, Reader};
use fullbore_core::{Error, Result};

use super::encode::{self, LongRow, values_at};
use super::key::{self, From, KeyValue, Range};
use super::listing::Listed;
use super::out::{Out, STEP};
use super::query::{changed, explained, middle, select};
use super::queue::{Next, Running, Work};
use super::session::{LogicalSession, NewStream};
use super::small::{SMALL_MAX, Section};
use super::snapshot::GIVE_BACK;
use super::tsv::Tally;
use crate::mysql_family::connection::{Connection, Fetched, RowFault, Rows};
use crate::mysql_family::logical::columns::Column;

/// A chunk ends with the row that makes it longer than this, in bytes.
const CHUNK: u64 = 32 << 20;
/// A stream of small tables ends with the table that makes it longer than this, in bytes.
const SMALL_STREAM: u64 = 8 << 20;
/// Longer rows are read piece by piece.
const WHOLE_ROW: usize = 1 << 20;
/// A table with fewer estimated bytes is read by one statement.
const CUT_FROM: u64 = 32 << 20;
/// How many bytes a statement reads of a table that can be cut.
const QUERY: u64 = 16 << 20;
/// The longest row: what a server sends.
const ROW_MAX: u64 = 1 << 30;

/// Rows of a table that come in.
struct Rowing {
    table: usize,
    columns: Vec<Column>,
    rows: Rows,
    /// The text, until the table is found not to be small.
    held: Option<Vec<u8>>,
    tally: Tally,
    long: Option<LongRow>,
    part: Option<Part>,
}

/// A range of a table that is read by several statements.
struct Part {
    range: Range,
    /// The places of the key's columns in a row.
    key: Vec<usize>,
    /// Rows that a statement reads at most, and how many it has read.
    most: u64,
    read: u64,
    /// Rows that are probably left.
    left: u64,
    last: Option<KeyValue>,
    last_row: Vec<u8>,
}

/// A reader.
pub struct TableReader<'a> {
    session: &'a LogicalSession,
    index: usize,
    connection: Connection,
    rowing: Option<Rowing>,
    /// Small tables whose rows were asked for.
    asked: VecDeque<usize>,
    chunk: Option<Out>,
    small: Option<Out>,
    /// Streams that have ended, with text that was not given yet.
    ended: Vec<Out>,
    row: Vec<u8>,
    scratch: Vec<u8>,
    at_end: bool,
    /// It has read tables whose definitions are locked.
    holds_tables: bool,
}

impl<'a> TableReader<'a> {
    /// On a connection with the snapshot.
    pub fn new(session: &'a LogicalSession, index: usize, connection: Connection) -> Self {
        let (asked, ended, row, scratch) = (VecDeque::new(), Vec::new(), Vec::new(), vec![0; 64 << 10]);
        let (rowing, chunk, small, at_end, holds_tables) = (None, None, None, false, false);
        Self { session, index, connection, rowing, asked, chunk, small, ended, row, scratch, at_end, holds_tables }
    }

    fn give(&mut self, buffer: &mut [u8]) -> Option<Extent> {
        let outs = self.ended.iter_mut().chain(&mut self.chunk).chain(&mut self.small);
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
        if let Some(table) = self.asked.pop_front() {
            self.begin_rows(table, None)?;
            return Ok(true);
        }
        if std::mem::take(&mut self.holds_tables) {
            self.connection.query(GIVE_BACK)?;
        }
        match self.session.queue.next(self.index, self.session.halt())? {
            Next::Work(Work::Catalog(place)) => self.whole(self.session.catalog(place)?),
            Next::Work(Work::Accounts) => self.whole(self.session.accounts()?),
            Next::Work(Work::Small(tables)) => {
                let statements: Result<Vec<String>> =
                    tables.iter().map(|table| select(self.table(*table)?, &Range::default(), None)).collect();
                self.connection.send_ahead(&statements?)?;
                self.asked = tables.into();
            }
            Next::Work(Work::Part(table, range)) => self.begin_part(table, range)?,
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

    /// A stream whose text is there.
    fn whole(&mut self, (stream, text): (NewStream, Vec<u8>)) {
        self.ended.push(Out::whole(stream, text));
    }

    fn begin_part(&mut self, place: usize, range: Range) -> Result<()> {
        let table = self.table(place)?;
        let fits = table.object.engine.eq_ignore_ascii_case("InnoDB") && key::can_be_cut(&table.key);
        if !fits || table.bytes < CUT_FROM {
            self.connection.send_ahead(&[select(table, &range, None)?])?;
            return self.begin_rows(place, None);
        }
        let row = (table.bytes / table.rows.max(1)).max(1);
        let places = table.key.iter().map(|key| table.object.columns.iter().position(|it| it.name == key.name));
        let key = places.collect::<Option<Vec<_>>>().ok_or(Error::Halted)?;
        let most = (QUERY / row).clamp(64, 200_000);
        let share = if range == Range::default() { table.rows } else { table.rows / 2 };
        let part = Part { range, key, most, read: 0, left: share, last: None, last_row: Vec::new() };
        self.begin_query(place, part)
    }

    /// Reads the next rows of a part.
    fn begin_query(&mut self, place: usize, mut part: Part) -> Result<()> {
        let table = self.table(place)?;
        let running =
            Running { table: place, range: part.range.clone(), rows: part.most, left: part.left.max(3 * part.most) };
        part.range = self.session.queue.begins(self.index, running, self.session.halt())?;
        part.read = 0;
        self.connection.send_ahead(&[select(table, &part.range, Some(part.most))?])?;
        self.begin_rows(place, Some(part))
    }

    /// The rows of the next answer.
    fn begin_rows(&mut self, place: usize, part: Option<Part>) -> Result<()> {
        let table = self.table(place)?;
        let columns = table.object.forms()?;
        self.holds_tables = true;
        let rows = self.connection.rows(ROW_MAX).map_err(|failure| explained(table, failure))?;
        if rows.columns() != columns.len().max(1) {
            return Err(changed(table, "the server sends other columns than it has listed"));
        }
        let held = if self.chunk.is_some() { None } else { Some(Vec::new()) };
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
            self.session.queue.ends(self.index, self.session.halt())?;
        }
        match rowing.held {
            None => self.close_chunk(&mut rowing.tally),
            Some(text) => self.add_small(table, &text, rowing.tally)?,
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
            Some(at) => self.begin_part(running.table, Range { from: Some(From::At(at)), below: running.range.below }),
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

/// What reading a row needs.
struct Reading<'r> {
    table: &'r Listed,
    connection: &'r mut Connection,
    row: &'r mut Vec<u8>,
    scratch: &'r mut Vec<u8>,
}

impl Reading<'_> {
    /// Appends the next row, or a piece of a long one; false after the last.
    fn next(&mut self, rowing: &mut Rowing, out: &mut Vec<u8>) -> Result<bool> {
        if let Some(mut long) = rowing.long.take() {
            let (columns, rows) = (&rowing.columns, &mut rowing.rows);
            let piece = long.piece(columns, rows, self.connection, self.scratch, out, &mut rowing.tally);
            match piece.map_err(|fault| self.faulty(fault))? {
                false => rowing.long = Some(long),
                true => {
                    if let Some(part) = &mut rowing.part {
                        part.last = KeyValue::of(&self.table.key, &long.key());
                    }
                }
            }
            return Ok(true);
        }
        let fetched = rowing.rows.fetch(self.connection, self.row, WHOLE_ROW);
        match fetched.map_err(|failure| explained(self.table, failure))? {
            Fetched::End => {
                if let Some(part) = rowing.part.as_mut().filter(|part| !part.last_row.is_empty()) {
                    part.last = KeyValue::of(&self.table.key, &values_at(&part.last_row, &part.key));
                }
                Ok(false)
            }
            Fetched::Long => {
                let key = rowing.part.as_mut().map(|part| {
                    part.read += 1;
                    part.last_row.clear();
                    part.key.clone()
                });
                rowing.long = Some(LongRow::new(&key.unwrap_or_default()));
                Ok(true)
            }
            Fetched::Row => {
                let written = encode::row(&rowing.columns, self.row, out, &mut rowing.tally);
                written.map_err(|what| self.connection.broken(&format!("it sent {what}")))?;
                if let Some(part) = &mut rowing.part {
                    part.read += 1;
                    std::mem::swap(&mut part.last_row, self.row);
                }
                Ok(true)
            }
        }
    }

    fn faulty(&self, fault: RowFault) -> Error {
        match fault {
            RowFault::Fault(error) => error,
            RowFault::Broken(what) => self.connection.broken(&format!("it sent {what}")),
            RowFault::TooLong(bytes) => Error::refused(
                format!("table {}", self.table.object.shown()),
                format!("a row has at least {bytes} bytes, which no server can load"),
                "leave the table out with --exclude",
            ),
        }
    }
}
