//! Events of MariaDB as MySQL takes them: rows of version 2, and the description of that format.
//!
//! Both servers write values in the same form since MariaDB 10.1 and MySQL 5.6. An event of rows differs in its head: version
//! 2 has the length of further fields, which is 2 without any.

use super::event::{CRC, HEADER, kind};

/// From version 1 to version 2.
const VERSION: u8 = 7;
/// Bytes of the head of version 1: the number of the table, and flags.
const HEAD: usize = HEADER + 8;
/// Bytes of the head of each type of event, as MySQL 8 and 9 have them. Types that this program does not send have any.
const HEADS: [u8; 42] = [
    0, 13, 0, 8, 0, 0, 0, 0, 4, 0, 4, 0, 0, 0, 99, 0, 4, 26, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 10, 10, 10, 42, 42, 0,
    18, 52, 0, 10, 40, 0, 0,
];
/// A server that has these events.
const SERVER: &[u8] = b"8.0.40";

/// An event of rows of version 2. Its checksum is not computed. None if it is too short.
pub fn rows(event: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = event.split_at_checked(HEAD)?;
    let mut made = [head, &[2, 0], rest].concat();
    *made.get_mut(4)? += VERSION;
    let size = u32::try_from(made.len()).ok()?;
    made.get_mut(9..13)?.copy_from_slice(&size.to_le_bytes());
    Some(made)
}

/// The event that describes MySQL's format. Its checksum is not computed.
pub fn format() -> Vec<u8> {
    let mut body = vec![4, 0];
    body.extend_from_slice(SERVER);
    body.resize(2 + 50 + 4, 0);
    body.push(HEADER as u8);
    body.extend_from_slice(&HEADS);
    // Events have a CRC-32.
    body.push(1);
    let size = (HEADER + body.len() + CRC) as u32;
    let mut event = vec![0; HEADER];
    event.splice(4..5, [kind::FORMAT]);
    event.splice(5..9, 1_u32.to_le_bytes());
    event.splice(9..13, size.to_le_bytes());
    event.extend_from_slice(&body);
    event.extend_from_slice(&[0; CRC]);
    event
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::event::{Body, Header};
    use super::*;

    #[test]
    fn the_format_is_one_that_is_read_and_rows_get_two_bytes_more() {
        let event = format();
        let header = Header::parse(event.first_chunk().unwrap()).unwrap();
        assert_eq!(header.size as usize, event.len());
        let body = Body::parse(&header, &event[HEADER..event.len() - CRC]).unwrap();
        assert_eq!(body, Body::Format { checksums: true });
        let mut first = vec![0; HEAD + 6];
        first[4] = 23;
        let made = rows(&first).unwrap();
        assert_eq!((made[4], made.len(), made[HEAD], made[9]), (30, HEAD + 8, 2, (HEAD + 8) as u8));
        assert_eq!(rows(&first[..HEAD - 1]), None);
    }
}
