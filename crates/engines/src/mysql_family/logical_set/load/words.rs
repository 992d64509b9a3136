//! Translates words of definitions between MySQL and MariaDB.

use std::collections::BTreeMap;

use super::ddl::places;
use super::plan::Plan;
use crate::mysql_family::Dialect;

/// Writes the definitions of a set of the other vendor in the words of `target`. Gives what it has no words for, and where.
pub fn fit(plan: &mut Plan, target: Dialect) -> BTreeMap<String, Vec<String>> {
    let mut lost: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let [of_database, of_table]: [Edit; 2] = match target {
        Dialect::MySql => [database_in_mysql, in_mysql],
        Dialect::MariaDb => [in_mariadb; 2],
    };
    for database in &mut plan.databases {
        edited(&mut database.options, of_database, &mut |what| {
            lost.entry(what.to_owned()).or_default().push(database.name.clone());
        });
    }
    for table in &mut plan.tables {
        let shown = table.shown();
        for text in table.split.indexes.iter_mut().chain([&mut table.split.create]) {
            edited(text, of_table, &mut |what| lost.entry(what.to_owned()).or_default().push(shown.clone()));
        }
    }
    lost
}

/// What a word becomes, with the two words behind it and the one before it.
type Edit = fn(before: &str, words: [&str; 3]) -> Option<Change>;

/// A change of a definition.
struct Change {
    /// How many words go.
    words: usize,
    /// What comes in their place.
    text: &'static str,
    /// What the target has no words for.
    lost: Option<&'static str>,
}

fn in_mysql(_: &str, words: [&str; 3]) -> Option<Change> {
    (words[0] == "IGNORED").then_some(Change { words: 1, text: "INVISIBLE", lost: None })
}

fn database_in_mysql(_: &str, words: [&str; 3]) -> Option<Change> {
    (words[0] == "COMMENT").then_some(Change { words: 2, text: "", lost: Some("comments of databases") })
}

fn in_mariadb(before: &str, words: [&str; 3]) -> Option<Change> {
    let lost = Some("NOT NULL of generated columns");
    match words {
        ["geomcollection", ..] if before.starts_with('`') => {
            Some(Change { words: 1, text: "geometrycollection", lost: None })
        }
        ["STORED", "NOT", "NULL"] => Some(Change { words: 3, text: "STORED", lost }),
        ["VIRTUAL", "NOT", "NULL"] => Some(Change { words: 3, text: "VIRTUAL", lost }),
        _ => None,
    }
}

/// Changes the words of a definition. `lose` takes what is lost. Quoted names and texts are words of their own.
fn edited(definition: &mut String, edit: Edit, lose: &mut dyn FnMut(&str)) {
    let words = places(definition);
    for at in (0..words.len()).rev() {
        let word = |at: usize| words.get(at).and_then(|place| definition.get(place.clone())).unwrap_or_default();
        let before = at.checked_sub(1).map_or("", word);
        let Some(change) = edit(before, [word(at), word(at + 1), word(at + 2)]) else { continue };
        if let (Some(first), Some(last)) = (words.get(at), words.get(at + change.words - 1)) {
            definition.replace_range(first.start..last.end, change.text);
            change.lost.into_iter().for_each(&mut *lose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(edit: Edit, text: &str) -> (String, Vec<String>) {
        let (mut text, mut lost) = (text.to_owned(), Vec::new());
        edited(&mut text, edit, &mut |what| lost.push(what.to_owned()));
        (text, lost)
    }

    #[test]
    fn mysql_gets_its_word_for_an_index_and_a_database_without_its_comment() {
        let table = "(`IGNORED` int COMMENT 'IGNORED', KEY `k` (`a`) IGNORED COMMENT 'x') COMMENT='y'";
        let expected = "(`IGNORED` int COMMENT 'IGNORED', KEY `k` (`a`) INVISIBLE COMMENT 'x') COMMENT='y'";
        assert_eq!(told(in_mysql, table), (expected.to_owned(), Vec::new()));
        for database in ["", " /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin */"] {
            let (text, lost) = told(database_in_mysql, &format!("{database} COMMENT 'it''s mine'"));
            assert_eq!((text.trim_end(), &lost[..]), (database, &["comments of databases".to_owned()][..]));
        }
    }

    #[test]
    fn mariadb_gets_its_word_for_a_type_and_generated_columns_without_not_null() {
        let table = "(`geomcollection` geomcollection NOT NULL, `g` int GENERATED ALWAYS AS ((`a` + 1)) STORED NOT NULL COMMENT \
                     'VIRTUAL NOT NULL', `v` int GENERATED ALWAYS AS (1) VIRTUAL)";
        let (text, lost) = told(in_mariadb, table);
        let expected = "(`geomcollection` geometrycollection NOT NULL, `g` int GENERATED ALWAYS AS ((`a` + 1)) STORED COMMENT \
                        'VIRTUAL NOT NULL', `v` int GENERATED ALWAYS AS (1) VIRTUAL)";
        assert_eq!((text.as_str(), &lost[..]), (expected, &["NOT NULL of generated columns".to_owned()][..]));
    }
}
