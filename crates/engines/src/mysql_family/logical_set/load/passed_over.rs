//! Parts of a definition that are written as comments for newer servers, such as `/*!80023 INVISIBLE */`. An older server, and
//! a server of the other vendor, pass over them without a word.
//!
//! <https://dev.mysql.com/doc/refman/9.7/en/comments.html>, <https://mariadb.com/kb/en/comment-syntax/>

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use fullbore_core::Result;
use fullbore_core::units::first_of;

use super::NAMED_MAX;
use super::ddl::{CreateTable, places};
use super::plan::Plan;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::sql_text::token_end;
use crate::mysql_family::version::is_at_least;

/// The part about a CHECK that the server does not check.
const NOT_ENFORCED: &str = "NOT ENFORCED";
/// What a server without encryption does anyway.
const NOT_ENCRYPTED: &str = "DEFAULT ENCRYPTION='N'";

/// The version of MySQL that enforces CHECK.
const ENFORCES_CHECKS: [u16; 3] = [8, 0, 16];

/// The version of MariaDB whose indexes descend.
const DESCENDS: [u16; 3] = [10, 8, 0];

/// A part of a definition in such a comment.
struct Part<'a> {
    place: Range<usize>,
    /// What the comment begins with, such as `/*!80023`.
    opening: &'a str,
    content: &'a str,
}

/// The parts of a definition. Quoted names and texts have none.
fn parts(definition: &str) -> Vec<Part<'_>> {
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some(rest) = definition.as_bytes().get(at..).filter(|rest| !rest.is_empty()) {
        let is_part = rest.starts_with(b"/*!") || rest.starts_with(b"/*M!");
        let part = is_part.then(|| part(definition, at)).flatten();
        at = part.as_ref().map_or_else(|| token_end(definition.as_bytes(), at), |part| part.place.end);
        parts.extend(part);
    }
    parts
}

fn part(definition: &str, at: usize) -> Option<Part<'_>> {
    let rest = definition.get(at..)?;
    let digits = rest.find('!')? + 1;
    let end = digits + rest.get(digits..)?.bytes().take_while(u8::is_ascii_digit).count();
    let close = rest.find("*/")?;
    let content = rest.get(end..close)?.trim();
    (end > digits).then_some(Part { place: at..at + close + 2, opening: rest.get(..end)?, content })
}

/// Writes these parts in words that the target knows, or names them in warnings.
///
/// # Errors
/// The server is lost.
pub fn fit(connection: &mut Connection, plan: &mut Plan, dialect: Dialect) -> Result<()> {
    let databases = plan.databases.iter().map(|database| &database.options);
    let tables = plan.tables.iter().flat_map(|table| table.split.indexes.iter().chain([&table.split.create]));
    let found: BTreeSet<String> =
        databases.chain(tables).flat_map(|text| parts(text)).map(|part| part.opening.to_owned()).collect();
    let mut passed = BTreeSet::new();
    for opening in found {
        let answer = connection.query_if_allowed(&format!("SELECT 1 {opening} + 1 */"))?;
        if answer.is_none_or(|answer| answer.single() != Some("2")) {
            passed.insert(opening);
        }
    }
    // An older server reads these words, and does nothing.
    let version = connection.greeting().own_version();
    let mut idle = Vec::new();
    if dialect == Dialect::MySql && !is_at_least(version, ENFORCES_CHECKS) {
        idle.push("CHECK");
    }
    if !is_at_least(version, if dialect == Dialect::MySql { [8, 0, 1] } else { DESCENDS }) {
        idle.push("DESC");
    }
    if passed.is_empty() && idle.is_empty() {
        return Ok(());
    }
    let mut lost: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for database in &plan.databases {
        fitted(&database.options, &passed, dialect, &mut |what| {
            lost.entry(what.to_owned()).or_default().push(database.name.clone());
        });
    }
    for table in &mut plan.tables {
        let shown = table.shown();
        let mut lose = |what: &str| lost.entry(what.to_owned()).or_default().push(shown.clone());
        let texts = || table.split.indexes.iter().chain([&table.split.create]);
        let has =
            |wanted: &str| texts().any(|text| places(text).into_iter().any(|word| text.get(word) == Some(wanted)));
        idle.iter().filter(|word| has(word)).for_each(|word| lose(word));
        table.split.create = without_checks(&table.split.create, &passed, &mut lose);
        for text in table.split.indexes.iter_mut().chain([&mut table.split.create]) {
            *text = fitted(text, &passed, dialect, &mut lose);
        }
    }
    warn(plan, lost);
    Ok(())
}

/// Names what the target has no words for, with the objects that had it.
pub fn warn(plan: &mut Plan, lost: BTreeMap<String, Vec<String>>) {
    plan.warnings.extend(lost.into_iter().map(|(what, mut names)| {
        names.dedup();
        format!("the target does not have {what}: it stays away from {}", first_of(names.into_iter(), NAMED_MAX))
    }));
}

/// The definition in the words of the target. `lose` takes the parts that it has no words for.
fn fitted(text: &str, passed: &BTreeSet<String>, dialect: Dialect, lose: &mut dyn FnMut(&str)) -> String {
    let mut fitted = text.to_owned();
    for part in parts(text).iter().rev().filter(|part| passed.contains(part.opening)) {
        match (dialect, part.opening, part.content) {
            (Dialect::MariaDb, "/*!80023", "INVISIBLE") => fitted.replace_range(part.place.clone(), "INVISIBLE"),
            (Dialect::MariaDb, "/*!80000", "INVISIBLE") => fitted.replace_range(part.place.clone(), "IGNORED"),
            (_, _, NOT_ENCRYPTED) => {}
            (_, _, content) => lose(content),
        }
    }
    fitted
}

/// The definition without each CHECK that the target would enforce and the source does not: rows may break it.
fn without_checks(create: &str, passed: &BTreeSet<String>, lose: &mut dyn FnMut(&str)) -> String {
    let is_lost =
        |text: &str| parts(text).iter().any(|part| part.content == NOT_ENFORCED && passed.contains(part.opening));
    match CreateTable::parse(create) {
        Some(table) if is_lost(create) => {
            lose(&format!("CHECK … {NOT_ENFORCED}"));
            table.without(is_lost)
        }
        _ => create.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "(\n  `id` int NOT NULL,\n  `a` int DEFAULT '7' /*!80023 INVISIBLE */ COMMENT '/*!80023 INVISIBLE */',\n  \
        `g` point NOT NULL /*!80003 SRID 4326 */,\n  KEY `k` (`a`) /*!80000 INVISIBLE */,\n  CONSTRAINT `c` CHECK ((`a` < 5)) \
        /*!80016 NOT ENFORCED */\n) ENGINE=InnoDB /*!50100 PARTITION BY KEY (`id`) */";

    fn told(dialect: Dialect, passed: &[&str]) -> (String, Vec<String>) {
        let passed = passed.iter().map(|opening| (*opening).to_owned()).collect();
        let mut lost = Vec::new();
        let mut lose = |what: &str| lost.push(what.to_owned());
        let checked = without_checks(TABLE, &passed, &mut lose);
        let text = fitted(&checked, &passed, dialect, &mut lose);
        (text, lost)
    }

    #[test]
    fn mariadb_gets_its_own_words_and_the_rest_is_named() {
        let (text, lost) = told(Dialect::MariaDb, &["/*!80000", "/*!80003", "/*!80016", "/*!80023"]);
        assert!(text.contains("'7' INVISIBLE COMMENT '/*!80023 INVISIBLE */'"), "{text}");
        assert!(text.contains("KEY `k` (`a`) IGNORED\n) ENGINE=InnoDB /*!50100"), "{text}");
        assert_eq!(lost, ["CHECK … NOT ENFORCED", "SRID 4326"]);
    }

    #[test]
    fn an_older_server_keeps_what_it_runs_and_the_rest_is_named() {
        let (text, lost) = told(Dialect::MySql, &["/*!80023"]);
        assert_eq!((text.as_str(), &lost[..]), (TABLE, &["INVISIBLE".to_owned()][..]));
    }
}
