//! Rows of a server as text of a set.

use fullbore_core::checksum::PlainDigest;

use super::tsv::{NULL, Tally, escape, has_special};
use crate::mysql_family::connection::{Connection, RowFault, Rows, take_value};
use crate::mysql_family::logical::columns::{Column, Form};

/// The longest value of a key, in bytes: what an index holds.
const KEY_VALUE_MAX: u64 = 4096;

/// Whether values of this form may hold bytes that need an escape.
fn needs_escapes(form: Form) -> bool {
    matches!(form, Form::Text | Form::Binary | Form::Json)
}

/// Appends a whole row, and counts it.
///
/// # Errors
/// The row has other values than columns.
pub fn row(columns: &[Column], mut values: &[u8], out: &mut Vec<u8>, tally: &mut Tally) -> Result<(), &'static str> {
    const WRONG: &str = "a row with other values than columns";
    let begun = out.len();
    if plain_row(columns, values, out) {
        tally.add(out.get(begun..).unwrap_or_default());
        return Ok(());
    }
    out.truncate(begun);
    for (place, column) in columns.iter().enumerate() {
        if place > 0 {
            out.push(b'\t');
        }
        match take_value(&mut values).ok_or(WRONG)? {
            None => out.extend_from_slice(NULL),
            Some(value) if needs_escapes(column.form) => escape(value, out),
            Some(value) => out.extend_from_slice(value),
        }
    }
    if columns.is_empty() {
        take_value(&mut values).ok_or(WRONG)?;
    }
    out.push(b'\n');
    tally.add(out.get(begun..).unwrap_or_default());
    if values.is_empty() { Ok(()) } else { Err(WRONG) }
}

/// The length of a value has one byte, if it is not greater than this.
const SHORT_MAX: u8 = 250;

/// Appends a row of short values without NULL and escapes: it has as many bytes as the server sent, with a tab in the place of
/// each length. False if it is not such a row; then `out` may have bytes of it.
fn plain_row(columns: &[Column], values: &[u8], out: &mut Vec<u8>) -> bool {
    let Some((first, rest)) = values.split_first() else { return false };
    let begun = out.len();
    out.extend_from_slice(rest);
    out.push(b'\n');
    let (mut length, mut left) = (*first, out.get_mut(begun..).unwrap_or_default());
    for (number, column) in columns.iter().enumerate() {
        let Some((value, after)) = left.split_at_mut_checked(length.into()) else { return false };
        if length > SHORT_MAX || needs_escapes(column.form) && has_special(value) {
            return false;
        }
        let Some((end, after)) = after.split_first_mut() else { return false };
        if number + 1 == columns.len() {
            return after.is_empty();
        }
        length = std::mem::replace(end, b'\t');
        left = after;
    }
    false
}

/// A row that is too long to be held: it is read and written piece by piece.
pub struct LongRow {
    /// The value that is read now.
    place: usize,
    inside: bool,
    digest: PlainDigest,
    /// The columns of the key, and their values.
    key: Vec<usize>,
    values: Vec<(usize, Vec<u8>)>,
}

impl LongRow {
    /// At its start. `key` are the places of the key's columns, whose values are kept.
    pub fn new(key: &[usize]) -> Self {
        Self { place: 0, inside: false, digest: PlainDigest::new(), key: key.to_vec(), values: Vec::new() }
    }

    /// Appends the next piece; true at the end of the row.
    ///
    /// # Errors
    /// The connection fails, or the row is not one.
    pub fn piece(
        &mut self,
        columns: &[Column],
        rows: &mut Rows,
        connection: &mut Connection,
        scratch: &mut [u8],
        out: &mut Vec<u8>,
        tally: &mut Tally,
    ) -> Result<bool, RowFault> {
        let begun = out.len();
        let mut done = false;
        let Some(column) = columns.get(self.place) else { return Err(RowFault::Broken("a row with too many values")) };
        if !self.inside {
            if self.place > 0 {
                out.push(b'\t');
            }
            self.inside = true;
            match rows.next_value(connection)? {
                None => {
                    out.extend_from_slice(NULL);
                    done = true;
                }
                Some(length) if length <= KEY_VALUE_MAX && self.key.contains(&self.place) => {
                    let mut value = vec![0; length as usize];
                    rows.read(connection, &mut value)?;
                    self.put(column, &value, out);
                    self.values.push((self.place, value));
                    done = true;
                }
                Some(_) => {}
            }
        } else {
            match rows.read(connection, scratch)? {
                0 => done = true,
                count => self.put(column, scratch.get(..count).unwrap_or_default(), out),
            }
        }
        let mut ended = false;
        if done {
            self.inside = false;
            self.place += 1;
            ended = self.place == columns.len();
            if ended {
                out.push(b'\n');
            }
        }
        self.digest.update(out.get(begun..).unwrap_or_default());
        if ended {
            tally.add_digest(u128::from_le_bytes(self.digest.finish()));
        }
        Ok(ended)
    }

    fn put(&self, column: &Column, piece: &[u8], out: &mut Vec<u8>) {
        match needs_escapes(column.form) {
            true => escape(piece, out),
            false => out.extend_from_slice(piece),
        }
    }

    /// The values of the key, in its order.
    pub fn key(&self) -> Vec<Option<&[u8]>> {
        let value =
            |place: &usize| self.values.iter().find(|(known, _)| known == place).map(|(_, value)| value.as_slice());
        self.key.iter().map(value).collect()
    }
}

/// The values at these places of a whole row.
pub fn values_at<'r>(mut row: &'r [u8], places: &[usize]) -> Vec<Option<&'r [u8]>> {
    let last = places.iter().copied().max().map_or(0, |place| place + 1);
    let values: Vec<_> = (0..last).map(|_| take_value(&mut row).flatten()).collect();
    places.iter().map(|place| values.get(*place).copied().flatten()).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_row_becomes_a_line_and_a_wrong_one_is_refused() {
        let columns =
            [Column::of("a", "int").unwrap(), Column::of("b", "blob").unwrap(), Column::of("c", "text").unwrap()];
        let (mut out, mut tally) = (Vec::new(), Tally::default());
        let values = b"\x0217\x03x\0\n\xfb";
        row(&columns, values, &mut out, &mut tally).unwrap();
        assert_eq!(out, b"17\tx\\0\\n\t\\N\n");
        assert_eq!(tally.rows, 1);
        assert_eq!(values_at(values, &[1, 0]), [Some(&b"x\0\n"[..]), Some(b"17")]);
        for bad in [&b"\x0217\xfb"[..], b"\x0217\xfb\xfb\xfb", b"\xfc"] {
            assert!(row(&columns, bad, &mut Vec::new(), &mut Tally::default()).is_err());
        }
        // A row without NULL and escapes takes the short way, and is the same text.
        let (mut out, mut short, mut whole) = (b"before".to_vec(), Tally::default(), Tally::default());
        row(&columns, b"\x0217\x02xy\0", &mut out, &mut short).unwrap();
        whole.add(b"17\txy\t\n");
        assert_eq!((&out[..], short), (&b"before17\txy\t\n"[..], whole));
        let mut out = Vec::new();
        row(&[], b"\x011", &mut out, &mut tally).unwrap();
        assert_eq!(out, b"\n");
    }
}
