//! The files of a set that some tables need, found in the manifest before the restore.

use std::collections::BTreeSet;

use fullbore_core::media::ManifestStream;
use fullbore_core::{Error, Result};

use super::TableName;
use super::file_name::{decode, encode};
use crate::mysql_family::Dialect;

/// How many tables with a similar name an error names.
const NEAR_MAX: usize = 5;
/// Endings of files of tables that are not InnoDB's, and their engines.
const OTHER_ENGINES: &[(&str, &str)] = &[
    ("MYI", "MyISAM"),
    ("MYD", "MyISAM"),
    ("MAI", "Aria"),
    ("MAD", "Aria"),
    ("CSV", "CSV"),
    ("CSM", "CSV"),
    ("ARZ", "ARCHIVE"),
    ("MRG", "MERGE"),
];

/// The part of a set to restore for some tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The requested tables.
    pub tables: Vec<WantedTable>,
    /// The names of all files that are restored.
    pub(super) needed: BTreeSet<String>,
}

/// A requested table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedTable {
    /// Its name.
    pub name: TableName,
    /// Its tablespaces below the data directory, one for each partition.
    pub spaces: Vec<String>,
    /// MariaDB's definition of it, below the data directory.
    pub definition: Option<String>,
}

/// A file of a table.
struct TableFile<'a> {
    path: &'a str,
    folder: &'a str,
    /// The name of the table, as in file names.
    table: &'a str,
    ending: &'a str,
}

impl<'a> TableFile<'a> {
    fn of(path: &'a str) -> Option<Self> {
        let (folder, file) = path.split_once('/').filter(|(_, file)| !file.contains('/'))?;
        let (stem, ending) = file.rsplit_once('.')?;
        // A `#` in a name is written as @0023: a plain `#` separates the table from its partition.
        let table = stem.split('#').next().filter(|table| !table.is_empty() && !folder.starts_with('#'))?;
        Some(Self { path, folder, table, ending })
    }

    fn name(&self) -> String {
        format!("{}.{}", decode(self.folder), decode(self.table))
    }
}

impl Selection {
    /// The files that these tables of a set need; `position` is that of the backup.
    ///
    /// # Errors
    /// The set does not have a table, or it cannot be taken out: the error names it.
    pub fn of(
        dialect: Dialect,
        streams: &[ManifestStream],
        position: &serde_json::Value,
        wanted: &[TableName],
    ) -> Result<Self> {
        let files: Vec<TableFile> = streams.iter().filter_map(|stream| TableFile::of(&stream.name)).collect();
        let lowers = position["lower_case_table_names"].as_u64() == Some(1);
        let mut selection = Self { tables: Vec::new(), needed: BTreeSet::new() };
        for name in wanted {
            let name = if lowers {
                TableName { schema: name.schema.to_lowercase(), table: name.table.to_lowercase() }
            } else {
                name.clone()
            };
            if selection.tables.iter().any(|table| table.name == name) {
                continue;
            }
            let (folder, table) = (encode(&name.schema), encode(&name.table));
            let mine: Vec<&TableFile> =
                files.iter().filter(|file| file.folder == folder && file.table == table).collect();
            let mut spaces: Vec<String> =
                mine.iter().filter(|file| file.ending == "ibd").map(|file| file.path.to_owned()).collect();
            spaces.sort();
            if spaces.is_empty() {
                refuse_far(&name, position)?;
                return Err(not_there(&name, &mine, &files, dialect));
            }
            refuse_outside(&name, &spaces, position)?;
            let definition = mine.iter().find(|file| file.ending == "frm").map(|file| file.path.to_owned());
            let belonging = files.iter().filter(|file| {
                file.folder == folder
                    && (file.table == table || is_full_text(file.table) || file.path.ends_with("/db.opt"))
            });
            selection.needed.extend(belonging.map(|file| file.path.to_owned()));
            selection.tables.push(WantedTable { name, spaces, definition });
        }
        let server = streams.iter().filter(|stream| is_of_server(dialect, &stream.name));
        selection.needed.extend(server.map(|stream| stream.name.clone()));
        Ok(selection)
    }

    /// Whether the file of this name is restored.
    pub fn needs(&self, name: &str) -> bool {
        self.needed.contains(name)
    }
}

/// The files that the server needs to start and to recover: the system tablespace, undo, redo, the dictionary.
fn is_of_server(dialect: Dialect, path: &str) -> bool {
    match (dialect, path.split_once('/')) {
        (_, None) if path.is_empty() => false,
        // Other files with this ending are general tablespaces.
        (Dialect::MySql, None) => !path.ends_with(".ibd") || path == "mysql.ibd",
        (Dialect::MySql, Some((folder, _))) => {
            folder == "#innodb_redo" || (folder == "#outside" && !path.ends_with(".ibd"))
        }
        (Dialect::MariaDb, None) => true,
        (Dialect::MariaDb, Some((folder, _))) => folder == "mysql",
    }
}

/// The auxiliary tables of a full-text index: `FTS_0000000000000123_…`. Only the dictionary knows their table.
fn is_full_text(table: &str) -> bool {
    table.get(..4).is_some_and(|start| start.eq_ignore_ascii_case("fts_"))
}

fn refuse_outside(name: &TableName, spaces: &[String], position: &serde_json::Value) -> Result<()> {
    let mut outside = position["outside_the_data_directory"].as_array().into_iter().flatten();
    let found = outside.find(|entry| spaces.iter().any(|space| entry["path"].as_str() == Some(space)));
    let Some(found) = found else { return Ok(()) };
    Err(Error::refused(
        format!("table {name}"),
        format!(
            "it has a DATA DIRECTORY of its own ({}), and the private server would look for it there",
            found["was"]
        ),
        "restore the whole directory, without --table",
    ))
}

/// MySQL's files outside of the data directory are below `#outside/`, under their former path.
fn refuse_far(name: &TableName, position: &serde_json::Value) -> Result<()> {
    let stem = format!("/{}/{}", encode(&name.schema), encode(&name.table));
    let of_table = |was: &str| {
        was.rsplit_once(&stem)
            .is_some_and(|(_, rest)| rest == ".ibd" || (rest.starts_with("#p#") && rest.ends_with(".ibd")))
    };
    let mut outside = position["outside_the_data_directory"].as_array().into_iter().flatten();
    let Some(was) = outside.find_map(|entry| entry["was"].as_str().filter(|was| of_table(was))) else { return Ok(()) };
    Err(Error::refused(
        format!("table {name}"),
        format!("it has a DATA DIRECTORY of its own ({was})"),
        "restore the whole directory, without --table",
    ))
}

fn not_there(name: &TableName, mine: &[&TableFile], files: &[TableFile], dialect: Dialect) -> Error {
    let thing = format!("table {name}");
    let whole = "restore the whole directory, without --table";
    let other = mine.iter().find_map(|file| OTHER_ENGINES.iter().find(|(ending, _)| *ending == file.ending));
    if let Some((_, other)) = other {
        return Error::refused(
            thing,
            format!("it is a table of {other}, and only InnoDB tables can be taken out"),
            whole,
        );
    }
    if !mine.is_empty() {
        let why = "the backup has its definition, but no tablespace of its own: it is a view, or a table in the system \
                   tablespace or of another engine";
        return Error::refused(thing, why, whole);
    }
    let near = near(name, files);
    let hint = if near.is_empty() {
        "`fullbore inspect files` lists all files of the set".to_owned()
    } else {
        format!("it has {}; `fullbore inspect files` lists all files of the set", near.join(", "))
    };
    let why = match dialect {
        Dialect::MySql => {
            "the backup has no tablespace for it (views, tables of other engines and tables in a general tablespace \
             have none)"
        }
        Dialect::MariaDb => "the backup has no such table",
    };
    Error::usage(thing, why, hint)
}

/// The InnoDB tables of the set with the most similar names.
fn near(name: &TableName, files: &[TableFile]) -> Vec<String> {
    let asked = name.to_string().to_lowercase();
    let most = 2.max(asked.chars().count() / 4);
    let names: BTreeSet<String> =
        files.iter().filter(|file| file.ending == "ibd" && !is_full_text(file.table)).map(TableFile::name).collect();
    let same_table = format!(".{}", name.table.to_lowercase());
    let mut near: Vec<(usize, String)> = names
        .into_iter()
        .filter_map(|known| {
            let lower = known.to_lowercase();
            let far = if lower.ends_with(&same_table) { 1 } else { distance(&asked, &lower, most)? };
            Some((far, known))
        })
        .collect();
    near.sort();
    near.into_iter().take(NEAR_MAX).map(|(_, known)| known).collect()
}

/// How many characters have to be inserted, removed or changed; `None` if more than `most`.
fn distance(a: &str, b: &str, most: usize) -> Option<usize> {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > most {
        return None;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, left) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, right) in b.iter().enumerate() {
            let changed = diagonal + usize::from(left != right);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().filter(|far| *far <= most)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(names: &[&str]) -> Vec<ManifestStream> {
        let stream = |(at, name): (usize, &&str)| ManifestStream {
            id: at as u32 + 1,
            name: (*name).to_owned(),
            layer: 0,
            unit: 4096,
            map_window: 0,
            size: 1,
            ordered: false,
            identity: String::new(),
            base: None,
            detail: None,
        };
        names.iter().enumerate().map(stream).collect()
    }

    fn select(dialect: Dialect, names: &[&str], wanted: &str) -> Result<Vec<String>> {
        let selection = Selection::of(dialect, &set(names), &json!({}), &[TableName::parse(wanted).unwrap()])?;
        Ok(names.iter().filter(|name| selection.needs(name)).map(|name| (*name).to_owned()).collect())
    }

    #[test]
    fn a_mysql_table_comes_with_its_partitions_and_the_files_that_the_server_needs() {
        let names = [
            "",
            "ibdata1",
            "mysql.ibd",
            "undo_001",
            "general.ibd",
            "#innodb_redo/#ib_redo3",
            "sys/sys_config.ibd",
            "shop/item.ibd",
            "shop/items.ibd",
            "shop/parts#p#p0.ibd",
            "shop/parts#p#p1#sp#x.ibd",
            "other/item.ibd",
            "shop/t@0020x.ibd",
            "shop/fts_0000000000000431_config.ibd",
            "#outside/u/undo_003.ibu",
            "#outside/u/x.ibd",
        ];
        let server = ["ibdata1", "mysql.ibd", "undo_001", "#innodb_redo/#ib_redo3"];
        let with = |more: &[&str]| -> Vec<String> {
            let more = [more, &["shop/fts_0000000000000431_config.ibd", "#outside/u/undo_003.ibu"]].concat();
            server.iter().chain(&more).map(|name| (*name).to_owned()).collect()
        };
        assert_eq!(select(Dialect::MySql, &names, "shop.item").unwrap(), with(&["shop/item.ibd"]));
        assert_eq!(select(Dialect::MySql, &names, "shop.t x").unwrap(), with(&["shop/t@0020x.ibd"]));
        let parts = with(&["shop/parts#p#p0.ibd", "shop/parts#p#p1#sp#x.ibd"]);
        assert_eq!(select(Dialect::MySql, &names, "shop.parts").unwrap(), parts);
    }

    #[test]
    fn a_mariadb_table_comes_with_its_definition_and_other_kinds_of_table_are_recognised() {
        let names = [
            "ibdata1",
            "undo001",
            "ib_logfile0",
            "aria_log_control",
            "mysql/innodb_table_stats.ibd",
            "mysql/proc.MAD",
            "shop/db.opt",
            "shop/item.ibd",
            "shop/item.frm",
            "shop/parts.frm",
            "shop/parts.par",
            "shop/parts#P#p0.ibd",
            "shop/seen.frm",
            "shop/old.frm",
            "shop/old.MYI",
            "shop/old.MYD",
        ];
        assert_eq!(select(Dialect::MariaDb, &names, "shop.item").unwrap(), names[..9]);
        let mut parts = names[..7].to_vec();
        parts.extend(["shop/parts.frm", "shop/parts.par", "shop/parts#P#p0.ibd"]);
        assert_eq!(select(Dialect::MariaDb, &names, "shop.parts").unwrap(), parts);
        let refused = |wanted| select(Dialect::MariaDb, &names, wanted).unwrap_err().to_string();
        assert!(refused("shop.old").contains("a table of MyISAM"));
        assert!(refused("shop.seen").contains("it is a view"));
        let error = refused("shop.itme");
        assert!(error.contains("no such table") && error.contains("it has shop.item;"), "{error}");
        assert!(refused("stop.item").contains("it has shop.item;"));
        assert!(refused("nothing.like_it").contains("hint: `fullbore inspect files`"));
    }

    #[test]
    fn a_server_without_cases_knows_its_tables_in_small_letters_and_one_that_stands_elsewhere_is_refused() {
        let position = json!({ "lower_case_table_names": 1,
            "outside_the_data_directory": [{ "path": "shop/far.ibd", "was": "/far/shop/far.ibd" }] });
        let streams = set(&["ibdata1", "shop/item.ibd", "shop/far.ibd"]);
        let of = |name| Selection::of(Dialect::MySql, &streams, &position, &[TableName::parse(name).unwrap()]);
        assert_eq!(of("Shop.ITEM").unwrap().tables[0].name.to_string(), "shop.item");
        assert!(of("shop.far").unwrap_err().to_string().contains("/far/shop/far.ibd"));
        let position = json!({
            "outside_the_data_directory": [{ "path": "#outside/far/shop/far.ibd", "was": "/far/shop/far.ibd" }]
        });
        let streams = set(&["ibdata1", "#outside/far/shop/far.ibd"]);
        let far = Selection::of(Dialect::MySql, &streams, &position, &[TableName::parse("shop.far").unwrap()]);
        assert!(far.unwrap_err().to_string().contains("DATA DIRECTORY of its own (/far/shop/far.ibd)"));
    }

    #[test]
    fn names_are_as_far_apart_as_characters_have_to_be_changed() {
        assert_eq!(distance("kitten", "sitting", 3), Some(3));
        assert_eq!(distance("kitten", "sitting", 2), None);
        assert_eq!(distance("", "ab", 2), Some(2));
        assert_eq!(distance("same", "same", 0), Some(0));
    }
}
