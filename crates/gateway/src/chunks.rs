//! The chunks of a signed body. The protocol's library takes a chunk into memory before it checks it: their lengths are
//! bounded here, before they come to it.

/// Bytes of a chunk, at most. aws cli sends 1 MiB, other clients less.
pub(crate) const CHUNK_MAX: u64 = 16 << 20;
/// Bytes of the line before a chunk: its length and its signature.
const LINE_MAX: usize = 256;

/// Where in the body the next byte is.
#[derive(Debug)]
enum BodyPart {
    /// In the line before a chunk.
    Line(Vec<u8>),
    /// In a chunk, or in the end of line behind it: so many bytes are left.
    Chunk(u64),
    /// Behind the last chunk.
    Behind,
}

/// Follows the chunks of a body.
#[derive(Debug)]
pub(crate) struct Chunks(BodyPart);

/// Why a body is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// A chunk is announced with so many bytes.
    TooLong(u64),
    /// The line before a chunk is none.
    NoLine,
}

impl Chunks {
    /// At the beginning of a body.
    pub fn new() -> Self {
        Self(BodyPart::Line(Vec::new()))
    }

    /// Follows the next bytes. Gives the length of the longest chunk that begins in them; 0 if none does.
    ///
    /// # Errors
    /// They announce a chunk that is too long, or no chunk.
    pub fn follow(&mut self, mut bytes: &[u8]) -> Result<u64, Wrong> {
        let mut longest = 0;
        while !bytes.is_empty() {
            match &mut self.0 {
                BodyPart::Behind => return Ok(longest),
                BodyPart::Chunk(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left -= taken as u64;
                    bytes = bytes.get(taken..).unwrap_or_default();
                    if *left == 0 {
                        self.0 = BodyPart::Line(Vec::new());
                    }
                }
                BodyPart::Line(line) => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (now, later) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    if line.len() + now.len() > LINE_MAX {
                        return Err(Wrong::NoLine);
                    }
                    line.extend_from_slice(now);
                    bytes = later;
                    if end.is_some() {
                        let length = length(line)?;
                        longest = longest.max(length);
                        self.0 = match length {
                            0 => BodyPart::Behind,
                            // The end of line behind it counts.
                            length => BodyPart::Chunk(length + 2),
                        };
                    }
                }
            }
        }
        Ok(longest)
    }
}

/// The length that a line announces. Longer numbers than those of the protocol's library are none: both have to read the
/// same length.
fn length(line: &[u8]) -> Result<u64, Wrong> {
    let digits = line.split(|byte| [b';', b'\r'].contains(byte)).next().unwrap_or_default();
    let is_number = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
    let text = std::str::from_utf8(digits).ok().filter(|_| is_number);
    let length = text.and_then(|text| u64::from_str_radix(text, 16).ok()).ok_or(Wrong::NoLine)?;
    if length > CHUNK_MAX {
        return Err(Wrong::TooLong(length));
    }
    Ok(length)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_followed_however_their_bytes_come() {
        let body = b"5;chunk-signature=abc\r\nhello\r\nA\r\n0123456789\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n";
        for step in [1, 3, 7, body.len()] {
            let mut chunks = Chunks::new();
            assert!(body.chunks(step).all(|bytes| chunks.follow(bytes).is_ok()), "{step}");
            assert!(matches!(chunks.0, BodyPart::Behind));
        }
    }

    #[test]
    fn a_chunk_that_is_too_long_is_refused_at_its_announcement() {
        let greatest = format!("{CHUNK_MAX:x}\r\n");
        assert_eq!(Chunks::new().follow(greatest.as_bytes()), Ok(CHUNK_MAX));
        let longer = format!("1\r\nx\r\n{:x};chunk-signature=", CHUNK_MAX + 1);
        assert_eq!(Chunks::new().follow(format!("{longer}\r\n").as_bytes()), Err(Wrong::TooLong(CHUNK_MAX + 1)));
        let long = [b'a'; LINE_MAX + 1];
        for wrong in [&b"\r\n"[..], b"x\r\n", b"+5\r\n", b"000000005\r\n", b"5 \r\n", &long] {
            assert_eq!(Chunks::new().follow(wrong), Err(Wrong::NoLine), "{wrong:?}");
        }
    }
}
