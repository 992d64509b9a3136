//! Values that events set for the next statement: numbers, seeds, and variables of users.

use super::settings::Settings;
use crate::mysql_family::binlog::event::{kind, take};

/// The value of a variable.
struct Value<'a> {
    kind: u8,
    /// The number of its collation.
    collation: u32,
    bytes: &'a [u8],
    /// Of a number.
    unsigned: bool,
}

/// The digits of a whole group of a decimal number, and the bytes of a group by its digits.
const NINE: usize = 9;
const GROUP_BYTES: [usize; 10] = [0, 1, 1, 2, 2, 3, 3, 4, 4, 4];
/// The flag of a variable without a sign.
const UNSIGNED: u8 = 1;

/// LAST_INSERT_ID, the next AUTO_INCREMENT, or the seeds of RAND().
pub fn number(kind: u8, body: &[u8]) -> Option<String> {
    let mut rest = body;
    if kind == kind::RAND {
        let one = u64::from_le_bytes(*take::<8>(&mut rest)?);
        let two = u64::from_le_bytes(*take::<8>(&mut rest)?);
        return Some(format!("SET @@RAND_SEED1 = {one}, @@RAND_SEED2 = {two}"));
    }
    let [which] = *take::<1>(&mut rest)?;
    let value = u64::from_le_bytes(*take::<8>(&mut rest)?);
    let name = match which {
        1 => "LAST_INSERT_ID",
        2 => "INSERT_ID",
        _ => return None,
    };
    Some(format!("SET {name} = {value}"))
}

/// A variable of a user: a text, a number, or NULL.
///
/// # Errors
/// Why it cannot be set.
pub fn variable(body: &[u8], settings: &Settings) -> Result<String, String> {
    let (name, value) = parsed(body).ok_or("a variable has an unknown form")?;
    let value = match value {
        None => "NULL".to_owned(),
        Some(Value { kind: 0, collation, bytes, .. }) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let (set, collation) = settings.collation(&collation.to_string())?;
            // `binary` is a word of SQL.
            format!("_{set} X'{hex}' COLLATE `{collation}`")
        }
        Some(Value { kind, bytes, unsigned, .. }) => match (kind, <[u8; 8]>::try_from(bytes)) {
            (1, Ok(bytes)) => format!("{:e}", f64::from_le_bytes(bytes)),
            (2, Ok(bytes)) if unsigned => u64::from_le_bytes(bytes).to_string(),
            (2, Ok(bytes)) => i64::from_le_bytes(bytes).to_string(),
            (4, _) => decimal(bytes).ok_or("a decimal variable has an unknown form")?,
            _ => return Err("a variable has an unknown type".to_owned()),
        },
    };
    Ok(format!("SET @`{}` := {value}", name.replace('`', "``")))
}

/// A decimal number: how many digits it has, how many of them are behind the point, and groups of up to nine digits, each with its
/// highest byte first. The first bit of a number that is not negative is set, and all bits of a negative one are turned round.
///
/// <https://dev.mysql.com/doc/refman/9.7/en/precision-math-decimal-characteristics.html>
fn decimal(bytes: &[u8]) -> Option<String> {
    let [all, behind, first, rest @ ..] = bytes else { return None };
    let (before, behind) = (usize::from(all.checked_sub(*behind)?), usize::from(*behind));
    let turned = if first & 0x80 == 0 { 0xFF } else { 0 };
    let mut bytes = std::iter::once(first ^ 0x80).chain(rest.iter().copied()).map(|byte| byte ^ turned);
    let mut digits = String::new();
    let groups = [before % NINE].into_iter().chain(std::iter::repeat_n(NINE, before / NINE + behind / NINE));
    for count in groups.chain([behind % NINE]).filter(|count| *count > 0) {
        let mut value = 0_u32;
        for _ in 0..*GROUP_BYTES.get(count)? {
            value = value << 8 | u32::from(bytes.next()?);
        }
        let group = format!("{value:0count$}");
        digits += Some(group).filter(|group| group.len() == count)?.as_str();
    }
    let (whole, fraction) = digits.split_at_checked(before)?;
    let (sign, whole) = (if turned == 0 { "" } else { "-" }, whole.trim_start_matches('0'));
    // With the point, it is no integer.
    bytes.next().is_none().then(|| format!("{sign}{}.{fraction}", if whole.is_empty() { "0" } else { whole }))
}

fn parsed(mut rest: &[u8]) -> Option<(String, Option<Value<'_>>)> {
    let length = u32::from_le_bytes(*take::<4>(&mut rest)?) as usize;
    let (name, mut rest) = rest.split_at_checked(length)?;
    let name = String::from_utf8(name.to_vec()).ok()?;
    if let [1] = *take::<1>(&mut rest)? {
        return Some((name, None));
    }
    let [kind] = *take::<1>(&mut rest)?;
    let collation = u32::from_le_bytes(*take::<4>(&mut rest)?);
    let length = u32::from_le_bytes(*take::<4>(&mut rest)?) as usize;
    let (bytes, flags) = rest.split_at_checked(length)?;
    let unsigned = flags.first().is_some_and(|flags| flags & UNSIGNED != 0);
    Some((name, Some(Value { kind, collation, bytes, unsigned })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decimal_number_is_written_with_all_its_digits() {
        for (bytes, text) in [
            (&[14, 4, 0x81, 0x0D, 0xFB, 0x38, 0xD2, 0x04, 0xD2][..], Some("1234567890.1234")),
            (&[14, 4, 0x7E, 0xF2, 0x04, 0xC7, 0x2D, 0xFB, 0x2D], Some("-1234567890.1234")),
            (&[4, 2, 0x8C, 0x32], Some("12.50")),
            (&[2, 2, 0x85], Some("0.05")),
            (&[1, 0, 0x85], Some("5.")),
            (&[1, 0, 0x7F], Some("-0.")),
            (&[4, 2, 0x8C, 0x32, 0], None),
            (&[4, 2, 0x8C], None),
            (&[4, 2, 0x8C, 0x64], None),
            (&[2, 4, 0x80], None),
            (&[0, 0], None),
        ] {
            assert_eq!(decimal(bytes).as_deref(), text, "{bytes:x?}");
        }
    }
}
