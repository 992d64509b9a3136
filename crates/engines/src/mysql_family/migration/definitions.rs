//! The digest of all definitions of some databases: it shows whether a statement that changes a definition has run.

use fullbore_core::Result;
use fullbore_core::checksum::xxh3_128;

use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::logical_set::selection::{MIGRATION, Selection};
use crate::mysql_family::logical_set::server::each_row;

/// Tables of `information_schema`, the column with the name of the database, and columns that a change of a definition
/// changes.
const LISTS: [(&str, &str, &str); 9] = [
    ("schemata", "schema_name", "default_character_set_name, default_collation_name"),
    (
        "tables",
        "table_schema",
        "table_name, table_type, engine, create_time, create_options, table_comment, table_collation",
    ),
    (
        "columns",
        "table_schema",
        "table_name, column_name, column_type, is_nullable, column_default, extra, collation_name, ordinal_position, \
         column_comment",
    ),
    ("statistics", "table_schema", "table_name, index_name, seq_in_index, column_name, non_unique, index_comment"),
    ("table_constraints", "constraint_schema", "table_name, constraint_name, constraint_type"),
    ("partitions", "table_schema", "table_name, partition_name, partition_description"),
    ("views", "table_schema", "table_name, view_definition, definer, security_type"),
    ("routines", "routine_schema", "routine_name, routine_type, created, last_altered, routine_definition, definer"),
    ("triggers", "trigger_schema", "trigger_name, event_object_table, action_statement, created, action_order"),
];

/// The digest of what these databases hold; without names, all databases of the migration. It does not depend on an order.
/// Lists of the server itself are left out: some have the time of the question.
///
/// # Errors
/// The server refuses.
pub fn digest(connection: &mut Connection, selection: &Selection, databases: &[String]) -> Result<String> {
    let names = databases.iter().map(|name| literal(name)).collect::<Vec<_>>().join(", ");
    // A statement that renames tables renames one of these, too.
    let ours =
        format!("SELECT table_name FROM information_schema.tables WHERE table_schema = '{MIGRATION}' ORDER BY 1");
    let ours = connection.query(&ours)?.rows.concat();
    let mut sum = xxh3_128(0, format!("{ours:?}").as_bytes());
    for (number, (table, schema, columns)) in LISTS.iter().enumerate() {
        let within = match names.is_empty() {
            true => selection.databases_in(schema),
            false => format!("{schema} IN ({names})"),
        };
        connection
            .send_ahead(&[format!("SELECT {schema}, {columns} FROM information_schema.{table} WHERE {within}")])?;
        each_row(connection, |row| {
            let mut bytes = vec![number as u8];
            for value in row {
                bytes.extend_from_slice(&value.map_or(u64::MAX, |value| value.len() as u64).to_le_bytes());
                bytes.extend_from_slice(value.unwrap_or_default());
            }
            sum = sum.wrapping_add(xxh3_128(0, &bytes));
            Ok(())
        })?;
    }
    Ok(format!("{sum:032x}"))
}
