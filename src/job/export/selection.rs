//! Which tables, columns and rows are exported.

use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use fullbore_engines::{Cell, ForeignTable, ForeignTables, TableColumn};

use super::condition::Bound;
use super::{Format, Request};

/// A table to export.
pub struct Selected<'a> {
    /// Its place among the tables.
    pub place: usize,
    table: &'a ForeignTable,
    /// The columns of the file.
    pub columns: Vec<&'a TableColumn>,
    /// The places of the columns to read: those of the file first, then those that the condition needs.
    pub read_columns: Vec<usize>,
    /// The comparisons, with the place of their column in `read_columns`.
    condition: Vec<(usize, Bound)>,
}

/// The tables that the request names, or all.
///
/// # Errors
/// A table or a column does not exist.
pub fn choose<'a>(tables: &'a dyn ForeignTables, request: &Request) -> Result<Vec<Selected<'a>>> {
    let all = tables.tables();
    let mut places: Vec<usize> = Vec::new();
    for name in &request.tables {
        let found: Vec<usize> =
            (0..all.len()).filter(|place| all.get(*place).is_some_and(|table| is_named(table, name))).collect();
        // Names may differ in case only: then the exact one is meant.
        let is_exact = |place: &&usize| all.get(**place).is_some_and(|table| table.title() == *name);
        let place = match found[..] {
            [place] => place,
            _ => *found.iter().find(is_exact).ok_or_else(|| not_one(name, &found, all))?,
        };
        if !places.contains(&place) {
            places.push(place);
        }
    }
    if request.tables.is_empty() {
        places = (0..all.len()).collect();
    }
    places.into_iter().filter_map(|place| Some(selected(place, all.get(place)?, request))).collect()
}

/// `Orders` or `dbo.Orders`, with or without brackets. Case does not matter.
fn is_named(table: &ForeignTable, name: &str) -> bool {
    let bare =
        |part: &str| part.strip_prefix('[').and_then(|part| part.strip_suffix(']')).unwrap_or(part).to_lowercase();
    let (schema, own) = (table.schema.to_lowercase(), table.name.to_lowercase());
    // A name may have a point itself.
    let splits = name.match_indices('.').any(|(at, _)| {
        let (before, behind) = (name.get(..at).unwrap_or_default(), name.get(at + 1..).unwrap_or_default());
        bare(before) == schema && bare(behind) == own
    });
    splits || bare(name) == own
}

fn not_one(name: &str, found: &[usize], all: &[ForeignTable]) -> Error {
    let thing = format!("--table {name}");
    if found.is_empty() {
        let names: Vec<String> = all.iter().take(20).map(ForeignTable::title).collect();
        let more = if all.len() > names.len() { ", …" } else { "" };
        let why = format!("the backup has no such table, but {}", counted(all.len() as u64, "table"));
        return Error::usage(thing, why, format!("its tables are {}{more}", names.join(", ")));
    }
    let titles: Vec<String> = found.iter().filter_map(|place| all.get(*place)).map(ForeignTable::title).collect();
    Error::usage(
        thing,
        format!("{} have this name", counted(found.len() as u64, "table")),
        format!("write one of {}", titles.join(", ")),
    )
}

/// The names in `--columns`: `OrderID,[Ship, City]`. In brackets, `]]` is a bracket.
///
/// # Errors
/// A bracket has no end, or something is behind its end.
pub fn column_names(texts: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for text in texts {
        let wrong = |why: &str| {
            Error::usage(format!("--columns {text}"), why, "write names with commas between them: \"a,[b c],[d]]e]\"")
        };
        let mut rest = text.as_str();
        loop {
            // Spaces beside a comma do not count.
            rest = rest.trim_start();
            let (name, behind) = match rest.strip_prefix('[') {
                Some(inside) => in_brackets(inside).ok_or_else(|| wrong("a bracket has no end"))?,
                None => {
                    let end = rest.find(',').unwrap_or(rest.len());
                    let (name, behind) = rest.split_at(end);
                    (name.trim_end().to_owned(), behind)
                }
            };
            if name.is_empty() {
                return Err(wrong("a name is empty"));
            }
            names.push(name);
            let behind = behind.trim_start();
            rest = match behind.strip_prefix(',') {
                Some(rest) => rest,
                None if behind.is_empty() => break,
                None => return Err(wrong("something follows a bracket")),
            };
        }
    }
    Ok(names)
}

/// The name up to its bracket, and what is behind the bracket.
fn in_brackets(text: &str) -> Option<(String, &str)> {
    let (mut name, mut rest) = (String::new(), text);
    loop {
        let (before, behind) = rest.split_once(']')?;
        name.push_str(before);
        match behind.strip_prefix(']') {
            Some(more) => (name, rest) = (name + "]", more),
            None => return Some((name, behind)),
        }
    }
}

fn selected<'a>(place: usize, table: &'a ForeignTable, request: &Request) -> Result<Selected<'a>> {
    let mut read_columns = Vec::new();
    for name in &request.columns {
        let exact = table.columns.iter().position(|column| column.name == *name);
        let found = exact.or_else(|| table.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name)));
        let Some(found) = found else {
            let why = format!("{} has no column {name}", table.title());
            let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            return Err(Error::usage(
                format!("--columns {name}"),
                why,
                format!("its columns are {}", names.join(", ")),
            ));
        };
        if read_columns.contains(&found) {
            return Err(Error::usage(format!("--columns {name}"), "the column is named twice", "name it once"));
        }
        read_columns.push(found);
    }
    // A text of statements has the rows as they are.
    if request.columns.is_empty() && request.format != Format::Sql {
        read_columns = (0..table.columns.len()).collect();
    }
    let columns = read_columns.iter().filter_map(|place| table.columns.get(*place)).collect();
    let mut condition = Vec::new();
    for bound in request
        .condition
        .as_ref()
        .map(|condition| condition.bind(&table.columns, &table.title()))
        .transpose()?
        .into_iter()
        .flatten()
    {
        let known = read_columns.iter().position(|place| *place == bound.column);
        let at = known.unwrap_or_else(|| {
            read_columns.push(bound.column);
            read_columns.len() - 1
        });
        condition.push((at, bound));
    }
    Ok(Selected { place, table, columns, read_columns, condition })
}

impl Selected<'_> {
    /// The schema.
    pub fn schema(&self) -> &str {
        &self.table.schema
    }

    /// The name without the schema.
    pub fn name(&self) -> &str {
        &self.table.name
    }

    /// Schema and name.
    pub fn title(&self) -> String {
        self.table.title()
    }

    /// The rows that the database has counted itself.
    pub fn stored_rows(&self) -> Option<u64> {
        self.table.stored_rows
    }

    /// What the export leaves out.
    pub fn notes(&self) -> Vec<String> {
        self.table.notes.iter().map(|note| format!("{}: {note}", self.table.title())).collect()
    }

    /// Refuses a table, or a column that is asked for, that cannot be decoded.
    ///
    /// # Errors
    /// It cannot.
    pub fn refuse(&self) -> Result<()> {
        if let Some(why) = &self.table.refused {
            return Err(Error::refused(self.table.title(), why, "leave this table out"));
        }
        self.refuse_columns()
    }

    /// Refuses a column that is asked for and cannot be decoded.
    ///
    /// # Errors
    /// There is one.
    pub fn refuse_columns(&self) -> Result<()> {
        let asked = || self.read_columns.iter().filter_map(|place| self.table.columns.get(*place));
        let bad = asked().find_map(|column| Some((column, column.refused.as_ref()?)));
        let Some((column, why)) = bad else { return Ok(()) };
        let what = format!("column {} cannot be read: {why}", column.name);
        Err(Error::refused(self.table.title(), what, "name the other columns with --columns"))
    }

    /// Refuses a row with NULL in a column that has none: it is damaged, and no format should show it.
    ///
    /// # Errors
    /// It names the column and the row, from 1.
    pub fn refuse_null(&self, cells: &[Cell], row: u64) -> Result<()> {
        let columns = self.read_columns.iter().filter_map(|place| self.table.columns.get(*place));
        let bad = cells.iter().zip(columns).find(|(cell, column)| **cell == Cell::Null && !column.nullable);
        bad.map_or(Ok(()), |(_, column)| {
            let why = format!("row {row} has NULL in column {}, which is NOT NULL", column.name);
            Err(Error::refused(self.table.title(), why, "leave this table out"))
        })
    }

    /// True if the condition takes the row.
    pub fn takes(&self, cells: &[Cell]) -> bool {
        self.condition.iter().all(|(at, bound)| cells.get(*at).is_some_and(|cell| bound.takes(cell)))
    }

    /// A warning if the database has counted another number of rows.
    pub fn other_count(&self, read: u64) -> Option<String> {
        let stored = self.table.stored_rows.filter(|stored| *stored != read)?;
        Some(format!(
            "{}: {} found, and the database has counted {stored}: rows may have changed while the backup ran",
            self.table.title(),
            counted(read, "row")
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_of_columns_have_commas_between_them_and_may_have_brackets() {
        let names = |text: &str| column_names(&[text.to_owned()]);
        assert_eq!(names("a,[b, c],[d]]e],f").unwrap(), ["a", "b, c", "d]e", "f"]);
        assert_eq!(column_names(&["a,b".into(), "[c]".into()]).unwrap(), ["a", "b", "c"]);
        assert_eq!(names(" a b , [ c ] ,d ").unwrap(), ["a b", " c ", "d"], "spaces beside a comma do not count");
        for (text, why) in [
            ("[a", "no end"),
            ("[a]b", "follows a bracket"),
            ("a, ,b", "is empty"),
            ("a,,b", "is empty"),
            ("", "is empty"),
        ] {
            assert!(names(text).unwrap_err().to_string().contains(why), "{text}");
        }
    }
}
