//! The database header: the first 100 bytes of page 1 (sqlite.org, "Database File Format", §1.3).

use std::fmt;

/// Bytes of a database header.
pub const HEADER_SIZE: usize = 100;
/// The first bytes of every SQLite database.
pub const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The byte of SQLite's file locks: the page with this byte never holds data.
pub const LOCK_BYTE: u64 = 1 << 30;

/// Bytes from outside that break their format, with the broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the database keeps itself small.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutoVacuum {
    /// Free pages stay in the free-list.
    None,
    /// Every commit moves pages down and truncates the file.
    Full,
    /// `PRAGMA incremental_vacuum` does so on request.
    Incremental,
}

/// The fields of the header that a backup needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseHeader {
    /// Bytes per page: a power of two, 512…65536.
    pub page_size: u32,
    /// 1 = rollback journal, 2 = WAL.
    pub read_version: u8,
    /// Bytes at the end of each page that an extension keeps for itself (checksum VFS, encryption).
    pub reserved: u8,
    /// Counts write transactions; may not change in WAL mode.
    pub change_counter: u32,
    /// Size of the database in pages, when the writer was recent enough to keep it.
    pub pages: Option<u32>,
    /// First trunk page of the free-list; 0 if the list is empty.
    pub freelist_trunk: u32,
    /// Pages in the free-list, trunks included.
    pub freelist_pages: u32,
    /// Changes whenever the schema does.
    pub schema_cookie: u32,
    /// 1…4; 0 in a database without tables.
    pub schema_format: u32,
    /// Whether there are pointer-map pages.
    pub auto_vacuum: AutoVacuum,
    /// 1 = UTF-8, 2 = UTF-16le, 3 = UTF-16be; 0 in a database without tables.
    pub text_encoding: u32,
    /// `PRAGMA user_version`.
    pub user_version: u32,
    /// `PRAGMA application_id`.
    pub application_id: u32,
}

impl DatabaseHeader {
    /// Reads the header from the start of page 1 and bounds every number that sizes something.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let bytes: &[u8; HEADER_SIZE] = bytes
            .first_chunk()
            .ok_or_else(|| Malformed(format!("{} bytes are too few for a database header", bytes.len())))?;
        if !bytes.starts_with(MAGIC) {
            return Err(Malformed("the magic \"SQLite format 3\" is missing".into()));
        }
        let page_size = match u16::from_be_bytes([bytes[16], bytes[17]]) {
            1 => 65536,
            size if size.is_power_of_two() && size >= 512 => u32::from(size),
            size => return Err(Malformed(format!("page size {size} is not a power of two from 512 to 65536"))),
        };
        let reserved = bytes[20];
        if page_size - u32::from(reserved) < 480 {
            return Err(Malformed(format!("{reserved} reserved bytes leave too little of a {page_size}-byte page")));
        }
        if bytes[21..24] != [64, 32, 32] {
            return Err(Malformed("the payload fractions are not 64, 32, 32".into()));
        }
        let change_counter = u32_at(bytes, 24);
        let pages = Some(u32_at(bytes, 28)).filter(|&pages| pages != 0 && u32_at(bytes, 92) == change_counter);
        let auto_vacuum = match (u32_at(bytes, 52), u32_at(bytes, 64)) {
            (0, _) => AutoVacuum::None,
            (_, 0) => AutoVacuum::Full,
            _ => AutoVacuum::Incremental,
        };
        Ok(Self {
            page_size,
            read_version: bytes[19],
            reserved,
            change_counter,
            pages,
            freelist_trunk: u32_at(bytes, 32),
            freelist_pages: u32_at(bytes, 36),
            schema_cookie: u32_at(bytes, 40),
            schema_format: u32_at(bytes, 44),
            auto_vacuum,
            text_encoding: u32_at(bytes, 56),
            user_version: u32_at(bytes, 60),
            application_id: u32_at(bytes, 68),
        })
    }

    /// Bytes of a page that SQLite itself uses.
    pub fn usable(&self) -> u32 {
        self.page_size - u32::from(self.reserved)
    }

    /// The page that holds [`LOCK_BYTE`]; small databases end before it.
    pub fn lock_page(&self) -> u32 {
        u32::try_from(LOCK_BYTE / u64::from(self.page_size) + 1).unwrap_or(u32::MAX)
    }

    /// True for the pages that hold the pointer map of an auto-vacuum database ("Database File Format", §1.8).
    pub fn is_pointer_map(&self, page: u32) -> bool {
        if self.auto_vacuum == AutoVacuum::None || page < 2 {
            return false;
        }
        let each = self.usable() / 5 + 1;
        let mut map = (page - 2) / each * each + 2;
        if map == self.lock_page() {
            map += 1;
        }
        map == page
    }
}

/// The big-endian number at `offset`; the caller has checked the length.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).map_or(0, |four| u32::from_be_bytes(*four))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn valid() -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..18].copy_from_slice(&4096u16.to_be_bytes());
        bytes[18..24].copy_from_slice(&[1, 1, 0, 64, 32, 32]);
        bytes[24..28].copy_from_slice(&7u32.to_be_bytes());
        bytes[28..32].copy_from_slice(&9u32.to_be_bytes());
        bytes[92..96].copy_from_slice(&7u32.to_be_bytes());
        bytes
    }

    #[test]
    fn the_page_count_counts_only_when_its_writer_vouches_for_it() {
        let mut bytes = valid();
        assert_eq!(DatabaseHeader::parse(&bytes).unwrap().pages, Some(9));
        bytes[95] = 6;
        assert_eq!(DatabaseHeader::parse(&bytes).unwrap().pages, None);
    }

    #[test]
    fn page_size_1_means_65536_and_odd_sizes_are_refused() {
        let mut bytes = valid();
        bytes[16..18].copy_from_slice(&1u16.to_be_bytes());
        assert_eq!(DatabaseHeader::parse(&bytes).unwrap().page_size, 65536);
        for bad in [0u16, 2, 256, 1000, 4097] {
            bytes[16..18].copy_from_slice(&bad.to_be_bytes());
            assert!(DatabaseHeader::parse(&bytes).is_err(), "page size {bad}");
        }
        assert!(DatabaseHeader::parse(&bytes[..99]).is_err());
    }

    #[test]
    fn pointer_map_pages_are_where_the_format_puts_them() {
        let mut bytes = valid();
        bytes[16..18].copy_from_slice(&512u16.to_be_bytes());
        bytes[55] = 3;
        let header = DatabaseHeader::parse(&bytes).unwrap();
        // 512 bytes hold 102 entries of 5 bytes: page 2 maps pages 3…104, page 105 the next 102.
        let maps: Vec<u32> = (1..=208).filter(|&page| header.is_pointer_map(page)).collect();
        assert_eq!(maps, [2, 105, 208]);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(
            bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200), page: u32,
        ) {
            let mut bytes = bytes;
            if let Ok(header) = DatabaseHeader::parse(&bytes) { header.is_pointer_map(page); }
            if bytes.len() >= 24 { bytes[..24].copy_from_slice(&valid()[..24]); bytes[20] = 32; }
            if let Ok(header) = DatabaseHeader::parse(&bytes) { header.is_pointer_map(page); }
        }
    }
}
