//! Single InnoDB tables out of a physical backup of a server: the files that they need, and their export by a private
//! server.
//!
//! [`Selection::of`] selects the files to restore, [`prepare`] makes a data directory of them, and
//! [`export`](export::export) starts the server on it, lets it recover and takes the tables out of it.

pub mod export;
pub mod file_name;
pub(crate) mod missing_files;
mod selection;
mod statements;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use fullbore_core::media::ManifestStream;
use fullbore_core::unpack::relative_path;
use fullbore_core::{Error, Result};
use serde_json::json;

pub use selection::{Selection, WantedTable};

use crate::mysql_family::Dialect;
use crate::mysql_family::logical::names::quoted;

/// Bytes in the name of a database or of a table: 64 characters.
const NAME_MAX: usize = 64 * 4;

/// A table, as its server calls it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableName {
    /// The database.
    pub schema: String,
    /// The table.
    pub table: String,
}

impl TableName {
    /// Parses `db.t`; a part with a dot is in backquotes.
    ///
    /// # Errors
    /// A usage error that says how to write it.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let hint = "write DATABASE.TABLE; put a part with a dot or a backquote into backquotes: '`my.shop`.orders'";
            Error::usage(format!("--table {text}"), why, hint)
        };
        let (schema, rest) = part(text).ok_or_else(|| wrong("a backquote is not closed"))?;
        let rest = rest.strip_prefix('.').ok_or_else(|| wrong("the database is missing"))?;
        let (table, rest) = part(rest).ok_or_else(|| wrong("a backquote is not closed"))?;
        if !rest.is_empty() {
            return Err(wrong("it has more than two parts"));
        }
        if [&schema, &table].iter().any(|name| name.is_empty() || name.len() > NAME_MAX || name.contains('\0')) {
            return Err(wrong("a part of it is not a name"));
        }
        Ok(Self { schema, table })
    }

    /// As a statement writes it.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.table))
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// The first part of a name, and the rest.
fn part(text: &str) -> Option<(String, &str)> {
    let Some(mut rest) = text.strip_prefix('`') else {
        let end = text.find('.').unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let mut name = String::new();
    loop {
        let (before, after) = rest.split_once('`')?;
        name.push_str(before);
        match after.strip_prefix('`') {
            Some(after) => {
                name.push('`');
                rest = after;
            }
            None => return Some((name, after)),
        }
    }
}

/// A tablespace of MySQL is encrypted if this bit of its flags is set (`docs/engines/mysql-clone.md`, FILE
/// descriptors).
const IS_ENCRYPTED: u64 = 1 << 13;

/// Prepares a directory with the files of a [`Selection`] so that the private server starts on it. `streams` are all
/// files of the set.
///
/// # Errors
/// A table of the source is outside of its data directory, and its file exists here: the server would open it.
pub fn prepare(
    dialect: Dialect,
    directory: &Path,
    position: &serde_json::Value,
    streams: &[ManifestStream],
) -> Result<()> {
    let all = position["outside_the_data_directory"].as_array();
    for entry in all.into_iter().flatten() {
        let Some(was) = entry["was"].as_str() else { continue };
        if !was.ends_with('/') && Path::new(was).symlink_metadata().is_ok_and(|found| found.is_file()) {
            return Err(Error::refused(
                was,
                "this file exists, and a file of the source server had this path: the private server would open it",
                "take the table out on another machine; or, if no server uses this file, move it away",
            ));
        }
    }
    // MariaDB's recovery creates the files of tables that are newer than the checkpoint. If the folder of one is
    // missing, it gives up on all of them, and with innodb_force_recovery it continues without their data.
    let mut folders = BTreeSet::new();
    for stream in streams.iter().filter(|stream| stream.name.contains('/')) {
        folders.extend(relative_path(&stream.name)?.parent().map(Path::to_owned));
    }
    if dialect == Dialect::MySql {
        // Without it: "System schema directory does not exist".
        folders.insert("mysql".into());
    }
    for folder in folders.iter().map(|folder| directory.join(folder)) {
        fs::create_dir_all(&folder).map_err(|e| Error::io("make", folder.display().to_string(), e))?;
    }
    let is_encrypted = |stream: &ManifestStream| {
        let flags = stream.detail.as_ref().and_then(|detail| detail.value()["fsp_flags"].as_u64());
        flags.is_some_and(|flags| flags & IS_ENCRYPTED != 0)
    };
    if dialect == Dialect::MySql && streams.iter().any(is_encrypted) {
        give_keyring(directory)?;
    }
    Ok(())
}

/// A new keyring for a MySQL server with encrypted tablespaces: in a backup their keys are wrapped with a key that
/// every server has, and each server wraps them anew. A server reads these files if the manifest beside its program
/// allows it.
fn give_keyring(directory: &Path) -> Result<()> {
    let keys = fs::canonicalize(directory).map_err(|e| Error::io("find", directory.display().to_string(), e))?;
    let files = [
        ("mysqld.my", json!({ "components": "file://component_keyring_file" })),
        ("component_keyring_file.cnf", json!({ "path": keys.join("private_keyring"), "read_only": false })),
    ];
    for (name, content) in files {
        let path = directory.join(name);
        fs::write(&path, content.to_string()).map_err(|e| Error::io("write", path.display().to_string(), e))?;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_two_parts_with_or_without_backquotes() {
        let name = |text| {
            let name = TableName::parse(text).unwrap();
            (name.schema, name.table)
        };
        assert_eq!(name("shop.item"), ("shop".into(), "item".into()));
        assert_eq!(name("`my.db`.`t``x`"), ("my.db".into(), "t`x".into()));
        assert_eq!(name("my db.größe"), ("my db".into(), "größe".into()));
        assert_eq!(TableName::parse("`my.db`.`t``x`").unwrap().quoted(), "`my.db`.`t``x`");
        for wrong in
            ["", "item", ".item", "shop.", "a.b.c", "`shop.item", "``.x", "`a`b.c", &format!("a.{}", "x".repeat(257))]
        {
            let error = TableName::parse(wrong).unwrap_err();
            assert!(
                error.to_string().contains("DATABASE.TABLE") && error.exit_kind().exit_code() == 2,
                "{wrong}: {error}"
            );
        }
    }

    #[test]
    fn a_file_of_the_source_is_never_opened() {
        let (root, far) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let was = far.path().join("remote.ibd").display().to_string();
        let position = serde_json::json!({ "outside_the_data_directory": [{ "path": "shop/remote.ibd", "was": was }] });
        prepare(Dialect::MySql, root.path(), &position, &[]).unwrap();
        assert!(root.path().join("mysql").is_dir());
        fs::write(&was, "x").unwrap();
        let error = prepare(Dialect::MariaDb, root.path(), &position, &[]).unwrap_err().to_string();
        assert!(error.contains("remote.ibd") && error.contains("would open it"), "{error}");
    }
}
