//! What the gateway says of a backup file of another program: in its set, and in the log.

use std::io::Cursor;

use fullbore_core::conduct::Conduct;
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use fullbore_engines::{FOREIGN_HEAD, ForeignFamily, ForeignMedia, ForeignVerification, InOrder, ObjectMedia};

use super::in_passing::{FIRST, Outcome};
use crate::job::uploaded::bytes::ObjectBytes;
use crate::job::uploaded::reader::SetReader;

/// Damaged places that a set names; the others are counted.
const NAMED: usize = 10;
/// Where a check took place.
const IN_PASSING: &str = "while it was uploaded";
const READ_BACK: &str = "read back after it was stored";

/// The facts for the set; `None` for another object. `head` are the first bytes of the object with this key.
pub(super) fn facts(key: &str, outcome: &Outcome, head: Vec<u8>) -> Option<ObjectMedia> {
    let (mut described, checked) = match outcome {
        // A set says nothing of bytes that nobody has seen.
        Outcome::Other | Outcome::Unknown => return None,
        Outcome::Unchecked(media, why) => (
            described(key, *media, head),
            format!(
                "not checked during the upload: {why}; the gateway's log has the result of its check when it was {READ_BACK}"
            ),
        ),
        Outcome::Checked(media, verification) => {
            let mut described = described(key, *media, head);
            described.damage = verification.damage.iter().take(NAMED).map(Error::one_line).collect();
            described.damaged_places = verification.damage.len() as u64;
            described.facts.extend(verification.facts.iter().cloned());
            described.facts.extend(verification.warnings.iter().cloned());
            let shown = |protected| -> u64 {
                let all = verification.coverage.iter().filter(|coverage| coverage.protected == protected);
                all.map(|coverage| coverage.bytes).sum()
            };
            (described.protected_bytes, described.unprotected_bytes) = (shown(true), shown(false));
            (described, IN_PASSING.to_owned())
        }
    };
    described.checked = checked;
    Some(described)
}

/// The descriptions at the beginning of a file. It is cut off there, so its end is not known.
fn described(key: &str, media: &'static dyn ForeignMedia, head: Vec<u8>) -> ObjectMedia {
    let mut found = ObjectMedia { kind: media.title().to_owned(), ..ObjectMedia::default() };
    let family = ForeignFamily { device: key.to_owned(), bytes: Box::new(InOrder(Cursor::new(head))) };
    let Ok(description) = media.describe(vec![family]) else {
        found.facts.push("its beginning could not be described".to_owned());
        return found;
    };
    for set in &description.media_sets {
        found.media_set = set.id.clone();
        let number = |column: &str| -> u16 {
            let value = set.labels.first().and_then(|label| label.get(column)).and_then(serde_json::Value::as_u64);
            value.and_then(|value| u16::try_from(value).ok()).unwrap_or(0)
        };
        (found.family, found.families) = (number("FamilySequenceNumber"), number("FamilyCount"));
        found.sets.extend(set.sets.iter().map(|set| set.summary.clone()));
    }
    found
}

/// True if every byte of it was checked.
pub(super) fn was_checked(media: &ObjectMedia) -> bool {
    media.checked == IN_PASSING
}

/// The line for the log.
pub(super) fn line(key: &str, media: &ObjectMedia) -> String {
    let result = match (media.damaged_places, media.damage.first()) {
        (0, _) => "no damage was found".to_owned(),
        (count, first) => {
            let first = first.map_or("", String::as_str);
            format!("DAMAGED in {}; the first: {first}", counted(count, "place"))
        }
    };
    let mut parts = vec![format!("`{}`: {}", key.escape_debug(), media.title())];
    if was_checked(media) {
        parts.push(format!("checked {IN_PASSING}: {result}"));
    } else {
        parts.push(media.checked.clone());
    }
    parts.extend(media.facts.iter().cloned());
    parts.join("; ")
}

/// Looks at an object that was stored, and checks it. Gives the line for the log; none for an object of another kind.
pub(super) fn read_back(key: &str, mut reader: SetReader, bytes: u64, conduct: &Conduct) -> Option<String> {
    let shown = key.escape_debug();
    let head = match head_of(&mut reader, bytes) {
        Ok(head) => head,
        Err(error) => return Some(format!("`{shown}`: could not be {READ_BACK}: {}", error.one_line())),
    };
    let media = fullbore_engines::foreign(&head)?;
    let title = described(key, media, head).title();
    let family = ForeignFamily { device: key.to_owned(), bytes: Box::new(ObjectBytes::new(reader, bytes, conduct)) };
    let verified: Result<ForeignVerification> = media.verify(vec![family], None);
    Some(match verified {
        Err(error) => format!("`{shown}`: {title}; could not be {READ_BACK}: {}", error.one_line()),
        Ok(verification) => {
            let result = match verification.damage.first() {
                None => "no damage was found".to_owned(),
                Some(first) => {
                    let places = counted(verification.damage.len() as u64, "place");
                    format!("DAMAGED in {places}; the first: {}", first.one_line())
                }
            };
            let facts = verification.facts.join("; ");
            format!("`{shown}`: {title}; {READ_BACK}: {result}; {facts}")
        }
    })
}

/// The first bytes of a stored object: its descriptions are there.
fn head_of(reader: &mut SetReader, bytes: u64) -> Result<Vec<u8>> {
    let mut head = Vec::new();
    while head.len() < FIRST && (head.len() as u64) < bytes {
        head.extend(reader.read_at(head.len() as u64)?);
        if head.len() >= FOREIGN_HEAD && fullbore_engines::foreign(&head).is_none() {
            break; // It is of another kind.
        }
    }
    head.truncate(FIRST);
    Ok(head)
}
