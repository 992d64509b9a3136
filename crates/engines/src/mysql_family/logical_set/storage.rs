//! The numbers that InnoDB gives to tables and partitions. TRUNCATE and EXCHANGE PARTITION change them, and no other list.

use std::collections::HashMap;

use fullbore_core::Result;

use super::listing::Listed;
use super::server::each_row;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure, PRIVILEGE_MISSING};
use crate::mysql_family::single_table::file_name;

/// What the server says of a list that it does not have, or under another name.
const NO_TABLE: [u32; 2] = [1109, 1146];

/// Calls `each` for each table or partition of InnoDB with the place of its table and the bytes of its number. An account
/// without PROCESS sees none of them.
///
/// # Errors
/// The connection fails.
pub fn each_number(
    connection: &mut Connection,
    dialect: Dialect,
    tables: &[Listed],
    mut each: impl FnMut(usize, &[u8]),
) -> Result<()> {
    let names = tables.iter().map(|table| stored_name(&table.object.schema, &table.object.name));
    let stored: HashMap<String, usize> = names.zip(0..).collect();
    // MySQL 5.7 and MariaDB have the older name.
    let lists: &[&str] = match dialect {
        Dialect::MySql => &["innodb_tables", "innodb_sys_tables"],
        Dialect::MariaDb => &["innodb_sys_tables"],
    };
    for list in lists {
        connection.send_ahead(&[format!("SELECT name, table_id FROM information_schema.{list}")])?;
        let asked = each_row(connection, |row| {
            let text = |column: usize| row.get(column).copied().flatten().unwrap_or_default();
            let name = String::from_utf8_lossy(text(0));
            if let Some(place) = stored.get(of_table(&name)) {
                each(*place, &[text(0), b"\0", text(1)].concat());
            }
            Ok(())
        });
        match asked {
            Ok(()) => return Ok(()),
            Err(Failure::Server(error)) if NO_TABLE.contains(&error.code) => {}
            Err(Failure::Server(error)) if error.code == PRIVILEGE_MISSING => return Ok(()),
            Err(failure) => return Err(failure.into()),
        }
    }
    Ok(())
}

/// A table, as InnoDB stores its name.
fn stored_name(schema: &str, table: &str) -> String {
    format!("{}/{}", file_name::encode(schema), file_name::encode(table))
}

/// The name of the table of a partition: `#p#` or `#P#` follows it. In a name itself, `#` is encoded.
fn of_table(name: &str) -> &str {
    name.split_once('#').map_or(name, |(table, _)| table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_belongs_to_its_table_also_with_signs_in_the_name() {
        assert_eq!(stored_name("a.b é", "t#ä\"b"), "a@002eb@0020@0p/t@0023@0k@0022b");
        assert_eq!(of_table("a@002eb@0020@0p/t@0023@0k@0022b#p#p0#sp#s1"), stored_name("a.b é", "t#ä\"b"));
        assert_eq!(of_table("shop/item"), "shop/item");
    }
}
