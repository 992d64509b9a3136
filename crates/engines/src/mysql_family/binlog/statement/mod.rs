//! Statements in a log (QUERY events): what they are, and the settings of the session that ran them.
//!
//! The format is from MySQL's "Query_event" page of its source documentation, and from MariaDB's "QUERY_EVENT" article.

use std::borrow::Cow;

use super::event::{CRC, HEADER, Header, seal, take};
use crate::mysql_family::Dialect;
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::sql_text::{tokens, unquoted};
pub use kind::Kind;
use kind::words;

mod kind;
mod names;

/// The clause of a CREATE TABLE whose rows follow.
const OPEN: &[u8] = b" START TRANSACTION";
/// A setting that is only of statements which load files.
pub const COLLATION_DATABASE: &str = "collation_database";
/// The system time zone of the server, as the value of a setting.
pub const SYSTEM_ZONE: &str = "'SYSTEM'";
/// MariaDB: the default collations of character sets.
pub const COLLATIONS: &str = "character_set_collations";
/// Flag of an event: the statement runs without its default database, because it creates, changes or drops it.
const SUPPRESS_USE: u16 = 0x8;
/// The mark of a statement that changes more databases than the list of names holds.
const TOO_MANY: u8 = 254;

/// The bytes in the body of an event before its settings.
const BEFORE_SETTINGS: usize = 13;
/// The number of `utf8mb4_general_ci`, which both vendors have.
const UTF8MB4: &str = "45";

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
    /// MariaDB: for a collation of a character set, the default collation of this set.
    pub collations: Vec<(u16, u16)>,
    /// The account that ran it: its name and its host, if the server says so.
    pub invoker: Option<(String, String)>,
    /// It creates, changes or drops its default database.
    pub detached: bool,
    /// Where the body of its event has the number of the character set of the client: two bytes.
    pub client_set_at: Option<usize>,
}

impl Statement {
    /// Parses the body of a QUERY event of this vendor, without header and checksum.
    ///
    /// # Errors
    /// It breaks its format.
    pub fn parse(dialect: Dialect, header: &Header, body: &[u8]) -> Result<Self, &'static str> {
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
        let (schema, text, detached) = (schema.to_vec(), text.to_vec(), header.flags & SUPPRESS_USE != 0);
        let mut statement = Self { schema, text, error, thread, detached, ..Self::default() };
        let micros = statement.variables(dialect, variables).ok_or("a QUERY event has settings of an unknown form")?;
        statement.settings.push(("timestamp", format!("{}.{micros:06}", header.timestamp)));
        Ok(statement.without_default_database())
    }

    /// Reads the settings; gives the microseconds of the time. What follows an unknown setting is ignored, as servers do.
    fn variables(&mut self, dialect: Dialect, mut rest: &[u8]) -> Option<u32> {
        let (mut micros, whole) = (0, rest.len());
        let rest = &mut rest;
        while let Some([code]) = take::<1>(rest) {
            match code {
                0 => self.flags(dialect, u32::from_le_bytes(*take::<4>(rest)?)),
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
                    self.client_set_at = Some(BEFORE_SETTINGS + whole - rest.len());
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
                11 => self.invoker = Some((short_text(rest)?, short_text(rest)?)),
                12 => self.databases = databases(rest)?,
                13 | 128 => {
                    let [a, b, c] = *take::<3>(rest)?;
                    micros = u32::from_le_bytes([a, b, c, 0]).min(999_999);
                }
                131 => {
                    let [count] = *take::<1>(rest)?;
                    for _ in 0..count {
                        let [a, b, c, d] = *take::<4>(rest)?;
                        self.collations.push((u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d])));
                    }
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

    fn flags(&mut self, dialect: Dialect, flags: u32) {
        let of_both = [
            ("sql_auto_is_null", 0x4000, true),
            ("foreign_key_checks", 0x0400_0000, false),
            ("unique_checks", 0x0800_0000, false),
        ];
        let of_mariadb = [
            ("check_constraint_checks", 0x8000, false),
            ("explicit_defaults_for_timestamp", 0x0100_0000, true),
            ("sql_if_exists", 0x1000_0000, true),
            ("system_versioning_insert_history", 0x4000_0000, true),
        ];
        let of_mariadb = if dialect == Dialect::MariaDb { &of_mariadb[..] } else { &[] };
        for (name, bit, on) in of_both.iter().chain(of_mariadb) {
            let value = (flags & bit != 0) == *on;
            self.set(name, u8::from(value));
        }
    }

    /// The text for a session of another account: it names its own account where the server would take the account of the session.
    /// This is the definer behind `ALTER EVENT`, and `CURRENT_USER` in a statement about accounts.
    ///
    /// # Errors
    /// The log does not say whose statement about accounts it is.
    pub fn by_its_account(&self, kind: Kind) -> Result<Cow<'_, [u8]>, &'static str> {
        if !matches!(kind, Kind::Event | Kind::Account) {
            return Ok(Cow::Borrowed(&self.text));
        }
        let account = self.invoker.as_ref().map(|(user, host)| format!("{}@{}", quoted(user), quoted(host)));
        let (places, words): (Vec<_>, Vec<_>) = tokens(&self.text)
            .map(|token| {
                let text = self.text.get(token.place.clone()).unwrap_or_default();
                (token.place, String::from_utf8_lossy(text).to_uppercase())
            })
            .unzip();
        let is = |at: usize, word: &str| words.get(at).is_some_and(|it| it == word);
        let mut text = self.text.clone();
        match (kind, account) {
            (Kind::Event, Some(account)) if is(0, "ALTER") && is(1, "EVENT") => {
                let at = places.first().map_or(0, |place| place.end);
                text.splice(at..at, format!(" DEFINER={account}").into_bytes());
            }
            (Kind::Account, Some(account)) => {
                for at in (0..words.len()).rev().filter(|at| is(*at, "CURRENT_USER")) {
                    let last = if is(at + 1, "(") && is(at + 2, ")") { at + 2 } else { at };
                    let place = places[at].start..places[last].end;
                    text.splice(place, account.bytes());
                }
            }
            (Kind::Account, None) if words.iter().any(|word| word == "CURRENT_USER") => {
                return Err("a statement about accounts has CURRENT_USER, and the log does not say who this was");
            }
            _ => return Ok(Cow::Borrowed(&self.text)),
        }
        Ok(Cow::Owned(text))
    }

    /// The text that another server runs. `CREATE TABLE … SELECT` of MySQL keeps its transaction open for the rows that
    /// follow: here the table is created, and the rows are a transaction of their own.
    pub fn runnable(&self) -> Cow<'_, [u8]> {
        let Some(at) = self.opens_at() else { return Cow::Borrowed(self.text.trim_ascii_end()) };
        let (before, after) = self.text.split_at(at);
        Cow::Owned([before, after.get(OPEN.len()..).unwrap_or_default()].concat())
    }

    /// The same statement with a text that the server has written in UTF-8, whatever the character set of the session was: CREATE TABLE …
    /// AS SELECT with its columns, or, by MySQL, a statement about an account. Other texts are as the client sent them. `is_open`: a
    /// transaction of MariaDB is open, so that a definition has rows behind it.
    pub fn in_its_set(&self, kind: Kind, dialect: Dialect, is_open: bool) -> Cow<'_, Self> {
        let is_of_rows = is_open && kind == Kind::Definition && dialect == Dialect::MariaDb;
        let is_of_account = kind == Kind::Account && dialect == Dialect::MySql;
        let is_utf8 = !self.text.is_ascii() && str::from_utf8(&self.text).is_ok();
        if !is_utf8 || !(is_of_rows || self.keeps_open() || is_of_account) {
            return Cow::Borrowed(self);
        }
        let mut other = self.clone();
        let set = other.settings.iter_mut().find(|(name, _)| *name == "character_set_client");
        set.into_iter().for_each(|(_, value)| UTF8MB4.clone_into(value));
        Cow::Owned(other)
    }

    /// Gives its own event the text of the statement, and the character set of this text, for a server that applies the event. `event` has
    /// its header and its checksum. `is_open`: a transaction of MariaDB is open.
    pub fn correct(&self, dialect: Dialect, is_open: bool, event: &mut [u8]) {
        let kind = Kind::of(&self.text);
        let is_right = matches!(self.in_its_set(kind, dialect, is_open), Cow::Borrowed(_));
        let number = UTF8MB4.parse::<u16>().unwrap_or_default().to_le_bytes();
        let set = self.client_set_at.filter(|_| !is_right).map(|at| (HEADER + at, &number[..]));
        let text = event.len().checked_sub(CRC + self.text.len()).map(|at| (at, &self.text[..]));
        for (at, bytes) in set.into_iter().chain(text) {
            if let Some(place) = event.get_mut(at..at + bytes.len()).filter(|place| *place != bytes) {
                place.copy_from_slice(bytes);
                seal(event);
            }
        }
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

    /// Whether it gives tables other names, which are perhaps those of each other.
    pub fn renames_tables(&self) -> bool {
        let words = words(&self.text);
        matches!(words.get(..2), Some([first, second]) if first == "RENAME" && matches!(&second[..], "TABLE" | "TABLES"))
    }

    /// Whether it drops tables, views or a database. It can run once more: what is gone is an error that says so.
    pub fn drops(&self) -> bool {
        let words = words(&self.text);
        let kinds = ["TABLE", "TABLES", "VIEW", "SEQUENCE", "DATABASE", "SCHEMA"];
        matches!(words.get(..2), Some([first, second]) if first == "DROP" && kinds.contains(&&second[..]))
    }

    /// The statement that makes the account behind `CREATE ROLE` of MariaDB the administrator of the role. The session that runs it again
    /// is another one, which may have to grant the role, too.
    pub fn admin_of_role(&self) -> Option<Vec<u8>> {
        let (user, host) = self.invoker.as_ref()?;
        let all: Vec<&[u8]> = tokens(&self.text).filter_map(|token| self.text.get(token.place)).collect();
        let is = |at: usize, word: &str| all.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()));
        let after = |at: usize, words: &[&str]| {
            if words.iter().enumerate().all(|(step, word)| is(at + step, word)) { at + words.len() } else { at }
        };
        let kind = after(1, &["OR", "REPLACE"]);
        let role = after(kind + 1, &["IF", "NOT", "EXISTS"]);
        if !is(0, "CREATE") || !is(kind, "ROLE") || is(role + 1, "WITH") {
            return None;
        }
        let role = all.get(role)?;
        let to = format!(" TO {}@{} WITH ADMIN OPTION", quoted(user), quoted(host));
        Some([b"GRANT ", *role, to.as_bytes()].concat())
    }

    /// Whether it changes a sequence of MariaDB.
    pub fn alters_sequence(&self) -> bool {
        matches!(words(&self.text).get(..2), Some([first, second]) if first == "ALTER" && second == "SEQUENCE")
    }

    /// Whether it exchanges a partition with a table: the definitions are the same before and after.
    pub fn exchanges_rows(&self) -> bool {
        let words = words(&self.text);
        words.windows(2).any(|pair| pair == ["EXCHANGE", "PARTITION"])
    }

    /// Its first words, for messages: no name and no value.
    pub fn shown(&self) -> String {
        let mut shown = words(&self.text);
        shown.truncate(2);
        shown.join(" ")
    }

    /// Whether its session was in the system time zone of the server and used it, or its text names this zone.
    pub fn uses_system_zone(&self) -> bool {
        self.settings.iter().any(|(name, value)| *name == "time_zone" && value == SYSTEM_ZONE)
            || self.names_system_zone()
    }

    /// Whether it computes with the system time zone of the server by its name: `CONVERT_TZ(t, 'SYSTEM', '+00:00')`. No setting of a
    /// session changes what this name means. Code only has such a text.
    pub fn names_system_zone(&self) -> bool {
        let has = |word: &[u8]| self.text.windows(word.len()).any(|part| part.eq_ignore_ascii_case(word));
        if !has(b"CONVERT_TZ") || !has(b"SYSTEM") {
            return false;
        }
        let texts = ["'SYSTEM'", "\"SYSTEM\""];
        let mut texts_of = tokens(&self.text).filter_map(|token| self.text.get(token.place));
        texts_of.any(|token| texts.iter().any(|text| token.eq_ignore_ascii_case(text.as_bytes())))
            && !self.is_about_code()
    }

    /// The temporary tables that it creates or drops, in lower case and without their databases.
    pub fn temporary_tables(&self) -> Vec<String> {
        let all: Vec<&[u8]> = tokens(&self.text).filter_map(|token| self.text.get(token.place)).collect();
        let is = |at: usize, word: &str| all.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()));
        let Some(table) = (1..all.len()).find(|at| is(*at, "TABLE") || is(*at, "TABLES")) else { return Vec::new() };
        let mut at = table + 1;
        while ["IF", "NOT", "EXISTS"].iter().any(|word| is(at, word)) {
            at += 1;
        }
        let mut named = Vec::new();
        while let Some(name) = all.get(at) {
            let last = if is(at + 1, ".") { at + 2 } else { at };
            named.push(unquoted(&String::from_utf8_lossy(all.get(last).unwrap_or(name))).to_lowercase());
            if !is(0, "DROP") || !is(last + 1, ",") {
                break;
            }
            at = last + 2;
        }
        named
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

    fn of(text: &str) -> Statement {
        Statement { text: text.as_bytes().to_vec(), ..Statement::default() }
    }

    #[test]
    fn a_statement_that_computes_with_the_zone_of_the_server_is_known_and_code_with_such_a_text_is_not_one() {
        for (text, names) in [
            ("INSERT INTO t VALUES (CONVERT_TZ(NOW(), 'System', '+00:00'))", true),
            ("ALTER TABLE t ADD d DATETIME DEFAULT (convert_tz('2024-07-01', \"SYSTEM\", '+00:00'))", true),
            ("INSERT INTO t VALUES (CONVERT_TZ(NOW(), @@time_zone, 'UTC'), 'a SYSTEM')", false),
            ("INSERT INTO t VALUES ('SYSTEM')", false),
            ("CREATE FUNCTION f () RETURNS DATETIME RETURN CONVERT_TZ(NOW(), 'SYSTEM', 'UTC')", false),
        ] {
            assert_eq!(of(text).names_system_zone(), names, "{text}");
        }
    }

    #[test]
    fn a_text_that_mysql_writes_in_utf8_for_a_session_in_latin1_gets_this_set_and_others_keep_theirs() {
        let sets = [4, 8, 0, 8, 0, 255, 0];
        let corrected = |text: &str| {
            let body = body(&sets, text);
            let mut event = [vec![0; HEADER], body.clone(), vec![0; CRC]].concat();
            parse(Dialect::MySql, &body).unwrap().correct(Dialect::MySql, false, &mut event);
            event.get(HEADER + 13..HEADER + 20).unwrap().to_vec()
        };
        assert_eq!(corrected("CREATE TABLE `ä` (\n  `a` int\n) START TRANSACTION"), [4, 45, 0, 8, 0, 255, 0]);
        let body = body(&sets, "CREATE TABLE `ä` (\n  `a` int\n)");
        let mut event = [vec![0; HEADER], body.clone(), vec![0; CRC]].concat();
        parse(Dialect::MariaDb, &body).unwrap().correct(Dialect::MariaDb, true, &mut event);
        assert_eq!(event[HEADER + 14], 45, "a table of MariaDB with rows behind it");
        assert_eq!(corrected("GRANT SELECT ON `ä`.* TO `b`@`%`")[1], 45);
        assert_eq!(corrected("CREATE TABLE `ä` (`a` int)"), sets);
        assert_eq!(corrected("CREATE TABLE `a` (\n  `a` int\n) START TRANSACTION"), sets);
    }

    #[test]
    fn temporary_tables_are_known_by_their_names() {
        for (text, names) in [
            ("CREATE TEMPORARY TABLE IF NOT EXISTS `shop`.`A b` (id INT)", &["a b"][..]),
            ("CREATE TEMPORARY TABLE t SELECT 1, 2", &["t"]),
            ("DROP /*!40005 TEMPORARY */ TABLE IF EXISTS `x`,`shop`.`y`", &["x", "y"]),
            ("DROP TEMPORARY TABLE t /* generated by server */", &["t"]),
            ("BEGIN", &[]),
        ] {
            assert_eq!(of(text).temporary_tables(), names, "{text}");
        }
    }

    fn header(timestamp: u32) -> Header {
        Header { timestamp, kind: 2, server_id: 1, size: 100, end: 100, flags: SUPPRESS_USE }
    }

    fn parse(dialect: Dialect, body: &[u8]) -> Result<Statement, &'static str> {
        Statement::parse(dialect, &header(1_700_000_000), body)
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
        let statement = parse(Dialect::MySql, &whole).unwrap();
        assert_eq!(statement.about(), ["shop", "other"]);
        assert!(statement.keeps_open() && *statement.runnable() == b"CREATE TABLE t (a INT)"[..]);
        let whole_9 =
            body(&[], "CREATE TABLE t (\n  a INT COMMENT ' START TRANSACTION'\n) START TRANSACTION ENGINE=InnoDB");
        let newer = parse(Dialect::MySql, &whole_9).unwrap();
        let expected = b"CREATE TABLE t (\n  a INT COMMENT ' START TRANSACTION'\n) ENGINE=InnoDB";
        assert!(newer.keeps_open() && *newer.runnable() == expected[..]);
        let plain = parse(Dialect::MySql, &body(&[], "ALTER TABLE t COMMENT ' START TRANSACTION'")).unwrap();
        assert!(!plain.keeps_open() && *plain.runnable() == plain.text[..]);
        for (name, value) in [
            ("character_set_client", "255"),
            ("foreign_key_checks", "0"),
            ("unique_checks", "1"),
            ("sql_mode", "2"),
            ("collation_server", "8"),
            ("time_zone", "'+02:00'"),
            ("timestamp", "1700000000.000001"),
        ] {
            assert!(statement.settings.contains(&(name, value.to_owned())), "{name} {:?}", statement.settings);
        }
        let of_mariadb = [&[0, 0, 0x80, 0, 0x11][..], &[131, 1, 0x21, 0, 0, 8], &[4, 9, 0, 45, 0, 8, 0]].concat();
        let mariadb = parse(Dialect::MariaDb, &body(&of_mariadb, "x")).unwrap();
        for (name, value) in [("check_constraint_checks", "0"), ("sql_if_exists", "1"), ("character_set_client", "9")] {
            assert!(mariadb.settings.contains(&(name, value.to_owned())), "{name} {:?}", mariadb.settings);
        }
        assert!(mariadb.detached && mariadb.collations == [(33, 2048)]);
        assert_eq!(statement.shown(), "CREATE TABLE");
        for cut in 0..13 + variables.len() {
            assert!(parse(Dialect::MySql, &whole[..cut]).is_err(), "{cut}");
        }
        let quote = parse(Dialect::MySql, &body(b"\x05\x03a'b", "x")).unwrap();
        let is_zone = |(name, _): &(&str, String)| *name == "time_zone";
        assert!(!quote.settings.iter().any(is_zone), "a name with a quote is no time zone");
    }

    #[test]
    fn a_statement_names_the_account_that_ran_it() {
        let by = |kind, text: &str| {
            let statement = parse(Dialect::MariaDb, &body(b"\x0b\x03a`b\x01%", text)).unwrap();
            String::from_utf8(statement.by_its_account(kind).unwrap().into_owned()).unwrap()
        };
        let event = by(Kind::Event, "/* x */ alter EVENT e DISABLE");
        assert_eq!(event, "/* x */ alter DEFINER=`a``b`@`%` EVENT e DISABLE");
        for (kind, same) in [
            (Kind::Event, "ALTER DEFINER=x EVENT e DISABLE"),
            (Kind::Account, "CREATE ROLE r WITH ADMIN x"),
            (Kind::Account, "GRANT SELECT ON `current_user`.* TO 'current_user'"),
            (Kind::Rows, "INSERT INTO t VALUES (CURRENT_USER())"),
        ] {
            assert_eq!(by(kind, same), same);
        }
        let granted = by(Kind::Account, "GRANT SELECT ON a.* TO current_user( ), x, CURRENT_USER");
        assert_eq!(granted, "GRANT SELECT ON a.* TO `a``b`@`%`, x, `a``b`@`%`");
        let admin = |text| {
            let statement = parse(Dialect::MariaDb, &body(b"\x0b\x03a`b\x01%", text)).unwrap();
            statement.admin_of_role().map(|text| String::from_utf8(text).unwrap())
        };
        let granted = Some("GRANT `r x` TO `a``b`@`%` WITH ADMIN OPTION".to_owned());
        assert_eq!(admin("create or replace role `r x` -- x"), granted);
        assert_eq!(admin("CREATE ROLE IF NOT EXISTS `r x`"), granted);
        assert_eq!(
            [admin("CREATE ROLE admin WITH ADMIN x"), admin("CREATE USER role"), admin("DROP ROLE r")],
            [None, None, None]
        );
        let unknown = parse(Dialect::MariaDb, &body(&[], "DROP USER CURRENT_USER")).unwrap();
        assert!(unknown.by_its_account(Kind::Account).is_err());
    }
}
