//! XA transactions: their ids as events and statements have them, and how they are prepared and end.

use fullbore_core::Result;
use fullbore_core::units::first_of;

use super::statements::Statements;
use super::target::Target;
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::event::take;
use crate::mysql_family::connection::Connection;

/// How many transactions a warning names.
const NAMED_MAX: usize = 5;

impl Statements {
    /// The end of the first half of an XA transaction.
    pub(super) fn xa_prepare(&mut self, body: &[u8]) -> Result<()> {
        self.send_rows()?;
        let read = || {
            let mut rest = body;
            let [one_phase] = *take::<1>(&mut rest)?;
            Some((one_phase != 0, of_event(&mut rest)?))
        };
        let (one_phase, id) = read().ok_or_else(|| self.odd("an XA id is too short"))?;
        if !std::mem::take(&mut self.ended) {
            self.run(format!("XA END {id}").as_bytes())?;
        }
        if self.executed.is_some() && !self.changed {
            // MySQL 5.7 would keep the GTID of an XA transaction that it prepares without a change.
            self.run(format!("XA ROLLBACK {id}").as_bytes())?;
            self.take_gtid()?;
            if !one_phase {
                self.hollow.insert(spelled(&id));
            }
            (self.open, self.empty) = (false, true);
            return Ok(());
        }
        let statement = if one_phase { format!("XA COMMIT {id} ONE PHASE") } else { format!("XA PREPARE {id}") };
        self.run(statement.as_bytes())?;
        self.open = false;
        let session = self.of_xa.take();
        match one_phase {
            false => drop(self.prepared.insert(spelled(&id), session)),
            true => session.into_iter().for_each(Target::quit),
        }
        Ok(())
    }

    /// Runs an XA statement.
    pub(super) fn distributed(&mut self, statement: &[u8]) -> Result<()> {
        let (verb, id) = parsed(statement).ok_or_else(|| self.odd("an XA statement has no id"))?;
        self.open |= verb == "START" || verb == "BEGIN";
        self.ended |= verb == "END";
        let ends = verb == "COMMIT" || verb == "ROLLBACK";
        if !ends || self.open {
            return self.run(statement);
        }
        if self.hollow.remove(&id) {
            return Ok(());
        }
        let Some(session) = self.prepared.remove(&id) else {
            if verb == "ROLLBACK" {
                // It was prepared before the set was made, so the set has nothing of it.
                return Ok(());
            }
            return Err(self.odd(
                "it commits an XA transaction that was prepared before the set was made: its rows are in neither",
            ));
        };
        self.empty = false;
        let Some(mut session) = session else {
            // MySQL prepares in the main session.
            return self.main.run(statement).map_err(|failure| self.failed(failure));
        };
        session.run(statement).map_err(|failure| self.failed(failure))?;
        session.quit();
        Ok(())
    }
}

/// An XA id with its lengths in 32 bits each, as in an event of MySQL.
pub fn of_event(bytes: &mut &[u8]) -> Option<String> {
    let mut number = || take::<4>(bytes).map(|number| u32::from_le_bytes(*number));
    let (format, first, second) = (number()?, number()? as usize, number()? as usize);
    shown(format, first, second, bytes)
}

/// MariaDB's at the end of a GTID event: its lengths in one byte each.
pub fn of_mariadb(mut bytes: &[u8]) -> Option<String> {
    let format = u32::from_le_bytes(*take::<4>(&mut bytes)?);
    let [first, second] = *take::<2>(&mut bytes)?;
    shown(format, first.into(), second.into(), bytes)
}

fn shown(format: u32, first: usize, second: usize, bytes: &[u8]) -> Option<String> {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (first, rest) = bytes.split_at_checked(first)?;
    Some(format!("X'{}',X'{}',{format}", hex(first), hex(rest.get(..second)?)))
}

/// An XA statement: its verb, and its id in one spelling.
pub fn parsed(text: &[u8]) -> Option<(String, String)> {
    let text = String::from_utf8_lossy(text).to_ascii_uppercase();
    let (verb, id) = text.trim().strip_prefix("XA ")?.trim_start().split_once(' ')?;
    let id = id.trim_end().strip_suffix("ONE PHASE").unwrap_or(id);
    Some((verb.to_owned(), spelled(id)))
}

/// An id in the spelling that is compared.
pub fn spelled(id: &str) -> String {
    id.to_ascii_uppercase().chars().filter(|letter| !letter.is_whitespace()).collect()
}

/// The ids of the transactions that a server has prepared.
///
/// # Errors
/// The server refuses.
pub fn prepared(dialect: Dialect, connection: &mut Connection) -> Result<Vec<String>> {
    let mariadb = dialect == Dialect::MariaDb;
    let statement = if mariadb { "XA RECOVER FORMAT='SQL'" } else { "XA RECOVER CONVERT XID" };
    let rows = connection.query(statement)?.rows;
    let id = |row: Vec<Option<String>>| match <[_; 4]>::try_from(row) {
        Ok([_, _, _, Some(id)]) if mariadb => Some(id),
        Ok([Some(format), Some(first), Some(_), Some(both)]) => {
            let (first, second) = both.strip_prefix("0x")?.split_at_checked(first.parse::<usize>().ok()? * 2)?;
            Some(spelled(&format!("X'{first}',X'{second}',{format}")))
        }
        _ => None,
    };
    Ok(rows.into_iter().filter_map(id).collect())
}

/// The warning about transactions that are prepared; none if there are none.
pub fn warning(ids: impl ExactSizeIterator<Item = String>) -> Option<String> {
    (ids.len() > 0).then(|| {
        format!(
            "XA transactions are prepared, as they were at the source: {}. They hold locks until XA COMMIT or XA ROLLBACK",
            first_of(ids, NAMED_MAX)
        )
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_events_and_of_statements_have_one_spelling() {
        let event = [&1_u32.to_le_bytes()[..], &2_u32.to_le_bytes(), &1_u32.to_le_bytes(), b"j\x7fb"].concat();
        let of_event = of_event(&mut &event[..]).unwrap();
        assert_eq!(of_event, "X'6a7f',X'62',1");
        assert_eq!(of_mariadb(&[1, 0, 0, 0, 2, 1, b'j', 0x7f, b'b']).unwrap(), of_event);
        let (verb, id) = parsed(b"XA COMMIT X'6A7F',X'62',1").unwrap();
        assert_eq!((&verb[..], id), ("COMMIT", spelled(&of_event)));
        assert_eq!(of_mariadb(&[1, 0, 0, 0, 2, 1, b'j']), None);
    }
}
