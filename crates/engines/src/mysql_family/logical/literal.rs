//! Values as SQL literals, for a session with `SET NAMES binary` and without NO_BACKSLASH_ESCAPES: then bytes reach the
//! column unchanged.

use super::columns::Form;

/// Values up to this length, in bytes, are written as a whole; longer values are written in pieces, in hexadecimal
/// digits.
pub const SHORT: usize = 32 << 10;

/// Writes a value of at most [`SHORT`] bytes.
///
/// # Errors
/// It is not a value of its type: a server never sends this.
pub fn write(form: Form, value: &[u8], out: &mut Vec<u8>) -> Result<(), &'static str> {
    match form {
        Form::Number if is_number(value) => out.extend_from_slice(value),
        Form::Real if is_number(value) => {
            out.extend_from_slice(value);
            if !value.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E')) {
                out.extend_from_slice(b"e0");
            }
        }
        Form::Members if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => out.extend_from_slice(value),
        Form::Quoted | Form::RowStart | Form::RowEnd
            if value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b':' | b'.' | b' ')) =>
        {
            out.push(b'\'');
            out.extend_from_slice(value);
            out.push(b'\'');
        }
        Form::Word if value.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b':' | b'-')) => {
            // Without a character set it would be the bytes of the value.
            out.extend_from_slice(b"_utf8mb4'");
            out.extend_from_slice(value);
            out.push(b'\'');
        }
        Form::Number | Form::Real | Form::Members | Form::Quoted | Form::Word | Form::RowStart | Form::RowEnd => {
            return Err("a value that does not fit its type");
        }
        Form::Text if std::str::from_utf8(value).is_ok() => text(value, out),
        Form::Text | Form::Binary if value.is_empty() => out.extend_from_slice(b"''"),
        Form::Text | Form::Binary => {
            out.extend_from_slice(b"0x");
            digits(value, out);
        }
        Form::Json => {
            out.extend_from_slice(b"_utf8mb4");
            text(value, out);
        }
    }
    Ok(())
}

/// Begins a value of more than [`SHORT`] bytes; its [`digits`] follow.
///
/// # Errors
/// Its type has no such values.
pub fn begin_long(form: Form, out: &mut Vec<u8>) -> Result<(), &'static str> {
    match form {
        Form::Text | Form::Binary => out.extend_from_slice(b"0x"),
        Form::Json => out.extend_from_slice(b"_utf8mb4 0x"),
        Form::Number | Form::Real | Form::Members | Form::Quoted | Form::Word | Form::RowStart | Form::RowEnd => {
            return Err("a number or date of many thousand digits");
        }
    }
    Ok(())
}

/// Hexadecimal digits.
pub fn digits(value: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let begun = out.len();
    out.resize(begun + 2 * value.len(), 0);
    for (pair, byte) in out[begun..].chunks_exact_mut(2).zip(value) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// Between quotes, with all characters escaped that have a meaning for a client or the server.
pub fn text(value: &[u8], out: &mut Vec<u8>) {
    out.push(b'\'');
    let mut rest = value;
    while let Some(at) = rest.iter().position(|byte| escaped(*byte).is_some()) {
        out.extend_from_slice(&rest[..at]);
        out.extend(escaped(rest[at]).into_iter().flat_map(|letter| [b'\\', letter]));
        rest = &rest[at + 1..];
    }
    out.extend_from_slice(rest);
    out.push(b'\'');
}

/// The character after the backslash for a byte that needs an escape.
fn escaped(byte: u8) -> Option<u8> {
    match byte {
        0 => Some(b'0'),
        b'\n' => Some(b'n'),
        b'\r' => Some(b'r'),
        0x1A => Some(b'Z'),
        b'\\' | b'\'' => Some(byte),
        _ => None,
    }
}

/// The characters of a number as the server writes it.
fn is_number(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn written(form: Form, value: &[u8]) -> Result<String, &'static str> {
        let mut out = Vec::new();
        write(form, value, &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn values_are_written_so_that_nothing_in_them_ends_the_literal() {
        for (form, value, expected) in [
            (Form::Number, &b"-12.50"[..], "-12.50"),
            (Form::Real, b"-0", "-0e0"),
            (Form::Real, b"1.7976931348623157e308", "1.7976931348623157e308"),
            (Form::Quoted, b"0000-00-00 00:00:00.000000", "'0000-00-00 00:00:00.000000'"),
            (Form::Text, b"it's\\ a\n\r\0\x1A", r"'it\'s\\ a\n\r\0\Z'"),
            (Form::Text, "ü😀".as_bytes(), "'ü😀'"),
            (Form::Text, b"\xFCb\x5C", "0xFC625C"),
            (Form::Text, b"", "''"),
            (Form::Binary, b"", "''"),
            (Form::Binary, b"'\0", "0x2700"),
            (Form::Json, br#"{"a": "\n'"}"#, r#"_utf8mb4'{"a": "\\n\'"}'"#),
            (Form::Members, b"0", "0"),
        ] {
            assert_eq!(written(form, value).unwrap(), expected);
        }
    }

    #[test]
    fn a_malformed_number_or_date_never_becomes_sql() {
        for form in [Form::Number, Form::Real, Form::Members, Form::Quoted] {
            for bad in [&b"1); DROP TABLE x; -- "[..], b"'", b"1/*", b"\xff", b"NULL"] {
                assert!(written(form, bad).is_err());
            }
            assert!(begin_long(form, &mut Vec::new()).is_err());
        }
        assert!(written(Form::Number, b"").is_err());
    }
}
