//! Events of rows on their way into BINLOG statements of bounded length. A statement of the source with very many rows
//! becomes several: each names its tables again. Short statements of the source go together.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::mysql_family::binlog::event::{BODY_MAX, HEADER, seal, table_id, take};

/// Events of one BINLOG statement together, in bytes. A larger event is a statement of its own.
const FULL: usize = 256 << 10;
/// The offset of the flags in an event of rows: after the header and the number of the table.
pub const FLAGS: usize = HEADER + 6;
/// Flag of an event of rows: the last one of its statement.
const STATEMENT_END: u8 = 1;
/// Flag of an event of rows: foreign keys are not checked, and change no other table.
const WITHOUT_FOREIGN_KEYS: u8 = 2;
/// Flag of an event of rows, MySQL 9.6 and later: the log has the rows, too, that foreign keys change in other tables.
const HAS_CASCADES: u8 = 0x10;
/// The number of a table in an event that only ends its statement.
const NO_TABLE: u64 = 0x00ff_ffff;

/// Whether an event holds rows: of versions 1 and 2, parts of JSON values, and MariaDB's compressed ones.
pub fn is_rows(kind: u8) -> bool {
    matches!(kind, 23..=25 | 30..=32 | 39 | 166..=171)
}

/// The flags with which a server applies rows. If the log has all changes by foreign keys, these must change nothing by themselves:
/// `REPLACE` of a row keeps its children in MySQL 9.7, and the log has it as DELETE and INSERT.
pub fn applied_flags(kind: u8, flags: u8) -> u8 {
    let of_mysql = matches!(kind, 30..=32 | 39);
    if of_mysql && flags & HAS_CASCADES != 0 { flags | WITHOUT_FOREIGN_KEYS } else { flags }
}

/// The database and the name of the table that an event describes.
pub fn table_of(event: &[u8]) -> Option<(String, String)> {
    let mut rest = event.get(HEADER + 8..)?;
    let mut name = || {
        let [length] = *take::<1>(&mut rest)?;
        let (name, after) = rest.split_at_checked(length.into())?;
        rest = after.get(1..)?;
        Some(String::from_utf8_lossy(name).into_owned())
    };
    Some((name()?, name()?))
}

/// Events that are not sent yet.
#[derive(Default)]
pub struct Batch {
    /// The tables of the statement that is under way: their numbers, their events, and whether they are applied.
    maps: Vec<(u64, Vec<u8>, bool)>,
    /// The statement of these tables has ended.
    ended: bool,
    events: Vec<u8>,
    /// Where the last event of rows begins.
    last: Option<usize>,
}

impl Batch {
    /// Takes the event that says which table the rows behind it are of, and whether they are applied.
    ///
    /// # Errors
    /// Why it breaks its format.
    pub fn map(&mut self, event: &[u8], applies: bool) -> Result<(), &'static str> {
        if std::mem::take(&mut self.ended) {
            self.maps.clear();
        }
        let table = table_id(event).ok_or("a description of a table is too short")?;
        if self.maps.iter().map(|(_, map, _)| map.len()).sum::<usize>() + event.len() > BODY_MAX {
            return Err("a statement changes too many tables");
        }
        if applies {
            self.events.extend_from_slice(event);
        }
        self.maps.push((table, event.to_vec(), applies));
        Ok(())
    }

    /// Takes rows. True if they are applied.
    ///
    /// # Errors
    /// Why the event breaks its format.
    pub fn rows(&mut self, event: &[u8]) -> Result<bool, &'static str> {
        let (Some(table), Some(flags)) = (table_id(event), event.get(FLAGS)) else {
            return Err("an event of rows is too short");
        };
        let known = self.maps.iter().find(|(known, ..)| *known == table);
        if known.is_none() && table != NO_TABLE {
            return Err("an event of rows is for a table that no event has named");
        }
        let applies = known.is_some_and(|(.., applies)| *applies);
        let ends = flags & STATEMENT_END != 0;
        if applies {
            self.last = Some(self.events.len());
            self.events.extend_from_slice(event);
            self.mark(applied_flags(event.get(4).copied().unwrap_or_default(), *flags));
        } else if ends {
            self.close();
        }
        self.ended |= ends;
        Ok(applies)
    }

    /// Whether it is time to send.
    pub fn is_full(&self) -> bool {
        self.events.len() >= FULL
    }

    /// Bytes of all events.
    pub fn bytes(&self) -> usize {
        self.events.len()
    }

    /// The statement for what was taken; `None` if there are no rows. The tables of a statement that has not ended stay.
    pub fn statement(&mut self) -> Option<String> {
        // The server keeps tables open until the last rows of a statement.
        self.close();
        let made = self.last.take().map(|_| binlog_statement(&self.events));
        self.events.clear();
        if !self.ended {
            self.maps
                .iter()
                .filter(|(.., applies)| *applies)
                .for_each(|(_, map, _)| self.events.extend_from_slice(map));
        }
        made
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Marks the last event of rows as the last one of its statement.
    fn close(&mut self) {
        self.mark(STATEMENT_END);
    }

    /// Gives the last event of rows more flags.
    fn mark(&mut self, more: u8) {
        let Some(event) = self.last.and_then(|at| self.events.get_mut(at..)) else { return };
        // Tables of the next statement may follow.
        let size = event.get(9..13).and_then(|bytes| bytes.first_chunk()).map_or(0, |size| u32::from_le_bytes(*size));
        let Some(event) = event.get_mut(..size as usize) else { return };
        if let Some(flags) = event.get_mut(FLAGS).filter(|flags| **flags & more != more) {
            *flags |= more;
            seal(event);
        }
    }
}

/// The statement that applies events.
pub fn binlog_statement(events: &[u8]) -> String {
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
        event(19, &[&head, database.as_bytes(), &[0, 1, b't', 0]].concat())
    }

    fn rows(id: u8, flags: u8, length: usize) -> Vec<u8> {
        event(30, &[&[id, 0, 0, 0, 0, 0, flags, 0][..], &vec![7; length]].concat())
    }

    fn decoded(statement: &str) -> Vec<u8> {
        let text = statement.strip_prefix("BINLOG '").unwrap().strip_suffix('\'').unwrap();
        STANDARD.decode(text).unwrap()
    }

    #[test]
    fn a_long_statement_is_sent_in_parts_that_name_the_tables_and_end_by_themselves() {
        let mut batch = Batch::default();
        batch.map(&map(1, "shop"), true).unwrap();
        assert!(batch.rows(&rows(1, 0, FULL)).unwrap() && batch.is_full());
        let first = decoded(&batch.statement().unwrap());
        assert!(first.starts_with(&map(1, "shop")));
        assert_eq!(first[map(1, "shop").len()..], rows(1, 1, FULL), "the flag and the checksum");
        batch.rows(&rows(1, 1, 5)).unwrap();
        assert_eq!(decoded(&batch.statement().unwrap()), [map(1, "shop"), rows(1, 1, 5)].concat());
        assert!(batch.statement().is_none() && batch.bytes() == 0);
        batch.map(&map(2, "shop"), true).unwrap();
        assert!(batch.rows(&rows(1, 1, 5)).is_err(), "rows without a table");
    }

    #[test]
    fn rows_whose_changes_by_foreign_keys_are_in_the_log_change_no_other_table() {
        let mut batch = Batch::default();
        batch.map(&map(1, "shop"), true).unwrap();
        batch.rows(&rows(1, 0x11, 5)).unwrap();
        assert_eq!(decoded(&batch.statement().unwrap()), [map(1, "shop"), rows(1, 0x13, 5)].concat());
        assert_eq!((applied_flags(30, 1), applied_flags(23, 0x11)), (1, 0x11), "of an older MySQL, and of MariaDB");
    }

    #[test]
    fn rows_of_other_tables_are_left_out_and_end_the_statement_of_those_that_are_taken() {
        assert_eq!(table_of(&map(1, "shop")), Some(("shop".into(), "t".into())));
        let mut batch = Batch::default();
        batch.map(&map(1, "shop"), true).unwrap();
        batch.map(&map(2, "mysql"), false).unwrap();
        assert!(batch.rows(&rows(1, 0, 5)).unwrap() && !batch.rows(&rows(2, 1, 5)).unwrap());
        batch.map(&map(3, "shop"), true).unwrap();
        batch.rows(&rows(3, 1, 6)).unwrap();
        let expected = [map(1, "shop"), rows(1, 1, 5), map(3, "shop"), rows(3, 1, 6)].concat();
        assert_eq!(decoded(&batch.statement().unwrap()), expected);
        for short in [&map(1, "shop")[..20], &rows(1, 0, 0)[..22]] {
            assert!(batch.map(short, true).is_err() && batch.rows(short).is_err());
        }
    }
}
