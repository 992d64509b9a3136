//! Tablespaces that the server has and does not send. A clone silently leaves out a file that the server cannot open,
//! such as an encrypted file without its key. Such a backup is not whole and is refused.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::units::{counted, first_of};
use fullbore_core::{Error, Result};

use crate::mysql_family::connection::Connection;

/// Most tablespaces to compare.
const COMPARED_MAX: usize = 1 << 20;
/// How many of them a message names.
const NAMED_MAX: usize = 5;

/// A tablespace of the server's dictionary.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tablespace {
    name: String,
    encrypted: bool,
}

/// The tablespaces that are to be in a clone, by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tablespaces(BTreeMap<u32, Tablespace>);

impl Tablespaces {
    /// Asks the server; empty if the account lacks PROCESS. Temporary and discarded tablespaces do not count.
    pub fn ask(connection: &mut Connection) -> Result<Self> {
        let query = format!(
            "SELECT space, name, encryption FROM information_schema.innodb_tablespaces \
             WHERE space_type IN ('Single', 'General') AND state <> 'discarded' LIMIT {COMPARED_MAX}"
        );
        let Some(answer) = connection.query_if_allowed(&query)? else { return Ok(Self::default()) };
        let tablespace = |row: Vec<Option<String>>| match &row[..] {
            [Some(space), Some(name), encryption] => {
                let encrypted = encryption.as_deref() == Some("Y");
                Some((space.parse().ok()?, Tablespace { name: name.clone(), encrypted }))
            }
            _ => None,
        };
        Ok(Self(answer.rows.into_iter().filter_map(tablespace).collect()))
    }

    /// How many there are; each has at least one file.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Refuses a clone of the tablespaces `sent` that lacks one of these, if that tablespace exists `now` as well. One
    /// that does not exist now was dropped or rebuilt during the clone.
    pub fn demand(&self, now: &Self, sent: &BTreeSet<u32>) -> Result<()> {
        let lacks: Vec<&Tablespace> = self
            .0
            .iter()
            .filter(|(space, _)| now.0.contains_key(space) && !sent.contains(space))
            .map(|(_, it)| it)
            .collect();
        let Some(first) = lacks.first() else { return Ok(()) };
        let named = first_of(lacks.iter().map(|it| &it.name), NAMED_MAX);
        let tablespaces = |kind| counted(lacks.len() as u64, kind);
        if lacks.iter().all(|tablespace| tablespace.encrypted) {
            return Err(Error::refused(
                &first.name,
                format!(
                    "the server has no key for {}, and leaves this out of the clone ({named})",
                    tablespaces("encrypted tablespace")
                ),
                "give the server its keyring back (see performance_schema.keyring_component_status and its error log) \
                 and restart it; or drop the lost tables",
            ));
        }
        Err(Error::refused(
            &first.name,
            format!("the server leaves {} out of the clone ({named})", tablespaces("tablespace")),
            "look into the server's error log: a clone does not contain a file that the server cannot open; repair or \
             drop the table, and start the backup again",
        ))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn tablespaces(all: &[(u32, &str, bool)]) -> Tablespaces {
        let one = |&(space, name, encrypted): &(u32, &str, bool)| (space, Tablespace { name: name.into(), encrypted });
        Tablespaces(all.iter().map(one).collect())
    }

    #[test]
    fn an_existing_file_that_was_not_sent_is_named_and_a_dropped_one_is_not() {
        let before = tablespaces(&[(2, "shop/a", false), (3, "shop/secret", true), (4, "shop/dropped", false)]);
        let now = tablespaces(&[(2, "shop/a", false), (3, "shop/secret", true), (5, "shop/new", false)]);
        before.demand(&now, &BTreeSet::from([2, 3])).unwrap();
        let error = before.demand(&now, &BTreeSet::from([2])).unwrap_err().to_string();
        assert!(error.contains("shop/secret") && error.contains("no key") && error.contains("keyring"), "{error}");
        let error = before.demand(&now, &BTreeSet::from([5])).unwrap_err().to_string();
        assert!(error.contains("leaves 2 tablespaces out") && error.contains("shop/a, shop/secret"), "{error}");
        Tablespaces::default().demand(&now, &BTreeSet::new()).unwrap();
    }
}
