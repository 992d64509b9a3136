//! A page of a SQL Server database: its place, and whether its bytes are right. Microsoft documents the two checks under
//! PAGE_VERIFY; the algorithms are verified on genuine files.

use super::fields::Fields;

/// The length of a page, in bytes.
pub const PAGE: usize = 8192;
/// Pages in an extent.
pub const PAGES_PER_EXTENT: u32 = 8;
/// The length of an extent, in bytes. Backups have whole extents.
pub const EXTENT: usize = PAGE * PAGES_PER_EXTENT as usize;
/// The unit of both checks, in bytes.
const SECTOR: usize = 512;
const SECTORS: u32 = (PAGE / SECTOR) as u32;

/// The first byte of every page.
const HEADER_VERSION: u8 = 1;
/// Flag: the page has a checksum.
const HAS_CHECKSUM: u16 = 0x200;
/// Flag: the page has torn-page bits.
const HAS_TORN_BITS: u16 = 0x100;
/// Offset of the flags.
const FLAGS: usize = 4;
/// Offset of the checksum, or of the torn-page bits.
const CHECK: usize = 60;

/// The place of a page in its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageId {
    /// The id of the file.
    pub file: u16,
    /// The number of the page in the file, from 0.
    pub page: u32,
}

impl PageId {
    /// The file and the number of its extent, from 0.
    pub fn extent(self) -> (u16, u32) {
        (self.file, self.page / PAGES_PER_EXTENT)
    }
}

/// Which check a page has passed or failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageCheck {
    /// Its checksum matches.
    Checksum,
    /// Its torn-page bits match: no sector is of another write. They say nothing about the other bits.
    TornBits,
    /// It has no check.
    Without,
    /// Every byte is zero.
    Zero,
    /// It does not begin as a page does.
    NoHeader,
    /// Its checksum does not match.
    BadChecksum,
    /// Its torn-page bits do not match.
    Torn,
}

impl PageCheck {
    /// True if a page in use may have this result.
    pub fn is_good(self) -> bool {
        matches!(self, Self::Checksum | Self::TornBits | Self::Without)
    }
}

/// The exclusive or of the 128 words of a sector.
// Not inlined: the compiler would join the loops of all sectors, and read them in an order that no prefetcher follows. Then
// a page that is not in the caches takes three times as long.
#[inline(never)]
pub fn xor_of_sector(sector: &[u8; SECTOR]) -> u32 {
    sector.as_chunks::<4>().0.iter().fold(0, |sum, word| sum ^ u32::from_le_bytes(*word))
}

/// The checksum of a page: each sector's exclusive or, rotated left by 15 minus its number, without the field itself.
pub fn checksum(page: &[u8; PAGE]) -> u32 {
    let sectors = page.as_chunks::<SECTOR>().0;
    let sum = sectors
        .iter()
        .zip(0..SECTORS)
        .fold(0, |sum, (sector, number)| sum ^ xor_of_sector(sector).rotate_left(SECTORS - 1 - number));
    // The field is in sector 0: taking it out again is the same as a zero there.
    sum ^ stored(page).rotate_left(SECTORS - 1)
}

/// The field with the checksum or the torn-page bits.
fn stored(page: &[u8; PAGE]) -> u32 {
    Fields(page).u32(CHECK).unwrap_or_default()
}

/// Checks one page.
pub fn check(page: &[u8; PAGE]) -> PageCheck {
    if page.iter().all(|byte| *byte == 0) {
        return PageCheck::Zero;
    }
    if page[0] != HEADER_VERSION {
        return PageCheck::NoHeader;
    }
    let flags = Fields(page).u16(FLAGS).unwrap_or_default();
    match (flags & HAS_CHECKSUM != 0, flags & HAS_TORN_BITS != 0) {
        (true, _) if checksum(page) == stored(page) => PageCheck::Checksum,
        (true, _) => PageCheck::BadChecksum,
        (false, true) if torn_bits_match(page) => PageCheck::TornBits,
        (false, true) => PageCheck::Torn,
        (false, false) => PageCheck::Without,
    }
}

/// The two lowest bits of the last byte of sectors 1 to 15 have the pattern of sector 0.
fn torn_bits_match(page: &[u8; PAGE]) -> bool {
    let pattern = stored(page) & 3;
    let sectors = page.as_chunks::<SECTOR>().0;
    sectors.iter().skip(1).all(|sector| u32::from(sector[SECTOR - 1]) & 3 == pattern)
}

/// Puts back the bits that torn-page detection has replaced: the two lowest bits of the last byte of each sector but the
/// first. The bits of sector `s` are bits `2s` and `2s + 1` of the field.
pub fn put_torn_bits_back(page: &mut [u8; PAGE]) {
    let flags = Fields(page).u16(FLAGS).unwrap_or_default();
    if flags & HAS_TORN_BITS == 0 || flags & HAS_CHECKSUM != 0 {
        return;
    }
    let kept = stored(page);
    for (sector, number) in page.as_chunks_mut::<SECTOR>().0.iter_mut().zip(0..SECTORS).skip(1) {
        sector[SECTOR - 1] = sector[SECTOR - 1] & !3 | (kept >> (2 * number)) as u8 & 3;
    }
}

/// The place that the header of a page names. `None` if the header cannot be of the page at `slot` in its extent.
pub fn place(page: &[u8; PAGE], slot: u32) -> Option<PageId> {
    let fields = Fields(page);
    let id = PageId { page: fields.u32(32).ok()?, file: fields.u16(36).ok()? };
    let version = fields.u8(0).ok()?;
    (version == HEADER_VERSION && id.file > 0 && id.page % PAGES_PER_EXTENT == slot).then_some(id)
}

/// True for a page of a kind that a striped backup of SQL Server 2008 R2 has behind the pages of its database: type 101,
/// without a place and without a check. Its meaning is not known.
pub fn is_of_no_file(page: &[u8; PAGE]) -> bool {
    let fields = Fields(page);
    page.starts_with(&[1, 101]) && fields.u32(FLAGS) == Ok(0) && fields.u32(32) == Ok(0) && fields.u16(36) == Ok(0)
}

/// The type of a page (PFS is 11).
pub fn kind(page: &[u8; PAGE]) -> u8 {
    page[1]
}

/// Gives a page its header, and its checksum as SQL Server computes it.
#[cfg(any(test, feature = "testkit"))]
pub fn seal(page: &mut [u8; PAGE], id: PageId, kind: u8) {
    page[0] = 1;
    page[1] = kind;
    page[FLAGS..FLAGS + 2].copy_from_slice(&HAS_CHECKSUM.to_le_bytes());
    page[32..36].copy_from_slice(&id.page.to_le_bytes());
    page[36..38].copy_from_slice(&id.file.to_le_bytes());
    let sum = checksum(page);
    page[CHECK..CHECK + 4].copy_from_slice(&sum.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed() -> [u8; PAGE] {
        let mut page = [0; PAGE];
        page.iter_mut().enumerate().skip(96).for_each(|(at, byte)| *byte = (at * 31 % 253) as u8);
        seal(&mut page, PageId { file: 1, page: 13 }, 1);
        page
    }

    #[test]
    fn one_changed_bit_anywhere_in_a_page_is_found() {
        let good = sealed();
        assert_eq!(check(&good), PageCheck::Checksum);
        assert_eq!(place(&good, 5), Some(PageId { file: 1, page: 13 }));
        assert_eq!(place(&good, 4), None);
        for at in (6..PAGE).step_by(97) {
            let mut bad = good;
            bad[at] ^= 4;
            assert_eq!(check(&bad), PageCheck::BadChecksum, "byte {at}");
        }
    }

    #[test]
    fn a_sector_of_another_write_is_torn_and_a_page_without_flags_has_no_check() {
        let mut page = sealed();
        page[FLAGS..FLAGS + 2].copy_from_slice(&HAS_TORN_BITS.to_le_bytes());
        page[CHECK] = 2;
        (1..16).for_each(|sector| page[sector * 512 + 511] = page[sector * 512 + 511] & !3 | 2);
        assert_eq!(check(&page), PageCheck::TornBits);
        page[7 * 512 + 511] ^= 3;
        assert_eq!(check(&page), PageCheck::Torn);
        page[FLAGS + 1] = 0;
        assert_eq!(check(&page), PageCheck::Without);
        assert_eq!(check(&[0; PAGE]), PageCheck::Zero);
    }
}
