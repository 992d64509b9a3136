//! InnoDB tables with a definition and without a file: a backup without them is not whole.
//!
//! A table is in its own file, unless it is in the system tablespace or its tablespace was discarded. Only the server
//! can tell which; it still knows a file that was removed.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::listing::{Listing, list};
use super::places::Places;
use super::statements::Statements;

/// How many tables one query asks for, and how many a message names.
const ASKED_MAX: usize = 1000;
const NAMED_MAX: usize = 5;
/// A table's definition begins with these two bytes, and at 3 has the number of its engine: 12 is InnoDB.
const DEFINITION: [u8; 2] = [0xFE, 0x01];
const ENGINE_AT: usize = 3;
const INNODB: u8 = 12;
/// How often it looks while DDL runs, and the pause in between.
const LOOKS: usize = 3;
const BETWEEN_LOOKS: Duration = Duration::from_millis(300);

/// Refuses tables whose files were removed; returns warnings of other tables without a file. DDL has to be blocked: a
/// table that is created or dropped has only one of its files for a moment.
///
/// # Errors
/// The server knows a tablespace whose file is missing.
pub fn demand_files(listing: &Listing, server: &mut dyn Statements) -> Result<Vec<String>> {
    let tables = without_file(listing)?;
    if tables.is_empty() {
        return Ok(Vec::new());
    }
    let Some(open) = asked(server, "INNODB_SYS_TABLESPACES", "", &tables) else {
        return Ok(vec![format!(
            "{}: if they are not in the system tablespace, they are not in this backup; with an account that has \
             PROCESS, fullbore can tell",
            named(&tables, "without a file of their own")
        )]);
    };
    if let Some(table) = tables.iter().find(|table| open.contains(*table)) {
        return Err(lost(&format!("{table}.ibd")));
    }
    let inside = asked(server, "INNODB_SYS_TABLES", "space = 0 AND", &tables).unwrap_or_default();
    let rest: Vec<String> = tables.into_iter().filter(|table| !inside.contains(table)).collect();
    if rest.is_empty() {
        return Ok(Vec::new());
    }
    Ok(vec![format!(
        "{}: their tablespaces were discarded, or lost before the server started; their rows are not in this backup",
        named(&rest, "without a file")
    )])
}

/// Before the copy, while DDL runs: refuses tablespaces, also of partitions, that the server has open and whose file is
/// missing. A tablespace counts as missing only if it is missing at each of several looks under the same number: DDL
/// that creates a table again and again gives it a new number each time.
///
/// # Errors
/// As [`demand_files`].
pub fn demand_files_early(places: &Places, server: &mut dyn Statements) -> Result<()> {
    let mut missing: Option<HashSet<(String, Option<u64>)>> = None;
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(BETWEEN_LOOKS);
        }
        // In this order: the list then has a table that is created in between.
        let Ok(open) = server.execute("SELECT NAME, SPACE FROM information_schema.INNODB_SYS_TABLESPACES") else {
            return Ok(()); // Not allowed, or the connection is lost: then the next statement fails.
        };
        let there: HashSet<String> = list(places)?.tablespaces.into_iter().map(|file| file.name).collect();
        let tables = open.iter().map(|row| (row.text(0), row.number(1))).filter(|(name, _)| is_of_table(name));
        let now: HashSet<_> = tables
            .map(|(name, space)| (format!("{name}.ibd"), space))
            .filter(|(file, _)| !there.contains(file))
            .collect();
        let both = missing.map_or(now.clone(), |before| before.intersection(&now).cloned().collect());
        if both.is_empty() {
            return Ok(());
        }
        missing = Some(both);
    }
    match missing.into_iter().flatten().min() {
        Some((file, _)) => Err(lost(&file)),
        None => Ok(()),
    }
}

/// The server's internal name of a table is `database/table`; names that begin with # belong to running DDL.
fn is_of_table(name: &str) -> bool {
    name.split_once('/').is_some_and(|(_, table)| !table.starts_with('#'))
}

fn lost(file: &str) -> Error {
    Error::refused(
        file,
        "the server has this tablespace open, and its file is not there any more: it was removed, or moved away",
        "while the server runs, its data can still be read: copy the table (CREATE TABLE … SELECT), drop it, and start \
         the backup again",
    )
}

fn named(tables: &[String], what: &str) -> String {
    format!("InnoDB tables {what}: {} ({})", tables.len(), first_of(tables, NAMED_MAX))
}

/// The InnoDB tables with a definition and without a file, by the server's internal name: `shop/item`.
fn without_file(listing: &Listing) -> Result<Vec<String>> {
    let stems = |names: &mut dyn Iterator<Item = &str>| -> HashSet<String> {
        names.filter_map(|name| Some(name.rsplit_once('.')?.0.to_owned())).collect()
    };
    let tablespaces = stems(&mut listing.tablespaces.iter().map(|file| file.name.as_str()));
    // Tables of other engines have files of their own; a partitioned table has the files of its partitions.
    let others =
        stems(&mut listing.others.iter().map(|file| file.name.as_str()).filter(|name| !name.ends_with(".frm")));
    let mut found = Vec::new();
    for file in &listing.others {
        let Some(table) = file.name.strip_suffix(".frm") else { continue };
        if !tablespaces.contains(table) && !others.contains(table) && is_of_innodb(&file.path)? {
            found.push(table.to_owned());
        }
    }
    Ok(found)
}

/// Whether this is the definition of an InnoDB table, and not of a view or of an engine without files.
fn is_of_innodb(path: &std::path::Path) -> Result<bool> {
    let mut head = [0; ENGINE_AT + 1];
    match File::open(path).and_then(|mut file| file.read_exact(&mut head)) {
        Ok(()) => Ok(head.starts_with(&DEFINITION) && head[ENGINE_AT] == INNODB),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => Ok(false),
        Err(error) => Err(Error::io("read", path.display().to_string(), error)),
    }
}

/// The tables of `tables` that are in a table of the server's dictionary; `None` if the account has no permission to
/// ask.
fn asked(server: &mut dyn Statements, from: &str, and: &str, tables: &[String]) -> Option<HashSet<String>> {
    // Internal names have letters, digits and the like; other characters are written with @.
    let quoted: Vec<String> = tables
        .iter()
        .filter(|table| !table.contains(['\'', '\\']))
        .take(ASKED_MAX)
        .map(|table| format!("'{table}'"))
        .collect();
    let query = format!("SELECT NAME FROM information_schema.{from} WHERE {and} NAME IN ({})", quoted.join(", "));
    // Not allowed, or the connection is lost: then the next statement fails.
    let rows = server.execute(&query).ok()?;
    Some(rows.iter().map(|row| row.text(0)).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::listing::{ListedFile, OtherFile, Role, Settles};
    use super::super::statements::Row;
    use super::*;

    /// A dictionary: the open tablespaces, and the tables in the system tablespace; `None` without permission.
    struct Dictionary(Option<(&'static str, &'static str)>);

    impl Statements for Dictionary {
        fn execute(&mut self, sql: &str) -> Result<Vec<Row>> {
            let (open, inside) = self.0.ok_or_else(|| Error::refused("db1", "Access denied", ""))?;
            let names = if sql.contains("TABLESPACES") { open } else { inside };
            let row = |name: &str| Row(vec![Some(name.as_bytes().to_vec())]);
            Ok(names.split_whitespace().filter(|name| sql.contains(&format!("'{name}'"))).map(row).collect())
        }
    }

    fn listing(root: &std::path::Path) -> Listing {
        let mut listing = Listing::default();
        let view: &[u8] = b"TYPE=VIEW\n";
        for (name, head) in [
            ("shop/a.frm", &[0xFE, 1, 10, 12, 0][..]),
            ("shop/lost.frm", &[0xFE, 1, 10, 12, 0]),
            ("shop/memory.frm", &[0xFE, 1, 10, 6, 0]),
            ("shop/myisam.frm", &[0xFE, 1, 10, 9, 0]),
            ("shop/myisam.MYD", b""),
            ("shop/short.frm", &[0xFE]),
            ("shop/parts.frm", &[0xFE, 1, 10, 20, 0]),
            ("shop/parts.par", b""),
            ("shop/seen.frm", view),
        ] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, head).unwrap();
            listing.others.push(OtherFile { name: name.into(), path, settles: Settles::WithoutDdl });
        }
        let (name, path) = ("shop/a.ibd".to_owned(), root.join("shop/a.ibd"));
        listing.tablespaces.push(ListedFile { name, path, elsewhere: false, ambiguous: false, role: Role::Table });
        listing
    }

    #[test]
    fn a_table_without_a_file_is_refused_where_the_server_has_it_open_and_named_where_nobody_can_tell() {
        let root = tempfile::tempdir().unwrap();
        let listing = listing(root.path());
        assert_eq!(without_file(&listing).unwrap(), ["shop/lost"]);
        let demand = |dictionary| demand_files(&listing, &mut Dictionary(dictionary));
        let error = demand(Some(("shop/a shop/lost", ""))).unwrap_err().to_string();
        assert!(error.contains("shop/lost.ibd") && error.contains("not there any more"), "{error}");
        assert!(demand(Some(("shop/a", "shop/lost"))).unwrap().is_empty());
        let said = demand(Some(("shop/a", ""))).unwrap();
        assert!(said.len() == 1 && said[0].contains("shop/lost") && said[0].contains("discarded"), "{said:?}");
        let said = demand(None).unwrap();
        assert!(said.len() == 1 && said[0].contains("shop/lost") && said[0].contains("PROCESS"), "{said:?}");
        assert!(demand_files(&Listing::default(), &mut Dictionary(None)).unwrap().is_empty());
    }
    /// A server that has a table open whose file is missing. Each look finds the next number.
    struct Remade(&'static [u64], usize);

    impl Statements for Remade {
        fn execute(&mut self, _: &str) -> Result<Vec<Row>> {
            let space = self.0[self.1 % self.0.len()].to_string();
            self.1 += 1;
            Ok(vec![Row(vec![Some(b"shop/a".to_vec()), Some(space.into_bytes())])])
        }
    }

    #[test]
    fn a_table_that_ddl_makes_again_and_again_is_not_missing_and_one_that_keeps_its_number_is() {
        let root = tempfile::tempdir().unwrap();
        let places = Places {
            version: String::new(),
            datadir: root.path().to_owned(),
            system_files: Vec::new(),
            undo_directory: root.path().to_owned(),
            redo_log: root.path().join("ib_logfile0"),
            aria_log_directory: root.path().to_owned(),
            write_block: 0,
            myisam_use_mmap: false,
        };
        demand_files_early(&places, &mut Remade(&[7, 8, 9], 0)).unwrap();
        let error = demand_files_early(&places, &mut Remade(&[7], 0)).unwrap_err().to_string();
        assert!(error.contains("shop/a.ibd"), "{error}");
    }
}
