//! Events of a binary log: the header, and the bodies that say where groups begin and files end. Every length from
//! outside is checked.
//!
//! The formats are from MySQL's "Replication Protocol" pages and MariaDB's "Replication Protocol" articles. All numbers
//! are little-endian.

use fullbore_core::checksum::Crc32;

use super::gtid::{Gtid, GtidList, GtidSet, MariaGtid};

/// The first bytes of a binary log.
pub const MAGIC: &[u8; 4] = b"\xfebin";
/// Bytes of a header.
pub const HEADER: usize = 19;
/// Bytes of the CRC-32 at the end of an event.
pub const CRC: usize = 4;
/// The longest body that is looked at; the bodies of rows are longer, and pass.
pub const BODY_MAX: usize = 16 << 20;
/// Flag of an event that the server made for the connection: it is in no file.
pub const ARTIFICIAL: u16 = 0x20;
/// Flag of the first event of a file that the server has open. It is not part of the checksum.
pub const IN_USE: u16 = 1;

/// The types that matter here.
pub mod kind {
    /// A clean stop of the server.
    pub const STOP: u8 = 3;
    /// The next file.
    pub const ROTATE: u8 = 4;
    /// The first event of a file.
    pub const FORMAT: u8 = 15;
    /// A sign of life.
    pub const HEARTBEAT: u8 = 27;
    /// The same with 64 bits.
    pub const HEARTBEAT_V2: u8 = 41;
    /// A group with a GTID begins.
    pub const GTID: u8 = 33;
    /// A group without a GTID begins.
    pub const ANONYMOUS_GTID: u8 = 34;
    /// The GTIDs of all earlier files.
    pub const PREVIOUS_GTIDS: u8 = 35;
    /// A group with a tagged GTID begins.
    pub const TAGGED_GTID: u8 = 42;
    /// A statement.
    pub const QUERY: u8 = 2;
    /// The value of LAST_INSERT_ID, or of the next AUTO_INCREMENT, for the next statement.
    pub const INTVAR: u8 = 5;
    /// The seeds of RAND() for the next statement.
    pub const RAND: u8 = 13;
    /// The value of a variable for the next statement.
    pub const USER_VAR: u8 = 14;
    /// A transaction is committed.
    pub const XID: u8 = 16;
    /// Which table the rows behind it are of.
    pub const TABLE_MAP: u8 = 19;
    /// The text of a statement whose rows follow, for people.
    pub const ROWS_QUERY: u8 = 29;
    /// An XA transaction is prepared.
    pub const XA_PREPARE: u8 = 38;
    /// A transaction of several events, compressed.
    pub const PAYLOAD: u8 = 40;
    /// MariaDB: as `ROWS_QUERY`.
    pub const MARIADB_ANNOTATE: u8 = 160;
    /// MariaDB: the oldest file that recovery needs.
    pub const MARIADB_CHECKPOINT: u8 = 161;
    /// MariaDB: a statement, compressed (`log_bin_compress`).
    pub const MARIADB_COMPRESSED_QUERY: u8 = 165;
    /// MariaDB: the events behind it are encrypted.
    pub const MARIADB_ENCRYPTION: u8 = 164;
    /// MariaDB: a group begins.
    pub const MARIADB_GTID: u8 = 162;
    /// MariaDB: the last GTIDs of all earlier files.
    pub const MARIADB_GTID_LIST: u8 = 163;
}

/// The header of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Seconds since 1970.
    pub timestamp: u32,
    /// The type.
    pub kind: u8,
    /// The server that made the event.
    pub server_id: u32,
    /// Bytes of the whole event.
    pub size: u32,
    /// Where it ends in its file, modulo 2^32. MariaDB from 11.7 on writes 0 within transactions.
    pub end: u32,
    /// Flags.
    pub flags: u16,
}

impl Header {
    /// Parses a header; `None` if the event would be shorter than its header and checksum.
    pub fn parse(bytes: &[u8; HEADER]) -> Option<Self> {
        Some(Self::read(bytes)).filter(|header| header.size as usize >= HEADER + CRC)
    }

    /// The same without a look at the size: an event inside of another one has no checksum.
    pub fn read(bytes: &[u8; HEADER]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self {
            timestamp: word(0),
            kind: bytes[4],
            server_id: word(5),
            size: word(9),
            end: word(13),
            flags: u16::from_le_bytes([bytes[17], bytes[18]]),
        }
    }

    /// True for an event that is in no file.
    pub fn is_artificial(&self) -> bool {
        self.flags & ARTIFICIAL != 0 || matches!(self.kind, kind::HEARTBEAT | kind::HEARTBEAT_V2)
    }

    /// True for a type with a body that [`Body::parse`] knows.
    pub fn has_known_body(&self) -> bool {
        use kind::*;
        matches!(
            self.kind,
            ROTATE | FORMAT | GTID | ANONYMOUS_GTID | TAGGED_GTID | PREVIOUS_GTIDS | MARIADB_GTID | MARIADB_GTID_LIST
        )
    }
}

/// A body that matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Body {
    /// The first event of a file: whether events have a CRC-32.
    Format {
        /// True if they have one.
        checksums: bool,
    },
    /// The file that follows.
    Rotate {
        /// The offset in it.
        offset: u64,
        /// Its name.
        file: String,
    },
    /// The GTIDs of all earlier files.
    Previous(GtidSet),
    /// The same of MariaDB.
    PreviousList(GtidList),
    /// A group begins.
    Group(Group),
    /// Another event.
    Other,
}

/// The beginning of a group: of a transaction, or of a statement that is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Its GTID, if it has one.
    pub gtid: Option<Gtid>,
    /// When it was committed, in microseconds since 1970. MariaDB counts whole seconds.
    pub time: i64,
    /// MariaDB: a transaction is open behind it, until the log has its end.
    pub opens: bool,
}

impl Body {
    /// Parses the body of an event, without header and checksum.
    ///
    /// # Errors
    /// Why it breaks its format.
    pub fn parse(header: &Header, body: &[u8]) -> Result<Self, &'static str> {
        match header.kind {
            kind::FORMAT => format(body),
            kind::ROTATE => rotate(body),
            kind::GTID | kind::ANONYMOUS_GTID => group(header, body),
            kind::TAGGED_GTID => tagged_group(body),
            kind::PREVIOUS_GTIDS => GtidSet::decode(body).map(Self::Previous),
            kind::MARIADB_GTID => mariadb_group(header, body),
            kind::MARIADB_GTID_LIST => GtidList::decode(body).map(Self::PreviousList),
            _ => Ok(Self::Other),
        }
    }
}

/// Takes `N` bytes off the start.
pub fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(first)
}

fn format(body: &[u8]) -> Result<Body, &'static str> {
    // Version, version of the server, time, length of headers; at the end the algorithm of checksums. The checksum of
    // this event is there in any case.
    let version = body.first_chunk::<2>().map(|version| u16::from_le_bytes(*version));
    let (Some(4), Some(&algorithm)) = (version, body.last()) else { return Err("its first event is not of version 4") };
    let lengths = body.get(56).copied();
    if lengths != Some(HEADER as u8) {
        return Err("its headers have an unknown length");
    }
    Ok(Body::Format { checksums: algorithm == 1 })
}

fn rotate(body: &[u8]) -> Result<Body, &'static str> {
    let Some((offset, name)) = body.split_first_chunk::<8>() else { return Err("a ROTATE event is too short") };
    let file = std::str::from_utf8(name).ok().filter(|name| is_file_name(name));
    let file = file.ok_or("a ROTATE event has an impossible file name")?;
    Ok(Body::Rotate { offset: u64::from_le_bytes(*offset), file: file.to_owned() })
}

/// Whether a text can be the name of a binary log: a base name, a dot and a number.
pub fn is_file_name(name: &str) -> bool {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '@' | '+' | '~');
    name.len() <= 255 && name.chars().all(plain) && file_number(name).is_some()
}

/// The number at the end of a file's name, `binlog.000012` → 12: files are in the order of their numbers.
pub fn file_number(name: &str) -> Option<u32> {
    let (base, number) = name.rsplit_once('.')?;
    (!base.is_empty() && number.len() >= 6 && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(())?;
    number.parse().ok()
}

/// MySQL: flags, UUID, number, the logical clock with its type, and the time in 7 bytes.
fn group(header: &Header, body: &[u8]) -> Result<Body, &'static str> {
    const SHORT: &str = "a GTID event is too short";
    let mut rest = body;
    let [_flags] = take::<1>(&mut rest).ok_or(SHORT)?;
    let uuid = *take::<16>(&mut rest).ok_or(SHORT)?;
    let number = u64::from_le_bytes(*take::<8>(&mut rest).ok_or(SHORT)?);
    let gtid = match header.kind {
        kind::GTID if number == 0 || number > i64::MAX as u64 => return Err("a GTID has an impossible number"),
        kind::GTID => Some(Gtid::MySql { uuid, tag: String::new(), number }),
        _ => None,
    };
    let seconds = i64::from(header.timestamp) * 1_000_000;
    let clock = take::<1>(&mut rest).is_some_and(|[kind]| *kind == 2) && take::<16>(&mut rest).is_some();
    // Servers before 8.0 have no time here.
    let time = take::<7>(&mut rest).filter(|_| clock).map_or(seconds, |time| {
        let mut bytes = [0; 8];
        bytes[..7].copy_from_slice(time);
        // The highest bit says that the time at the first server follows.
        (u64::from_le_bytes(bytes) & !(1 << 55)) as i64
    });
    Ok(Body::Group(Group { gtid, time, opens: false }))
}

/// MariaDB: number, domain, flags. The server and the time are in the header.
fn mariadb_group(header: &Header, body: &[u8]) -> Result<Body, &'static str> {
    const SHORT: &str = "a GTID event is too short";
    let mut rest = body;
    let sequence = u64::from_le_bytes(*take::<8>(&mut rest).ok_or(SHORT)?);
    let domain = u32::from_le_bytes(*take::<4>(&mut rest).ok_or(SHORT)?);
    let gtid = Some(Gtid::MariaDb(MariaGtid { domain, server: header.server_id, sequence }));
    let opens = take::<1>(&mut rest).is_some_and(|[flags]| flags & group::STANDALONE == 0);
    Ok(Body::Group(Group { gtid, time: i64::from(header.timestamp) * 1_000_000, opens }))
}

/// A field of MySQL's serialization library: a number of 1 to 9 bytes. The count of low ones in the first byte is the
/// count of further bytes.
fn variable(bytes: &mut &[u8]) -> Option<u64> {
    let [first] = *take::<1>(bytes)?;
    let more = first.trailing_ones() as usize;
    let mut number = [0; 16];
    let (now, rest) = bytes.split_at_checked(more)?;
    *bytes = rest;
    number[0] = first;
    number.get_mut(1..=more)?.copy_from_slice(now);
    let whole = u128::from_le_bytes(number);
    // With 8 ones the first byte has no bit of the number.
    Some(if more == 8 { (whole >> 8) as u64 } else { (whole >> (more + 1)) as u64 })
}

/// A signed number: zigzag.
fn signed(bytes: &mut &[u8]) -> Option<i64> {
    let number = variable(bytes)?;
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

/// A tagged GTID event: version, size, last field that may not be ignored; then each field's id and value: 0 flags,
/// 1 UUID (16 numbers), 2 number, 3 tag, 4 and 5 the logical clock, 6 the time.
fn tagged_group(body: &[u8]) -> Result<Body, &'static str> {
    const BROKEN: &str = "a tagged GTID event has an unknown form";
    let mut rest = body;
    let fields = || -> Option<Group> {
        let rest = &mut rest;
        variable(rest)?;
        variable(rest)?;
        variable(rest)?;
        let (mut uuid, mut number, mut tag) = ([0; 16], 0, String::new());
        loop {
            match variable(rest)? {
                0 => drop(variable(rest)?),
                1 => {
                    for byte in &mut uuid {
                        *byte = u8::try_from(variable(rest)?).ok()?;
                    }
                }
                2 => number = u64::try_from(signed(rest)?).ok()?,
                3 => {
                    let length = usize::try_from(variable(rest)?).ok().filter(|length| *length <= 32)?;
                    let (text, after) = rest.split_at_checked(length)?;
                    tag = std::str::from_utf8(text).ok()?.to_owned();
                    *rest = after;
                }
                4 | 5 => drop(signed(rest)?),
                6 => {
                    let time = i64::try_from(variable(rest)?).ok()?;
                    let gtid = (number > 0).then_some(Gtid::MySql { uuid, tag, number })?;
                    return Some(Group { gtid: Some(gtid), time, opens: false });
                }
                _ => return None,
            }
        }
    };
    let mut fields = fields;
    fields().map(Body::Group).ok_or(BROKEN)
}

/// MariaDB's flags of a group.
pub mod group {
    /// The group is one statement.
    pub const STANDALONE: u8 = 1;
    /// The number of a group commit follows.
    pub const COMMIT_ID: u8 = 2;
    /// An XA transaction is prepared.
    pub const PREPARED_XA: u8 = 64;
    /// A prepared XA transaction ends.
    pub const COMPLETED_XA: u8 = 128;
}

/// The event that describes the format of the others, among the first events of a file.
pub fn format_in(head: &[u8]) -> Option<&[u8]> {
    let size = head.first_chunk::<HEADER>().and_then(Header::parse)?.size;
    head.get(..size as usize).filter(|event| event.get(4) == Some(&kind::FORMAT))
}

/// Computes the checksum at the end of an event again.
pub fn seal(event: &mut [u8]) {
    let Some((covered, stored)) = event.split_last_chunk_mut::<CRC>() else { return };
    let mut crc = Crc32::new();
    crc.update(covered);
    *stored = crc.finish().to_le_bytes();
}

/// The number of the table that an event of rows, or the description of a table, is about.
pub fn table_id(event: &[u8]) -> Option<u64> {
    let mut number = [0; 8];
    number.get_mut(..6)?.copy_from_slice(event.get(HEADER..HEADER + 6)?);
    Some(u64::from_le_bytes(number))
}

/// Whether the GTID event of MariaDB begins a part of an ALTER TABLE that is logged in two parts: its start, its commit or
/// its rollback. `body` is without header and checksum. From MariaDB's "GTID_EVENT" article: more flags follow the commit id.
pub fn is_part_of_an_alter(body: &[u8]) -> bool {
    const DISTRIBUTED: u8 = group::PREPARED_XA | group::COMPLETED_XA;
    const PARTS: u8 = 2 | 4 | 8;
    let Some(flags) = body.get(12).filter(|flags| **flags & DISTRIBUTED == 0) else { return false };
    let at = if flags & group::COMMIT_ID == 0 { 13 } else { 21 };
    body.get(at).is_some_and(|more| more & PARTS != 0)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn header(kind: u8) -> Header {
        Header { timestamp: 1_700_000_000, kind, server_id: 7, size: 100, end: 100, flags: 0 }
    }

    #[test]
    fn a_header_has_its_fields_and_an_event_shorter_than_header_and_checksum_is_refused() {
        let mut bytes = [0; HEADER];
        bytes[..4].copy_from_slice(&9_u32.to_le_bytes());
        bytes[4] = 33;
        bytes[5..9].copy_from_slice(&7_u32.to_le_bytes());
        bytes[9..13].copy_from_slice(&23_u32.to_le_bytes());
        bytes[13..17].copy_from_slice(&200_u32.to_le_bytes());
        bytes[17] = 0x20;
        let parsed = Header::parse(&bytes).unwrap();
        assert_eq!((parsed.timestamp, parsed.kind, parsed.server_id, parsed.size, parsed.end), (9, 33, 7, 23, 200));
        assert!(parsed.is_artificial());
        bytes[9] = 22;
        assert_eq!(Header::parse(&bytes), None);
    }

    #[test]
    fn files_are_named_with_a_number_of_at_least_six_digits() {
        assert_eq!(file_number("binlog.000012"), Some(12));
        assert_eq!(file_number("db-1.bin.1000000"), Some(1_000_000));
        for wrong in ["binlog", "binlog.", ".000001", "binlog.12", "binlog.00000x", "", "binlog.99999999999"] {
            assert_eq!(file_number(wrong), None, "{wrong}");
        }
        assert!(!is_file_name("../binlog.000001") && !is_file_name("a/b.000001") && is_file_name("binlog.000001"));
    }

    #[test]
    fn the_time_of_a_commit_is_read_without_the_bit_of_the_first_servers_time() {
        let mut body = vec![0];
        body.extend_from_slice(&[0xab; 16]);
        body.extend_from_slice(&5_u64.to_le_bytes());
        body.push(2);
        body.extend_from_slice(&[0; 16]);
        let time = 1_700_000_000_123_456_u64 | 1 << 55;
        body.extend_from_slice(&time.to_le_bytes()[..7]);
        let Body::Group(group) = Body::parse(&header(kind::GTID), &body).unwrap() else { panic!() };
        assert_eq!(group.time, 1_700_000_000_123_456);
        assert_eq!(group.gtid.unwrap().to_string(), "abababab-abab-abab-abab-abababababab:5");
        let Body::Group(old) = Body::parse(&header(kind::ANONYMOUS_GTID), &body[..25]).unwrap() else { panic!() };
        assert_eq!((old.gtid, old.time), (None, 1_700_000_000_000_000));
        for length in 0..25 {
            assert!(Body::parse(&header(kind::GTID), &body[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn numbers_of_variable_length_are_read_and_cut_ones_are_not() {
        for (bytes, number) in
            [(&[0x02][..], 1), (&[0xfe], 127), (&[0x01, 0x02], 128), (&[0xff, 1, 0, 0, 0, 0, 0, 0, 0x80], 1 << 63 | 1)]
        {
            assert_eq!(variable(&mut &bytes[..]), Some(number), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert_eq!(variable(&mut &bytes[..cut]), None);
            }
        }
        assert_eq!([signed(&mut &[0x04][..]), signed(&mut &[0x02][..])], [Some(1), Some(-1)]);
    }
}
