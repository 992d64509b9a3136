//! Row events, as `BINLOG` statements of bounded length. Each statement names its tables again, so a statement of the
//! source with very many rows becomes several.

use std::collections::HashSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::mysql_family::binlog::event::{BODY_MAX, HEADER, seal, table_id, take};

/// Rows of so many bytes go into one statement.
const BATCH: usize = 256 << 10;
/// The statement of the source ends behind these rows.
const END_OF_STATEMENT: u16 = 1;
/// Where the flags of a row event are.
const FLAGS: usize = HEADER + 6;
/// Databases of the server itself: their rows are not a user's.
const OF_THE_SERVER: [&[u8]; 4] = [b"mysql", b"sys", b"performance_schema", b"information_schema"];

/// Whether an event holds rows: of versions 1 and 2, parts of JSON values, and MariaDB's compressed ones.
pub(super) fn is_rows(kind: u8) -> bool {
    matches!(kind, 23..=25 | 30..=32 | 39 | 166..=171)
}

/// The rows of a statement that are not sent yet.
#[derive(Default)]
pub(super) struct Rows {
    /// The tables of the current statement of the source.
    maps: Vec<u8>,
    /// Ids of tables whose rows are left out.
    left_out: HashSet<u64>,
    /// Row events.
    events: Vec<u8>,
    /// Where the last one begins.
    last: usize,
    /// The statement of the source has ended.
    ended: bool,
}

impl Rows {
    /// Takes the event that says which table the rows behind it are of.
    ///
    /// # Errors
    /// Why it breaks its format.
    pub fn map(&mut self, event: &[u8]) -> Result<(), &'static str> {
        const SHORT: &str = "a description of a table is too short";
        if self.maps.len() + event.len() > BODY_MAX {
            return Err("a statement changes too many tables");
        }
        let id = table_id(event).ok_or(SHORT)?;
        let mut body = event.get(FLAGS..).ok_or(SHORT)?;
        let [_, _, length] = *take::<3>(&mut body).ok_or(SHORT)?;
        let database = body.get(..length.into()).ok_or(SHORT)?;
        if OF_THE_SERVER.contains(&database) {
            self.left_out.insert(id);
        } else {
            self.left_out.remove(&id);
            self.maps.extend_from_slice(event);
        }
        Ok(())
    }

    /// Takes rows. True if it is time to send them.
    ///
    /// # Errors
    /// Why the event breaks its format.
    pub fn add(&mut self, event: &[u8]) -> Result<bool, &'static str> {
        const SHORT: &str = "rows are too short";
        let id = table_id(event).ok_or(SHORT)?;
        let mut body = event.get(FLAGS..).ok_or(SHORT)?;
        let flags = u16::from_le_bytes(*take::<2>(&mut body).ok_or(SHORT)?);
        if !self.left_out.contains(&id) {
            self.last = self.events.len();
            self.events.extend_from_slice(event);
        }
        self.ended = flags & END_OF_STATEMENT != 0;
        Ok(self.ended || self.events.len() >= BATCH)
    }

    /// The statement for what was taken; `None` if that is nothing.
    ///
    /// # Errors
    /// Rows have no table.
    pub fn statement(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        let made = if self.events.is_empty() {
            None
        } else if self.maps.is_empty() {
            return Err("rows come without a table");
        } else {
            // The server keeps tables open until the last rows of a statement.
            close(self.events.get_mut(self.last..).unwrap_or_default());
            let mut all = Vec::with_capacity(self.maps.len() + self.events.len());
            all.extend_from_slice(&self.maps);
            all.extend_from_slice(&self.events);
            Some(statement(&all).into_bytes())
        };
        self.events.clear();
        self.last = 0;
        if std::mem::take(&mut self.ended) {
            self.maps.clear();
            self.left_out.clear();
        }
        Ok(made)
    }
}

/// Marks a row event as the last of its statement.
fn close(event: &mut [u8]) {
    let Some(flags) = event.get_mut(FLAGS) else { return };
    if *flags & END_OF_STATEMENT as u8 != 0 {
        return;
    }
    *flags |= END_OF_STATEMENT as u8;
    seal(event);
}

/// The statement that applies events.
pub fn statement(events: &[u8]) -> String {
    let mut statement = String::with_capacity(events.len() / 3 * 4 + 16);
    statement.push_str("BINLOG '");
    STANDARD.encode_string(events, &mut statement);
    statement.push('\'');
    statement
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fullbore_core::checksum::Crc32;

    use super::*;
    use crate::mysql_family::binlog::event::CRC;

    fn event(kind: u8, body: &[u8]) -> Vec<u8> {
        let mut event = vec![0; HEADER];
        event[4] = kind;
        event[9..13].copy_from_slice(&((HEADER + body.len() + CRC) as u32).to_le_bytes());
        event.extend_from_slice(body);
        let mut crc = Crc32::new();
        crc.update(&event);
        event.extend_from_slice(&crc.finish().to_le_bytes());
        event
    }

    fn map(id: u8, database: &str) -> Vec<u8> {
        let head = [id, 0, 0, 0, 0, 0, 1, 0, database.len() as u8];
        event(19, &[&head, database.as_bytes(), &[0]].concat())
    }

    fn rows(id: u8, flags: u8, length: usize) -> Vec<u8> {
        event(30, &[&[id, 0, 0, 0, 0, 0, flags, 0][..], &vec![7; length]].concat())
    }

    fn decoded(statement: &[u8]) -> Vec<u8> {
        let text = statement.strip_prefix(b"BINLOG '").unwrap().strip_suffix(b"'").unwrap();
        STANDARD.decode(text).unwrap()
    }

    #[test]
    fn a_long_statement_is_sent_in_parts_that_name_the_tables_and_end_by_themselves() {
        let mut taken = Rows::default();
        taken.map(&map(1, "shop")).unwrap();
        assert!(taken.add(&rows(1, 0, BATCH)).unwrap());
        let first = decoded(&taken.statement().unwrap().unwrap());
        assert!(first.starts_with(&map(1, "shop")));
        assert_eq!(first[map(1, "shop").len()..], rows(1, 1, BATCH), "the flag and the checksum");
        assert!(taken.add(&rows(1, 1, 5)).unwrap());
        assert_eq!(decoded(&taken.statement().unwrap().unwrap()), [map(1, "shop"), rows(1, 1, 5)].concat());
        assert!(taken.statement().unwrap().is_none() && taken.maps.is_empty());
        taken.add(&rows(1, 1, 5)).unwrap();
        assert!(taken.statement().is_err(), "rows without a table");
    }

    #[test]
    fn rows_of_the_servers_own_tables_are_left_out() {
        let mut taken = Rows::default();
        taken.map(&map(1, "shop")).unwrap();
        taken.map(&map(2, "mysql")).unwrap();
        assert!(!taken.add(&rows(1, 0, 5)).unwrap());
        assert!(taken.add(&rows(2, 1, 5)).unwrap());
        assert_eq!(decoded(&taken.statement().unwrap().unwrap()), [map(1, "shop"), rows(1, 1, 5)].concat());
        for short in [&map(1, "shop")[..20], &rows(1, 0, 0)[..22]] {
            assert!(taken.map(short).is_err() && taken.add(short).is_err());
        }
    }
}
