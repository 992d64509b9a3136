//! Records of a mini-transaction: the length of each, and the file names in records about files (for messages only).

/// A number of one to five bytes, and its length; `None` if `bytes` ends too early or it is not a number.
pub fn varint(bytes: &[u8]) -> Result<(u32, usize), Stop> {
    let first = *bytes.first().ok_or(Stop::Short)?;
    let (length, mask, base) = match first {
        0..0x80 => (1, 0x7F, 0),
        0x80..0xC0 => (2, 0x3F, 0x80),
        0xC0..0xE0 => (3, 0x1F, 0x4080),
        0xE0..0xF0 => (4, 0x0F, 0x20_4080),
        0xF0 => (5, 0, 0x1020_4080),
        _ => return Err(Stop::Bad("a number that is too long")),
    };
    let rest = bytes.get(1..length).ok_or(Stop::Short)?;
    let value = rest.iter().fold(u32::from(first & mask), |value, byte| value << 8 | u32::from(*byte));
    value.checked_add(base).map(|value| (value, length)).ok_or(Stop::Bad("a number above 32 bits"))
}

/// Why parsing stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// More bytes are needed.
    Short,
    /// This is not a log.
    Bad(&'static str),
}

/// One record: its first byte and its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Type, and in it a mark whether it is about the page of the record before.
    pub kind: u8,
    /// All after the type and length.
    pub body: &'a [u8],
}

/// Bytes of the record at the start of `bytes`, its type included. The first byte is above 1: 0 and 1 end a
/// mini-transaction.
pub fn record_length(bytes: &[u8]) -> Result<usize, Stop> {
    let (start, end) = extent(bytes)?;
    debug_assert!(start <= end);
    Ok(end)
}

/// Where the body of the record at the start of `bytes` begins and ends.
fn extent(bytes: &[u8]) -> Result<(usize, usize), Stop> {
    let kind = *bytes.first().ok_or(Stop::Short)?;
    match kind & 15 {
        0 => {
            let (value, length) = varint(&bytes[1..])?;
            Ok((1 + length, 1 + 15 + value as usize))
        }
        length => Ok((1, 1 + usize::from(length))),
    }
}

/// The records of one mini-transaction, without its end; stops at the first that does not fit in.
pub fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let (start, end) = extent(bytes).ok()?;
        let record = Record { kind: bytes[0], body: bytes.get(start..end)? };
        bytes = &bytes[end..];
        Some(record)
    })
}

/// A record about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileRecord<'a> {
    /// The file was made.
    Create(u32, &'a [u8]),
    /// The file was removed.
    Delete(u32, &'a [u8]),
    /// The file was renamed: old name, new name.
    Rename(u32, &'a [u8], &'a [u8]),
    /// The file was changed since the last checkpoint.
    Modify(u32, &'a [u8]),
    /// All changes before this LSN are in the data files.
    Checkpoint(u64),
}

impl<'a> Record<'a> {
    /// The tablespace and the page that it names, and the bytes after them. A record about the same page as the record
    /// before names no page.
    pub fn page(&self) -> Option<(u32, u32, &'a [u8])> {
        let (space, length) = varint(self.body).ok()?;
        let (page, more) = varint(&self.body[length..]).ok()?;
        Some((space, page, &self.body[length + more..]))
    }

    /// The file record, if it is about a file. `first` is true if it is the first in its mini-transaction or all before
    /// it were about files: later, the same types mean a page. Only for a log that is not encrypted.
    pub fn file(&self, first: bool) -> Option<FileRecord<'a>> {
        let kind = self.kind & 0xF0;
        if !first || kind < 0x80 {
            return None;
        }
        if self.kind == 0xFA {
            let lsn: &[u8; 8] = self.body.get(2..)?.first_chunk()?;
            return (self.body[..2] == [0, 0]).then(|| FileRecord::Checkpoint(u64::from_be_bytes(*lsn)));
        }
        let (space, page, name) = self.page()?;
        match (kind, page) {
            (0x80, 0) => Some(FileRecord::Create(space, name)),
            (0x90, 0) => Some(FileRecord::Delete(space, name)),
            (0xA0, 0) => {
                let middle = name.iter().position(|byte| *byte == 0)?;
                Some(FileRecord::Rename(space, &name[..middle], &name[middle + 1..]))
            }
            (0xB0, 0) => Some(FileRecord::Modify(space, name)),
            _ => None,
        }
    }
}

/// The bytes of [`varint`]: for tests and fuzzing.
#[doc(hidden)]
pub fn put_varint(value: u32, out: &mut Vec<u8>) {
    let bases = [(0x1020_4080, 5, 0xF0), (0x20_4080, 4, 0xE0), (0x4080, 3, 0xC0), (0x80, 2, 0x80), (0, 1, 0)];
    for (base, length, mark) in bases {
        if let Some(rest) = value.checked_sub(base) {
            let bytes = rest.to_be_bytes();
            match length {
                5 => out.extend_from_slice(&[&[mark][..], &bytes].concat()),
                _ => {
                    let start = out.len();
                    out.extend_from_slice(&bytes[4 - length..]);
                    out[start] |= mark;
                }
            }
            return;
        }
    }
}

/// A record of `kind` (its low four bits are zero) with `body`: for tests and fuzzing.
#[doc(hidden)]
pub fn put_record(kind: u8, body: &[u8], out: &mut Vec<u8>) {
    match body.len() {
        length @ 1..16 => out.push(kind | length as u8),
        length => {
            // The length counts the bytes of its own number, which depend on the length.
            let value = (1..=5).find_map(|width| {
                let value = u32::try_from((length + width).checked_sub(15)?).ok()?;
                let mut number = Vec::new();
                put_varint(value, &mut number);
                (number.len() == width).then_some(number)
            });
            out.push(kind);
            out.extend_from_slice(&value.unwrap_or_else(|| vec![0]));
        }
    }
    out.extend_from_slice(body);
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_at_the_borders_of_their_lengths_are_read() {
        for value in [0, 0x7F, 0x80, 0x407F, 0x4080, 0x20_407F, 0x20_4080, 0x1020_407F, 0x1020_4080, u32::MAX] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            assert_eq!(varint(&bytes), Ok((value, bytes.len())), "{value:#x}");
            assert_eq!(varint(&bytes[..bytes.len() - 1]), Err(Stop::Short));
        }
        assert!(matches!(varint(&[0xF1, 0, 0, 0, 0]), Err(Stop::Bad(_))));
        assert!(matches!(varint(&[0xF0, 0xFF, 0xFF, 0xFF, 0xFF]), Err(Stop::Bad(_))));
    }

    #[test]
    fn file_records_say_their_names() {
        let mut bytes = vec![0xFA, 0, 0];
        bytes.extend_from_slice(&77_000_u64.to_be_bytes());
        let mut body = vec![5, 0];
        body.extend_from_slice(b"./shop/item.ibd");
        put_record(0xB0, &body, &mut bytes);
        body.extend_from_slice(b"\0./shop/thing.ibd");
        put_record(0xA0, &body, &mut bytes);
        let found: Vec<_> = records(&bytes).map(|record| record.file(true)).collect();
        let name = &b"./shop/item.ibd"[..];
        let expected = [
            Some(FileRecord::Checkpoint(77_000)),
            Some(FileRecord::Modify(5, name)),
            Some(FileRecord::Rename(5, name, b"./shop/thing.ibd")),
        ];
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn a_record_is_as_long_as_it_was_made(kind in 0_u8..8, body in prop::collection::vec(any::<u8>(), 1..40_000)) {
            let mut bytes = Vec::new();
            put_record(kind << 4, &body, &mut bytes);
            prop_assert_eq!(record_length(&bytes), Ok(bytes.len()));
            let found: Vec<_> = records(&bytes).collect();
            prop_assert_eq!(found, vec![Record { kind: bytes[0], body: &body }]);
        }
    }
}
