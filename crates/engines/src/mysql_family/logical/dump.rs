//! One table as SQL text, put into buffers piece by piece: neither a row nor a statement is ever in memory as a whole.
//!
//! The text is for the `mysql` client. It replaces the table and its triggers; grants belong to the name and stay.
//! After each statement there is a line `-- end` with a random number: so a program can cut the text into statements
//! without understanding them ([`super::load`]).

use fullbore_core::{Error, Result};

use super::super::Dialect;
use super::super::connection::{Connection, Failure, RowFault, Rows};
use super::columns::{self, Column, Form};
use super::literal::{self, SHORT};
use super::names::{literal, quoted};
use super::tables::Table;

/// A statement with rows ends after the row that makes it longer than this, in bytes: with rows of up to 384 KiB it is
/// always shorter than 1 MiB.
const STATEMENT: u64 = 256 << 10;
/// The longest row, in bytes: in hexadecimal digits it still fits into the greatest `max_allowed_packet`, 1 GiB.
pub const ROW_MAX: u64 = 500 << 20;
/// The longest statement that describes something.
const DESCRIPTION_MAX: u64 = 16 << 20;
/// How much text is made at a time.
const PIECE: usize = 2 * SHORT;

/// Settings that let each statement run to its end, and see all rows, whatever the server's own settings are.
pub const UNLIMITED: &str =
    "sql_select_limit = 18446744073709551615, sql_big_selects = 1, sql_buffer_result = 0, autocommit = 1";

/// The settings of a connection before it reads tables: values come as they are stored, independent of the server's own
/// settings. If the reader's machine or the network fails, its locks last only as long as the server waits to send a
/// packet.
pub fn session(dialect: Dialect) -> [String; 2] {
    let of_dialect = match dialect {
        // Primary keys that the server has made are part of the definition. Numbers of rows and bytes may be a day old otherwise.
        Dialect::MySql => {
            "max_execution_time = 0 /*!80000 , information_schema_stats_expiry = 0 */ /*!80030 , show_gipk_in_create_table_and_information_schema = 1 */"
        }
        Dialect::MariaDb => "max_statement_time = 0, idle_transaction_timeout = 0",
    };
    let all = format!(
        "SET SESSION sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00', character_set_results = NULL, sql_quote_show_create = 1, \
         {of_dialect}, {UNLIMITED}, net_write_timeout = 300, net_read_timeout = 300, wait_timeout = 604800"
    );
    ["SET NAMES utf8mb4".to_owned(), all]
}

/// The mode for loading a table: no value is cut off or replaced silently, and all dates that can be stored are
/// accepted.
const MODE: &str = "NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION,NO_DIR_IN_CREATE";

/// The current place in the text.
enum Step {
    /// Before a row, or after the last.
    Row,
    /// Before a value of a row.
    Value(usize),
    /// Inside a long value.
    Long(usize),
    /// After the rows.
    Triggers,
    Done,
}

/// A table that is being written.
pub struct TableDump {
    table: Table,
    columns: Vec<Column>,
    /// How a statement with rows begins.
    insert: Vec<u8>,
    /// The text after each statement.
    end: String,
    rows: Option<Rows>,
    step: Step,
    /// Text that was made, and how much of it was returned.
    pending: Vec<u8>,
    given: usize,
    scratch: Vec<u8>,
    /// Bytes that were made before `pending`.
    made: u64,
    /// Where the current statement with rows begins in the whole text.
    statement: Option<u64>,
    /// The counts so far.
    account: Account,
}

/// The counts of a table's text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Account {
    /// Rows.
    pub rows: u64,
    /// Triggers.
    pub triggers: u64,
    /// Bytes of text.
    pub bytes: u64,
    /// Bytes of the longest statement with rows.
    pub longest: u64,
}

impl TableDump {
    /// Queries the definition of the table. `connection` has run [`session`], and the table is locked.
    pub fn begin(connection: &mut Connection, table: Table, server: &str) -> Result<Self> {
        let columns = columns::stored(connection, &table)?;
        let created = description(connection, &table, &format!("SHOW CREATE TABLE {}", table.quoted()), 1)?;
        let mut random = [0; 8];
        aws_lc_rs::rand::fill(&mut random).map_err(|_| {
            Error::refused("the system", "it gives no random numbers", "check the machine: fullbore cannot repair this")
        })?;
        let names = columns.iter().map(|column| quoted(&column.name)).collect::<Vec<_>>().join(",");
        let insert = format!("INSERT INTO {} ({names}) VALUES\n(", quoted(&table.name)).into_bytes();
        let end = format!(";\n-- end {:016x}\n", u64::from_le_bytes(random));
        let (step, rows, made, statement, scratch) = (Step::Row, None, 0, None, vec![0; SHORT]);
        let (pending, given, account) = (Vec::with_capacity(2 * PIECE), 0, Account::default());
        let mut dump =
            Self { table, columns, insert, end, rows, step, pending, given, scratch, made, statement, account };
        dump.head(server, &created);
        if dump.table.has_rows() {
            dump.rows = Some(dump.ask(connection)?);
        } else {
            dump.step = Step::Triggers;
        }
        Ok(dump)
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The counts; they are final after [`fill`](Self::fill) has returned less than the whole buffer.
    pub fn account(&self) -> Account {
        self.account
    }

    /// Fills the start of `buffer` with the next text; less than all of it only at the end.
    pub fn fill(&mut self, connection: &mut Connection, buffer: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        loop {
            let count = (self.pending.len() - self.given).min(buffer.len() - filled);
            buffer[filled..filled + count].copy_from_slice(&self.pending[self.given..self.given + count]);
            self.given += count;
            filled += count;
            self.account.bytes += count as u64;
            if filled == buffer.len() || matches!(self.step, Step::Done) {
                return Ok(filled);
            }
            self.made += self.pending.len() as u64;
            self.pending.clear();
            self.given = 0;
            while self.pending.len() < PIECE && !matches!(self.step, Step::Done) {
                self.advance(connection)?;
            }
        }
    }

    fn head(&mut self, server: &str, created: &[u8]) {
        let shown = self.table.path(0);
        let clean: String = server.chars().filter(|c| !c.is_control()).collect();
        let head = format!("-- {shown}, {} of MySQL {clean}, by fullbore", self.table.engine);
        self.pending.extend_from_slice(head.as_bytes());
        // The first line has the end of all statements.
        self.pending.extend_from_slice(&self.end.as_bytes()[1..]);
        self.put(b"SET NAMES utf8mb4");
        // The empty value of an ENUM, number 0, is refused in strict mode.
        let lenient = self.columns.iter().any(|column| column.form == Form::Members);
        let strict = if lenient { "" } else { ",STRICT_ALL_TABLES" };
        self.put(
            format!(
                "SET SESSION sql_mode = '{MODE}{strict}', time_zone = '+00:00', sql_log_bin = 0, \
                 sql_require_primary_key = 0"
            )
            .as_bytes(),
        );
        self.put(format!("USE {}", quoted(&self.table.schema)).as_bytes());
        self.put(format!("DROP TABLE IF EXISTS {}", quoted(&self.table.name)).as_bytes());
        self.put(&without_archive_counter(created));
        self.put(b"SET NAMES binary");
        self.keys("DISABLE");
    }

    /// Only MyISAM can make the indexes that are not unique after the rows.
    fn keys(&mut self, what: &str) {
        if self.table.engine.eq_ignore_ascii_case("MyISAM") {
            self.put(format!("ALTER TABLE {} {what} KEYS", quoted(&self.table.name)).as_bytes());
        }
    }

    fn put(&mut self, statement: &[u8]) {
        self.pending.extend_from_slice(statement);
        self.pending.extend_from_slice(self.end.as_bytes());
    }

    fn ask(&self, connection: &mut Connection) -> Result<Rows> {
        let expressions: Vec<String> = self.columns.iter().map(Column::expression).collect();
        // All of its columns may be generated.
        let expressions = if expressions.is_empty() { "1".to_owned() } else { expressions.join(",") };
        let asked = format!("SELECT {expressions} FROM {}", self.table.quoted());
        let rows = connection.query_rows(&asked, ROW_MAX).map_err(|failure| of_table(&self.table, failure))?;
        match rows.columns() == self.columns.len().max(1) {
            true => Ok(rows),
            false => Err(connection.broken("it sent other columns than the requested ones")),
        }
    }

    fn advance(&mut self, connection: &mut Connection) -> Result<()> {
        match self.step {
            Step::Row => self.row(connection),
            Step::Value(at) => self.value(connection, at).map_err(|fault| self.explained(connection, fault)),
            Step::Long(at) => self.long(connection, at).map_err(|fault| self.explained(connection, fault)),
            Step::Triggers => {
                self.triggers(connection)?;
                self.step = Step::Done;
                Ok(())
            }
            Step::Done => Ok(()),
        }
    }

    fn row(&mut self, connection: &mut Connection) -> Result<()> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let more = rows.next_row(connection).map_err(|failure| of_table(&self.table, failure))?;
        let position = self.made + self.pending.len() as u64;
        let length = self.statement.map(|begun| position - begun);
        if let Some(length) = length.filter(|length| !more || *length >= STATEMENT) {
            self.account.longest = self.account.longest.max(length);
            self.put(b"");
            self.statement = None;
        }
        if !more {
            self.rows = None;
            self.keys("ENABLE");
            self.step = Step::Triggers;
            return Ok(());
        }
        match self.statement {
            Some(_) => self.pending.extend_from_slice(b",\n("),
            None => {
                self.statement = Some(self.made + self.pending.len() as u64);
                self.pending.extend_from_slice(&self.insert);
            }
        }
        self.account.rows += 1;
        self.step = Step::Value(0);
        Ok(())
    }

    fn value(&mut self, connection: &mut Connection, at: usize) -> Result<(), RowFault> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        let Some(column) = self.columns.get(at) else {
            if at == 0 {
                rows.next_value(connection)?;
                rows.read(connection, &mut self.scratch)?;
            }
            self.pending.push(b')');
            self.step = Step::Row;
            return Ok(());
        };
        if at > 0 {
            self.pending.push(b',');
        }
        self.step = Step::Value(at + 1);
        match rows.next_value(connection)? {
            None => self.pending.extend_from_slice(b"NULL"),
            Some(length) if length <= SHORT as u64 => {
                let value = &mut self.scratch[..length as usize];
                rows.read(connection, value)?;
                literal::write(column.form, value, &mut self.pending).map_err(RowFault::Broken)?;
            }
            Some(_) => {
                literal::begin_long(column.form, &mut self.pending).map_err(RowFault::Broken)?;
                self.step = Step::Long(at);
            }
        }
        Ok(())
    }

    fn long(&mut self, connection: &mut Connection, at: usize) -> Result<(), RowFault> {
        let Some(rows) = &mut self.rows else { return Ok(()) };
        match rows.read(connection, &mut self.scratch)? {
            0 => self.step = Step::Value(at + 1),
            count => literal::digits(&self.scratch[..count], &mut self.pending),
        }
        Ok(())
    }

    fn triggers(&mut self, connection: &mut Connection) -> Result<()> {
        let asked = format!(
            "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = {} AND \
             event_object_table = {} ORDER BY event_manipulation, action_timing, action_order",
            literal(&self.table.schema),
            literal(&self.table.name)
        );
        let names = connection.query(&asked)?;
        for name in names.rows.into_iter().flatten().flatten() {
            let shown = format!("SHOW CREATE TRIGGER {}.{}", quoted(&self.table.schema), quoted(&name));
            let [mode, body, client, collation] = description_parts(connection, &self.table, &shown, [1, 2, 3, 4])?;
            let settings = [&mode, &client, &collation].map(|text| String::from_utf8_lossy(text).into_owned());
            let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ',');
            if !settings.iter().all(|text| text.chars().all(word)) {
                return Err(connection.broken("it describes a trigger with invalid settings"));
            }
            let [mode, client, collation] = settings;
            self.put(
                format!(
                    "SET SESSION sql_mode = '{mode}', character_set_client = {client}, collation_connection = \
                     {collation}"
                )
                .as_bytes(),
            );
            self.pending.extend_from_slice(b"DELIMITER ;;\n");
            self.pending.extend_from_slice(&body);
            // On a line of its own: the body may end with a comment.
            self.pending.extend_from_slice(b"\n;;\nDELIMITER ");
            self.put(b"");
            self.account.triggers += 1;
        }
        Ok(())
    }

    fn explained(&self, connection: &Connection, fault: RowFault) -> Error {
        match fault {
            RowFault::Fault(error) => error,
            RowFault::Broken(what) => connection.broken(&format!("it sent {what}")),
            RowFault::TooLong(bytes) => Error::refused(
                format!("table {}", self.table.shown()),
                format!(
                    "its row {} has at least {bytes} bytes, and a statement can load at most {ROW_MAX}",
                    self.account.rows
                ),
                "copy this table with another program, and leave --include-other-engines out",
            ),
        }
    }
}

/// An ARCHIVE table refuses rows with numbers below its AUTO_INCREMENT; it continues to count from its rows by itself.
fn without_archive_counter(created: &[u8]) -> Vec<u8> {
    const COUNTER: &[u8] = b"\n) ENGINE=ARCHIVE AUTO_INCREMENT=";
    // The options come last, and contain no line end.
    let options = created.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    match created[options..].strip_prefix(COUNTER) {
        Some(rest) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            [&created[..options], b"\n) ENGINE=ARCHIVE", &rest[digits..]].concat()
        }
        None => created.to_vec(),
    }
}

/// A value of the one row that `statement` gives, as it comes.
fn description(connection: &mut Connection, table: &Table, statement: &str, column: usize) -> Result<Vec<u8>> {
    let [value] = description_parts(connection, table, statement, [column])?;
    Ok(value)
}

/// Some values of the one row that `statement` gives.
fn description_parts<const N: usize>(
    connection: &mut Connection,
    table: &Table,
    statement: &str,
    wanted: [usize; N],
) -> Result<[Vec<u8>; N]> {
    let of_table = |failure| of_table(table, failure);
    let mut rows = connection.query_rows(statement, DESCRIPTION_MAX).map_err(of_table)?;
    let mut found: [Option<Vec<u8>>; N] = std::array::from_fn(|_| None);
    while rows.next_row(connection).map_err(of_table)? {
        for column in 0..rows.columns() {
            let value = whole_value(&mut rows, connection).map_err(|fault| match fault {
                RowFault::Fault(error) => error,
                _ => connection.broken("it sent an invalid description"),
            })?;
            if let Some(at) = wanted.iter().position(|wanted| *wanted == column) {
                found[at] = value;
            }
        }
    }
    if found.iter().any(Option::is_none) {
        return Err(Error::refused(
            format!("table {}", table.shown()),
            "the server does not report its definition",
            "the account needs SELECT and TRIGGER on it",
        ));
    }
    Ok(found.map(Option::unwrap_or_default))
}

fn whole_value(rows: &mut Rows, connection: &mut Connection) -> Result<Option<Vec<u8>>, RowFault> {
    let Some(length) = rows.next_value(connection)? else { return Ok(None) };
    let mut value = vec![0; length as usize]; // Bounded by DESCRIPTION_MAX.
    rows.read(connection, &mut value)?;
    Ok(Some(value))
}

fn of_table(table: &Table, failure: Failure) -> Error {
    match failure {
        Failure::Server(error) => Error::refused(
            format!("table {}", table.shown()),
            format!("the server refuses: {error}"),
            "repair or drop the table (CHECK TABLE), or leave --include-other-engines out",
        ),
        Failure::Fault(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_archive_loses_its_counter() {
        let archive = b"CREATE TABLE `a` (\n  `id` int\n) ENGINE=ARCHIVE AUTO_INCREMENT=103 DEFAULT CHARSET=utf8mb4";
        let expected = b"CREATE TABLE `a` (\n  `id` int\n) ENGINE=ARCHIVE DEFAULT CHARSET=utf8mb4";
        assert_eq!(without_archive_counter(archive), expected);
        for same in
            [&b"CREATE TABLE `\n) ENGINE=ARCHIVE AUTO_INCREMENT=1` (\n) ENGINE=MyISAM AUTO_INCREMENT=5"[..], b"x"]
        {
            assert_eq!(without_archive_counter(same), same);
        }
    }
}
