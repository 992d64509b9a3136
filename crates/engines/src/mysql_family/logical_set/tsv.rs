//! Rows as LOAD DATA text: values between tabs, a line end after each row, `\N` for NULL, a backslash before the four
//! bytes that would be misunderstood. So each line end in the text is the end of a row.

use fullbore_core::checksum;
use serde::{Deserialize, Serialize};

use crate::mysql_family::logical::columns::{CURRENT_END, Column, Form};
use crate::mysql_family::logical::names::quoted;

/// The clause of LOAD DATA that reads this text. Bytes reach the columns unchanged.
const CLAUSE: &str = "CHARACTER SET binary FIELDS TERMINATED BY '\\t' ESCAPED BY '\\\\' LINES TERMINATED BY '\\n'";

/// The statement that loads rows with these columns. `file` has no quote in its name.
pub fn load_statement(file: &str, quoted_table: &str, columns: &[Column]) -> String {
    let (mut places, mut sets) = (Vec::new(), Vec::new());
    for (number, column) in columns.iter().enumerate() {
        let name = quoted(&column.name);
        // These types do not take bytes without a character set, or take numbers only as numbers.
        let converted = match column.form {
            Form::Json | Form::Word => format!("CONVERT(@v{number} USING utf8mb4)"),
            Form::Members => format!("CAST(@v{number} AS UNSIGNED)"),
            Form::RowEnd => format!("COALESCE(@v{number}, {CURRENT_END})"),
            _ => {
                places.push(name);
                continue;
            }
        };
        places.push(format!("@v{number}"));
        sets.push(format!("{name} = {converted}"));
    }
    let places = if places.is_empty() { "@v".to_owned() } else { places.join(", ") };
    let sets = if sets.is_empty() { String::new() } else { format!(" SET {}", sets.join(", ")) };
    format!("LOAD DATA LOCAL INFILE '{file}' INTO TABLE {quoted_table} {CLAUSE} ({places}){sets}")
}

/// NULL.
pub const NULL: &[u8] = b"\\N";

/// Appends a value, or a piece of one.
pub fn escape(value: &[u8], out: &mut Vec<u8>) {
    let mut rest = value;
    while let Some(at) = first_special(rest) {
        let (before, after) = rest.split_at(at);
        out.extend_from_slice(before);
        let Some((byte, after)) = after.split_first() else { return };
        out.extend_from_slice(match byte {
            0 => b"\\0",
            b'\t' => b"\\t",
            b'\n' => b"\\n",
            _ => b"\\\\",
        });
        rest = after;
    }
    out.extend_from_slice(rest);
}

/// Bytes of a block that is looked at as one.
const BLOCK: usize = 32;

/// 1 for a byte that needs an escape. `matches!` becomes a table of bits, which no vector can look up: nine times slower.
fn special(byte: u8) -> u8 {
    u8::from(byte == 0) | u8::from(byte == b'\t') | u8::from(byte == b'\n') | u8::from(byte == b'\\')
}

/// Whether a byte needs an escape. The loop over a block has no exit: it becomes a few instructions on vectors.
pub fn has_special(bytes: &[u8]) -> bool {
    let any = |block: &[u8; BLOCK]| block.iter().fold(0, |found, byte| found | special(*byte)) != 0;
    match bytes.last_chunk() {
        // The last block may begin inside the one before it.
        Some(last) => any(last) || bytes.as_chunks().0.iter().any(any),
        None => bytes.iter().fold(0, |found, byte| found | special(*byte)) != 0,
    }
}

/// The first byte that needs an escape.
fn first_special(bytes: &[u8]) -> Option<usize> {
    let mut before = 0;
    for block in bytes.chunks(BLOCK) {
        if has_special(block) {
            return block.iter().position(|byte| special(*byte) != 0).map(|at| before + at);
        }
        before += block.len();
    }
    None
}

/// The value behind its escapes; `None` for NULL.
pub fn unescape(field: &[u8]) -> Option<Vec<u8>> {
    if field == NULL {
        return None;
    }
    let (mut value, mut rest) = (Vec::with_capacity(field.len()), field);
    while let Some((before, after)) = rest.iter().position(|byte| *byte == b'\\').map(|at| rest.split_at(at)) {
        value.extend_from_slice(before);
        value.push(match after.get(1) {
            Some(b'0') => 0,
            Some(b't') => b'\t',
            Some(b'n') => b'\n',
            Some(other) => *other,
            None => b'\\',
        });
        rest = after.get(2..).unwrap_or_default();
    }
    value.extend_from_slice(rest);
    Some(value)
}

/// The count and the digest of rows. Neither depends on the order of the rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Rows.
    pub rows: u64,
    /// The sum of the rows' digests, modulo 2^128: equal rows do not cancel each other.
    #[serde(with = "hex")]
    pub digest: u128,
}

impl Tally {
    /// Adds a row: its text, with the line end.
    pub fn add(&mut self, row: &[u8]) {
        self.rows += 1;
        self.digest = self.digest.wrapping_add(checksum::xxh3_128(0, row));
    }

    /// Adds a row by the digest of its text.
    pub fn add_digest(&mut self, digest: u128) {
        self.rows += 1;
        self.digest = self.digest.wrapping_add(digest);
    }

    /// Adds the rows of another part of the table.
    pub fn join(&mut self, other: Self) {
        self.rows = self.rows.saturating_add(other.rows);
        self.digest = self.digest.wrapping_add(other.digest);
    }
}

/// As 32 hexadecimal digits: a number of JSON is not exact everywhere.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(digest: &u128, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{digest:032x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u128, D::Error> {
        let text = String::deserialize(deserializer)?;
        u128::from_str_radix(&text, 16).map_err(D::Error::custom)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back_and_no_value_holds_the_end_of_a_row() {
        let all: Vec<u8> = (0..=255).collect();
        for length in [1, 31, 32, 33, 64, 70] {
            for place in 0..length {
                let mut value = vec![b'x'; length];
                assert!(!has_special(&value));
                value[place] = b'\\';
                assert!(has_special(&value) && first_special(&value) == Some(place));
            }
        }
        for value in [&all[..], b"", b"\\N", b"a\\", b"\n\n\t\0", "\u{fffd}é".as_bytes()] {
            let mut text = Vec::new();
            escape(value, &mut text);
            assert!(!text.contains(&b'\n') && !text.contains(&b'\t'));
            assert_eq!(unescape(&text).unwrap(), value);
        }
        assert_eq!(unescape(b"\\N"), None);
        assert_eq!(unescape(b"x\\").unwrap(), b"x\\", "cut off");
    }

    #[test]
    fn a_tally_does_not_depend_on_order_or_parts_and_sees_doubled_rows() {
        let of = |rows: &[&[u8]]| {
            let mut tally = Tally::default();
            rows.iter().for_each(|row| tally.add(row));
            tally
        };
        let mut parts = of(&[b"b\n"]);
        parts.join(of(&[b"a\n", b"a\n"]));
        assert_eq!(parts, of(&[b"a\n", b"b\n", b"a\n"]));
        assert_ne!(of(&[b"a\n", b"a\n"]).digest, of(&[b"b\n", b"b\n"]).digest);
        let json = serde_json::to_string(&parts).unwrap();
        assert_eq!(serde_json::from_str::<Tally>(&json).unwrap(), parts);
    }
}
