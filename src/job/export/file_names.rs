//! Names of files from names of schemas and tables, which may hold anything.

use std::collections::BTreeSet;

/// The longest name of a file, in bytes, without what makes it unique.
const LENGTH_MAX: usize = 180;

/// Names that were given: no two of them are the same, not even on a file system that ignores case.
#[derive(Default)]
pub struct Names {
    given: BTreeSet<String>,
}

impl Names {
    /// `schema.table` with `end` behind it.
    pub fn table(&mut self, schema: &str, table: &str, end: &str) -> String {
        self.unique(&format!("{}.{}", safe(schema), safe(table)), end)
    }

    /// The name of a database with `end` behind it.
    pub fn database(&mut self, database: &str, end: &str) -> String {
        self.unique(&safe(database), end)
    }

    fn unique(&mut self, name: &str, end: &str) -> String {
        let cut =
            name.char_indices().map(|(at, character)| at + character.len_utf8()).take_while(|at| *at <= LENGTH_MAX);
        let name = name.get(..cut.last().unwrap_or(0)).unwrap_or_default();
        let numbered = (2_u64..).map(|number| format!("{name}~{number}{end}"));
        let mut names = std::iter::once(format!("{name}{end}")).chain(numbered);
        let free = names.find(|name| !self.given.contains(&name.to_lowercase())).unwrap_or_default();
        self.given.insert(free.to_lowercase());
        free
    }
}

/// A part of a name: `%` and two digits of each byte in the place of what no name of a file should have.
fn safe(part: &str) -> String {
    let mut out = String::new();
    for (at, character) in part.chars().enumerate() {
        // A point at the front makes a hidden file, or the parent directory.
        let is_bad = character.is_control() || r#"/\:*?"<>|%"#.contains(character) || at == 0 && character == '.';
        match is_bad {
            false => out.push(character),
            true => character.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| out.push_str(&format!("%{byte:02X}"))),
        }
    }
    if out.is_empty() { "%".to_owned() } else { out }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_become_names_of_files_that_stay_in_their_directory() {
        let mut names = Names::default();
        for (schema, table, name) in [
            ("dbo", "Orders", "dbo.Orders.csv"),
            ("dbo", "Order Details", "dbo.Order Details.csv"),
            ("..", "..", "%2E..%2E..csv"),
            ("dbo", "../../etc/passwd", "dbo.%2E.%2F..%2Fetc%2Fpasswd.csv"),
            ("a/b", "c\\d:e\0", "a%2Fb.c%5Cd%3Ae%00.csv"),
            ("", "", "%.%.csv"),
            ("dbo", "ORDERS", "dbo.ORDERS~2.csv"),
            ("dbo", "100%", "dbo.100%25.csv"),
        ] {
            assert_eq!(names.table(schema, table, ".csv"), name);
        }
        let long = names.table("dbo", &"é".repeat(128), ".csv");
        assert!(long.len() <= LENGTH_MAX + 4 && long.ends_with("é.csv"), "{long}");
        assert!(names.table("dbo", &"é".repeat(127), ".csv").ends_with("é~2.csv"));
    }
}
