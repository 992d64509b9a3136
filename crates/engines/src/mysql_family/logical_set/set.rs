//! The streams of a logical set: their names, and their details in the manifest.

use fullbore_core::media::ManifestStream;
use serde::{Deserialize, Serialize};

use super::tsv::Tally;
use crate::mysql_family::logical::names::file_name;

/// The folder of streams with many small tables. A database has no folder of this name: `file_name` writes `#` as `@0023`.
pub const SMALL: &str = "#small";
/// The stream with the accounts of the server.
pub const ACCOUNTS: &str = "#accounts/accounts.jsonl";

/// What a stream holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    /// The catalog of a database.
    Catalog {
        /// The database.
        schema: String,
    },
    /// Rows of a table.
    Chunk {
        /// Its database.
        schema: String,
        /// Its name.
        table: String,
        /// The rows.
        #[serde(flatten)]
        tally: Tally,
    },
    /// Users, roles and grants, with hashes of passwords.
    Accounts {
        /// How many accounts it has.
        accounts: u64,
    },
    /// Rows of many tables.
    Small {
        /// How many sections it has.
        tables: u64,
        /// The rows of all of them.
        rows: u64,
    },
}

impl Detail {
    /// The detail of a stream of a set, if it has one.
    pub fn of(stream: &ManifestStream) -> Option<Self> {
        serde_json::from_str(stream.detail.as_ref()?.text()).ok()
    }
}

/// Whether a stream is a catalog, of a database or of accounts.
pub fn is_catalog(stream: &ManifestStream) -> bool {
    matches!(Detail::of(stream), Some(Detail::Catalog { .. } | Detail::Accounts { .. }))
}

/// The name of a catalog. `number` is unique among databases.
pub fn catalog_name(schema: &str, number: usize) -> String {
    format!("{}/catalog.jsonl", file_name(schema, number))
}

/// The folder of a table's chunks. `number` is unique among tables, and `of_schema` among databases.
pub fn table_folder(schema: &str, of_schema: usize, table: &str, number: usize) -> String {
    format!("{}/{}", file_name(schema, of_schema), file_name(table, number))
}

/// The name of a chunk.
pub fn chunk_name(folder: &str, number: u32) -> String {
    format!("{folder}/{number:05}.tsv")
}

/// The name of a stream with small tables.
pub fn small_name(number: u32) -> String {
    format!("{SMALL}/{number:05}.rows")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_detail_comes_back_and_names_of_tables_never_meet_ours() {
        let tally = Tally { rows: 3, digest: u128::MAX };
        let detail = Detail::Chunk { schema: "a".into(), table: "b".into(), tally };
        let json = serde_json::to_string(&detail).unwrap();
        assert_eq!(serde_json::from_str::<Detail>(&json).unwrap(), detail);
        assert_eq!(chunk_name(&table_folder("a.b", 1, "catalog.jsonl", 2), 7), "a@002eb/catalog@002ejsonl/00007.tsv");
        assert_eq!(catalog_name("#small", 0), "@0023small/catalog.jsonl");
    }
}
