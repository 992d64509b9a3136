//! Values that events set for the next statement: numbers, seeds, and variables of users.

use super::settings::Settings;
use crate::mysql_family::binlog::event::{kind, take};

/// The value of a variable: its type, the number of its collation, and its bytes.
type Value<'a> = (u8, u32, &'a [u8]);

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
        Some((0, collation, bytes)) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            let (set, collation) = settings.collation(&collation.to_string())?;
            format!("_{set} X'{hex}' COLLATE {collation}")
        }
        Some((1, _, bytes)) if bytes.len() == 8 => {
            let bits = bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            format!("{:e}", f64::from_bits(bits))
        }
        Some((2, _, bytes)) if bytes.len() == 8 => {
            bytes.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes)).to_string()
        }
        Some(_) => return Err("a decimal variable of a statement cannot be applied through a connection".to_owned()),
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
    Some((name, Some((kind, collation, rest.get(..length)?))))
}
