//! A tablespace's head: the facts about the whole file in page 0.

use super::bytes::{u16_at, u32_at, u64_at};
use super::extents::Layout;
use super::page::{BadFlags, DATA_AT, LSN_AT, NUMBER_AT, PAGE_SIZE_MIN, PageFormat, SPACE_AT};
use crate::mysql_family::Dialect;

/// Offsets of the numbers in page 0, in bytes from its start.
const SPACE_AGAIN_AT: usize = DATA_AT;
const SIZE_AT: usize = 46;
const LIMIT_AT: usize = 50;
const FLAGS_AT: usize = 54;
/// MariaDB leaves room between the table of extents and its description of the encryption.
const MARIADB_CRYPT_GAP: usize = 38;
const MARIADB_CRYPT: [u8; 6] = [0x73, 0x0E, 0x0C, 0x52, 0x45, 0x74];
/// MySQL's begins with the version of the description: A, B or C.
const MYSQL_CRYPT: [u8; 2] = *b"lC";
/// MySQL: the tablespace is encrypted.
const MYSQL_ENCRYPTED_FLAG: u32 = 1 << 13;

/// Bytes of page 0 that [`Head::parse`] needs for everything but the encryption.
pub const HEAD: usize = 64;
/// The tablespace number of the system tablespace.
pub const SYSTEM_SPACE: u32 = 0;
/// The greatest number of a tablespace: InnoDB reserves the numbers above.
pub const SPACE_MAX: u32 = 0xFFFF_FFF0;

/// The facts in page 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The tablespace's number: it stays when the file is renamed, and is never given again.
    pub space: u32,
    /// How its pages look.
    pub format: PageFormat,
    /// Its flags, unchanged.
    pub flags: u32,
    /// Its size in pages, as of the last write of page 0; the file may be longer or shorter.
    pub pages: u32,
    /// The first page that was never taken into use, as of the last write of page 0.
    pub limit: u32,
    /// The LSN of the last change of page 0.
    pub lsn: u64,
}

/// How a tablespace is encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// Not at all.
    None,
    /// MariaDB: with this key of the server's key management.
    MariaDb {
        /// `ENCRYPTION_KEY_ID`.
        key_id: u32,
        /// The oldest version of the key that some page may still need.
        least_key_version: u32,
        /// The setting of the table: the server's default (0), on (1) or off (2).
        mode: u8,
    },
    /// MySQL: with its own key, which is here, encrypted with a master key.
    MySql {
        /// The number of the master key.
        master_key: u32,
    },
}

/// Why page 0 is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadHead {
    /// Fewer bytes than its head has.
    Short,
    /// It has another number than 0.
    Number(u32),
    /// The two places of the tablespace's number differ.
    Spaces(u32, u32),
    /// The flags have no meaning.
    Flags(BadFlags),
}

impl std::fmt::Display for BadHead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadHead::Short => write!(f, "the file ends within its first page"),
            BadHead::Number(number) => write!(f, "its first page has the page number {number}"),
            BadHead::Spaces(one, other) => {
                write!(f, "its first page has two tablespace numbers, {one} and {other}")
            }
            BadHead::Flags(flags) => write!(f, "{flags}"),
        }
    }
}

impl Head {
    /// Parses the begin of a file, at least [`HEAD`] bytes; `None` if page 0 is still zero: the file was made, and its
    /// page not yet written.
    ///
    /// # Errors
    /// The head contradicts itself. The checksum is not checked: that needs the whole page, [`PageFormat::check`].
    pub fn parse(page: &[u8], dialect: Dialect) -> Result<Option<Self>, BadHead> {
        if page.len() < HEAD {
            return Err(BadHead::Short);
        }
        if page[..page.len().min(PAGE_SIZE_MIN as usize)].iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let number = u32_at(page, NUMBER_AT);
        if number != 0 {
            return Err(BadHead::Number(number));
        }
        let (space, again) = (u32_at(page, SPACE_AT), u32_at(page, SPACE_AGAIN_AT));
        if space != again || space > SPACE_MAX {
            return Err(BadHead::Spaces(space, again));
        }
        let flags = u32_at(page, FLAGS_AT);
        let format = PageFormat::from_flags(flags, dialect).map_err(BadHead::Flags)?;
        Ok(Some(Self {
            space,
            format,
            flags,
            pages: u32_at(page, SIZE_AT),
            limit: u32_at(page, LIMIT_AT),
            lsn: u64_at(page, LSN_AT),
        }))
    }

    /// How the tablespace is encrypted; `page` is the whole page 0 that this head was parsed from.
    pub fn encryption(&self, page: &[u8], dialect: Dialect) -> Encryption {
        // The description of the encryption comes after the table of extents.
        let at = Layout::of(&self.format).table_end();
        match dialect {
            Dialect::MariaDb => {
                let info = page.get(at + MARIADB_CRYPT_GAP..).unwrap_or_default();
                // Magic, type, length of the random part and that part (16 bytes), least version, id, mode.
                if !info.starts_with(&MARIADB_CRYPT) || info.len() < 33 || info[7] != 16 {
                    return Encryption::None;
                }
                Encryption::MariaDb { least_key_version: u32_at(info, 24), key_id: u32_at(info, 28), mode: info[32] }
            }
            Dialect::MySql => {
                let info = page.get(at..).unwrap_or_default();
                if self.flags & MYSQL_ENCRYPTED_FLAG == 0 || !info.starts_with(&MYSQL_CRYPT) || info.len() < 7 {
                    return Encryption::None;
                }
                Encryption::MySql { master_key: u32_at(info, 3) }
            }
        }
    }
}

/// The place of the doublewrite buffer's copies in the first file of MariaDB's system tablespace, from its page 5: the
/// first pages of two runs of `pages` each. These pages are copies of other pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Doublewrite {
    /// The first pages of the two runs.
    pub first_pages: [u32; 2],
    /// Pages in each.
    pub pages: u32,
    /// The page with the segment's entry, and where in it the entry begins.
    pub segment: (u32, u16),
    /// Single pages that the segment has. They are in use, and the server never writes to them.
    pub singles: Vec<u32>,
}

/// The page of the system tablespace with the place of the doublewrite buffer.
pub const TRANSACTION_SYSTEM_PAGE: u32 = 5;
const DOUBLEWRITE_MAGIC: u32 = 536_853_855;
/// In the entry of a segment: a number that every entry has, and the segment's single pages, at most half as many as an
/// extent has.
const SEGMENT_MAGIC_AT: usize = 60;
const SEGMENT_MAGIC: u32 = 97_937_874;
const SINGLES_AT: usize = 64;

impl Doublewrite {
    /// From page 5 of the system tablespace; `None` if the server has no doublewrite buffer.
    pub fn parse(page: &[u8]) -> Option<Self> {
        let at = page.len().checked_sub(200)?;
        // An extent of the system tablespace.
        let pages = (1_u32 << 20).checked_div(u32::try_from(page.len()).ok()?)?.max(64);
        let first_pages = [u32_at(page, at + 14), u32_at(page, at + 18)];
        // The address of the segment's entry: tablespace, page, place in it.
        let segment = (u32_at(page, at + 4), u16_at(page, at + 8));
        let singles = Vec::new();
        (u32_at(page, at + 10) == DOUBLEWRITE_MAGIC).then_some(Self { first_pages, pages, segment, singles })
    }

    /// Learns the single pages from the page with the segment's entry.
    pub fn look_at_segment(&mut self, page: &[u8]) {
        let entry = page.get(usize::from(self.segment.1)..).unwrap_or_default();
        if u32_at(entry, SEGMENT_MAGIC_AT) == SEGMENT_MAGIC {
            self.singles = (0..self.pages as usize / 2).map(|index| u32_at(entry, SINGLES_AT + 4 * index)).collect();
        }
    }

    /// Whether page `number` is one of the copies.
    pub fn holds(&self, number: u32) -> bool {
        self.first_pages.iter().any(|first| number.checked_sub(*first).is_some_and(|index| index < self.pages))
    }
}

/// The type of a page, for reports; see `FIL_PAGE_TYPE` in the servers' documentation of the page header.
pub fn page_type(page: &[u8]) -> u16 {
    u16_at(page, super::page::TYPE_AT)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mysql_family::innodb::fixtures;

    #[test]
    fn heads_of_real_tablespaces_say_what_they_are() {
        for fixture in fixtures::ALL {
            let head = Head::parse(fixture.bytes, fixture.dialect).unwrap().unwrap();
            assert!(head.space > 0 && head.pages >= 4 && head.lsn > 0, "{}: {head:?}", fixture.name);
            assert_eq!(head.format.physical_size(), fixture.physical, "{}", fixture.name);
            let page = &fixture.bytes[..fixture.physical as usize];
            let encryption = head.encryption(page, fixture.dialect);
            let expected = fixture.name.contains("crypt");
            match encryption {
                Encryption::MariaDb { key_id, least_key_version, mode } if expected => {
                    assert_eq!((key_id, least_key_version, mode), (2, 1, 1), "{}", fixture.name);
                }
                Encryption::MySql { master_key } if expected => assert_eq!(master_key, 1, "{}", fixture.name),
                other => assert!(other == Encryption::None && !expected, "{}: {other:?}", fixture.name),
            }
        }
    }

    #[test]
    fn a_head_that_contradicts_itself_is_refused_and_a_zero_one_is_none() {
        let fixture = &fixtures::ALL[0];
        let parse = |at: usize, value: u32| {
            let mut page = fixture.bytes[..4096].to_vec();
            page[at..at + 4].copy_from_slice(&value.to_be_bytes());
            Head::parse(&page, fixture.dialect)
        };
        assert_eq!(parse(NUMBER_AT, 1), Err(BadHead::Number(1)));
        assert!(matches!(parse(SPACE_AT, 77), Err(BadHead::Spaces(77, _))));
        assert!(matches!(parse(FLAGS_AT, 0x1F), Err(BadHead::Flags(_))));
        assert_eq!(Head::parse(&fixture.bytes[..63], fixture.dialect), Err(BadHead::Short));
        assert_eq!(Head::parse(&[0; 4096], fixture.dialect), Ok(None));
    }

    #[test]
    fn the_doublewrite_buffer_is_found_by_its_magic_only() {
        let mut page = vec![0; 16384];
        assert_eq!(Doublewrite::parse(&page), None);
        let at = page.len() - 200;
        for (place, value) in [(4, 2), (8, 242 << 16), (10, DOUBLEWRITE_MAGIC), (14, 64), (18, 128)] {
            page[at + place..at + place + 4].copy_from_slice(&u32::to_be_bytes(value));
        }
        let mut found = Doublewrite::parse(&page).unwrap();
        assert_eq!((found.segment, found.singles.len()), ((2, 242), 0));
        let mut entry = vec![0; 16384];
        for (place, value) in [(SEGMENT_MAGIC_AT, SEGMENT_MAGIC), (SINGLES_AT, 13), (SINGLES_AT + 4, 14)] {
            entry[242 + place..242 + place + 4].copy_from_slice(&value.to_be_bytes());
        }
        found.look_at_segment(&page);
        assert!(found.singles.is_empty());
        found.look_at_segment(&entry);
        assert_eq!((found.singles.len(), &found.singles[..2]), (32, &[13, 14][..]));
        let held: Vec<u32> = (0..300).filter(|number| found.holds(*number)).collect();
        assert_eq!(held, (64..192).collect::<Vec<_>>());
        assert_eq!(Doublewrite::parse(&page[..100]), None);
    }
}
