//! Distinguishes the messages in a server's log about tablespaces that were left out on purpose from real errors.
//!
//! With `innodb_force_recovery` a server continues after errors that lose data. So every other error of InnoDB is
//! fatal.

use fullbore_core::{Error, Result};

use super::Selection;

/// Parts of the messages of MySQL 9.7 and of MariaDB 10.11 and 11.8.
const EXPECTED: &[&str] = &[
    "Operating system error number 2 in a file operation",
    "Error number 2 means 'No such file or directory'",
    "The error means the system cannot find the path specified",
    "Cannot open datafile for read-only: './",
    "Could not find a valid tablespace file for ",
    ".ibd was not found",
    // MySQL would write the GTIDs of recovered transactions into its own tables, like a user. Recovery and rollback do
    // not write this way.
    "innodb_force_recovery is on. We do not allow database modifications by the user",
    "Error persisting GTIDs to table",
];

/// Whether a line of the log is a normal result of files that were left out.
pub(crate) fn is_expected(line: &str) -> bool {
    EXPECTED.iter().any(|part| line.contains(part))
}

/// Looks at the log of a server that was started without most of its tables.
///
/// # Errors
/// InnoDB has found an error, or misses the file of a requested table.
pub(super) fn check(log: &str, selection: &Selection) -> Result<()> {
    let spaces: Vec<&String> = selection.tables.iter().flat_map(|table| &table.spaces).collect();
    let of_innodb = |line: &&str| line.contains("[ERROR]") && (line.contains("[InnoDB]") || line.contains("InnoDB:"));
    let wrong = |line: &&str| !is_expected(line) || spaces.iter().any(|space| line.contains(space.as_str()));
    let Some(line) = log.lines().filter(of_innodb).find(wrong) else { return Ok(()) };
    let line: String = line.chars().filter(|c| !c.is_control()).take(400).collect();
    let why = format!("the private server reported an error during recovery, and some tables may not be whole: {line}");
    Err(Error::refused("--table", why, "restore the whole directory, without --table, and export the table there"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{TableName, WantedTable};
    use super::*;

    #[test]
    fn a_missing_table_is_expected_and_a_wanted_one_or_lost_redo_is_not() {
        let name = TableName::parse("shop.item").unwrap();
        let wanted = WantedTable { name, spaces: vec!["shop/item.ibd".into()], definition: None };
        let mut selection = Selection::default();
        selection.tables.push(wanted);
        let of = |line: &str| check(&format!("[Note] fine\n[ERROR] {line}\n"), &selection);
        of("InnoDB: File ./shop/other.ibd was not found").unwrap();
        of("[MY-012216] [InnoDB] Cannot open datafile for read-only: './shop/c.ibd' OS error: 71").unwrap();
        of("Aria engine: something else").unwrap();
        assert!(
            of("InnoDB: File ./a/b.ibd was not found\\n[ERROR] InnoDB: File ./shop/item.ibd was not found").is_err()
        );
        let lost = of("InnoDB: Cannot apply log to [page id: space=13, page number=0] of corrupted file './a/b.ibd'");
        assert!(lost.unwrap_err().to_string().contains("space=13"));
    }
}
