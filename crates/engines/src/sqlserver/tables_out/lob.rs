//! Values outside of their row: text, `(max)` types, and columns that do not fit into the row.
//!
//! A row has a pointer of 16 bytes (text, ntext, image), or an inline root: 12 bytes of head, then an entry of 12 bytes
//! for each part. A part is a record on a text page: data, or a node with more entries.
//!
//! | offset in a record | field |
//! |---|---|
//! | 2 | the length of the record |
//! | 4 | the id of the value: 8 bytes. The parts of a value and the pointer in its row have the same id |
//! | 12 | its type: 0 small root, 2 node, 3 data, 4 and 5 root |
//! | 14 | small root: the length of the data; node and root: the most entries |
//! | 16 | node and root: the number of entries |
//! | 20 | small root: the data; node: entries of 16 bytes |
//! | 24 | root: entries of 12 bytes |
//! | 14 | data: up to the end of the record |

use std::collections::HashSet;

use super::super::fields::Fields;
use super::super::page::PageId;
use super::data_files::DataFiles;
use super::data_page::{kind, page_pointer};
use super::record::{RecordKind, record_kind};
use super::{Decoded, field, unknown};

/// The longest value, in bytes: SQL Server allows no more.
pub const VALUE_MAX: u64 = (1 << 31) - 1;
/// The length of a pointer in a row of text, ntext and image, in bytes. Other lengths are inline roots, or the text itself
/// (`text in row`).
pub const TEXT_POINTER: usize = 16;
/// Levels of nodes. SQL Server needs four for the longest value.
const DEPTH_MAX: u32 = 8;

/// The first byte of an inline root: a value that does not fit into the row, or a large value.
const OVERFLOW: u8 = 2;
const INLINE_ROOT: u8 = 4;
const INLINE_HEAD: usize = 12;
const INLINE_ENTRY: usize = 12;

/// The value that a pointer of 16 bytes names.
///
/// # Errors
/// The pointer or a part has an unknown form, or a page is damaged.
pub fn of_text_pointer(files: &DataFiles, pointer: &[u8]) -> Decoded<Vec<u8>> {
    let fields = Fields(pointer);
    let Some(page) = page_pointer(fields, 8)? else { return unknown("a text pointer names no page") };
    let mut value = Value { id: Some(field(fields.u64(0))?), ..Value::new(files) };
    value.part(Part { page, slot: field(fields.u16(14))? }, 0)?;
    Ok(value.bytes)
}

/// The value of an inline root.
///
/// # Errors
/// As of [`of_text_pointer`].
pub fn of_inline_root(files: &DataFiles, root: &[u8]) -> Decoded<Vec<u8>> {
    let form = field(Fields(root).u8(0))?;
    if form != OVERFLOW && form != INLINE_ROOT {
        return unknown(format!("a value outside of its row has the form {form}"));
    }
    let entries = root.get(INLINE_HEAD..).unwrap_or_default();
    if entries.is_empty() || !entries.len().is_multiple_of(INLINE_ENTRY) {
        return unknown("an inline root ends inside an entry");
    }
    let mut value = Value::new(files);
    for entry in entries.as_chunks::<INLINE_ENTRY>().0 {
        let end = u64::from(field(Fields(entry).u32(0))?);
        value.child(entry, 4, end, 0, 0)?;
    }
    Ok(value.bytes)
}

/// A record on a text page.
#[derive(Clone, Copy)]
struct Part {
    page: PageId,
    slot: u16,
}

/// A value that is being gathered.
struct Value<'a> {
    files: &'a DataFiles,
    bytes: Vec<u8>,
    /// Its id. An inline root does not have it: then it is that of the first part.
    id: Option<u64>,
    /// The records that were read: each belongs to one place of one value.
    seen: HashSet<(u16, u32, u16)>,
}

impl<'a> Value<'a> {
    fn new(files: &'a DataFiles) -> Self {
        Self { files, bytes: Vec::new(), id: None, seen: HashSet::new() }
    }

    /// The part that an entry names at `pointer`. Behind it, the value, or what came since `begin`, is `end` bytes long.
    fn child(&mut self, entry: &[u8], pointer: usize, end: u64, begin: u64, depth: u32) -> Decoded<()> {
        let fields = Fields(entry);
        let Some(page) = page_pointer(fields, pointer)? else { return unknown("a part of a value has no page") };
        self.part(Part { page, slot: field(fields.u16(pointer + 6))? }, depth)?;
        let have = self.bytes.len() as u64;
        if have != end && have - begin != end {
            return unknown(format!("a value has {have} bytes where it should have {end}"));
        }
        Ok(())
    }

    fn part(&mut self, at: Part, depth: u32) -> Decoded<()> {
        if depth > DEPTH_MAX || !self.seen.insert((at.page.file, at.page.page, at.slot)) {
            return unknown("the parts of a value form a ring");
        }
        let page = self.files.page(at.page)?;
        let found = match page.kind() {
            kind::TEXT_MIXED | kind::TEXT_TREE => page.record(at.slot)?,
            other => return unknown(format!("a part of a value is on a page of type {other}")),
        };
        let Some(record) = found else { return unknown("a part of a value is missing") };
        let length = usize::from(field(Fields(record).u16(2))?);
        let Some(record) = record.get(..length).filter(|record| record_kind(record).ok() == Some(RecordKind::Fragment))
        else {
            return unknown("a part of a value is not such a record");
        };
        let begin = self.bytes.len() as u64;
        let fields = Fields(record);
        let id = field(fields.u64(4))?;
        if *self.id.get_or_insert(id) != id {
            return unknown("a part of a value belongs to another value");
        }
        match field(fields.u16(12))? {
            0 => {
                let length = usize::from(field(fields.u16(14))?);
                self.add(record.get(20..20 + length))
            }
            3 => self.add(record.get(14..)),
            2 => {
                for entry in entries::<16>(record, 20)? {
                    self.child(entry, 8, field(Fields(entry).u64(0))?, begin, depth + 1)?;
                }
                Ok(())
            }
            4 | 5 => {
                for entry in entries::<12>(record, 24)? {
                    self.child(entry, 4, field(Fields(entry).u32(0))?.into(), begin, depth + 1)?;
                }
                Ok(())
            }
            other => unknown(format!("a part of a value has the type {other}")),
        }
    }

    fn add(&mut self, data: Option<&[u8]>) -> Decoded<()> {
        let Some(data) = data else { return unknown("a part of a value is longer than its record") };
        if (self.bytes.len() + data.len()) as u64 > VALUE_MAX {
            return unknown("a value is longer than 2 GiB");
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }
}

/// The entries of a node or root that are in use.
fn entries<const N: usize>(record: &[u8], at: usize) -> Decoded<&[[u8; N]]> {
    let count = usize::from(field(Fields(record).u16(16))?);
    match record.get(at..).and_then(|all| all.as_chunks::<N>().0.get(..count)) {
        Some(entries) => Ok(entries),
        None => unknown("a node of a value is longer than its record"),
    }
}
