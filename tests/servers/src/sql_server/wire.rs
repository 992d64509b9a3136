//! The bytes of TDS 7.4, as the server side writes and reads them (Microsoft's open specification MS-TDS).

use std::io::{self, Read, Write};

use super::tls::Stream;

/// The greatest message that a client may send, in bytes.
const MESSAGE_MAX: usize = 1 << 20;
/// Bytes of a packet, with its head.
const PACKET: usize = 4096;
const HEAD: usize = 8;

/// The kinds of messages that clients send.
pub const PRELOGIN: u8 = 0x12;
/// A login.
pub const LOGIN: u8 = 0x10;
/// A batch of statements.
pub const BATCH: u8 = 0x01;

/// A message of a client: its kind and its bytes.
pub fn read_message(stream: &mut impl Read) -> io::Result<(u8, Vec<u8>)> {
    let mut whole = Vec::new();
    loop {
        let mut head = [0; HEAD];
        stream.read_exact(&mut head)?;
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let body = length.checked_sub(HEAD).ok_or_else(|| io::Error::other("a packet shorter than its head"))?;
        if whole.len() + body > MESSAGE_MAX {
            return Err(io::Error::other("the message is too long"));
        }
        let start = whole.len();
        whole.resize(start + body, 0);
        stream.read_exact(&mut whole[start..])?;
        if head[1] & 1 == 1 {
            return Ok((head[0], whole));
        }
    }
}

/// A packet: its kind, whether the message ends, its number, its bytes.
pub fn packet(kind: u8, ends: bool, number: u8, bytes: &[u8]) -> Vec<u8> {
    let length = ((bytes.len() + HEAD) as u16).to_be_bytes();
    [&[kind, u8::from(ends), length[0], length[1], 0, 0, number, 0], bytes].concat()
}

/// A value of a row, and with it the type of its column.
#[derive(Debug, Clone)]
pub enum Cell {
    /// nvarchar
    Text(Option<String>),
    /// bigint
    Integer(Option<i64>),
    /// float
    Number(f64),
    /// uniqueidentifier, as text
    Guid(String),
    /// numeric(25, 0)
    Numeric(u128),
    /// datetime: days since 1900 and units of 1/300 second; None is NULL
    Time(Option<(i32, u32)>),
    /// bit
    Bit(bool),
}

/// A text that is there.
pub fn text(text: impl Into<String>) -> Cell {
    Cell::Text(Some(text.into()))
}

/// An integer that is there.
pub fn integer(number: i64) -> Cell {
    Cell::Integer(Some(number))
}

/// An answer on its way to the client.
pub struct Reply<'s> {
    stream: &'s mut Stream,
    bytes: Vec<u8>,
    number: u8,
}

impl<'s> Reply<'s> {
    /// An empty answer.
    pub fn to(stream: &'s mut Stream) -> Self {
        Self { stream, bytes: Vec::new(), number: 1 }
    }

    /// COLMETADATA and the rows.
    pub fn rows(&mut self, names: &[&str], rows: &[Vec<Cell>]) {
        let Some(first) = rows.first() else { return self.no_rows(names) };
        self.bytes.push(0x81);
        self.bytes.extend((names.len() as u16).to_le_bytes());
        for (name, cell) in names.iter().zip(first) {
            self.bytes.extend([0, 0, 0, 0, 1, 0]);
            self.bytes.extend(type_of(cell));
            self.short_text(name);
        }
        for row in rows {
            assert_eq!(row.len(), names.len(), "{names:?}");
            self.bytes.push(0xd1);
            row.iter().for_each(|cell| self.cell(cell));
        }
    }

    fn no_rows(&mut self, names: &[&str]) {
        self.bytes.push(0x81);
        self.bytes.extend((names.len() as u16).to_le_bytes());
        for name in names {
            self.bytes.extend([0, 0, 0, 0, 1, 0]);
            self.bytes.extend(type_of(&Cell::Text(None)));
            self.short_text(name);
        }
    }

    fn cell(&mut self, cell: &Cell) {
        match cell {
            Cell::Text(None) => self.bytes.extend([0xff, 0xff]),
            Cell::Text(Some(text)) => {
                let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
                self.bytes.extend((units.len() as u16).to_le_bytes());
                self.bytes.extend(units);
            }
            Cell::Integer(None) | Cell::Time(None) => self.bytes.push(0),
            Cell::Integer(Some(number)) => {
                self.bytes.push(8);
                self.bytes.extend(number.to_le_bytes());
            }
            Cell::Number(number) => {
                self.bytes.push(8);
                self.bytes.extend(number.to_le_bytes());
            }
            Cell::Guid(id) => {
                self.bytes.push(16);
                self.bytes.extend(guid(id));
            }
            Cell::Numeric(number) => {
                self.bytes.extend([13, 1]);
                self.bytes.extend(&number.to_le_bytes()[..12]);
            }
            Cell::Time(Some((days, fragments))) => {
                self.bytes.push(8);
                self.bytes.extend(days.to_le_bytes());
                self.bytes.extend(fragments.to_le_bytes());
            }
            Cell::Bit(bit) => self.bytes.extend([1, u8::from(*bit)]),
        }
    }

    /// Bytes of tokens, as they are.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// A message, such as `10 percent processed.`
    pub fn info(&mut self, number: i32, text: &str) {
        self.message(0xab, number, 0, text);
    }

    /// An error.
    pub fn error(&mut self, number: i32, class: u8, text: &str) {
        self.message(0xaa, number, class, text);
    }

    fn message(&mut self, token: u8, number: i32, class: u8, text: &str) {
        let mut body = Vec::new();
        body.extend(number.to_le_bytes());
        body.extend([1, class]);
        body.extend((text.encode_utf16().count() as u16).to_le_bytes());
        body.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
        body.extend([4, b'S', 0, b'T', 0, b'U', 0, b'B', 0, 0]);
        body.extend(1_u32.to_le_bytes());
        self.token(token, &body);
    }

    /// The acknowledgement of a login.
    pub fn login_ack(&mut self) {
        let mut body = vec![1];
        body.extend(0x7400_0004_u32.to_be_bytes());
        let name = "Microsoft SQL Server";
        body.push(name.len() as u8);
        body.extend(name.encode_utf16().flat_map(u16::to_le_bytes));
        body.extend([16, 0, 0, 0]);
        self.token(0xad, &body);
    }

    /// The change of the database, as servers tell it after a login.
    pub fn database(&mut self, name: &str) {
        let mut body = vec![1, name.len() as u8];
        body.extend(name.encode_utf16().flat_map(u16::to_le_bytes));
        body.push(0);
        self.token(0xe3, &body);
    }

    fn token(&mut self, token: u8, body: &[u8]) {
        self.bytes.push(token);
        self.bytes.extend((body.len() as u16).to_le_bytes());
        self.bytes.extend(body);
    }

    fn short_text(&mut self, text: &str) {
        self.bytes.push(text.encode_utf16().count() as u8);
        self.bytes.extend(text.encode_utf16().flat_map(u16::to_le_bytes));
    }

    /// Sends what there is, although more follows.
    pub fn send_part(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.bytes);
        self.packets(&bytes, false)
    }

    /// DONE, and the end of the answer.
    pub fn end(mut self, failed: bool) -> io::Result<()> {
        self.bytes.push(0xfd);
        self.bytes.extend(u16::from(failed).wrapping_mul(2).to_le_bytes());
        self.bytes.extend([0; 10]);
        let bytes = std::mem::take(&mut self.bytes);
        self.packets(&bytes, true)
    }

    /// Bytes that are not tokens, as the answer to a prelogin.
    pub fn end_with(mut self, bytes: &[u8]) -> io::Result<()> {
        self.packets(bytes, true)
    }

    fn packets(&mut self, bytes: &[u8], ends: bool) -> io::Result<()> {
        let mut parts = bytes.chunks(PACKET - HEAD).peekable();
        while let Some(part) = parts.next() {
            let is_last = ends && parts.peek().is_none();
            self.stream.write_all(&packet(4, is_last, self.number, part))?;
            self.number = self.number.wrapping_add(1);
        }
        self.stream.flush()
    }
}

/// TYPE_INFO.
fn type_of(cell: &Cell) -> Vec<u8> {
    match cell {
        Cell::Text(_) => vec![0xe7, 0x40, 0x1f, 9, 4, 0xd0, 0, 0x34],
        Cell::Integer(_) => vec![0x26, 8],
        Cell::Number(_) => vec![0x6d, 8],
        Cell::Guid(_) => vec![0x24, 16],
        Cell::Numeric(_) => vec![0x6c, 13, 25, 0],
        Cell::Time(_) => vec![0x6f, 8],
        Cell::Bit(_) => vec![0x68, 1],
    }
}

/// The first three parts of a GUID are little-endian numbers.
fn guid(text: &str) -> [u8; 16] {
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&digits, 16).unwrap_or_else(|error| panic!("the GUID {text}: {error}"));
    let mut bytes = number.to_be_bytes();
    bytes[..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
    bytes
}

/// The login of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Login {
    /// The account.
    pub user: String,
    /// Its password.
    pub password: String,
}

/// Reads a LOGIN7 message. `None`: it is cut off.
pub fn login(message: &[u8]) -> Option<Login> {
    let field = |at: usize| -> Option<&[u8]> {
        let number = |at: usize| Some(usize::from(u16::from_le_bytes([*message.get(at)?, *message.get(at + 1)?])));
        let start = number(at)?;
        message.get(start..start + 2 * number(at + 2)?)
    };
    let shown = |bytes: &[u8]| {
        let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
        String::from_utf16_lossy(&units)
    };
    let hidden: Vec<u8> = field(44)?.iter().map(|byte| (byte ^ 0xa5).rotate_left(4)).collect();
    Some(Login { user: shown(field(40)?), password: shown(&hidden) })
}

/// The text of a batch, behind its headers. `None`: it is cut off.
pub fn batch(message: &[u8]) -> Option<String> {
    let headers = u32::from_le_bytes(message.get(..4)?.try_into().ok()?) as usize;
    let units: Vec<u16> =
        message.get(headers..)?.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    Some(String::from_utf16_lossy(&units))
}

/// The answer to a prelogin: version 16.0, with encryption or without.
pub fn prelogin(encrypts: bool) -> Vec<u8> {
    let mut bytes = vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xff];
    bytes.extend([16, 0, 3, 232, 0, 0, if encrypts { 1 } else { 2 }]);
    bytes
}
