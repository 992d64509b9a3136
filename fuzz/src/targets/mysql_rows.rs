//! A row of a server's answer, taken apart in pieces, and its values written as SQL; and a text, cut into statements.

use fullbore_core::{Error, Result};
use fullbore_engines::mysql_family::connection::{RowBytes, RowDecoder};
use fullbore_engines::mysql_family::logical::columns::Form;
use fullbore_engines::mysql_family::logical::literal;
use fullbore_engines::mysql_family::logical::load::Statements;

const FORMS: [Form; 7] = [Form::Number, Form::Real, Form::Quoted, Form::Text, Form::Binary, Form::Json, Form::Members];

struct Bytes<'a>(&'a [u8]);

impl RowBytes for Bytes<'_> {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<()> {
        let (now, rest) = self.0.split_at_checked(buffer.len()).ok_or(Error::Halted)?;
        buffer.copy_from_slice(now);
        self.0 = rest;
        Ok(())
    }
}

/// One input.
pub fn run(input: &[u8]) {
    decode(input);
    if let Ok(mut statements) = Statements::begin(input) {
        while let Ok(Some(statement)) = statements.next_statement() {
            assert!(statement.len() < input.len());
        }
    }
}

/// The first byte says how many values there are and how large the pieces, the second begins the row.
fn decode(input: &[u8]) {
    let [shape, first, rest @ ..] = input else { return };
    let (columns, piece) = (usize::from(shape & 15), usize::from(shape >> 4) + 1);
    let mut bytes = Bytes(rest);
    let mut row = RowDecoder::new(columns, 1 << 16, *first);
    for column in 0..columns {
        let Ok(length) = row.next_value(&mut bytes) else { return };
        let Some(length) = length else { continue };
        assert!(length <= 1 << 16);
        let (mut value, mut buffer) = (Vec::new(), vec![0; piece]);
        loop {
            match row.read(&mut bytes, &mut buffer) {
                Ok(0) => break,
                Ok(count) => value.extend_from_slice(&buffer[..count]),
                Err(_) => return,
            }
        }
        assert_eq!(value.len() as u64, length);
        let mut written = Vec::new();
        if literal::write(FORMS[column % FORMS.len()], &value, &mut written).is_ok() {
            assert_literal(&written);
        }
    }
    assert!(row.is_at_end() && row.next_value(&mut bytes).is_err());
}

/// One literal and nothing behind it: a word without quotes, or quotes that end at the end.
fn assert_literal(text: &[u8]) {
    let quoted = text.strip_prefix(b"_utf8mb4").unwrap_or(text);
    let Some(inside) = quoted.strip_prefix(b"'") else {
        assert!(text.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')));
        return;
    };
    let mut rest = inside.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => assert!(rest.next().is_some()),
            b'\'' => {
                assert!(rest.next().is_none());
                return;
            }
            b'\n' | b'\r' | 0 => panic!("a client could take it for something else"),
            _ => {}
        }
    }
    panic!("quotes that do not end");
}
