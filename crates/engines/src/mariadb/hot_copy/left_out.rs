//! Tables that a copy does not hold: their engines keep the rows in memory, or in files that are not copied. The user
//! is warned, because such a copy is not whole.
//!
//! A table's definition (`.frm`) names its engine. So this needs no privilege and no query. The format is in the manual
//! of MySQL's internals ("MySQL .frm File Format"). All numbers in it are little-endian:
//!
//! | at | bytes | content |
//! |---|---|---|
//! | 0 | 2 | FE 01: a table. A view's definition begins with `TYPE=VIEW` |
//! | 3 | 1 | number of the engine |
//! | 6 | 2 | where the keys begin |
//! | 14, 47 | 2, 4 | bytes of the keys; of FFFF, the second counts |
//! | 16 | 2 | bytes of the default values, which follow the keys |
//! | 55 | 4 | bytes of what follows these: length (2) and text of CONNECTION, length (2) and name of the engine, … |
//! | 61 | 1 | number of the engine of the partitions, if the engine is `partition` |

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use fullbore_core::units::{counted, first_of};
use fullbore_core::{Error, Result};

use super::listing::OtherFile;
use super::stamp::Stamp;
use crate::mysql_family::single_table::file_name::decode;

/// Engines whose tables are whole in a copy.
const STORED: [&str; 6] = ["InnoDB", "MyISAM", "MRG_MyISAM", "Aria", "ARCHIVE", "CSV"];
/// Engines that keep no rows on this server. The copy has their definitions, which refer to the same places as before.
const ELSEWHERE: [&str; 8] = ["BLACKHOLE", "FEDERATED", "SPIDER", "SPHINX", "OQGRAPH", "SEQUENCE", "S3", "EXAMPLE"];
/// Numbers of engines. Engines that are plugins have no fixed number.
const NUMBERS: [(u8, &str); 9] = [
    (6, "MEMORY"),
    (9, "MyISAM"),
    (10, "MRG_MyISAM"),
    (12, "InnoDB"),
    (16, "ARCHIVE"),
    (17, "CSV"),
    (18, "FEDERATED"),
    (19, "BLACKHOLE"),
    (42, "Aria"),
];
const MEMORY: &str = "MEMORY";
const PARTITION: &str = "partition";

const DEFINITION: [u8; 2] = [0xFE, 0x01];
/// Bytes to read of a definition's head.
const HEAD: usize = 64;
/// Names of engines are shorter.
const NAME_MAX: usize = 64;
/// How many tables a warning names.
const NAMED_MAX: usize = 10;

/// A table that is not in a copy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// Database and table, as users write them: `shop.item`.
    pub table: String,
    /// Its engine, as the server writes it.
    pub engine: String,
}

/// The engines of all tables, looked up again only where a definition has changed.
#[derive(Debug, Default)]
pub struct TableEngines(HashMap<String, (Stamp, Option<String>)>);

impl TableEngines {
    /// The tables of `files` that a copy does not hold, in the order of their names.
    ///
    /// # Errors
    /// A definition cannot be read.
    pub fn look(&mut self, files: &[OtherFile]) -> Result<Vec<LeftOut>> {
        let mut left_out = Vec::new();
        for file in files {
            let Some(name) = file.name.strip_suffix(".frm") else { continue };
            let Some(engine) = self.engine(name, &file.path)? else { continue };
            let is_in = |engines: &[&str]| engines.iter().any(|known| known.eq_ignore_ascii_case(&engine));
            if !is_in(&STORED) && !is_in(&ELSEWHERE) {
                left_out.push(LeftOut { table: shown(name), engine });
            }
        }
        left_out.sort();
        Ok(left_out)
    }

    /// The engine of one table; `None` for a view, and for a definition that was removed or is being written.
    fn engine(&mut self, name: &str, path: &Path) -> Result<Option<String>> {
        let failed = |error| Error::io("read", path.display().to_string(), error);
        let stamp = match std::fs::metadata(path) {
            Ok(stat) => Stamp::of(&stat),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        if let Some((seen, engine)) = self.0.get(name)
            && *seen == stamp
        {
            return Ok(engine.clone());
        }
        let engine = match File::open(path).and_then(|file| engine_of(&file)) {
            Ok(engine) => engine,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::UnexpectedEof) => None,
            Err(error) => return Err(failed(error)),
        };
        // A file that was written a moment ago can change again with the same stamp.
        if stamp.is_settled() {
            self.0.insert(name.to_owned(), (stamp, engine.clone()));
        }
        Ok(engine)
    }
}

/// `shop/item` as `shop.item`.
fn shown(name: &str) -> String {
    name.split('/').map(decode).collect::<Vec<_>>().join(".")
}

/// The engine in a definition; `None` if it is not the definition of a table.
fn engine_of(file: &File) -> io::Result<Option<String>> {
    let mut head = [0; HEAD];
    file.read_exact_at(&mut head, 0)?;
    if !head.starts_with(&DEFINITION) {
        return Ok(None);
    }
    let two = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let four = |at: usize| u64::from(u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let keys = if two(14) == 0xFFFF { four(47) } else { two(14) };
    let (at, length) = (two(6) + keys + two(16), four(55));
    let name = if length == 0 { None } else { name_at(file, at)? };
    let name = name.unwrap_or_else(|| by_number(head[3]));
    Ok(Some(if name == PARTITION { by_number(head[61]) } else { name }))
}

/// The name after the text of CONNECTION, if there is a name.
fn name_at(file: &File, at: u64) -> io::Result<Option<String>> {
    let two = |at: u64| -> io::Result<u64> {
        let mut bytes = [0; 2];
        file.read_exact_at(&mut bytes, at)?;
        Ok(u16::from_le_bytes(bytes).into())
    };
    let at = at + 2 + two(at)?;
    let length = two(at)? as usize;
    if length == 0 || length > NAME_MAX {
        return Ok(None);
    }
    let mut name = vec![0; length];
    file.read_exact_at(&mut name, at + 2)?;
    Ok(Some(String::from_utf8_lossy(&name).into_owned()))
}

fn by_number(number: u8) -> String {
    let known = NUMBERS.iter().find(|(known, _)| *known == number).map(|(_, name)| (*name).to_owned());
    known.unwrap_or_else(|| format!("engine number {number}"))
}

/// The warnings of tables that are not in the backup.
pub fn warnings(left_out: &[LeftOut]) -> Vec<String> {
    let (memory, others): (Vec<_>, Vec<_>) = left_out.iter().partition(|table| table.engine == MEMORY);
    let mut warnings = Vec::new();
    if !others.is_empty() {
        let (tables, names) = (counted(others.len() as u64, "table"), named(&others));
        warnings.push(format!(
            "not in this backup: {tables} of engines whose files are not copied: {names}; dump them (mariadb-dump). \
             --accept-left-out switches this warning off"
        ));
    }
    if !memory.is_empty() {
        let (tables, names) = (counted(memory.len() as u64, "table"), named(&memory));
        warnings.push(format!(
            "empty after a restore: {tables} in the server's memory: {names}; --accept-left-out switches this warning \
             off"
        ));
    }
    warnings
}

fn named(tables: &[&LeftOut]) -> String {
    first_of(tables.iter().map(|left| format!("{} ({})", left.table, left.engine)), NAMED_MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::listing::Settles;
    use super::*;

    /// A definition with keys of `keys` bytes.
    fn definition(number: u8, partitions: u8, keys: u32, engine: &str) -> Vec<u8> {
        let mut bytes = vec![0; HEAD];
        bytes[..2].copy_from_slice(&DEFINITION);
        (bytes[3], bytes[61]) = (number, partitions);
        bytes[6] = HEAD as u8;
        bytes[14..16].copy_from_slice(&u16::try_from(keys).unwrap_or(0xFFFF).to_le_bytes());
        bytes[47..51].copy_from_slice(&keys.to_le_bytes());
        bytes[16] = 7;
        bytes.resize(HEAD + keys as usize + 7, 9);
        let extra = [&[3, 0][..], b"abc", &[engine.len() as u8, 0], engine.as_bytes()].concat();
        bytes[55..59].copy_from_slice(&(extra.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&extra);
        bytes
    }

    #[test]
    fn tables_are_named_by_their_engines_and_views_and_stored_ones_are_not() {
        let root = tempfile::tempdir().unwrap();
        let mut files = Vec::new();
        for (name, bytes) in [
            ("shop/kept", definition(12, 0, 10, "InnoDB")),
            ("shop/rock@002ds", definition(45, 0, 70_000, "ROCKSDB")),
            ("shop/quick", definition(6, 0, 10, "MEMORY")),
            ("shop/parts", definition(20, 9, 10, "partition")),
            ("shop/quick_parts", definition(20, 6, 10, "partition")),
            ("shop/strange_parts", definition(20, 47, 10, "partition")),
            ("shop/hole", definition(19, 0, 10, "BLACKHOLE")),
            ("shop/old", [&definition(9, 0, 0, "")[..55], &[0; 9]].concat()),
            ("shop/seen", b"TYPE=VIEW\nquery=select 1 from nothing at all, and so on and so forth".to_vec()),
            ("shop/short", DEFINITION.to_vec()),
            ("shop/cut", definition(6, 0, 10, "MEMORY")[..70].to_vec()),
        ] {
            let path = root.path().join(name.replace('/', "_"));
            std::fs::write(&path, bytes).unwrap();
            files.push(OtherFile { name: format!("{name}.frm"), path, settles: Settles::WithoutDdl });
        }
        files.push(OtherFile {
            name: "shop/gone.frm".into(),
            path: root.path().join("no"),
            settles: Settles::WithoutDdl,
        });
        let mut engines = TableEngines::default();
        let found = engines.look(&files).unwrap();
        let expected = [
            ("shop.quick", "MEMORY"),
            ("shop.quick_parts", "MEMORY"),
            ("shop.rock-s", "ROCKSDB"),
            ("shop.strange_parts", "engine number 47"),
        ];
        assert_eq!(found.iter().map(|left| (left.table.as_str(), left.engine.as_str())).collect::<Vec<_>>(), expected);
        assert_eq!(engines.look(&files).unwrap(), found);
        let said = warnings(&found);
        assert!(
            said.len() == 2
                && said[0].contains("shop.rock-s (ROCKSDB)")
                && said[0].starts_with("not in this backup: 2 tables"),
            "{said:?}"
        );
        assert!(said[1].contains("shop.quick (MEMORY)") && said[1].contains("--accept-left-out"), "{said:?}");
        assert!(warnings(&[]).is_empty());
    }
}
