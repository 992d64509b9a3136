//! Where an HTTP/1.1 message begins and ends, which is all that the proxy has to know of it.

use std::io::{self, BufRead, Read};

/// A head longer than this is refused: S3's own limit is 8 KiB of headers.
const HEAD_BYTES: u64 = 64 * 1024;
/// Bytes handed on at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// The head of a message: first line, headers, and the empty line.
#[derive(Clone, Debug)]
pub(super) struct Head {
    /// As it came.
    pub raw: Vec<u8>,
    /// Without the line's end.
    pub first_line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
}

/// How long a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    None,
    Length(u64),
    Chunked,
    UntilClose,
}

/// A part of a body as it goes over the wire.
pub(super) enum Piece<'a> {
    /// The sender's bytes.
    Data(&'a mut [u8]),
    /// Lengths, line ends and trailers of the chunked encoding.
    Frame(&'a [u8]),
}

impl Piece<'_> {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Data(bytes) => bytes,
            Self::Frame(bytes) => bytes,
        }
    }
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("no HTTP/1.1: {what}"))
}

impl Head {
    /// The next head, or none if the peer has closed before one.
    pub(super) fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let (mut raw, mut limited) = (Vec::new(), from.take(HEAD_BYTES));
        let mut lines: Vec<String> = Vec::new();
        loop {
            let before = raw.len();
            limited.read_until(b'\n', &mut raw)?;
            if raw.is_empty() {
                return Ok(None);
            }
            if raw.last() != Some(&b'\n') {
                return Err(malformed("a head without an end"));
            }
            let line = String::from_utf8_lossy(&raw[before..]).trim_end().to_owned();
            if line.is_empty() {
                break;
            }
            lines.push(line);
        }
        let mut lines = lines.into_iter();
        let first_line = lines.next().ok_or_else(|| malformed("an empty head"))?;
        let headers = lines
            .filter_map(|line| line.split_once(':').map(|(n, v)| (n.trim().to_ascii_lowercase(), v.trim().to_owned())))
            .collect();
        Ok(Some(Self { raw, first_line, headers }))
    }

    /// The first header of this name (in lower case).
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header, _)| header == name).map(|(_, value)| value.as_str())
    }

    fn says(&self, name: &str, word: &str) -> bool {
        self.header(name).is_some_and(|value| value.to_ascii_lowercase().contains(word))
    }

    /// Whether the connection ends with this message.
    pub(super) fn closes(&self) -> bool {
        self.says("connection", "close")
            || (self.first_line.contains("HTTP/1.0") && !self.says("connection", "keep-alive"))
    }

    /// Whether the sender waits with the body until it is told to go on.
    pub(super) fn waits_for_invitation(&self) -> bool {
        self.says("expect", "100-continue")
    }

    /// Without one header: the one that was answered here.
    pub(super) fn without(&self, name: &str) -> Vec<u8> {
        let is = |line: &[u8]| String::from_utf8_lossy(line).to_ascii_lowercase().starts_with(&format!("{name}:"));
        self.raw.split_inclusive(|byte| *byte == b'\n').filter(|line| !is(line)).flatten().copied().collect()
    }

    /// The status of an answer; 0 if the first line has none.
    pub(super) fn status(&self) -> u16 {
        self.first_line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0)
    }

    /// How long the body of this request is.
    pub(super) fn request_framing(&self) -> io::Result<Framing> {
        Ok(self.framing()?.unwrap_or(Framing::None))
    }

    /// How long the body of this answer to a request with `method` is.
    pub(super) fn answer_framing(&self, method: &str) -> io::Result<Framing> {
        if method == "HEAD" || matches!(self.status(), 100..200 | 204 | 304) {
            return Ok(Framing::None);
        }
        Ok(self.framing()?.unwrap_or(Framing::UntilClose))
    }

    fn framing(&self) -> io::Result<Option<Framing>> {
        if self.says("transfer-encoding", "chunked") {
            return Ok(Some(Framing::Chunked));
        }
        let Some(length) = self.header("content-length") else { return Ok(None) };
        let length = length.parse().map_err(|_| malformed("a Content-Length that is no number"))?;
        Ok(Some(if length == 0 { Framing::None } else { Framing::Length(length) }))
    }
}

/// Hands the body on to `take`, piece by piece, until it is over (then true) or `take` returns false.
pub(super) fn each_piece(
    from: &mut impl BufRead,
    framing: Framing,
    take: &mut dyn FnMut(Piece<'_>) -> io::Result<bool>,
) -> io::Result<bool> {
    match framing {
        Framing::None => Ok(true),
        Framing::Length(length) => data(from, length, take),
        Framing::UntilClose => {
            let mut bytes = vec![0; PIECE_BYTES];
            loop {
                let read = from.read(&mut bytes)?;
                if read == 0 || !take(Piece::Data(&mut bytes[..read]))? {
                    return Ok(read == 0);
                }
            }
        }
        Framing::Chunked => chunks(from, take),
    }
}

fn data(from: &mut impl BufRead, length: u64, take: &mut dyn FnMut(Piece<'_>) -> io::Result<bool>) -> io::Result<bool> {
    let (mut bytes, mut left) = (vec![0; PIECE_BYTES], length);
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
        let read = from.read(&mut bytes[..most])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= read as u64;
        if !take(Piece::Data(&mut bytes[..read]))? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn chunks(from: &mut impl BufRead, take: &mut dyn FnMut(Piece<'_>) -> io::Result<bool>) -> io::Result<bool> {
    loop {
        let size_line = line(from)?;
        let text = String::from_utf8_lossy(&size_line);
        let digits = text.split(';').next().unwrap_or_default().trim();
        let size = u64::from_str_radix(digits, 16).map_err(|_| malformed("a chunk without a length"))?;
        if !take(Piece::Frame(&size_line))? || !data(from, size, take)? {
            return Ok(false);
        }
        // The end of the chunk's data; after the last chunk, trailers up to an empty line.
        loop {
            let end = line(from)?;
            if !take(Piece::Frame(&end))? {
                return Ok(false);
            }
            if size > 0 || end.iter().all(u8::is_ascii_whitespace) {
                break;
            }
        }
        if size == 0 {
            return Ok(true);
        }
    }
}

fn line(from: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(HEAD_BYTES).read_until(b'\n', &mut line)?;
    if line.last() == Some(&b'\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(mut wire: &[u8], framing: Framing) -> (Vec<u8>, Vec<u8>, usize) {
        let (mut data, mut all) = (Vec::new(), Vec::new());
        let whole = each_piece(&mut wire, framing, &mut |piece| {
            all.extend_from_slice(piece.bytes());
            if let Piece::Data(bytes) = piece {
                data.extend_from_slice(bytes);
            }
            Ok(true)
        });
        assert!(whole.unwrap());
        (data, all, wire.len())
    }

    #[test]
    fn a_body_ends_where_its_length_or_its_last_chunk_says() {
        let (data, all, left) = pieces(b"12345GET /", Framing::Length(5));
        assert_eq!((&data[..], &all[..], left), (&b"12345"[..], &b"12345"[..], 5));
        let wire = b"3;a=b\r\nabc\r\nA\r\n0123456789\r\n0\r\nx-sum: 1\r\n\r\nGET /";
        let (data, all, left) = pieces(wire, Framing::Chunked);
        assert_eq!((&data[..], &all[..], left), (&b"abc0123456789"[..], &wire[..wire.len() - 5], 5));
    }

    #[test]
    fn a_body_that_stops_early_is_an_error() {
        for (wire, framing) in [
            (&b"1234"[..], Framing::Length(5)),
            (b"3\r\nab", Framing::Chunked),
            (b"3\r\nabc\r\n", Framing::Chunked),
            (b"x\r\n", Framing::Chunked),
        ] {
            let mut from = wire;
            assert!(each_piece(&mut from, framing, &mut |_| Ok(true)).is_err(), "{wire:?}");
        }
    }

    #[test]
    fn an_answer_without_a_length_lasts_until_the_connection_ends_and_one_to_head_has_no_body() {
        let head = |text: &str| Head::read(&mut text.as_bytes()).unwrap().unwrap();
        let plain = head("HTTP/1.1 200 OK\r\nServer: x\r\n\r\n");
        assert_eq!(plain.answer_framing("GET").unwrap(), Framing::UntilClose);
        assert_eq!(plain.answer_framing("HEAD").unwrap(), Framing::None);
        assert_eq!(plain.request_framing().unwrap(), Framing::None);
        assert_eq!(head("HTTP/1.1 204 No Content\r\n\r\n").answer_framing("DELETE").unwrap(), Framing::None);
        let long = head("HTTP/1.1 200 OK\r\ncontent-LENGTH: 7\r\n\r\n");
        assert_eq!(long.answer_framing("GET").unwrap(), Framing::Length(7));
        assert!(head("PUT / HTTP/1.1\r\nContent-Length: -1\r\n\r\n").request_framing().is_err());
        assert!(Head::read(&mut &b"GET / HTTP/1.1\r\nHos"[..]).is_err());
        assert!(Head::read(&mut &b""[..]).unwrap().is_none());
    }
}
