//! The tables of a logical set, for an export without a server.
//!
//! ```text
//! catalog ─► definition (types) ─► cells          MediaSet ─► source (rows) ─► cells ─► ForeignTables
//! ```

mod cells;
mod charset;
mod definition;
mod source;
mod statements;

use std::sync::Mutex;

use fullbore_core::units::counted;
use fullbore_core::unpack::MediaSet;
use fullbore_core::{Error, Result};
use serde_json::Value;

use super::catalog::{self, Object, TableObject};
use super::lock;
use super::set::Detail;
use super::tsv::unescape;
use crate::engine::{Cell, ForeignTable, ForeignTables, Statements};
use cells::Decoder;
pub use charset::Charset;
use source::{Piece, Pieces, Source};

/// The longest catalog, in bytes.
const CATALOG_MAX: u64 = 1 << 30;

/// Gets the text of a row, and some of its cells.
type EachRow<'a> = &'a mut dyn FnMut(&[u8], &[Cell]) -> Result<()>;

/// The tables of a set.
pub struct LogicalTables {
    database: String,
    sets: Vec<String>,
    notes: Vec<String>,
    position: Value,
    objects: Vec<Object>,
    tables: Vec<ForeignTable>,
    /// Where the rows of each table are, and how they are read.
    stored: Vec<Stored>,
    source: Mutex<Source>,
}

struct Stored {
    pieces: Vec<Piece>,
    decoders: Vec<Decoder>,
}

impl LogicalTables {
    /// Reads the index, the catalogs and the streams of small tables. `title` says which set it is, for messages.
    ///
    /// # Errors
    /// The set cannot be read, or is not a logical set.
    pub fn open(set: MediaSet, title: String) -> Result<Self> {
        let missing = || Error::incomplete("backup set", "has no manifest", "use another set");
        let manifest = set.manifest().cloned().ok_or_else(missing)?;
        let mut source = Source::open(set, &manifest.streams)?;
        let mut objects = Vec::new();
        for stream in &manifest.streams {
            if let Some(Detail::Catalog { .. }) = Detail::of(stream) {
                let text = source.whole(stream.id, stream.size, CATALOG_MAX)?;
                objects.extend(catalog::read(&stream.name, &text)?);
            }
        }
        let mut pieces = source.pieces(&manifest.streams)?;
        let (mut tables, mut stored, mut databases) = (Vec::new(), Vec::new(), Vec::new());
        for object in &objects {
            match object {
                Object::Database { name, .. } => databases.push(name),
                Object::Table(table) => {
                    let (table, read) = described(table, &mut pieces);
                    tables.push(table);
                    stored.push(read);
                }
                _ => {}
            }
        }
        // A set of one database has its name, and others that of their server.
        let database = match databases[..] {
            [name] => name.clone(),
            _ => manifest.database.clone(),
        };
        let (sets, notes, position) = (vec![title], notes(&objects), manifest.position.last.value());
        Ok(Self { database, sets, notes, position, objects, tables, stored, source: Mutex::new(source) })
    }
}

/// A table, and its rows.
fn described(table: &TableObject, pieces: &mut Pieces) -> (ForeignTable, Stored) {
    let pieces = pieces.remove(&(table.schema.clone(), table.name.clone())).unwrap_or_default();
    let defined = definition::columns(&table.create).unwrap_or_default();
    let read = table.columns.iter().map(|column| cells::column(column, defined.get(&column.name)));
    let (columns, decoders): (Vec<_>, Vec<_>) = read.unzip();
    let refused = match table.has_rows() {
        false => Some(format!("its rows are not in the set: it is a table of the engine {}", table.engine)),
        true if columns.is_empty() => Some("all its columns are computed".to_owned()),
        true => None,
    };
    let mut notes = Vec::new();
    let stored = table.columns.iter().filter(|column| defined.contains_key(&column.name)).count();
    if defined.len() > stored {
        let count = counted((defined.len() - stored) as u64, "computed column");
        notes.push(format!("its rows have no values of {count}: the server computes them"));
    }
    if let Some(end) = table.row_end() {
        notes.push(format!("with the history of its rows: `{end}` has no value in current rows"));
    }
    if let Some(condition) = &table.condition {
        notes.push(format!("the set has only the rows for which this is true: {condition}"));
    }
    let (schema, name) = (table.schema.clone(), table.name.clone());
    let rows = source::rows_of(&pieces);
    (ForeignTable { schema, name, columns, stored_rows: Some(rows), refused, notes }, Stored { pieces, decoders })
}

/// What an export of rows leaves out.
fn notes(objects: &[Object]) -> Vec<String> {
    let count = |is: fn(&Object) -> bool| objects.iter().filter(|object| is(object)).count() as u64;
    let views = count(|object| matches!(object, Object::Code(code) if code.kind == "VIEW"));
    let sequences = count(|object| matches!(object, Object::Sequence { .. }));
    let mut notes = Vec::new();
    if views > 0 {
        notes.push(format!("{} left out: their rows are those of tables", counted(views, "view")));
    }
    if sequences > 0 {
        notes.push(format!("{} left out", counted(sequences, "sequence")));
    }
    notes
}

impl ForeignTables for LogicalTables {
    fn database(&self) -> &str {
        &self.database
    }

    fn sets(&self) -> &[String] {
        &self.sets
    }

    fn notes(&self) -> &[String] {
        &self.notes
    }

    fn tables(&self) -> &[ForeignTable] {
        &self.tables
    }

    fn read(
        &self,
        table: usize,
        columns: &[usize],
        each: &mut dyn FnMut(&[Cell]) -> Result<()>,
    ) -> Result<Vec<String>> {
        self.raw_rows(table, columns, &mut |_, cells| each(cells))?;
        Ok(Vec::new())
    }

    fn statements(&self) -> Option<&dyn Statements> {
        Some(self)
    }
}

impl LogicalTables {
    /// Gives the text of each row, and its cells of these columns.
    fn raw_rows(&self, table: usize, columns: &[usize], each: EachRow<'_>) -> Result<()> {
        let (Some(stored), Some(table)) = (self.stored.get(table), self.tables.get(table)) else { return Ok(()) };
        let title = table.title();
        let (mut cells, mut ends) = (Vec::with_capacity(columns.len()), Vec::new());
        lock(&self.source).rows(&title, &stored.pieces, &mut |row| {
            ends.clear();
            ends.extend(row.iter().enumerate().filter(|(_, byte)| **byte == b'\t').map(|(at, _)| at));
            ends.push(row.len());
            // Without stored columns, a row is an empty line.
            if ends.len() != stored.decoders.len().max(1) {
                let why = format!("a row of table {title} has other values than columns");
                return Err(Error::incomplete("media set", why, "use another set"));
            }
            cells.clear();
            for &place in columns {
                let begin = place.checked_sub(1).and_then(|before| ends.get(before)).map_or(0, |end| end + 1);
                let field = ends.get(place).and_then(|end| row.get(begin..*end)).unwrap_or_default();
                cells.push(match (unescape(field), stored.decoders.get(place)) {
                    (Some(value), Some(decoder)) => decoder.cell(value).ok_or_else(|| unreadable(table, place))?,
                    _ => Cell::Null,
                });
            }
            each(row, &cells)
        })
    }
}

fn unreadable(table: &ForeignTable, place: usize) -> Error {
    let (name, declared) =
        table.columns.get(place).map(|column| (&column.name[..], &column.declared[..])).unwrap_or_default();
    let why = format!("column {name} has a value that cannot be read as {declared}");
    Error::refused(table.title(), why, "name the other columns with --columns")
}
