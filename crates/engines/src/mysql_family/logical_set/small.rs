//! Streams with the rows of many small tables. Before the rows of each table is a line of JSON.

use serde::{Deserialize, Serialize};

use super::tsv::Tally;

/// A table whose rows have more bytes gets chunks of its own.
pub const SMALL_MAX: usize = 256 << 10;
/// The longest line before the rows of a table, in bytes: two names.
const HEAD_MAX: usize = 4096;

/// The rows of one table in such a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Its database.
    pub schema: String,
    /// Its name.
    pub table: String,
    /// Bytes of its rows.
    pub bytes: u64,
    /// Its rows.
    #[serde(flatten)]
    pub tally: Tally,
}

impl Section {
    /// Appends the line and the rows.
    pub fn write(&self, rows: &[u8], out: &mut Vec<u8>) {
        let _ = serde_json::to_writer(&mut *out, self); // A vector takes everything.
        out.push(b'\n');
        out.extend_from_slice(rows);
    }
}

fn of_head(head: &[u8]) -> Result<Section, &'static str> {
    serde_json::from_slice(head).map_err(|_| "the line before the rows of a table cannot be read")
}

/// The first section of a stream that is in memory, and the length of its line with the line end.
///
/// # Errors
/// The stream does not begin with such a line, as a sentence.
pub fn first(stream: &[u8]) -> Result<(Section, usize), &'static str> {
    let end = stream.iter().take(HEAD_MAX).position(|byte| *byte == b'\n');
    let head = end.and_then(|end| stream.get(..end)).ok_or("the line before the rows of a table has no end")?;
    Ok((of_head(head)?, head.len() + 1))
}

/// Cuts a stream, which comes in pieces, into sections.
#[derive(Default)]
pub struct Sections {
    /// Bytes of a section that is not complete.
    held: Vec<u8>,
}

impl Sections {
    /// Takes a piece, and gives each section that is complete now.
    ///
    /// # Errors
    /// The stream is not made of sections, as a sentence; or the error of `each`.
    pub fn take<E: From<&'static str>>(
        &mut self,
        piece: &[u8],
        mut each: impl FnMut(&Section, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.held.extend_from_slice(piece);
        let mut done = 0;
        while let Some(rest) = self.held.get(done..) {
            let Some(end) = rest.iter().take(HEAD_MAX).position(|byte| *byte == b'\n') else {
                if rest.len() >= HEAD_MAX {
                    return Err("the line before the rows of a table is too long".into());
                }
                break;
            };
            let (head, rows) = rest.split_at(end);
            let section = of_head(head)?;
            let length = usize::try_from(section.bytes).ok().filter(|bytes| *bytes <= SMALL_MAX);
            let length = length.ok_or("a table in it is not small")?;
            let Some(rows) = rows.get(1..1 + length) else { break };
            each(&section, rows)?;
            done += end + 1 + length;
        }
        self.held.drain(..done);
        Ok(())
    }

    /// Whether the stream may end here.
    pub fn is_at_end(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn stream() -> Vec<u8> {
        let mut out = Vec::new();
        for (table, rows) in [("a", &b"1\n2\n"[..]), ("empty", b""), ("b`\n", b"x\\ny\n")] {
            let mut tally = Tally::default();
            rows.split_inclusive(|byte| *byte == b'\n').for_each(|row| tally.add(row));
            let section = Section { schema: "s".into(), table: table.into(), bytes: rows.len() as u64, tally };
            section.write(rows, &mut out);
        }
        out
    }

    #[test]
    fn sections_come_back_however_the_stream_is_cut() {
        let whole = stream();
        for step in [1, 7, whole.len()] {
            let (mut sections, mut seen) = (Sections::default(), Vec::new());
            for piece in whole.chunks(step) {
                sections
                    .take::<&str>(piece, |section, rows| {
                        seen.push((section.table.clone(), section.tally.rows, rows.to_vec()));
                        Ok(())
                    })
                    .unwrap();
            }
            assert!(sections.is_at_end());
            let names: Vec<_> = seen.iter().map(|(name, rows, bytes)| (&name[..], *rows, bytes.len())).collect();
            assert_eq!(names, [("a", 2, 4), ("empty", 0, 0), ("b`\n", 1, 5)]);
        }
    }

    #[test]
    fn a_stream_that_is_no_list_of_sections_is_refused() {
        let huge = br#"{"schema":"s","table":"t","bytes":99999999,"rows":1,"digest":"00"}"#;
        let refused = |bytes: &[u8]| Sections::default().take::<&str>(bytes, |_, _| Ok(())).is_err();
        assert!(refused(b"no json\n") && refused(&[b'x'; 5000]) && refused(&[huge, &b"\n"[..]].concat()));
        let mut cut = Sections::default();
        cut.take::<&str>(&stream()[..10], |_, _| Ok(())).unwrap();
        assert!(!cut.is_at_end());
    }
}
