//! What a statement of a log is, from its first words.

use crate::mysql_family::sql_text::{TokenKind, tokens};

/// The most words that are looked at to know what a statement is.
const WORDS: usize = 64;

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

/// The first words of a statement, in upper case, without quoted names. Comments that the server runs count.
pub fn words(text: &[u8]) -> Vec<String> {
    let words = tokens(text).filter(|token| token.kind == TokenKind::Word).take(WORDS);
    words.filter_map(|word| Some(String::from_utf8_lossy(text.get(word.place)?).to_ascii_uppercase())).collect()
}

#[cfg(test)]
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
}
