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
            _ => return Err("a decimal variable of a statement cannot be applied through a connection".to_owned()),
        },
    };
    Ok(format!("SET @`{}` := {value}", name.replace('`', "``")))
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
