//! Pages: their format from the tablespace's flags, and the check whether a page is whole.
//!
//! The hot copy uses this check (it reads a bad page again, because the server may be writing it), and verification (it
//! reports a bad page). No key is needed: the checksum of an encrypted page is over its bytes on disk, or it cannot be
//! checked.

use fullbore_core::checksum::{Crc32c, crc32c, is_zero};

use super::bytes::{u16_at, u32_at};
use crate::mysql_family::Dialect;

/// Offsets of the numbers in a page's header, in bytes from its start.
pub const CHECKSUM_AT: usize = 0;
/// The page's number in its tablespace.
pub const NUMBER_AT: usize = 4;
/// The LSN of its last change.
pub const LSN_AT: usize = 16;
/// Its type.
pub const TYPE_AT: usize = 24;
/// MySQL's compression header; MariaDB's key version in the older format.
const KEY_VERSION_AT: usize = 26;
/// MariaDB's checksum of the encrypted page in the older format.
const CRYPT_CHECKSUM_AT: usize = 30;
/// The tablespace's number.
pub const SPACE_AT: usize = 34;
/// Where a page's own content begins.
pub const DATA_AT: usize = 38;

/// The value in place of a checksum if the server makes none.
const NO_CHECKSUM: u32 = 0xDEAD_BEEF;
/// MariaDB: a page compressed in the older format, and one that is also encrypted.
const MARIADB_COMPRESSED: u16 = 34354;
const MARIADB_COMPRESSED_ENCRYPTED: u16 = 37401;
/// MySQL: compressed; encrypted; both; an encrypted page of a spatial index.
const MYSQL_COMPRESSED: u16 = 14;
const MYSQL_ENCRYPTED: u16 = 15;
const MYSQL_COMPRESSED_ENCRYPTED: u16 = 16;
const MYSQL_ENCRYPTED_RTREE: u16 = 17;
/// A flag of MariaDB's tablespaces in the older format: pages are compressed.
const CLASSIC_COMPRESSED: u32 = 1 << 16;
/// Marks a page compressed in the newer format of MariaDB: the rest of the type is its length in units of 256 bytes.
const COMPRESSED_BIT: u16 = 0x8000;

/// The least and the greatest page, in bytes.
pub const PAGE_SIZE_MIN: u32 = 1024;
/// The greatest page, in bytes.
pub const PAGE_SIZE_MAX: u32 = 65536;

/// How the pages of one tablespace look, from the flags in its page 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageFormat {
    dialect: Dialect,
    layout: Layout,
    /// MariaDB's page compression in the older format.
    punched: bool,
    physical: u32,
    logical: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// MariaDB's `full_crc32`: one CRC-32C over the page in its last four bytes.
    FullCrc32 { compressed: bool },
    /// Everything older, and all of MySQL: a checksum in the first four bytes and again near the end.
    Classic,
    /// `ROW_FORMAT=COMPRESSED`: a checksum in the first four bytes only.
    RowCompressed,
}

/// Flags that no tablespace can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadFlags(pub u32);

/// The result of checking a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageState {
    /// Its checksum is right.
    Valid,
    /// All zero: not used yet, or freed and scrubbed.
    Empty,
    /// Its number is right, but its checksum cannot be checked without a key or without unpacking. A torn page is not
    /// detected: a copy has to read it twice.
    Unchecked(Why),
    /// It is damaged, or was being written when it was read.
    Corrupt(Fault),
}

/// Why a page has no checksum to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// `innodb_checksum_algorithm=none`.
    NoChecksum,
    /// The checksum is of the page before compression.
    Compressed,
    /// The checksum is of the page before encryption.
    Encrypted,
}

/// The damage of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is another page.
    Number {
        /// The number in its header.
        found: u32,
    },
    /// The checksum is wrong.
    Checksum {
        /// The checksum in the page.
        stored: u32,
        /// The checksum of its content.
        computed: u32,
    },
    /// Its start and its end were not written together.
    Lsn {
        /// Low half of the LSN in the header.
        first: u32,
        /// And at the end of the page.
        last: u32,
    },
    /// Its compressed length is impossible.
    CompressedLength {
        /// Bytes.
        found: u32,
    },
    /// Fewer bytes than a page has.
    Length {
        /// Bytes.
        found: usize,
    },
    /// It is zero, and the tablespace uses it.
    Zero,
    /// The file ends before it.
    Missing {
        /// Pages that the tablespace has, by its first page.
        counted: u32,
    },
}

impl std::fmt::Display for BadFlags {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the flags {:#x} are invalid for a tablespace", self.0)
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Fault::Number { found } => write!(f, "it has the page number {found}"),
            Fault::Checksum { stored, computed } => {
                write!(f, "its checksum is {stored:#010x}, but its content has {computed:#010x}")
            }
            Fault::Lsn { first, last } => {
                write!(f, "the LSN at its end ({last:#x}) differs from its header ({first:#x})")
            }
            Fault::CompressedLength { found } => write!(f, "its header says that it is compressed to {found} bytes"),
            Fault::Length { found } => write!(f, "it has only {found} bytes"),
            Fault::Zero => write!(f, "it is all zero, but it is in use according to its tablespace"),
            Fault::Missing { counted } => write!(f, "the file ends before it, but the tablespace has {counted} pages"),
        }
    }
}

impl PageFormat {
    /// Of a tablespace with these flags.
    ///
    /// # Errors
    /// Sizes that do not exist, or bits that were never given a meaning for a page's size.
    pub fn from_flags(flags: u32, dialect: Dialect) -> Result<Self, BadFlags> {
        let bad = Err(BadFlags(flags));
        if dialect == Dialect::MariaDb && flags & 0x10 != 0 {
            // 3 is 4 KiB, 7 is 64 KiB.
            let size = flags & 15;
            if !(3..=7).contains(&size) {
                return bad;
            }
            let layout = Layout::FullCrc32 { compressed: flags & 0xE0 != 0 };
            return Ok(Self { dialect, layout, punched: false, physical: 512 << size, logical: 512 << size });
        }
        let (zip, size) = (flags >> 1 & 15, flags >> 6 & 15);
        if !(size == 0 || (3..=7).contains(&size)) || zip > 5 {
            return bad;
        }
        let logical = if size == 0 { 16384 } else { 512 << size };
        let (layout, physical) =
            if zip == 0 { (Layout::Classic, logical) } else { (Layout::RowCompressed, 512 << zip) };
        if physical > logical || (zip != 0 && logical > 16384) {
            return bad;
        }
        let punched = dialect == Dialect::MariaDb && flags & CLASSIC_COMPRESSED != 0;
        Ok(Self { dialect, layout, punched, physical, logical })
    }

    /// The server's variant of the format.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Bytes that a page takes in the file.
    pub fn physical_size(&self) -> u32 {
        self.physical
    }

    /// Bytes of a page in the server's memory: `innodb_page_size`.
    pub fn logical_size(&self) -> u32 {
        self.logical
    }

    /// Whether the page has its content as in the server's memory: neither encrypted nor compressed. Only for a page
    /// that was found valid.
    pub fn is_clear(&self, page: &[u8]) -> bool {
        match self.layout {
            Layout::FullCrc32 { .. } => u32_at(page, CHECKSUM_AT) == 0 && u16_at(page, TYPE_AT) & COMPRESSED_BIT == 0,
            // MySQL's encrypted and compressed pages have their own types, and are never found valid.
            Layout::Classic | Layout::RowCompressed => {
                !self.is_encrypted(page) && u16_at(page, TYPE_AT) != MARIADB_COMPRESSED_ENCRYPTED
            }
        }
    }

    /// Whether pages may be compressed so that the rest of their place is a hole.
    pub fn has_holes(&self) -> bool {
        match self.layout {
            Layout::FullCrc32 { compressed } => compressed,
            Layout::Classic => self.punched,
            Layout::RowCompressed => false,
        }
    }

    /// Looks at page `number` of the tablespace. `page` is as long as [`physical_size`](Self::physical_size).
    pub fn check(&self, page: &[u8], number: u32) -> PageState {
        if page.len() != self.physical as usize {
            return PageState::Corrupt(Fault::Length { found: page.len() });
        }
        if is_zero(page) {
            return PageState::Empty;
        }
        let found = u32_at(page, NUMBER_AT);
        if found != number {
            return PageState::Corrupt(Fault::Number { found });
        }
        match self.layout {
            Layout::FullCrc32 { compressed } => check_full_crc32(page, compressed),
            Layout::Classic => self.check_classic(page),
            Layout::RowCompressed => self.check_row_compressed(page),
        }
    }

    /// Used bytes of `page`: less than a page if it is compressed and the rest of its place is a hole. Only for a page
    /// that was found valid.
    pub fn content_length(&self, page: &[u8]) -> usize {
        let kind = u16_at(page, TYPE_AT);
        let length = match self.layout {
            Layout::FullCrc32 { compressed: true } if kind & COMPRESSED_BIT != 0 => {
                usize::from(kind & !COMPRESSED_BIT) * 256
            }
            _ => page.len(),
        };
        length.min(page.len())
    }

    fn check_classic(&self, page: &[u8]) -> PageState {
        let kind = u16_at(page, TYPE_AT);
        match (self.dialect, kind) {
            (Dialect::MySql, MYSQL_COMPRESSED) => PageState::Unchecked(Why::Compressed),
            (Dialect::MySql, MYSQL_ENCRYPTED | MYSQL_COMPRESSED_ENCRYPTED | MYSQL_ENCRYPTED_RTREE) => {
                PageState::Unchecked(Why::Encrypted)
            }
            (Dialect::MariaDb, MARIADB_COMPRESSED) => PageState::Unchecked(Why::Compressed),
            (Dialect::MariaDb, MARIADB_COMPRESSED_ENCRYPTED) => {
                compare(u32_at(page, CRYPT_CHECKSUM_AT), classic_crc32(page))
            }
            _ if self.is_encrypted(page) => compare(u32_at(page, CRYPT_CHECKSUM_AT), classic_crc32(page)),
            _ => check_plain(page),
        }
    }

    fn check_row_compressed(&self, page: &[u8]) -> PageState {
        let kind = u16_at(page, TYPE_AT);
        if self.dialect == Dialect::MySql && matches!(kind, MYSQL_ENCRYPTED | MYSQL_ENCRYPTED_RTREE) {
            return PageState::Unchecked(Why::Encrypted);
        }
        if self.is_encrypted(page) {
            return compare(u32_at(page, CRYPT_CHECKSUM_AT), row_compressed_crc32(page));
        }
        let (stored, computed) = (u32_at(page, CHECKSUM_AT), row_compressed_crc32(page));
        if stored == computed || stored == row_compressed_adler32(page) {
            PageState::Valid
        } else if stored == NO_CHECKSUM {
            PageState::Unchecked(Why::NoChecksum)
        } else {
            PageState::Corrupt(Fault::Checksum { stored, computed })
        }
    }

    /// MariaDB's older format. Page 0 is never encrypted; in it these bytes once held an LSN.
    fn is_encrypted(&self, page: &[u8]) -> bool {
        self.dialect == Dialect::MariaDb && u32_at(page, NUMBER_AT) != 0 && u32_at(page, KEY_VERSION_AT) != 0
    }
}

fn compare(stored: u32, computed: u32) -> PageState {
    if stored == computed { PageState::Valid } else { PageState::Corrupt(Fault::Checksum { stored, computed }) }
}

fn check_full_crc32(page: &[u8], compressed: bool) -> PageState {
    let kind = u16_at(page, TYPE_AT);
    if compressed && kind & COMPRESSED_BIT != 0 {
        let length = usize::from(kind & !COMPRESSED_BIT) * 256;
        if length <= DATA_AT || length > page.len() {
            return PageState::Corrupt(Fault::CompressedLength { found: length as u32 });
        }
        return compare(u32_at(page, length - 4), crc32c(&page[..length - 4]));
    }
    let end = page.len() - 4;
    let verdict = compare(u32_at(page, end), crc32c(&page[..end]));
    // In an encrypted page (the first word is the version of its key) the LSN at the end is encrypted too.
    let (first, last) = (u32_at(page, LSN_AT + 4), u32_at(page, end - 4));
    if verdict == PageState::Valid && u32_at(page, CHECKSUM_AT) == 0 && first != last {
        return PageState::Corrupt(Fault::Lsn { first, last });
    }
    verdict
}

/// A page as in the server's memory. The page does not name the algorithm of its checksum: one of them has to fit.
fn check_plain(page: &[u8]) -> PageState {
    let end = page.len() - 8;
    let (stored, again) = (u32_at(page, CHECKSUM_AT), u32_at(page, end));
    let (first, last) = (u32_at(page, LSN_AT + 4), u32_at(page, end + 4));
    let computed = classic_crc32(page);
    if stored == computed && again == computed {
        return PageState::Valid;
    }
    if first != last {
        return PageState::Corrupt(Fault::Lsn { first, last });
    }
    if stored == NO_CHECKSUM && again == NO_CHECKSUM {
        return PageState::Unchecked(Why::NoChecksum);
    }
    // The algorithm `innodb`, which was the default before MySQL 5.7 and MariaDB 10.2.
    if stored == folded(&[&page[4..26], &page[DATA_AT..end]]) && again == folded(&[&page[..26]]) {
        return PageState::Valid;
    }
    PageState::Corrupt(Fault::Checksum { stored, computed })
}

fn classic_crc32(page: &[u8]) -> u32 {
    crc32c(&page[4..26]) ^ crc32c(&page[DATA_AT..page.len() - 8])
}

fn row_compressed_crc32(page: &[u8]) -> u32 {
    crc32c(&page[4..16]) ^ crc32c(&page[24..26]) ^ crc32c(&page[34..])
}

/// Adler-32 (RFC 1950) that begins with 0 instead of 1: the algorithm `innodb` for compressed pages.
fn row_compressed_adler32(page: &[u8]) -> u32 {
    let (mut low, mut high) = (0_u32, 0_u32);
    for part in [&page[4..16], &page[24..26], &page[34..]] {
        // The sums of 2048 bytes stay far below 32 bits.
        for piece in part.chunks(2048) {
            for byte in piece {
                low += u32::from(*byte);
                high += low;
            }
            (low, high) = (low % 65521, high % 65521);
        }
    }
    high << 16 | low
}

/// InnoDB's own hash of bytes; only its low 32 bits are kept, so it is computed in 32 bits.
fn folded(parts: &[&[u8]]) -> u32 {
    let mut sum = 0_u32;
    for part in parts {
        let mut fold = 0_u32;
        for byte in *part {
            let byte = u32::from(*byte);
            fold = ((((fold ^ byte ^ 1_653_893_711) << 8).wrapping_add(fold)) ^ 1_463_735_687).wrapping_add(byte);
        }
        sum = sum.wrapping_add(fold);
    }
    sum
}

/// Puts the checksum of `full_crc32` right: for tests and fuzzing.
#[doc(hidden)]
pub fn seal_full_crc32(page: &mut [u8]) {
    if let Some(end) = page.len().checked_sub(4) {
        let mut crc = Crc32c::new();
        crc.update(&page[..end]);
        page[end..].copy_from_slice(&crc.finish().to_be_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mysql_family::innodb::fixtures::{self, Fixture};

    fn format(fixture: &Fixture) -> PageFormat {
        PageFormat::from_flags(u32_at(fixture.bytes, 54), fixture.dialect).unwrap()
    }

    #[test]
    fn pages_of_real_servers_are_found_valid_or_said_to_have_nothing_to_check() {
        for fixture in fixtures::ALL {
            let format = format(fixture);
            assert_eq!(format.physical_size(), fixture.physical, "{}", fixture.name);
            let (head, rows) = fixture.bytes.split_at(fixture.physical as usize);
            let first = if fixture.name.contains("none") { fixture.rows } else { PageState::Valid };
            assert_eq!(format.check(head, 0), first, "page 0 of {}", fixture.name);
            assert_eq!(format.check(rows, fixture.number), fixture.rows, "the rows of {}", fixture.name);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_checked_page_is_noticed() {
        for fixture in fixtures::ALL.iter().filter(|fixture| fixture.rows == PageState::Valid) {
            let format = format(fixture);
            let mut page = fixture.bytes[fixture.physical as usize..].to_vec();
            let content = format.content_length(&page);
            for bit in 0..content * 8 {
                // The places that no checksum of that layout covers, or only where its algorithm was strict.
                let byte = bit / 8;
                let uncovered = match format.layout {
                    Layout::FullCrc32 { .. } => false,
                    Layout::Classic => (26..38).contains(&byte) || byte < 4 || byte >= page.len() - 8,
                    Layout::RowCompressed => (16..24).contains(&byte) || (26..34).contains(&byte) || byte < 4,
                };
                if uncovered || bit % 3 != 0 {
                    continue;
                }
                page[byte] ^= 1 << (bit % 8);
                let verdict = format.check(&page, fixture.number);
                page[byte] ^= 1 << (bit % 8);
                assert!(
                    matches!(verdict, PageState::Corrupt(_) | PageState::Unchecked(_)),
                    "bit {bit} of {} went unnoticed",
                    fixture.name
                );
            }
        }
    }

    #[test]
    fn a_page_of_another_place_and_a_half_written_one_are_corrupt() {
        for fixture in fixtures::ALL {
            let format = format(fixture);
            let page = &fixture.bytes[fixture.physical as usize..];
            let other = format.check(page, fixture.number + 1);
            assert_eq!(other, PageState::Corrupt(Fault::Number { found: fixture.number }), "{}", fixture.name);
            assert_eq!(format.check(&page[1..], 1), PageState::Corrupt(Fault::Length { found: page.len() - 1 }));
        }
        let fixture = &fixtures::ALL[0];
        let mut torn = fixture.bytes[4096..].to_vec();
        torn[2048..].fill(7);
        assert!(matches!(format(fixture).check(&torn, fixture.number), PageState::Corrupt(Fault::Checksum { .. })));
    }

    #[test]
    fn an_empty_page_is_empty_in_every_format() {
        for fixture in fixtures::ALL {
            let format = format(fixture);
            let zeros = vec![0; format.physical_size() as usize];
            assert_eq!(format.check(&zeros, 9), PageState::Empty);
        }
    }

    #[test]
    fn flags_that_no_server_writes_are_refused() {
        for flags in [0x10, 0x12, 0x18, 0x1F, 1 << 6, 2 << 6, 8 << 6, 6 << 1, 7 << 6 | 1 << 1] {
            assert_eq!(PageFormat::from_flags(flags, Dialect::MariaDb), Err(BadFlags(flags)), "{flags:#x}");
        }
        // The mark of `full_crc32` in MariaDB is an impossible size in MySQL.
        assert!(PageFormat::from_flags(0x13, Dialect::MySql).is_err());
        assert_eq!(PageFormat::from_flags(0, Dialect::MySql).unwrap().physical_size(), 16384);
        for flags in 0..1 << 12 {
            for dialect in [Dialect::MariaDb, Dialect::MySql] {
                if let Ok(format) = PageFormat::from_flags(flags, dialect) {
                    assert!((PAGE_SIZE_MIN..=PAGE_SIZE_MAX).contains(&format.physical_size()));
                    assert!(format.physical_size().is_power_of_two());
                }
            }
        }
    }

    #[test]
    fn an_impossible_compressed_length_is_corrupt_and_reads_nothing_outside() {
        let format = PageFormat::from_flags(0x33, Dialect::MariaDb).unwrap();
        for kind in [0x8000_u16, 0x8011, 0xFFFF] {
            let mut page = vec![1; 4096];
            page[NUMBER_AT..8].copy_from_slice(&1_u32.to_be_bytes());
            page[TYPE_AT..26].copy_from_slice(&kind.to_be_bytes());
            let found = u32::from(kind & 0x7FFF) * 256;
            assert_eq!(format.check(&page, 1), PageState::Corrupt(Fault::CompressedLength { found }));
            assert!(format.content_length(&page) <= 4096);
        }
    }
}
