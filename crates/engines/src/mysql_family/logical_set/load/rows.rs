//! The rows of one stream on their way into a table: each piece that comes is cut at the end of its last row, and becomes
//! one statement. Only the statement of a long row waits for more bytes: a row may be larger than the memory.

use std::collections::HashMap;

use fullbore_core::units::show_bytes;
use fullbore_core::{Error, Result};

use super::objects::{DISK_FULL, OF_FUNCTIONS};
use super::plan::PlannedTable;
use crate::mysql_family::connection::{Changed, Connection, Failure, ServerError};
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::logical_set::{insert, tsv};

/// The most warnings of a statement whose texts we ask the server to keep. MySQL 9 allows it to few accounts.
pub const SHOWN_MAX: usize = 4096;

/// The smallest `max_allowed_packet` of a server, in bytes.
const PACKET_MIN: usize = 1024;

/// How rows are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// LOAD DATA LOCAL.
    LoadData,
    /// INSERT with many rows: the server does not allow LOAD DATA LOCAL.
    Insert,
}

/// What a load accepts from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Each row as it is.
    Strict,
    /// Number 0 of an ENUM, too.
    EmptyMembers,
    /// Also values that the server computes and that do not fit their column: the source has rounded or cut them in the same way.
    Computed,
}

/// A connection that loads rows.
pub struct Loader {
    /// To the target.
    pub connection: Connection,
    way: Way,
    /// Of how many warnings the server keeps the texts.
    shown: usize,
    /// The longest packet that the server takes, in bytes.
    packet_max: usize,
    mode: Option<Mode>,
    /// The columns that the server computes, by table.
    computed: HashMap<String, Vec<String>>,
    /// The last statement had more warnings than the server shows.
    hidden: bool,
}

/// A row of a table without transactions cannot be tried again: each computed column may give several warnings.
const MORE_WARNINGS: usize = 16;
/// ER_WARN_DATA_TRUNCATED: number 0 of an ENUM gives it.
const TRUNCATED: &str = "1265";
/// ER_WARN_DEPRECATED_ENGINES: MySQL 9 warns of a session that has changed tables of two engines without transactions.
const MIXED_ENGINES: &str = "6414";
/// ER_TRUNCATED_WRONG_VALUE: within an expression it names no column.
const WRONG_VALUE: &str = "1292";

impl Loader {
    /// On a connection with the settings of a load.
    ///
    /// # Errors
    /// The server refuses.
    pub fn new(mut connection: Connection, way: Way) -> Result<Self> {
        let limits = connection.query("SELECT @@max_error_count, @@max_allowed_packet")?;
        let number = |column| limits.value(0, column).and_then(|text| text.parse().ok());
        let (shown, packet_max) = (number(0).unwrap_or(0), number(1).unwrap_or(PACKET_MIN).max(PACKET_MIN));
        Ok(Self { connection, way, shown, packet_max, mode: None, computed: HashMap::new(), hidden: false })
    }

    /// Loads whole rows, and counts them.
    ///
    /// # Errors
    /// The server refuses them, or does not take each of them as it is.
    pub fn load(&mut self, table: &PlannedTable, rows: &[u8]) -> Result<u64> {
        let enums = enums(table);
        // An expression may warn of what it compares, such as a text with a number.
        let expressions = self.computed(table)?.len() + usize::from(table.split.may_check());
        if expressions > 0 {
            return self.load_computed(table, rows, expressions + enums.len());
        }
        let mut each = rows.split_inclusive(|byte| *byte == b'\n');
        if enums.is_empty() || !each.any(|row| has_empty_member(row, &enums)) {
            return self.load_as(table, rows, Mode::Strict);
        }
        self.load_in_groups(table, rows, Mode::EmptyMembers, enums.len())
    }

    /// Rows of which each may give so many warnings: the server must show all of them.
    fn load_in_groups(&mut self, table: &PlannedTable, rows: &[u8], mode: Mode, warnings: usize) -> Result<u64> {
        groups(rows, self.shown / warnings.max(1))
            .try_fold(0, |loaded, group| Ok(loaded + self.load_as(table, group, mode)?))
    }

    /// Rows of a table with computed columns or CHECKs, of which each row gives about so many warnings. They seldom give one, so rows are tried
    /// together first.
    fn load_computed(&mut self, table: &PlannedTable, rows: &[u8], warnings: usize) -> Result<u64> {
        if !table.transactional {
            return self.load_in_groups(table, rows, Mode::Computed, warnings * MORE_WARNINGS);
        }
        self.connection.query("SAVEPOINT before_rows")?;
        let done = self.load_as(table, rows, Mode::Computed);
        let count = rows.iter().filter(|byte| **byte == b'\n').count();
        if !self.hidden || count < 2 {
            return done;
        }
        self.connection.query("ROLLBACK TO SAVEPOINT before_rows")?;
        let fewer = (self.shown / warnings.max(1)).min(count / 2);
        groups(rows, fewer).try_fold(0, |loaded, group| Ok(loaded + self.load_computed(table, group, warnings)?))
    }

    /// The columns of a table that the server computes.
    fn computed(&mut self, table: &PlannedTable) -> Result<&[String]> {
        let shown = table.shown();
        if !table.split.may_compute() {
            return Ok(&[]);
        }
        if !self.computed.contains_key(&shown) {
            let asked = format!(
                "SELECT column_name FROM information_schema.columns WHERE generation_expression <> '' AND table_schema = {} AND \
                 table_name = {}",
                literal(&table.schema),
                literal(&table.object.name)
            );
            let columns = self.connection.query(&asked)?.rows.into_iter().flatten().flatten().collect();
            self.computed.insert(shown.clone(), columns);
        }
        Ok(self.computed.get(&shown).map_or(&[], Vec::as_slice))
    }

    fn set_mode(&mut self, mode: Mode) -> Result<()> {
        if self.mode != Some(mode) {
            let load = super::prepare::MODE;
            let more = if mode == Mode::Strict { ",STRICT_ALL_TABLES" } else { "" };
            // The server says of each value that it has rounded it.
            let notes = u8::from(mode != Mode::Computed);
            self.connection.query(&format!("SET SESSION sql_mode = '{load}{more}', sql_notes = {notes}"))?;
            self.mode = Some(mode);
        }
        Ok(())
    }

    fn load_as(&mut self, table: &PlannedTable, rows: &[u8], mode: Mode) -> Result<u64> {
        self.set_mode(mode)?;
        match self.way {
            Way::LoadData => self.load_data(table, rows),
            Way::Insert => self.insert(table, rows),
        }
    }

    fn load_data(&mut self, table: &PlannedTable, rows: &[u8]) -> Result<u64> {
        let (statement, packet_max) = (load_statement(table), self.packet_max);
        let mut run = || {
            self.connection.begin_load(&statement)?;
            self.connection.send_rows(rows, packet_max)?;
            self.connection.end_load()
        };
        let changed = run().map_err(|failure| refused(table, failure))?;
        let sent = rows.iter().filter(|byte| **byte == b'\n').count() as u64;
        self.judge(table, changed, sent)
    }

    /// Whether a row may come in pieces.
    pub fn takes_pieces(&self) -> bool {
        self.way == Way::LoadData
    }

    /// Begins the statement of one row, which comes in pieces.
    ///
    /// # Errors
    /// The server refuses the statement.
    pub fn begin_row(&mut self, table: &PlannedTable) -> Result<()> {
        let has_expressions = !self.computed(table)?.is_empty() || table.split.may_check();
        let mode = match &enums(table)[..] {
            _ if has_expressions => Mode::Computed,
            [] => Mode::Strict,
            _ => Mode::EmptyMembers,
        };
        self.set_mode(mode)?;
        self.connection.begin_load(&load_statement(table)).map_err(|failure| refused(table, failure))
    }

    /// Sends a piece of that row.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn send_piece(&mut self, table: &PlannedTable, piece: &[u8]) -> Result<()> {
        let sent = self.connection.send_rows(piece, self.packet_max);
        sent.map_err(|error| refused(table, Failure::Fault(error)))
    }

    /// The row is complete.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn end_row(&mut self, table: &PlannedTable) -> Result<u64> {
        let changed = self.connection.end_load().map_err(|failure| refused(table, failure))?;
        self.judge(table, changed, 1)
    }

    /// LOCAL makes warnings of errors, and leaves out rows with a key that is there.
    fn judge(&mut self, table: &PlannedTable, changed: Changed, sent: u64) -> Result<u64> {
        self.judge_warnings(table, changed.warnings)?;
        if changed.rows == sent {
            return Ok(sent);
        }
        let why = format!("the server took {} of {sent} rows", changed.rows);
        Err(Error::refused(format!("table {}", table.shown()), why, DOUBLED))
    }

    /// Each warning means that a value changed, except those that the mode accepts.
    fn judge_warnings(&mut self, table: &PlannedTable, count: u16) -> Result<()> {
        self.hidden = false;
        if count == 0 {
            return Ok(());
        }
        let told = self.connection.query("SHOW WARNINGS")?;
        let text = |row: &[Option<String>], column: usize| row.get(column).cloned().flatten().unwrap_or_default();
        let accepted = self.accepted(table)?;
        if let Some(row) = told.rows.iter().find(|row| !accepted.takes(&text(row, 1), &text(row, 2))) {
            let number = text(row, 1).parse().unwrap_or(0);
            let error = ServerError::new(self.connection.name(), number, "", text(row, 2).as_bytes());
            return Err(refused(table, Failure::Server(error)));
        }
        if told.rows.len() < usize::from(count) {
            self.hidden = true;
            let why = format!("the server has {count} warnings for its rows, and shows {}", told.rows.len());
            let hint = "raise max_error_count on the target, then continue with --resume";
            return Err(Error::refused(format!("table {}", table.shown()), why, hint));
        }
        Ok(())
    }

    fn accepted(&mut self, table: &PlannedTable) -> Result<Accepted> {
        let mut accepted = Accepted::default();
        if self.mode != Some(Mode::Strict) {
            let name = |at: usize| Some(table.columns.get(at)?.name.clone());
            accepted.enums = enums(table).into_iter().filter_map(name).collect();
        }
        if self.mode == Some(Mode::Computed) {
            accepted.loaded = table.columns.iter().map(|column| column.name.clone()).collect();
            accepted.computed = self.computed(table)?.to_vec();
        }
        Ok(accepted)
    }

    fn insert(&mut self, table: &PlannedTable, rows: &[u8]) -> Result<u64> {
        let head = insert::head(&table.quoted(), &table.columns);
        let (mut statement, mut sent) = (Vec::new(), 0);
        for row in rows.split_inclusive(|byte| *byte == b'\n') {
            let row = row.strip_suffix(b"\n").unwrap_or(row);
            // A value is at most twice as long in a statement.
            if !statement.is_empty() && statement.len() + 2 * row.len() + 16 * table.columns.len() >= self.packet_max {
                self.run(table, &statement)?;
                statement.clear();
            }
            match statement.is_empty() {
                true => statement.extend_from_slice(head.as_bytes()),
                false => statement.push(b','),
            }
            insert::values(&table.columns, row, &mut statement).map_err(|what| {
                let why = format!("the set has {what} for it");
                Error::incomplete(format!("table {}", table.shown()), why, "use another set")
            })?;
            sent += 1;
            if statement.len() >= insert::INSERT {
                self.run(table, &statement)?;
                statement.clear();
            }
        }
        if !statement.is_empty() {
            self.run(table, &statement)?;
        }
        Ok(sent)
    }

    fn run(&mut self, table: &PlannedTable, statement: &[u8]) -> Result<()> {
        // The server would cut the connection, and not say why.
        if statement.len() >= self.packet_max {
            let why = format!(
                "a row becomes a statement of {}, and max_allowed_packet of the target is {}",
                show_bytes(statement.len() as u64),
                show_bytes(self.packet_max as u64)
            );
            let hint = "raise max_allowed_packet on the target, or allow LOAD DATA LOCAL (local_infile = ON); then continue with \
                        --resume";
            return Err(Error::refused(format!("table {}", table.shown()), why, hint));
        }
        let changed = self.connection.change(statement).map_err(|failure| refused(table, failure))?;
        self.judge_warnings(table, changed.warnings)
    }
}

/// The columns whose warnings are accepted.
#[derive(Debug, Default)]
struct Accepted {
    enums: Vec<String>,
    computed: Vec<String>,
    /// The columns that come from the set, if the server computes something, too.
    loaded: Vec<String>,
}

impl Accepted {
    fn takes(&self, number: &str, warning: &str) -> bool {
        if number == MIXED_ENGINES {
            return true;
        }
        if number == TRUNCATED && last_named(warning, &self.enums).is_some() {
            return true;
        }
        // The name of the column comes behind the value.
        let [computed, loaded] = [&self.computed, &self.loaded].map(|columns| last_named(warning, columns));
        // Of a wrong value within an expression, the server names the value only: it may be the name of a column, too.
        let names_no_column = || loaded.is_none_or(|at| !warning[..at].contains(['\'', '`']));
        let of_function = number.parse().is_ok_and(|number| OF_FUNCTIONS.contains(&number));
        computed > loaded || !self.loaded.is_empty() && (of_function || number == WRONG_VALUE && names_no_column())
    }
}

/// The places of the ENUM columns.
fn enums(table: &PlannedTable) -> Vec<usize> {
    let columns = table.object.columns.iter().enumerate();
    columns.filter(|(_, column)| column.data_type.eq_ignore_ascii_case("enum")).map(|(at, _)| at).collect()
}

/// Whether a row has number 0 in one of these columns: strict mode refuses it.
fn has_empty_member(row: &[u8], enums: &[usize]) -> bool {
    let Some(last) = enums.last() else { return false };
    let row = row.strip_suffix(b"\n").unwrap_or(row);
    let fields = row.split(|byte| *byte == b'\t').take(last + 1).enumerate();
    fields.into_iter().any(|(at, field)| field == b"0" && enums.contains(&at))
}

/// Rows in groups of at most `count`.
fn groups(rows: &[u8], count: usize) -> impl Iterator<Item = &[u8]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let ends = rest.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
        let (group, later) = rest.split_at(ends.take(count.max(1)).last().unwrap_or(rest.len()));
        rest = later;
        (!group.is_empty()).then_some(group)
    })
}

/// Where a warning names one of these columns last. The words around the name depend on the server's language.
fn last_named(warning: &str, columns: &[String]) -> Option<usize> {
    let quoted = |name: &String| [warning.rfind(&format!("'{name}'")), warning.rfind(&format!("`{name}`"))];
    columns.iter().flat_map(quoted).flatten().max()
}

const DOUBLED: &str =
    "the table has rows with the same keys: does another session write to it? Load again with --replace";

/// The statement for all rows of a table.
fn load_statement(table: &PlannedTable) -> String {
    tsv::load_statement("rows", &table.quoted(), &table.columns)
}

/// The error of a server that does not take rows. Its text may hold a value, which is left out.
fn refused(table: &PlannedTable, failure: Failure) -> Error {
    match failure {
        Failure::Server(error) => Error::refused(
            format!("table {}", table.shown()),
            format!("the server does not take its rows: {}", error.with_names_only()),
            match error.code {
                1153 => "raise max_allowed_packet on the target: a row is longer",
                code if DISK_FULL.contains(&code) => "free space on the target, then continue with --resume",
                1062 => DOUBLED,
                1205 | 1213 => "another session holds rows of the table: end it, then continue with --resume",
                _ => "look up this error number in the server's manual; then continue with --resume, or load again",
            },
        ),
        Failure::Fault(error) => error.noting(&format!(
            "while it took rows of table {}; a row may be longer than max_allowed_packet of the target",
            table.shown()
        )),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::ddl::Split;
    use super::*;
    use crate::mysql_family::logical::columns::Column;
    use crate::mysql_family::logical_set::catalog::TableObject;

    fn table(columns: &[(&str, &str)]) -> PlannedTable {
        let object = TableObject { schema: "s".into(), name: "t`".into(), ..TableObject::default() };
        let columns = columns.iter().map(|(name, data_type)| Column::of(name, data_type).unwrap()).collect();
        PlannedTable {
            object,
            schema: "new".into(),
            split: Split::default(),
            columns,
            transactional: true,
            again: false,
            dropped: None,
        }
    }

    #[test]
    fn types_that_take_no_bytes_are_converted_in_the_statement() {
        let statement = load_statement(&table(&[("a", "int"), ("j", "json"), ("e", "enum"), ("b", "blob")]));
        assert!(statement.starts_with("LOAD DATA LOCAL INFILE 'rows' INTO TABLE `new`.`t``` CHARACTER SET binary"));
        let end = "(`a`, @v1, @v2, `b`) SET `j` = CONVERT(@v1 USING utf8mb4), `e` = CAST(@v2 AS UNSIGNED)";
        assert!(statement.ends_with(end), "{statement}");
        assert!(load_statement(&table(&[])).ends_with("(@v)"));
    }

    #[test]
    fn only_the_warning_of_an_empty_enum_is_harmless_and_rows_come_in_groups() {
        assert!(has_empty_member(b"5\t0\t0\n", &[1]) && !has_empty_member(b"0\t3\t0\n", &[1]));
        assert!(has_empty_member(b"0\n", &[0]) && !has_empty_member(b"0\n", &[]) && !has_empty_member(b"1\n", &[3]));
        assert_eq!(groups(b"a\nb\nc\n", 2).collect::<Vec<_>>(), [&b"a\nb\n"[..], b"c\n"]);
        assert_eq!(groups(b"a\nb\n", 0).count() + groups(b"", 2).count(), 2);
        let named = |columns: &[&str]| columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let enums = Accepted { enums: named(&["d", "e"]), ..Accepted::default() };
        assert!(enums.takes("1265", "Data truncated for column 'e' at row 1"));
        assert!(!enums.takes("1265", "Data truncated for column 'text' at row 1"));
        assert!(!enums.takes("1264", "Out of range value for column 'e' at row 1"));
    }

    #[test]
    fn a_warning_about_a_computed_column_is_accepted_and_one_about_a_column_of_the_set_is_not() {
        let named = |columns: &[&str]| columns.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let checks = Accepted { loaded: named(&["a"]), ..Accepted::default() };
        assert!(checks.takes("1292", "Truncated incorrect DOUBLE value: 'x'"));
        assert!(!checks.takes("1264", "Out of range value for column 'a' at row 1"));
        assert!(!checks.takes("3819", "Check constraint 'c' is violated."));
        let accepted = Accepted { computed: named(&["n", "half"]), loaded: named(&["a", "b"]), ..Accepted::default() };
        assert!(accepted.takes("1264", "Out of range value for column 'n' at row 1"));
        assert!(accepted.takes("1366", "Incorrect string value: 'a' for column `d`.`t`.`half` at row 1"));
        assert!(accepted.takes("1292", "Truncated incorrect DOUBLE value: 'x'"));
        assert!(accepted.takes("1292", "Truncated incorrect DOUBLE value: 'a'"));
        assert!(accepted.takes("6527", "DATE value is out of range in 'from_days(`d`.`t`.`a`)'"));
        assert!(!accepted.takes("1366", "Incorrect integer value: 'n' for column 'a' at row 1"));
        assert!(!accepted.takes("1292", "Incorrect date value: 'x' for column 'b' at row 1"));
        assert!(!accepted.takes("1292", "Incorrect date value: 'a' for column `d`.`t`.`b` at row 1"));
        assert!(!accepted.takes("1261", "Row 1 doesn't contain data for all columns"));
        assert!(!Accepted::default().takes("1292", "Truncated incorrect DOUBLE value: 'x'"));
    }
}
