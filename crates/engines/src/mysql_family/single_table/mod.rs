//! Single InnoDB tables out of a physical backup of a server: which files they need, and how a private server hands them out.
//!
//! [`Selection::of`] says what of a set is restored, [`prepare`] makes the restored files a data directory, [`export`](export::export) starts the
//! server on it, lets it recover and takes the tables out of it.

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

use crate::mariadb::undo_length;
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
    /// Understands `db.t`, each part in backquotes where it has a dot.
    ///
    /// # Errors
    /// A usage error that says how to write it.
    pub fn parse(text: &str) -> Result<Self> {
        let wrong = |why: &str| {
            let hint =
                "write DATABASE.TABLE; a part with a dot or a backquote stands in backquotes: '`my.shop`.orders'";
            Error::usage(format!("--table {text}"), why, hint)
        };
        let (schema, rest) = part(text).ok_or_else(|| wrong("its backquotes do not close"))?;
        let rest = rest.strip_prefix('.').ok_or_else(|| wrong("the database is missing"))?;
        let (table, rest) = part(rest).ok_or_else(|| wrong("its backquotes do not close"))?;
        if !rest.is_empty() {
            return Err(wrong("it has more than two parts"));
        }
        if [&schema, &table].iter().any(|name| name.is_empty() || name.len() > NAME_MAX || name.contains('\0')) {
            return Err(wrong("a part of it is no name"));
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

/// The first part of a name, and what follows it.
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

/// A tablespace of MySQL is encrypted if this bit of its flags is set (`docs/engines/mysql-clone.md`, FILE descriptors).
const IS_ENCRYPTED: u64 = 1 << 13;

/// Makes a directory with the files of a [`Selection`] one that the private server starts on. `streams` are all files of the set.
///
/// # Errors
/// A table of the source stands outside of its data directory, and is there: the server would open it.
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
                "a file of the server stood there, and there is one: the private server would open it",
                "take the table out on another machine; or, if no server uses that file, move it away",
            ));
        }
    }
    // MariaDB's recovery makes files of tables that are younger than the checkpoint; where it finds no folder for one of them, it gives up on
    // the others of these too, and with innodb_force_recovery goes on without what was to come into them.
    let mut folders = BTreeSet::new();
    for stream in streams.iter().filter(|stream| stream.name.contains('/')) {
        folders.extend(relative_path(&stream.name)?.parent().map(Path::to_owned));
    }
    if dialect == Dialect::MariaDb {
        undo_length::make_long_enough(directory, position)?;
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

/// A keyring of its own for a MySQL with encrypted tablespaces: their keys come wrapped with a key that every server has, and each wraps
/// them anew. A server reads these files where the manifest beside its program allows it.
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
                error.to_string().contains("DATABASE.TABLE") && error.verdict().exit_code() == 2,
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
