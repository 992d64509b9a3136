//! The first page of a tablespace that was created during the clone: the donor sends no bytes for it, only its id and
//! its flags, and the recipient makes the page, as the server does when it creates a file. The rest comes from the redo
//! log.
//!
//! Layout: MySQL's internals documentation, "InnoDB Page Structure" and "FSP header".

use fullbore_core::checksum::crc32c;

use super::descriptor::BadMessage;

/// No flags: the buffer pool's dump.
const NO_FLAGS: u32 = u32::MAX;
const SPACE_ID: usize = 34;
/// The FSP header follows the page's header: first the space id again, and the flags 16 bytes on.
const FSP_SPACE_ID: usize = 38;
const FSP_FLAGS: usize = 54;

/// A page size of InnoDB in bytes: 4096 to 65536, a power of two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageSize(u32);

impl PageSize {
    /// `None` for a number that is not a page size.
    pub fn new(bytes: u32) -> Option<Self> {
        (bytes.is_power_of_two() && (4096..=65536).contains(&bytes)).then_some(Self(bytes))
    }

    /// In bytes.
    pub fn bytes(self) -> u32 {
        self.0
    }
}

/// Bytes of one page on disk: less than the server's in tablespaces with `KEY_BLOCK_SIZE`.
pub fn physical_size(fsp_flags: u32, server: PageSize) -> Result<u32, BadMessage> {
    if fsp_flags == NO_FLAGS {
        return Ok(server.bytes());
    }
    match (fsp_flags >> 1) & 0xF {
        0 => Ok(server.bytes()),
        shift @ 1..=5 if 512 << shift <= server.bytes() => Ok(512 << shift),
        _ => Err(BadMessage("a tablespace with an impossible page size")),
    }
}

/// The page, with its checksum.
pub fn make(space: u32, fsp_flags: u32, server: PageSize, physical: u32) -> Vec<u8> {
    let mut page = vec![0; physical as usize];
    page[SPACE_ID..SPACE_ID + 4].copy_from_slice(&space.to_be_bytes());
    page[FSP_SPACE_ID..FSP_SPACE_ID + 4].copy_from_slice(&space.to_be_bytes());
    page[FSP_FLAGS..FSP_FLAGS + 4].copy_from_slice(&fsp_flags.to_be_bytes());
    seal(&mut page, physical < server.bytes());
    page
}

/// Renews the checksum of a page.
pub(super) fn seal(page: &mut [u8], compressed: bool) {
    let end = page.len() - 8;
    if compressed {
        // A page of a compressed table has one checksum, over other parts, and no trailer.
        let checksum = crc32c(&page[4..16]) ^ crc32c(&page[24..26]) ^ crc32c(&page[34..]);
        page[..4].copy_from_slice(&checksum.to_be_bytes());
    } else {
        let checksum = crc32c(&page[4..26]) ^ crc32c(&page[38..end]);
        page[..4].copy_from_slice(&checksum.to_be_bytes());
        page[end..end + 4].copy_from_slice(&checksum.to_be_bytes());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_id_flags_and_checksum_where_innodb_looks_for_them() {
        let server = PageSize::new(16384).unwrap();
        let page = make(9, 0x4021, server, 16384);
        assert_eq!(
            (&page[34..38], &page[38..42], &page[54..58]),
            (&[0, 0, 0, 9][..], &[0, 0, 0, 9][..], &[0, 0, 0x40, 0x21][..])
        );
        assert_eq!(page[..4], page[16376..16380]);
        assert_ne!(page[..4], [0; 4]);
        assert_eq!(make(9, 0x29, server, 8192).len(), 8192);
    }

    #[test]
    fn sizes_come_from_the_flags() {
        let server = PageSize::new(16384).unwrap();
        assert_eq!(physical_size(u32::MAX, server), Ok(16384));
        assert_eq!(physical_size(0x4021, server), Ok(16384));
        assert_eq!(physical_size(0x4029, server), Ok(8192));
        assert!(physical_size(0x4021 | 5 << 1, PageSize::new(8192).unwrap()).is_err());
        assert!(PageSize::new(12288).is_none() && PageSize::new(2048).is_none());
    }
}
