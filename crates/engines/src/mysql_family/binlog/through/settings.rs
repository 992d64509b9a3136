//! The settings of the session that ran a statement, in the words of the server that runs it again.
//!
//! The numbers of SQL modes are those of MySQL's "Query_event" page and of MariaDB's "QUERY_EVENT" article.

use std::collections::{HashMap, HashSet};

use fullbore_core::Result;

use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::statement::{COLLATION_DATABASE, COLLATIONS, SYSTEM_ZONE, Statement};
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical_set::load::{nearest_collation, with_nearest_collations};
use crate::mysql_family::server_defaults::ServerDefaults;
use crate::mysql_family::version::series;

/// Settings that not every version has, or that not every account may set.
const OPTIONAL: [(Dialect, &[&str]); 2] = [
    (
        Dialect::MySql,
        &["explicit_defaults_for_timestamp", "sql_require_primary_key", "default_table_encryption", UTF8MB4],
    ),
    (
        Dialect::MariaDb,
        &[
            "explicit_defaults_for_timestamp",
            "check_constraint_checks",
            "sql_if_exists",
            "system_versioning_insert_history",
            COLLATIONS,
        ],
    ),
];
/// Settings that an event names only if they are not these.
const DEFAULTS: [(&str, &str); 4] = [
    (COLLATION_DATABASE, "DEFAULT"),
    ("auto_increment_increment", "1"),
    ("auto_increment_offset", "1"),
    ("lc_time_names", "0"),
];
/// What the session of the target has of them: some accounts may not set them.
const DEFAULTS_NOW: &str = "SELECT 'DEFAULT', @@SESSION.auto_increment_increment, @@SESSION.auto_increment_offset, \
                            IF(@@SESSION.lc_time_names = 'en_US', '0', @@SESSION.lc_time_names)";
const UTF8MB4: &str = "default_collation_for_utf8mb4";
/// Character sets in which no letter is one byte.
const WIDE: [&str; 4] = ["ucs2", "utf16", "utf16le", "utf32"];
const THREAD: &str = "pseudo_thread_id";
/// The parts of `sql_mode` that both vendors have, and their bits.
const MODES: [(u32, &str); 18] = [
    (0, "REAL_AS_FLOAT"),
    (1, "PIPES_AS_CONCAT"),
    (2, "ANSI_QUOTES"),
    (3, "IGNORE_SPACE"),
    (5, "ONLY_FULL_GROUP_BY"),
    (6, "NO_UNSIGNED_SUBTRACTION"),
    (7, "NO_DIR_IN_CREATE"),
    (19, "NO_AUTO_VALUE_ON_ZERO"),
    (20, "NO_BACKSLASH_ESCAPES"),
    (21, "STRICT_TRANS_TABLES"),
    (22, "STRICT_ALL_TABLES"),
    (23, "NO_ZERO_IN_DATE"),
    (24, "NO_ZERO_DATE"),
    (25, "ALLOW_INVALID_DATES"),
    (26, "ERROR_FOR_DIVISION_BY_ZERO"),
    (29, "HIGH_NOT_PRECEDENCE"),
    (30, "NO_ENGINE_SUBSTITUTION"),
    (31, "PAD_CHAR_TO_FULL_LENGTH"),
];
/// ANSI and TRADITIONAL stand for others of them; NO_AUTO_CREATE_USER is about accounts.
const OF_OTHERS: u64 = 1 << 4 | 1 << 18 | 1 << 27 | 1 << 28;
/// The modes that MySQL 5.7 has and MySQL 8.0 refuses: POSTGRESQL to MYSQL40 stand for others of them or are about SHOW CREATE, and
/// NO_AUTO_CREATE_USER, which 5.7 has by default.
const ENDED: u64 = 0x3FF << 8 | 1 << 28;
/// The series of MySQL that no longer has them.
const WITHOUT_ENDED: (u16, u16) = (8, 0);

/// The character sets and the collations of a server, by the numbers of the collations.
pub type Names = HashMap<u16, (String, String)>;

/// Asks for the names of collations.
///
/// # Errors
/// The server refuses.
pub fn names(connection: &mut Connection) -> Result<Names> {
    let mut names = Names::new();
    // MariaDB from 10.10 on has the numbers of newer collations in the second list only, and their whole names.
    for asked in [
        "SELECT id, character_set_name, collation_name FROM information_schema.collations",
        "SELECT id, character_set_name, full_collation_name FROM \
         information_schema.collation_character_set_applicability WHERE id > 0",
    ] {
        let answer = match connection.query(asked) {
            Ok(answer) => answer,
            Err(Failure::Server(_)) => continue,
            Err(Failure::Fault(error)) => return Err(error),
        };
        let is_word = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        names.extend(answer.rows.into_iter().filter_map(|row| match <[_; 3]>::try_from(row) {
            Ok([Some(id), Some(set), Some(name)]) if is_word(&set) && is_word(&name) => {
                Some((id.parse().ok()?, (set, name)))
            }
            _ => None,
        }));
    }
    Ok(names)
}

/// The settings that a session has.
pub struct Settings {
    /// Source and target.
    dialects: [Dialect; 2],
    now: HashMap<&'static str, String>,
    optional: HashSet<&'static str>,
    /// Of the target.
    names: Names,
    /// Of a source of the other vendor.
    foreign: Names,
    /// The bits of SQL modes that the target refuses, and that say nothing here.
    ended: u64,
    /// What the target calls the system time zone of the source.
    pub system_zone: String,
    /// The settings of the source that its log does not have.
    pub of_source: Vec<(&'static str, String)>,
}

impl Settings {
    /// Asks which settings the session may have.
    ///
    /// # Errors
    /// The server is lost.
    pub fn begin(connection: &mut Connection, dialects: [Dialect; 2], foreign: Option<Names>) -> Result<Self> {
        let (mut now, mut optional) = (HashMap::new(), HashSet::new());
        if connection.query_if_allowed("SET @@SESSION.pseudo_thread_id = 1")?.is_some() {
            optional.insert(THREAD);
        }
        let names = names(connection)?;
        let listed = OPTIONAL.iter().filter(|(dialect, _)| *dialect == dialects[1]).flat_map(|(_, names)| *names);
        for name in listed {
            // They are set only where they differ: some accounts may not set them.
            if let Ok(answer) = connection.query(&format!("SELECT @@SESSION.{name}"))
                && let Some(value) = answer.single()
            {
                let number = names.iter().find(|(_, (_, collation))| *name == UTF8MB4 && collation == value);
                let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
                let value = match number {
                    Some((number, _)) => number.to_string(),
                    None if is_number && !value.is_empty() => value.to_owned(),
                    None => format!("'{value}'"),
                };
                now.insert(*name, value);
                optional.insert(*name);
            }
        }
        let defaults = connection.query(DEFAULTS_NOW)?;
        let defaults = defaults.rows.into_iter().flatten().map(Option::unwrap_or_default);
        now.extend(DEFAULTS.iter().map(|(name, _)| *name).zip(defaults));
        let is_later = dialects[1] == Dialect::MySql && series(connection.greeting().own_version()) >= WITHOUT_ENDED;
        let ended = if is_later { ENDED } else { 0 };
        let (foreign, system_zone) = (foreign.unwrap_or_default(), SYSTEM_ZONE.to_owned());
        Ok(Self { dialects, now, optional, names, foreign, ended, system_zone, of_source: Vec::new() })
    }

    /// The log of a server with these settings follows.
    pub fn enter_source(&mut self, defaults: &ServerDefaults) {
        self.of_source = defaults.of_session(self.dialects);
    }

    /// The session has other names, modes and times now.
    pub fn forget(&mut self) {
        self.now.retain(|name, _| self.optional.contains(name) || DEFAULTS.iter().any(|(known, _)| name == known));
    }

    /// Whether a literal would become text of several bytes for each letter, in which a setting means nothing.
    pub fn are_wide(&self) -> bool {
        let Some(collation) = self.now.get("collation_connection") else { return false };
        let named = || self.names.values().find(|(_, name)| name == collation);
        let set = collation.parse().ok().and_then(|number: u16| self.names.get(&number)).or_else(named);
        set.is_some_and(|(set, _)| WIDE.contains(&&set[..]))
    }

    /// The names of the character set and of the collation with a number, in the target.
    ///
    /// # Errors
    /// The target does not know it.
    pub fn collation(&self, number: &str) -> Result<&(String, String), String> {
        let found = number.parse().ok().and_then(|number: u16| self.names.get(&number));
        found.ok_or_else(|| format!("the target does not know collation {number}"))
    }

    /// The statement that gives the session the settings of `statement`, as far as they differ.
    ///
    /// # Errors
    /// Why the target cannot have one of them.
    pub fn change(&mut self, statement: &Statement) -> Result<Option<String>, String> {
        let mut wanted: Vec<(&'static str, String)> = Vec::new();
        for (name, value) in &statement.settings {
            wanted.extend(self.fitted(name, value)?);
        }
        let is_there = |wanted: &[(&'static str, String)], name| wanted.iter().any(|(known, _)| *known == name);
        for (name, value) in DEFAULTS {
            if !is_there(&wanted, name) {
                wanted.push((name, value.to_owned()));
            }
        }
        if self.optional.contains(COLLATIONS) && !is_there(&wanted, COLLATIONS) {
            // An earlier source has none, and a later one names those that count.
            wanted.push((COLLATIONS, self.pairs(&statement.collations)?));
        }
        wanted.extend(self.of_source.iter().cloned());
        if self.optional.contains(THREAD) {
            wanted.push((THREAD, statement.thread.to_string()));
        }
        // Rows move the clock of the session.
        wanted.retain(|(name, value)| *name == "timestamp" || self.now.get(name) != Some(value));
        let set: Vec<String> =
            wanted.iter().map(|(name, value)| format!("@@SESSION.{name} = {}", text(value))).collect();
        self.now.extend(wanted);
        Ok((!set.is_empty()).then(|| format!("SET {}", set.join(", "))))
    }

    /// A setting in the words of the target; None if it has no such setting, and needs none.
    fn fitted(&self, name: &'static str, value: &str) -> Result<Option<(&'static str, String)>, String> {
        let (is_foreign, maria) = (self.dialects[0] != self.dialects[1], self.dialects[1] == Dialect::MariaDb);
        let of = |value: &str| value.parse().ok().and_then(|number: u16| self.foreign.get(&number));
        let listed = OPTIONAL.iter().any(|(_, names)| names.contains(&name));
        Ok(Some(match name {
            UTF8MB4 if is_foreign && self.optional.contains(COLLATIONS) => {
                let Some(near) = of(value).and_then(|(_, collation)| self.near(collation)) else { return Ok(None) };
                (COLLATIONS, format!("'utf8mb4={near}'"))
            }
            _ if listed && !self.optional.contains(name) => return Ok(None),
            "time_zone" if value == SYSTEM_ZONE => (name, self.system_zone.clone()),
            "sql_mode" if is_foreign => (name, shared_modes(value)?),
            "sql_mode" => (name, value.parse().map_or(value.to_owned(), |bits: u64| (bits & !self.ended).to_string())),
            "character_set_client" if is_foreign => match of(value) {
                Some((set, _)) => (name, set.clone()),
                None => return Err(format!("the source does not know collation {value}")),
            },
            // MariaDB knows a character set by its name, or by the number of its default collation only.
            "character_set_client" if maria => (name, self.collation(value)?.0.clone()),
            "collation_connection" | "collation_server" | COLLATION_DATABASE if is_foreign => {
                match of(value).and_then(|(_, collation)| self.near(collation)) {
                    Some(near) => (name, near),
                    None => return Ok(None),
                }
            }
            _ => (name, value.to_owned()),
        }))
    }

    /// A definition with collations that the target knows, if the target is of the other vendor: a server adds the collation of the
    /// session to CREATE TABLE … AS SELECT.
    pub fn with_near_collations(&self, definition: Vec<u8>) -> Vec<u8> {
        if self.dialects[0] == self.dialects[1] {
            return definition;
        }
        match String::from_utf8(definition) {
            Ok(text) => with_nearest_collations(&text, &self.known()).into_bytes(),
            Err(other) => other.into_bytes(),
        }
    }

    fn known(&self) -> HashSet<String> {
        self.names.values().map(|(_, name)| name.clone()).collect()
    }

    /// A collation of the target: this one, or the nearest that it knows.
    fn near(&self, name: &str) -> Option<String> {
        let known = self.known();
        if known.contains(name) { Some(name.to_owned()) } else { nearest_collation(name, &known) }
    }

    /// The default collations of character sets (MariaDB): by the numbers of one collation of the set, and of its default.
    fn pairs(&self, pairs: &[(u16, u16)]) -> Result<String, String> {
        let pair = |(of, default): &(u16, u16)| {
            let ((set, _), (_, name)) = (self.collation(&of.to_string())?, self.collation(&default.to_string())?);
            Ok(format!("{set}={name}"))
        };
        let pairs: Vec<String> = pairs.iter().map(pair).collect::<Result<_, String>>()?;
        Ok(format!("'{}'", pairs.join(",")))
    }
}

/// A value for SET. The literal `''` is NULL in a session of MariaDB with EMPTY_STRING_IS_NULL.
fn text(value: &str) -> &str {
    if value == "''" { "REPEAT('x', 0)" } else { value }
}

/// The names of a mode's parts, if both vendors have them.
fn shared_modes(value: &str) -> Result<String, String> {
    let bits: u64 = value.parse().map_err(|_| "an SQL mode is no number".to_owned())?;
    let named: Vec<(u32, &str)> = MODES.into_iter().filter(|(bit, _)| bits & (1 << bit) != 0).collect();
    let rest = named.iter().fold(bits & !OF_OTHERS, |bits, (bit, _)| bits & !(1 << bit));
    match rest {
        0 => Ok(format!("'{}'", named.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(","))),
        _ => Err(format!("its session has a part of the SQL mode that the target does not have (bits {rest:#x})")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn settings(dialects: [Dialect; 2]) -> Settings {
        let names = |list: &[(u16, &str, &str)]| {
            list.iter().map(|(id, set, name)| (*id, ((*set).to_owned(), (*name).to_owned()))).collect::<Names>()
        };
        Settings {
            dialects,
            now: HashMap::new(),
            optional: HashSet::from([COLLATIONS]),
            names: names(&[(33, "utf8mb3", "utf8mb3_general_ci"), (2304, "utf8mb4", "utf8mb4_uca1400_ai_ci")]),
            foreign: names(&[(255, "utf8mb4", "utf8mb4_0900_ai_ci"), (8, "latin1", "latin1_swedish_ci")]),
            ended: 0,
            system_zone: SYSTEM_ZONE.to_owned(),
            of_source: Vec::new(),
        }
    }

    #[test]
    fn a_mariadb_gets_the_names_of_what_mysql_has_as_numbers_and_a_mode_that_it_lacks_is_refused() {
        let mut settings = settings([Dialect::MySql, Dialect::MariaDb]);
        let modes = (1_u64 << 2 | 1 << 21 | 1 << 27).to_string();
        let list =
            [("sql_mode", &modes[..]), ("character_set_client", "8"), ("collation_server", "255"), (UTF8MB4, "255")];
        let of = |list: &[(&'static str, &str)]| Statement {
            settings: list.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
            ..Statement::default()
        };
        let set = settings.change(&of(&list)).unwrap().unwrap();
        for part in [
            "sql_mode = 'ANSI_QUOTES,STRICT_TRANS_TABLES'",
            "character_set_client = latin1",
            "collation_server = utf8mb4_uca1400_ai_ci",
            "character_set_collations = 'utf8mb4=utf8mb4_uca1400_ai_ci'",
        ] {
            assert!(set.contains(part), "{set}");
        }
        assert_eq!(settings.change(&of(&list)), Ok(None), "they are set once");
        assert!(settings.change(&of(&[("sql_mode", "512")])).unwrap_err().contains("0x200"));
    }

    #[test]
    fn a_later_mysql_gets_the_default_mode_of_5_7_without_the_part_that_it_refuses() {
        let of_5_7 = Statement { settings: vec![("sql_mode", "1436549152".to_owned())], ..Statement::default() };
        let mut same = settings([Dialect::MySql, Dialect::MySql]);
        assert!(same.change(&of_5_7).unwrap().unwrap().contains("sql_mode = 1436549152"));
        let mut later = Settings { ended: ENDED, ..settings([Dialect::MySql, Dialect::MySql]) };
        assert!(later.change(&of_5_7).unwrap().unwrap().contains("sql_mode = 1168113696"));
    }

    #[test]
    fn a_session_in_utf16_has_wide_names_until_it_has_others() {
        let mut settings = settings([Dialect::MySql, Dialect::MySql]);
        settings.names.insert(54, ("utf16".to_owned(), "utf16_general_ci".to_owned()));
        let of = |number: &str| Statement {
            settings: vec![("collation_connection", number.to_owned())],
            ..Statement::default()
        };
        settings.change(&of("54")).unwrap();
        assert!(settings.are_wide());
        settings.change(&of("33")).unwrap();
        assert!(!settings.are_wide());
    }

    #[test]
    fn a_setting_that_an_event_does_not_name_is_the_default_again() {
        let mut settings = settings([Dialect::MySql, Dialect::MySql]);
        let step = Statement { settings: vec![("auto_increment_increment", "10".to_owned())], ..Statement::default() };
        assert!(settings.change(&step).unwrap().unwrap().contains("auto_increment_increment = 10"));
        let next = settings.change(&Statement::default()).unwrap();
        assert_eq!(next.as_deref(), Some("SET @@SESSION.auto_increment_increment = 1"));
        assert_eq!(settings.change(&Statement::default()), Ok(None));
    }

    #[test]
    fn the_default_collations_of_a_statement_are_those_that_its_event_lists_and_else_none() {
        let mut settings = settings([Dialect::MariaDb, Dialect::MariaDb]);
        let with = Statement { collations: vec![(33, 2304)], ..Statement::default() };
        assert!(settings.change(&with).unwrap().unwrap().contains("'utf8mb3=utf8mb4_uca1400_ai_ci'"));
        assert!(
            settings
                .change(&Statement::default())
                .unwrap()
                .unwrap()
                .contains("character_set_collations = REPEAT('x', 0)")
        );
        assert!(settings.change(&Statement { collations: vec![(33, 7)], ..with }).is_err());
    }
}
