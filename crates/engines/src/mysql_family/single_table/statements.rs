//! The file beside a table that was taken out: how to make it in another server, and how its tablespace gets into it.

use std::fmt::Write;

use super::{TableName, WantedTable, file_name};
use crate::mysql_family::Dialect;
use crate::mysql_family::logical::names::quoted;

/// The input for the statements.
#[derive(Debug, Clone)]
pub(super) struct Definition {
    pub dialect: Dialect,
    /// The server that the table was taken out with.
    pub version: String,
    /// The name of the backup.
    pub origin: String,
    pub name: TableName,
    /// SHOW CREATE TABLE.
    pub create: String,
    /// From information_schema.
    pub row_format: String,
    /// In their order; empty for a table without partitions.
    pub partitions: Vec<Partition>,
    pub table: WantedTable,
    /// The exported files, below the target.
    pub files: Vec<String>,
}

/// A partition, or a subpartition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Partition {
    pub name: String,
    /// Its tablespace, without folder and ending.
    pub file: String,
}

impl Partition {
    /// The partition of a table, and its file.
    pub fn of(table: &WantedTable, partition: &str, subpartition: Option<&str>) -> Self {
        let mut ending = format!("#p#{}", file_name::encode(partition));
        if let Some(subpartition) = subpartition {
            ending.push_str(&format!("#sp#{}", file_name::encode(subpartition)));
        }
        let ending = format!("{}{ending}", file_name::encode(&table.name.table)).to_lowercase();
        let mut stems = table.spaces.iter().filter_map(|path| path.rsplit_once('/')?.1.strip_suffix(".ibd"));
        let file = stems.find(|stem| stem.to_lowercase() == ending).unwrap_or(&ending).to_owned();
        Self { name: subpartition.unwrap_or(partition).to_owned(), file }
    }
}

/// The statements, with the steps between them.
pub(super) fn statements(definition: &Definition) -> String {
    let mut text = String::new();
    let one_line = |text: &str| text.replace(|c: char| c.is_control(), " ");
    // Writing into a String cannot fail.
    let _ = write!(
        text,
        "-- {}\n-- Taken out of {} by {} {}.\n",
        one_line(&definition.name.to_string()),
        one_line(&definition.origin),
        definition.dialect.title(),
        definition.version
    );
    text.push_str(
        "-- Run 1 in the target database, then do 2, then run 3 in the same session. The server must be of the same\n\
         -- series with the same page size. The table must not exist in the target database. One table at a time.\n",
    );
    notes(definition, &mut text);
    text.push_str("\n-- 1. The table, without its data\n");
    text.push_str(
        "SET NAMES utf8mb4;\nSET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION', SESSION foreign_key_checks = 0;\n",
    );
    let _ = writeln!(text, "{};", definition.create.trim_end_matches(';'));
    match (definition.dialect, &definition.partitions[..]) {
        (Dialect::MariaDb, partitions @ [_, ..]) => exchanged(definition, partitions, &mut text),
        (dialect, partitions) => imported(definition, dialect, !partitions.is_empty(), &mut text),
    }
    text
}

/// Notes about this table.
fn notes(definition: &Definition, text: &mut String) {
    let create = &definition.create;
    let mut note = |said: &str| {
        let _ = writeln!(text, "-- Note: {said}");
    };
    if create.contains("FOREIGN KEY") {
        note(
            "it has foreign keys. Neither these statements nor the import check them against the tables that they \
             refer to.",
        );
    }
    if create.contains("GENERATED ALWAYS AS") {
        note(
            "it has generated columns. Their stored and indexed values come with the tablespace; they are not computed \
             again.",
        );
    }
    if create.contains("FULLTEXT ") {
        note(
            "the words of its FULLTEXT indexes do not come with the tablespace: drop and add these indexes after the \
             import.",
        );
    }
    if !create.contains("ROW_FORMAT=") && !definition.row_format.is_empty() && definition.partitions.is_empty() {
        let _ = writeln!(
            text,
            "-- Note: its row format is {}. If innodb_default_row_format is different, add ROW_FORMAT={0} to the \
             table.",
            definition.row_format.to_uppercase()
        );
    }
    if definition.files.iter().any(|file| file.ends_with(".cfp")) {
        let _ = writeln!(
            text,
            "-- Note: it is encrypted. The .cfp file has the key to its key: store it like a key; the server needs a \
             keyring."
        );
    } else if create.contains("`ENCRYPTED`=") || create.contains("ENCRYPTION_KEY_ID") {
        let _ = writeln!(
            text,
            "-- Note: it is encrypted. The server needs the keys that it was encrypted with, under the same ids."
        );
    }
}

/// One tablespace, or in MySQL one for each partition.
fn imported(definition: &Definition, dialect: Dialect, has_partitions: bool, text: &mut String) {
    let name = quoted(&definition.name.table);
    let which = if has_partitions && dialect == Dialect::MySql { " PARTITION ALL" } else { "" };
    let _ = writeln!(text, "ALTER TABLE {name} DISCARD{which} TABLESPACE;");
    text.push_str(
        "\n-- 2. Copy these files into the folder of that database in the server's data directory, and give them to \
         the server's user:\n",
    );
    for file in definition.files.iter().filter(|file| is_for_import(file)) {
        let _ = writeln!(text, "--    {file}");
    }
    let _ = write!(text, "\n-- 3. The data\nALTER TABLE {name} IMPORT{which} TABLESPACE;\n");
}

/// MariaDB cannot import a partition: each is imported as a separate table, and then replaces the empty partition.
fn exchanged(definition: &Definition, partitions: &[Partition], text: &mut String) {
    let name = quoted(&definition.name.table);
    let alone = |at: usize| format!("import_{}", at + 1);
    for at in 0..partitions.len() {
        let alone = quoted(&alone(at));
        let _ = write!(
            text,
            "CREATE TABLE {alone} LIKE {name};\nALTER TABLE {alone} REMOVE PARTITIONING;\n\
             ALTER TABLE {alone} DISCARD TABLESPACE;\n"
        );
    }
    text.push_str(
        "\n-- 2. Copy these files, under new names, into the folder of that database in the server's data directory,\n\
         --    and give them to the server's user:\n",
    );
    for (at, partition) in partitions.iter().enumerate() {
        let stem = format!("/{}.", partition.file);
        for file in definition.files.iter().filter(|file| is_for_import(file) && file.contains(&stem)) {
            let ending = file.rsplit_once('.').map_or("", |(_, ending)| ending);
            let _ = writeln!(text, "--    {file} -> {}.{ending}", alone(at));
        }
    }
    text.push_str("\n-- 3. The data\n");
    for (at, partition) in partitions.iter().enumerate() {
        let (alone, partition) = (quoted(&alone(at)), quoted(&partition.name));
        let _ = write!(
            text,
            "ALTER TABLE {alone} IMPORT TABLESPACE;\n\
             ALTER TABLE {name} EXCHANGE PARTITION {partition} WITH TABLE {alone};\nDROP TABLE {alone};\n"
        );
    }
}

fn is_for_import(file: &str) -> bool {
    [".ibd", ".cfg", ".cfp"].iter().any(|ending| file.ends_with(ending))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn definition(dialect: Dialect, create: &str) -> Definition {
        let name = TableName { schema: "shop".into(), table: "t x".into() };
        let spaces = vec!["shop/t@0020x#P#p0.ibd".into(), "shop/t@0020x#P#p1.ibd".into()];
        let table = WantedTable { name: name.clone(), spaces, definition: None };
        Definition {
            dialect,
            version: "9.7.4".into(),
            origin: "backup set\n1".into(),
            name,
            create: create.into(),
            row_format: "Dynamic".into(),
            partitions: Vec::new(),
            table,
            files: vec!["shop/t@0020x.ibd".into(), "shop/t@0020x.cfg".into(), "shop/t@0020x.frm".into()],
        }
    }

    #[test]
    fn a_table_is_made_discarded_copied_and_imported_in_this_order() {
        let text =
            statements(&definition(Dialect::MySql, "CREATE TABLE `t x` (id INT, FOREIGN KEY (id) REFERENCES b (id))"));
        let places: Vec<usize> = [
            "foreign keys",
            "CREATE TABLE `t x`",
            "ALTER TABLE `t x` DISCARD TABLESPACE;",
            "--    shop/t@0020x.cfg",
            "ALTER TABLE `t x` IMPORT TABLESPACE;",
        ]
        .iter()
        .map(|part| text.find(part).unwrap_or_else(|| panic!("{part} in {text}")))
        .collect();
        assert!(places.is_sorted(), "{text}");
        assert!(!text.contains(".frm") && text.contains("ROW_FORMAT=DYNAMIC"), "{text}");
        assert!(text.lines().nth(1).unwrap().contains("backup set 1"), "{text}");
    }

    #[test]
    fn partitions_are_imported_together_by_mysql_and_exchanged_one_by_one_by_mariadb() {
        let mut mysql = definition(Dialect::MySql, "CREATE TABLE `t x` (id INT) PARTITION BY HASH (id)");
        mysql.partitions = vec![Partition::of(&mysql.table, "p0", None), Partition::of(&mysql.table, "p1", None)];
        assert!(statements(&mysql).contains("IMPORT PARTITION ALL TABLESPACE"));
        let mut mariadb = Definition { dialect: Dialect::MariaDb, ..mysql };
        mariadb.files = vec!["shop/t@0020x#P#p0.cfg".into(), "shop/t@0020x#P#p1.ibd".into()];
        let text = statements(&mariadb);
        assert!(text.contains("--    shop/t@0020x#P#p1.ibd -> import_2.ibd"), "{text}");
        assert!(text.contains("EXCHANGE PARTITION `p1` WITH TABLE `import_2`"), "{text}");
    }

    #[test]
    fn a_subpartition_has_a_file_of_its_own() {
        let name = TableName { schema: "s".into(), table: "T".into() };
        let table = WantedTable { name, spaces: vec!["s/T#P#p0#SP#x@0020y.ibd".into()], definition: None };
        let partition = Partition::of(&table, "P0", Some("x y"));
        assert_eq!((&partition.name[..], &partition.file[..]), ("x y", "T#P#p0#SP#x@0020y"));
    }
}
