//! Statements in a log (QUERY events): what they are, and the settings of the session that ran them.
//!
//! The format is from MySQL's "Query_event" page of its source documentation, and from MariaDB's "QUERY_EVENT" article.

use std::borrow::Cow;
use std::collections::HashMap;

use super::event::take;

/// The most words that are looked at to know what a statement is.
const WORDS: usize = 64;
/// The clause of a CREATE TABLE whose rows follow.
const OPEN: &[u8] = b" START TRANSACTION";
/// A setting that is only of statements which load files.
pub const COLLATION_DATABASE: &str = "collation_database";
/// The mark of a statement that changes more databases than the list of names holds.
const TOO_MANY: u8 = 254;

/// What a statement of a log is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A transaction begins.
    Begin,
    /// A transaction ends.
    Commit,
    /// A transaction was rolled back, but not all of its tables could be.
    Rollback,
    /// A savepoint within a transaction, or the return to one.
    Savepoint,
    /// It changes a definition. It commits by itself.
    Definition,
    /// It changes an event: a statement that the server runs at a time.
    Event,
    /// It changes accounts or privileges.
    Account,
    /// It changes nothing that a database holds: FLUSH, ANALYZE, temporary tables.
    Idle,
    /// XA: a transaction of several servers.
    Distributed,
    /// It changes rows: the log has the statement and not the rows.
    Rows,
}

impl Kind {
    /// From the text of a statement.
    pub fn of(text: &[u8]) -> Self {
        Self::of_words(&words(text))
    }

    fn of_words(words: &[String]) -> Self {
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        // The object follows words such as OR REPLACE, DEFINER and names of accounts, which are none of these.
        let object = || words.iter().skip(1).find(|word| OBJECTS.contains(&word.as_str())).map_or("", String::as_str);
        match (word(0), word(1)) {
            ("BEGIN", _) | ("START", "TRANSACTION") => Self::Begin,
            ("COMMIT", _) => Self::Commit,
            ("ROLLBACK", "TO") | ("SAVEPOINT" | "RELEASE", _) => Self::Savepoint,
            ("ROLLBACK", _) => Self::Rollback,
            ("XA", _) => Self::Distributed,
            // MariaDB: settings for one statement, which follows.
            ("SET", "STATEMENT") => match words.iter().position(|word| word == "FOR") {
                Some(at) => Self::of_words(words.get(at + 1..).unwrap_or_default()),
                None => Self::Rows,
            },
            ("GRANT" | "REVOKE", _) | ("SET", _) => Self::Account,
            ("FLUSH" | "ANALYZE" | "OPTIMIZE" | "REPAIR" | "CHECK" | "INSTALL" | "UNINSTALL" | "RESET", _) => {
                Self::Idle
            }
            ("CREATE" | "ALTER" | "DROP" | "RENAME", _) => match object() {
                "EVENT" => Self::Event,
                "USER" | "ROLE" => Self::Account,
                "TEMPORARY" | "SERVER" | "RESOURCE" | "UNDO" | "INSTANCE" => Self::Idle,
                _ => Self::Definition,
            },
            ("TRUNCATE", _) => Self::Definition,
            _ => Self::Rows,
        }
    }
}

/// Words that say what CREATE, ALTER, DROP and RENAME are about.
const OBJECTS: [&str; 24] = [
    "TABLE",
    "TABLES",
    "VIEW",
    "DATABASE",
    "SCHEMA",
    "INDEX",
    "UNIQUE",
    "FULLTEXT",
    "SPATIAL",
    "TRIGGER",
    "PROCEDURE",
    "FUNCTION",
    "EVENT",
    "USER",
    "ROLE",
    "SERVER",
    "TABLESPACE",
    "SEQUENCE",
    "TEMPORARY",
    "RESOURCE",
    "UNDO",
    "INSTANCE",
    "PACKAGE",
    "LIBRARY",
];

/// The first words of a statement, in upper case, without comments and quoted names. Comments that the server runs
/// (`/*!40000 … */`, `/*M! … */`) count.
fn words(text: &[u8]) -> Vec<String> {
    let (mut words, mut at) = (Vec::new(), 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if words.len() == WORDS {
            break;
        }
        let until =
            |end: &[u8]| rest.windows(end.len()).position(|bytes| bytes == end).map_or(rest.len(), |at| at + end.len());
        let letters = rest.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
        at += match rest {
            [b'/', b'*', b'!', ..] | [b'/', b'*', b'M', b'!', ..] => {
                let open = if rest.get(2) == Some(&b'!') { 3 } else { 4 };
                open + rest.iter().skip(open).take_while(|byte| byte.is_ascii_digit()).count()
            }
            [b'/', b'*', ..] => {
                2 + rest
                    .get(2..)
                    .map_or(0, |after| after.windows(2).position(|end| end == b"*/").map_or(after.len(), |at| at + 2))
            }
            [b'#', ..] | [b'-', b'-', ..] => until(b"\n"),
            [quote @ (b'\'' | b'"' | b'`'), after @ ..] => 2 + after.iter().take_while(|byte| *byte != quote).count(),
            _ if letters > 0 => {
                words.push(String::from_utf8_lossy(rest.get(..letters).unwrap_or_default()).to_ascii_uppercase());
                letters
            }
            _ => 1,
        };
    }
    words
}

/// A statement with the settings of its session.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statement {
    /// The default database.
    pub schema: Vec<u8>,
    /// The text.
    pub text: Vec<u8>,
    /// The error that it ended with at the source; 0: none.
    pub error: u16,
    /// The databases that it changes, if the server says so.
    pub databases: Option<Vec<String>>,
    /// The thread that ran it: temporary tables belong to one.
    pub thread: u32,
    /// Settings of the session: their names, and their values in the words of the server.
    pub settings: Vec<(&'static str, String)>,
}

impl Statement {
    /// Parses the body of a QUERY event, without header and checksum. `timestamp` is of the header.
    ///
    /// # Errors
    /// It breaks its format.
    pub fn parse(timestamp: u32, body: &[u8]) -> Result<Self, &'static str> {
        const SHORT: &str = "a QUERY event is too short";
        let mut rest = body;
        let thread = u32::from_le_bytes(*take::<4>(&mut rest).ok_or(SHORT)?);
        take::<4>(&mut rest).ok_or(SHORT)?;
        let [schema] = *take::<1>(&mut rest).ok_or(SHORT)?;
        let error = u16::from_le_bytes(*take::<2>(&mut rest).ok_or(SHORT)?);
        let length = u16::from_le_bytes(*take::<2>(&mut rest).ok_or(SHORT)?);
        let (variables, rest) = rest.split_at_checked(length.into()).ok_or(SHORT)?;
        let (schema, rest) = rest.split_at_checked(schema.into()).ok_or(SHORT)?;
        let (_, text) = rest.split_first().ok_or(SHORT)?;
        let mut statement = Self { schema: schema.to_vec(), text: text.to_vec(), error, thread, ..Self::default() };
        let micros = statement.variables(variables).ok_or("a QUERY event has settings of an unknown form")?;
        statement.settings.push(("timestamp", format!("{timestamp}.{micros:06}")));
        Ok(statement)
    }

    /// Reads the settings; gives the microseconds of the time. What follows an unknown setting is ignored, as servers do.
    fn variables(&mut self, mut rest: &[u8]) -> Option<u32> {
        let mut micros = 0;
        let rest = &mut rest;
        while let Some([code]) = take::<1>(rest) {
            match code {
                0 => self.flags(u32::from_le_bytes(*take::<4>(rest)?)),
                1 => {
                    let mode = u64::from_le_bytes(*take::<8>(rest)?);
                    self.set("sql_mode", mode);
                }
                3 => {
                    let [a, b, c, d] = *take::<4>(rest)?;
                    let (step, first) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
                    self.set("auto_increment_increment", step);
                    self.set("auto_increment_offset", first);
                }
                4 => {
                    let [a, b, c, d, e, f] = *take::<6>(rest)?;
                    let [client, connection, server] = [[a, b], [c, d], [e, f]].map(u16::from_le_bytes);
                    self.set("character_set_client", client);
                    self.set("collation_connection", connection);
                    self.set("collation_server", server);
                }
                5 => {
                    let zone = short_text(rest)?;
                    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | ':' | '/' | '_');
                    if !zone.is_empty() && zone.chars().all(plain) {
                        self.settings.push(("time_zone", format!("'{zone}'")));
                    }
                }
                2 => drop((short_text(rest)?, take::<1>(rest)?)),
                6 => drop(short_text(rest)?),
                7 => {
                    let number = u16::from_le_bytes(*take::<2>(rest)?);
                    self.set("lc_time_names", number);
                }
                8 => {
                    let number = u16::from_le_bytes(*take::<2>(rest)?);
                    self.set(COLLATION_DATABASE, number);
                }
                9 | 17 | 129 => drop(take::<8>(rest)?),
                10 => drop(take::<4>(rest)?),
                11 => drop((short_text(rest)?, short_text(rest)?)),
                12 => self.databases = databases(rest)?,
                13 | 128 => {
                    let [a, b, c] = *take::<3>(rest)?;
                    micros = u32::from_le_bytes([a, b, c, 0]).min(999_999);
                }
                16 => self.switch("explicit_defaults_for_timestamp", rest)?,
                18 => {
                    let number = u16::from_le_bytes(*take::<2>(rest)?);
                    self.set("default_collation_for_utf8mb4", number);
                }
                19 => self.switch("sql_require_primary_key", rest)?,
                20 => self.switch("default_table_encryption", rest)?,
                _ => break,
            }
        }
        Some(micros)
    }

    fn set(&mut self, name: &'static str, value: impl Into<u64>) {
        self.settings.push((name, value.into().to_string()));
    }

    fn switch(&mut self, name: &'static str, rest: &mut &[u8]) -> Option<()> {
        let [value] = *take::<1>(rest)?;
        if value <= 1 {
            self.set(name, value);
        }
        Some(())
    }

    fn flags(&mut self, flags: u32) {
        for (name, bit, on) in [
            ("sql_auto_is_null", 0x4000, true),
            ("foreign_key_checks", 0x0400_0000, false),
            ("unique_checks", 0x0800_0000, false),
        ] {
            let value = (flags & bit != 0) == on;
            self.set(name, u8::from(value));
        }
    }

    /// The assignments for the session that runs it. `same_vendor`: also those whose numbers only one vendor has.
    /// `character_sets`: names by the numbers of their collations.
    pub fn settings(&self, same_vendor: bool, character_sets: &HashMap<u16, String>) -> String {
        let of_both = |name: &str| matches!(name, "timestamp" | "foreign_key_checks" | "unique_checks" | "time_zone");
        let chosen =
            self.settings.iter().filter(|(name, _)| of_both(name) || same_vendor && *name != COLLATION_DATABASE);
        // MariaDB knows newer collations by number, but not as a character set.
        let named = |name: &str, value: &String| {
            let number = value.parse().ok().filter(|_| name == "character_set_client");
            number.and_then(|number: u16| character_sets.get(&number)).unwrap_or(value).clone()
        };
        let chosen: Vec<String> = chosen.map(|(name, value)| format!("{name} = {}", named(name, value))).collect();
        format!("SET SESSION {}", chosen.join(", SESSION "))
    }

    /// The text that another server runs. `CREATE TABLE … SELECT` of MySQL keeps its transaction open for the rows that
    /// follow: here the table is created, and the rows are a transaction of their own.
    pub fn runnable(&self) -> Cow<'_, [u8]> {
        let Some(at) = self.opens_at() else { return Cow::Borrowed(self.text.trim_ascii_end()) };
        let (before, after) = self.text.split_at(at);
        Cow::Owned([before, after.get(OPEN.len()..).unwrap_or_default()].concat())
    }

    /// Whether rows follow before the group ends, although no transaction began.
    pub fn keeps_open(&self) -> bool {
        self.opens_at().is_some()
    }

    /// Where the clause that keeps the transaction open begins. The server writes it behind the list of columns, or at the
    /// end. A text in the list has no line end: the server escapes it.
    fn opens_at(&self) -> Option<usize> {
        words(&self.text).first().filter(|word| *word == "CREATE")?;
        let behind = [b"\n)", OPEN].concat();
        let at = self.text.windows(behind.len()).position(|bytes| bytes == behind).map(|at| at + 2);
        at.or_else(|| Some(self.text.trim_ascii_end().strip_suffix(OPEN)?.len()))
    }

    /// Whether it creates, changes or drops a database as a whole.
    pub fn is_about_a_database(&self) -> bool {
        let words = words(&self.text);
        let word = |at: usize| words.get(at).map_or("", String::as_str);
        let is_database = |word: &str| matches!(word, "DATABASE" | "SCHEMA");
        match word(0) {
            "CREATE" if word(1) == "OR" => is_database(word(3)),
            "CREATE" | "ALTER" | "DROP" => is_database(word(1)),
            _ => false,
        }
    }

    /// Whether it exchanges a partition with a table: the definitions are the same before and after.
    pub fn exchanges_rows(&self) -> bool {
        let words = words(&self.text);
        words.windows(2).any(|pair| pair == ["EXCHANGE", "PARTITION"])
    }

    /// Whether its text names something in the database `name`: this name, and a point behind it. Letters count as equal in
    /// upper and lower case. A column of a table with the same name counts too.
    pub fn names_database(&self, name: &str) -> bool {
        let text = String::from_utf8_lossy(&self.text).to_lowercase();
        let name = name.to_lowercase();
        let is_letter = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
        text.match_indices(&name).any(|(at, found)| {
            let before = text.get(..at).unwrap_or_default().chars().next_back();
            let behind = text.get(at + found.len()..).unwrap_or_default();
            let behind = behind.strip_prefix(['`', '"']).unwrap_or(behind).trim_start();
            !before.is_some_and(is_letter) && behind.starts_with('.')
        })
    }

    /// Its first words, for messages: no name and no value.
    pub fn shown(&self) -> String {
        let mut shown = words(&self.text);
        shown.truncate(2);
        shown.join(" ")
    }

    /// The databases that it is about: those that the server names, or else the default one.
    pub fn about(&self) -> Vec<String> {
        match &self.databases {
            Some(named) if !named.is_empty() => named.clone(),
            _ if self.schema.is_empty() => Vec::new(),
            _ => vec![String::from_utf8_lossy(&self.schema).into_owned()],
        }
    }
}

/// A text with its length in one byte.
fn short_text(rest: &mut &[u8]) -> Option<String> {
    let [length] = *take::<1>(rest)?;
    let (text, after) = rest.split_at_checked(length.into())?;
    *rest = after;
    Some(String::from_utf8_lossy(text).into_owned())
}

/// A count and as many names, each with a zero byte. `Some(None)`: too many to be listed.
fn databases(rest: &mut &[u8]) -> Option<Option<Vec<String>>> {
    let [count] = *take::<1>(rest)?;
    if count == TOO_MANY {
        return Some(None);
    }
    let mut names = Vec::new();
    for _ in 0..count {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (name, after) = rest.split_at(end);
        names.push(String::from_utf8_lossy(name).into_owned());
        *rest = after.get(1..)?;
    }
    Some(Some(names))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_known_by_its_first_words() {
        for (text, kind) in [
            ("BEGIN", Kind::Begin),
            ("commit", Kind::Commit),
            ("SAVEPOINT `a`", Kind::Savepoint),
            ("ROLLBACK TO `a`", Kind::Savepoint),
            ("/* event */ create /*!40000 OR REPLACE */ DEFINER=`event`@`%` VIEW v AS SELECT 1", Kind::Definition),
            ("CREATE DEFINER=`root`@`localhost` EVENT e ON SCHEDULE EVERY 1 DAY DO SET @table = 1", Kind::Event),
            ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `t`", Kind::Idle),
            ("-- x\nALTER TABLE t ADD COLUMN `user` INT", Kind::Definition),
            ("CREATE USER 'table'@'%'", Kind::Account),
            ("GRANT ALL ON a.* TO b", Kind::Account),
            ("TRUNCATE t", Kind::Definition),
            ("XA START 'x'", Kind::Distributed),
            ("INSERT INTO t VALUES (1)", Kind::Rows),
            ("SET STATEMENT max_statement_time=5 FOR ALTER TABLE t ADD INDEX (a)", Kind::Definition),
            ("SET STATEMENT lock_wait_timeout=5 FOR INSERT INTO t VALUES (1)", Kind::Rows),
            ("SET PASSWORD FOR a = 'x'", Kind::Account),
            ("", Kind::Rows),
        ] {
            assert_eq!(Kind::of(text.as_bytes()), kind, "{text}");
        }
    }

    #[test]
    fn a_statement_names_a_database_by_a_point_behind_its_name() {
        let statement = |text: &str| Statement { text: text.as_bytes().to_vec(), ..Statement::default() };
        for (text, names) in [
            ("DROP TABLE other.keepme", true),
            ("DROP TABLE `Other` . `t`", true),
            ("ALTER TABLE another.t ADD a INT", false),
            ("ALTER TABLE t ADD other INT", false),
        ] {
            assert_eq!(statement(text).names_database("other"), names, "{text}");
        }
        for (text, is) in
            [("create or replace database x", true), ("DROP SCHEMA x", true), ("CREATE TABLE t (a INT)", false)]
        {
            assert_eq!(statement(text).is_about_a_database(), is, "{text}");
        }
        assert!(statement("ALTER TABLE pt EXCHANGE PARTITION p WITH TABLE ex").exchanges_rows());
    }

    fn body(variables: &[u8], text: &str) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.push(4);
        body.extend_from_slice(&[0, 0]);
        body.extend_from_slice(&(variables.len() as u16).to_le_bytes());
        body.extend_from_slice(variables);
        body.extend_from_slice(b"shop\0");
        body.extend_from_slice(text.as_bytes());
        body
    }

    #[test]
    fn settings_and_databases_are_read_and_a_cut_event_is_refused() {
        let variables = [
            &[0, 0, 0, 0, 0x04][..],
            &[1, 2, 0, 0, 0, 0, 0, 0, 0],
            &[4, 255, 0, 45, 0, 8, 0],
            &[5, 6],
            b"+02:00",
            &[12, 2],
            b"shop\0other\0",
            &[13, 1, 0, 0],
        ]
        .concat();
        let whole = body(&variables, "CREATE TABLE t (a INT) START TRANSACTION");
        let statement = Statement::parse(1_700_000_000, &whole).unwrap();
        assert_eq!(statement.about(), ["shop", "other"]);
        assert!(statement.keeps_open() && *statement.runnable() == b"CREATE TABLE t (a INT)"[..]);
        let whole_9 =
            body(&[], "CREATE TABLE t (\n  a INT COMMENT ' START TRANSACTION'\n) START TRANSACTION ENGINE=InnoDB");
        let newer = Statement::parse(0, &whole_9).unwrap();
        let expected = b"CREATE TABLE t (\n  a INT COMMENT ' START TRANSACTION'\n) ENGINE=InnoDB";
        assert!(newer.keeps_open() && *newer.runnable() == expected[..]);
        let plain = Statement::parse(0, &body(&[], "ALTER TABLE t COMMENT ' START TRANSACTION'")).unwrap();
        assert!(!plain.keeps_open() && *plain.runnable() == plain.text[..]);
        let names = HashMap::from([(255, "utf8mb4".to_owned())]);
        let settings = statement.settings(true, &names);
        for part in [
            "character_set_client = utf8mb4",
            "foreign_key_checks = 0",
            "unique_checks = 1",
            "sql_mode = 2",
            "collation_connection = 45, SESSION collation_server = 8",
            "time_zone = '+02:00'",
            "timestamp = 1700000000.000001",
        ] {
            assert!(settings.contains(part), "{settings}");
        }
        assert!(!statement.settings(false, &names).contains("sql_mode"));
        assert_eq!(statement.shown(), "CREATE TABLE");
        for cut in 0..13 + variables.len() {
            assert!(Statement::parse(0, &whole[..cut]).is_err(), "{cut}");
        }
        let quote = Statement::parse(0, &body(b"\x05\x03a'b", "x")).unwrap();
        assert!(!quote.settings(true, &names).contains("time_zone"), "a name with a quote is no time zone");
    }
}
