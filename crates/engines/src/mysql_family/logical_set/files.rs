//! A logical set in a directory: its streams are files already. This makes files for people out of them: SQL text from the
//! catalogs, one file of rows for each small table, and the statements that load all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use fullbore_core::io::sync_directory;
use fullbore_core::{Error, Result};
use serde_json::Value;

use super::catalog::{self, Object, TableObject};
use super::load::creation::script;
use super::load::{history, set_sequence, with_collations};
use super::set::{SMALL, table_folder};
use super::small::Sections;
use super::tsv;
use crate::mysql_family::logical::names::quoted;

/// Numbers of small tables, for names that are too long for a file: apart from those of chunks.
const NUMBERS: usize = 1 << 24;
/// How much of a file is read at a time.
const PIECE: usize = 1 << 20;

/// Makes the files below `directory`.
///
/// # Errors
/// A file cannot be read or written, or a stream is not what it should be.
pub fn finish(directory: &Path, position: &Value) -> Result<()> {
    let head = head(position);
    split_small(directory)?;
    for database in folders(directory)? {
        let path = database.join("catalog.jsonl");
        if path.is_file() {
            let text = fs::read(&path).map_err(|error| Error::io("read", path.display().to_string(), error))?;
            let objects = catalog::read(&path.display().to_string(), &text)?;
            write_sql(&database, &objects, head.clone())?;
        }
    }
    Ok(())
}

/// The beginning of a text of statements: the server that it comes from, and the settings of the session.
pub fn head(position: &Value) -> String {
    let version = position.get("version").and_then(Value::as_str).unwrap_or_default();
    let vendor = position.get("vendor").and_then(Value::as_str).unwrap_or_default();
    let server: String = format!("{vendor} {version}").chars().filter(|letter| !letter.is_control()).collect();
    format!(
        "-- from {server}, by fullbore\nSET NAMES utf8mb4;\nSET SESSION sql_mode = \
         'NO_AUTO_VALUE_ON_ZERO,ALLOW_INVALID_DATES,NO_ENGINE_SUBSTITUTION', time_zone = '+00:00', foreign_key_checks = \
         0;\n"
    )
}

/// The settings of the session in this beginning.
pub fn session(head: &str) -> &str {
    head.split_once('\n').map_or("", |(_, session)| session)
}

fn folders(directory: &Path) -> Result<Vec<PathBuf>> {
    let failed = |error| Error::io("list", directory.display().to_string(), error);
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Gives each small table a file of its own, and removes the streams with many tables.
fn split_small(directory: &Path) -> Result<()> {
    let folder = directory.join(SMALL);
    if !folder.is_dir() {
        return Ok(());
    }
    let failed = |action: &str, path: &Path, error| Error::io(action, path.display().to_string(), error);
    let mut numbers: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut made = BTreeSet::from([directory.to_owned()]);
    for entry in fs::read_dir(&folder).map_err(|error| failed("list", &folder, error))? {
        let path = entry.map_err(|error| failed("list", &folder, error))?.path();
        let mut file = File::open(&path).map_err(|error| failed("open", &path, error))?;
        let (mut sections, mut piece) = (Sections::default(), vec![0; PIECE]);
        loop {
            let count = file.read(&mut piece).map_err(|error| failed("read", &path, error))?;
            if count == 0 {
                break;
            }
            let taken = sections.take::<Split>(piece.get(..count).unwrap_or_default(), |section, rows| {
                let next = NUMBERS + numbers.len();
                let number = *numbers.entry((section.schema.clone(), section.table.clone())).or_insert(next);
                let folder = directory.join(table_folder(&section.schema, number, &section.table, number));
                if made.insert(folder.clone()) {
                    fs::create_dir_all(&folder).map_err(|error| failed("make", &folder, error))?;
                }
                if !rows.is_empty() {
                    append(&folder.join("00000.tsv"), rows)?;
                }
                Ok(())
            });
            taken.map_err(|error| match error {
                Split::Failed(error) => error,
                Split::Bad(why) => Error::incomplete(path.display().to_string(), why, "use another set"),
            })?;
        }
        if !sections.is_at_end() {
            let why = "it ends inside the rows of a table";
            return Err(Error::incomplete(path.display().to_string(), why, "use another set"));
        }
    }
    fs::remove_dir_all(&folder).map_err(|error| failed("remove", &folder, error))?;
    made.iter().try_for_each(|folder| sync_directory(folder))
}

enum Split {
    Bad(&'static str),
    Failed(Error),
}

impl From<&'static str> for Split {
    fn from(why: &'static str) -> Self {
        Self::Bad(why)
    }
}

impl From<Error> for Split {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

fn append(path: &Path, rows: &[u8]) -> Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    let failed = |error| Error::io("write", path.display().to_string(), error);
    let mut file = opened.map_err(failed)?;
    file.write_all(rows).and_then(|()| file.sync_all()).map_err(failed)
}

/// Writes the SQL text of a database: `schema.sql`, `load.sql` and `code.sql`, to be run in this order.
fn write_sql(folder: &Path, objects: &[Object], head: String) -> Result<()> {
    let session = session(&head).to_owned();
    let (mut schema, mut load, mut code) = (head.clone(), head.clone(), head.into_bytes());
    let tables = objects.iter().filter_map(|object| if let Object::Table(table) = object { Some(table) } else { None });
    let folders = tables.clone().map(|table| (table.name.as_str(), rows_of(folder, table))).collect::<BTreeMap<_, _>>();
    for object in objects {
        match object {
            Object::Database { name, create, .. } => {
                let uses = format!("USE {};\n", quoted(name));
                schema.push_str(&format!("{};\n{uses}", with_collations(create)));
                load.push_str(&uses);
                code.extend(uses.as_bytes());
            }
            Object::Sequence { name, create, next, .. } => {
                let set = set_sequence(&quoted(name), create, next).unwrap_or_default();
                schema.push_str(&format!("{create};\n{set};\n"));
            }
            Object::Table(table) => schema.push_str(&format!("{};\n", with_collations(&table.create))),
            Object::Code(object) => code.extend([session.as_bytes(), &script(object)].concat()),
            Object::Account(_) => {}
        }
    }
    if tables.clone().any(|table| table.row_end().is_some()) {
        load.push_str(&format!("{};\n", history::INSERT));
    }
    for table in tables {
        let columns = table.forms()?;
        for file in folders.get(table.name.as_str()).into_iter().flatten() {
            load.push_str(&format!("{};\n", tsv::load_statement(file, &quoted(&table.name), &columns)));
        }
    }
    for (name, text) in [("schema.sql", schema.into_bytes()), ("load.sql", load.into_bytes()), ("code.sql", code)] {
        let path = folder.join(name);
        let failed = |error| Error::io("write", path.display().to_string(), error);
        let mut file = BufWriter::new(File::create(&path).map_err(failed)?);
        file.write_all(&text).map_err(failed)?;
        file.into_inner().map_err(|error| failed(error.into_error()))?.sync_all().map_err(failed)?;
    }
    sync_directory(folder)
}

/// The files with rows of a table, relative to the directory above the folder of its database.
fn rows_of(database: &Path, table: &TableObject) -> Vec<String> {
    let named = table_folder(&table.schema, 0, &table.name, 0);
    let Some((_, folder)) = named.split_once('/') else { return Vec::new() };
    let entries = fs::read_dir(database.join(folder)).into_iter().flatten().flatten();
    let mut files: Vec<String> = entries
        .filter_map(|entry| Some(entry.file_name().to_str()?.to_owned()))
        .filter(|name| name.ends_with(".tsv"))
        .map(|name| format!("{named}/{name}"))
        .collect();
    files.sort();
    files
}
