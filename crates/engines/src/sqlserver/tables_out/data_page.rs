//! A page: the fields of its header, and its slots. Microsoft Press describes them ("SQL Server 2012 Internals", "Table
//! storage internals"); they are verified on genuine files.

use super::super::fields::Fields;
use super::super::page::{PAGE, PageId, put_torn_bits_back};
use super::{Decoded, field, unknown};

/// Where the records begin.
const HEADER: usize = 96;
/// A slot is an offset of two bytes, from the end of the page backwards.
const SLOT: usize = 2;

/// The types of pages that hold rows, values or maps.
pub mod kind {
    /// Rows of a heap, or the leaf level of a clustered index.
    pub const DATA: u8 = 1;
    /// Parts of values of several rows.
    pub const TEXT_MIXED: u8 = 3;
    /// Parts of one value.
    pub const TEXT_TREE: u8 = 4;
    /// The extents of an allocation unit.
    pub const IAM: u8 = 10;
    /// The boot page.
    pub const BOOT: u8 = 13;
}

/// A page whose check matches.
pub struct DataPage {
    /// Its place.
    pub id: PageId,
    bytes: Box<[u8; PAGE]>,
}

impl DataPage {
    /// Takes a page, and puts back the bits that torn-page detection has replaced.
    pub fn new(id: PageId, mut bytes: Box<[u8; PAGE]>) -> Self {
        put_torn_bits_back(&mut bytes);
        Self { id, bytes }
    }

    fn fields(&self) -> Fields<'_> {
        Fields(&self.bytes[..])
    }

    /// All bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..]
    }

    /// The type.
    pub fn kind(&self) -> u8 {
        self.bytes[1]
    }

    /// The level in an index; 0 for leaves and heaps.
    pub fn level(&self) -> u8 {
        self.bytes[3]
    }

    /// The next page of the chain.
    ///
    /// # Errors
    /// None: a page has all fields.
    pub fn next(&self) -> Decoded<Option<PageId>> {
        self.pointer(16)
    }

    /// A pointer to a page, or none.
    ///
    /// # Errors
    /// The offset is not in the page.
    pub fn pointer(&self, at: usize) -> Decoded<Option<PageId>> {
        page_pointer(self.fields(), at)
    }

    /// The allocation unit that the page belongs to.
    ///
    /// # Errors
    /// None: a page has all fields.
    pub fn unit(&self) -> Decoded<i64> {
        let (object, index) = (field(self.fields().u32(24))?, field(self.fields().u16(6))?);
        Ok((u64::from(index) << 48 | u64::from(object) << 16).cast_signed())
    }

    /// The number of slots.
    ///
    /// # Errors
    /// It is more than a page can have.
    pub fn slots(&self) -> Decoded<u16> {
        let count = field(self.fields().u16(22))?;
        if usize::from(count) > (PAGE - HEADER) / SLOT {
            return unknown(format!("a page has {count} slots"));
        }
        Ok(count)
    }

    /// The bytes from the start of the record in a slot to the first slot. `None` if the slot is empty.
    ///
    /// # Errors
    /// There is no such slot, or it points outside of the records.
    pub fn record(&self, slot: u16) -> Decoded<Option<&[u8]>> {
        let count = self.slots()?;
        let end = PAGE - SLOT * usize::from(count);
        if slot >= count {
            return unknown(format!("slot {slot} of {count} does not exist"));
        }
        let offset = usize::from(field(self.fields().u16(PAGE - SLOT * (usize::from(slot) + 1)))?);
        if offset == 0 {
            return Ok(None);
        }
        match self.bytes.get(offset..end) {
            Some(record) if offset >= HEADER => Ok(Some(record)),
            _ => unknown(format!("slot {slot} points outside of the records")),
        }
    }

    /// The records of all slots, with their numbers. The bytes of a record end where the next one begins, so that two
    /// records cannot overlap. Empty slots are left out.
    ///
    /// # Errors
    /// Two slots have one record, or a slot points outside of the records.
    pub fn records(&self) -> Decoded<Vec<(u16, &[u8])>> {
        let count = self.slots()?;
        let end = PAGE - SLOT * usize::from(count);
        let mut starts = Vec::with_capacity(usize::from(count));
        for slot in 0..count {
            if let Some(record) = self.record(slot)? {
                starts.push((end - record.len(), slot));
            }
        }
        starts.sort_unstable();
        let mut records = Vec::with_capacity(starts.len());
        let ends = starts.iter().skip(1).map(|(start, _)| *start).chain([end]);
        for (&(start, slot), end) in starts.iter().zip(ends) {
            if start == end {
                return unknown(format!("slot {slot} and another slot have one record"));
            }
            records.push((slot, self.bytes.get(start..end).unwrap_or_default()));
        }
        records.sort_unstable_by_key(|(slot, _)| *slot);
        Ok(records)
    }

    /// The record that is only at a fixed place, directly behind the header.
    pub fn first_record(&self) -> &[u8] {
        self.bytes.get(HEADER..).unwrap_or_default()
    }
}

/// A pointer to a page: 4 bytes page, 2 bytes file. File 0 is no page.
///
/// # Errors
/// The bytes are too few.
pub fn page_pointer(fields: Fields<'_>, at: usize) -> Decoded<Option<PageId>> {
    let id = PageId { page: field(fields.u32(at))?, file: field(fields.u16(at.saturating_add(4)))? };
    Ok((id.file > 0).then_some(id))
}
