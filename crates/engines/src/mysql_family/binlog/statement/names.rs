//! The names in the text of a statement: where the server does not list the databases that it changes.

use std::ops::Range;

use super::Statement;
use super::kind::words;
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::sql_text::{tokens, unquoted};

impl Statement {
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

    /// The database before the point in the first name of the statement that has one; None if the first name has none.
    pub fn first_qualified(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.text);
        let mut rest = text.trim_start();
        // The words before the name.
        loop {
            let word: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !BEFORE_A_NAME.contains(&word.to_ascii_uppercase().as_str()) {
                break;
            }
            rest = rest.get(word.len()..)?.trim_start();
        }
        let (name, after) = name(rest)?;
        after.trim_start().starts_with('.').then_some(name)
    }

    /// A statement about a savepoint, with a name that each SQL mode takes. In ANSI_QUOTES, servers write it in double quotes.
    pub fn of_savepoint(&self) -> Vec<u8> {
        let last = tokens(&self.text).last().map(|token| token.place);
        let (head, name) = self.text.split_at(last.map_or(self.text.len(), |place| place.start));
        match name.first() {
            Some(b'"') => [head, quoted(&unquoted(&String::from_utf8_lossy(name))).as_bytes()].concat(),
            _ => self.text.clone(),
        }
    }

    /// Whether it asks for its default database, and has none: the session of the target has one from an earlier statement.
    pub fn asks_for_no_database(&self) -> bool {
        !self.is_about_code() && !self.asks_for_database().is_empty()
    }

    /// Writes NULL for the default database in a statement that changes rows, if its session had none: the appliers of both vendors
    /// would take an empty text. The text keeps its length.
    pub(super) fn without_default_database(mut self) -> Self {
        const NULL: &[u8] = b"NULL";
        const CHANGES: [&str; 5] = ["INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"];
        if self.schema.is_empty() && words(&self.text).first().is_some_and(|word| CHANGES.contains(&&word[..])) {
            for place in self.asks_for_database() {
                let null = NULL.iter().chain(std::iter::repeat(&b' '));
                self.text.get_mut(place).unwrap_or_default().iter_mut().zip(null).for_each(|(byte, new)| *byte = *new);
            }
        }
        self
    }

    /// Where the text asks for the default database of its session, which had none.
    fn asks_for_database(&self) -> Vec<Range<usize>> {
        if !self.schema.is_empty() {
            return Vec::new();
        }
        let places: Vec<Range<usize>> = tokens(&self.text).map(|token| token.place).collect();
        let said = |at: usize| places.get(at).and_then(|place| self.text.get(place.clone()));
        let is = |at: usize, word: &str| said(at).is_some_and(|text| text.eq_ignore_ascii_case(word.as_bytes()));
        // Behind a dot, it is the name of a table.
        let asks = |at: &usize| {
            ["DATABASE", "SCHEMA"].iter().any(|word| is(*at, word))
                && is(at + 1, "(")
                && is(at + 2, ")")
                && !at.checked_sub(1).is_some_and(|before| is(before, "."))
        };
        (0..places.len()).filter(asks).map(|at| places[at].start..places[at + 2].end).collect()
    }

    /// Whether it is about an object with a body, which runs later.
    pub(super) fn is_about_code(&self) -> bool {
        const KINDS: [&str; 6] = ["PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "PACKAGE", "VIEW"];
        words(&self.text).iter().any(|word| KINDS.contains(&&word[..]))
    }

    /// The name of the table that CREATE TABLE creates, as it is written.
    pub fn created_table(&self) -> Option<String> {
        let text = std::str::from_utf8(&self.text).ok()?;
        words(&self.text).first().filter(|word| *word == "CREATE")?;
        let rest = text.get(text.find('`')?..)?;
        let (_, after) = name(rest)?;
        let end = match after.strip_prefix('.') {
            Some(more) => rest.len() - name(more)?.1.len(),
            None => rest.len() - after.len(),
        };
        Some(rest.get(..end)?.to_owned())
    }
}

/// Words between the beginning of a statement and the name of its table.
const BEFORE_A_NAME: [&str; 23] = [
    "INSERT",
    "REPLACE",
    "UPDATE",
    "DELETE",
    "TRUNCATE",
    "ALTER",
    "DROP",
    "CREATE",
    "RENAME",
    "TABLE",
    "TABLES",
    "INTO",
    "FROM",
    "IGNORE",
    "LOW_PRIORITY",
    "DELAYED",
    "HIGH_PRIORITY",
    "QUICK",
    "IF",
    "EXISTS",
    "NOT",
    "OR",
    "ONLINE",
];

/// The name at the beginning of a text, without its quotes, and the text behind it.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '`' | '"')) else {
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != '$').unwrap_or(text.len());
        return (end > 0)
            .then(|| (text.get(..end).unwrap_or_default().to_owned(), text.get(end..).unwrap_or_default()));
    };
    let mut at = 1;
    loop {
        at += text.get(at..)?.find(quote)? + 1;
        match text.get(at..)?.strip_prefix(quote) {
            Some(_) => at += 1,
            None => break,
        }
    }
    let doubled = format!("{quote}{quote}");
    Some((text.get(1..at - 1)?.replace(&doubled, &quote.to_string()), text.get(at..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Statement {
        Statement { text: text.as_bytes().to_vec(), ..Statement::default() }
    }

    #[test]
    fn the_name_of_a_savepoint_is_in_backticks() {
        let told = |text: &str| String::from_utf8_lossy(&of(text).of_savepoint()).into_owned();
        assert_eq!(told("SAVEPOINT \"a\"\"`b\""), "SAVEPOINT `a\"``b`");
        assert_eq!(told("ROLLBACK TO `a`"), "ROLLBACK TO `a`");
    }

    #[test]
    fn a_statement_that_asks_for_its_database_and_has_none_is_known() {
        assert!(of("CREATE TABLE a.t AS SELECT database ()").asks_for_no_database());
        assert!(!of("CREATE TABLE a.t AS SELECT 'DATABASE()'").asks_for_no_database());
        assert!(!of("CREATE FUNCTION a.f () RETURNS TEXT RETURN DATABASE()").asks_for_no_database());
        assert!(!Statement { schema: b"a".to_vec(), ..of("SELECT SCHEMA()") }.asks_for_no_database());
    }

    #[test]
    fn the_database_of_a_session_without_one_is_null_in_a_statement_that_changes_rows() {
        let told =
            |statement: Statement| String::from_utf8_lossy(&statement.without_default_database().text).into_owned();
        let text = "INSERT INTO a.t VALUES (database ( ), 'DATABASE()', SCHEMA())";
        assert_eq!(told(of(text)), "INSERT INTO a.t VALUES (NULL        , 'DATABASE()', NULL    )");
        assert_eq!(told(Statement { schema: b"a".to_vec(), ..of(text) }), text);
        for other in ["CREATE TABLE a.t (a TEXT DEFAULT (DATABASE()))", "INSERT INTO a.schema () VALUES ()"] {
            assert_eq!(told(of(other)), other);
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
            [("rename table a TO b", true), ("RENAME USER a TO b", false), ("ALTER TABLE a RENAME b", false)]
        {
            assert_eq!(statement(text).renames_tables(), is, "{text}");
        }
        assert!(statement("ALTER TABLE pt EXCHANGE PARTITION p WITH TABLE ex").exchanges_rows());
    }

    #[test]
    fn the_first_name_of_a_statement_says_what_it_changes() {
        let statement = |text: &str| Statement { text: text.as_bytes().to_vec(), ..Statement::default() };
        for (text, first) in [
            ("DELETE FROM mysql.user WHERE a.b", Some("mysql")),
            ("insert into `a``b` . t VALUES (1)", Some("a`b")),
            ("INSERT INTO t SELECT a.b FROM a", None),
            ("DROP TABLE IF EXISTS \"x\".y", Some("x")),
        ] {
            assert_eq!(statement(text).first_qualified().as_deref(), first, "{text}");
        }
        for (text, name) in [
            ("CREATE TABLE `t` (\n `a` int)", Some("`t`")),
            ("CREATE OR REPLACE TABLE `s``x`.`t` (a INT)", Some("`s``x`.`t`")),
            ("ALTER TABLE `t` ADD b INT", None),
        ] {
            assert_eq!(statement(text).created_table().as_deref(), name, "{text}");
        }
    }
}
