//! A session on foreign media: an ordinary backup stores them.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::source::Source;
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use serde_json::Value;
use uuid::Uuid;

use super::source::ForeignSource;
use crate::{Facts, ForeignVerification, Session};

/// Media that are read and judged while they are stored.
pub struct ForeignSession {
    /// The name of their engine.
    pub engine: &'static str,
    /// Their bytes.
    pub source: ForeignSource,
    /// What they hold, in the words of their program.
    pub facts: Value,
    /// The identity of the set.
    pub id: Uuid,
    /// The program that wrote them.
    pub writer: String,
    /// Damaged pages are stored as they are.
    pub continue_after_error: bool,
}

impl ForeignSession {
    /// True if this damage keeps the media out.
    pub fn refuses(&self, found: &ForeignVerification) -> bool {
        refuses(found, self.continue_after_error)
    }

    /// Damage that is stored as it is.
    fn stored_damage(&self) -> Vec<String> {
        let lines = |found: &ForeignVerification| found.damage.iter().map(Error::one_line).collect();
        self.source.with_verification(lines).unwrap_or_default()
    }
}

/// True if media with these findings are not stored.
pub fn refuses(found: &ForeignVerification, continue_after_error: bool) -> bool {
    // Behind damage in the structure nothing was checked, and there is no coverage.
    !found.damage.is_empty() && (!continue_after_error || found.coverage.is_empty())
}

impl Session for ForeignSession {
    fn engine(&self) -> &'static str {
        self.engine
    }

    fn source(&self) -> &dyn Source {
        &self.source
    }

    fn set_id(&self) -> Option<Uuid> {
        Some(self.id)
    }

    fn position(&self) -> Result<Value> {
        let mut position = self.facts.clone();
        if let Value::Object(fields) = &mut position {
            fields.insert(FILES.to_owned(), self.source.has_files().into());
            let damage = self.stored_damage();
            if let Some(first) = damage.first() {
                let all = counted(damage.len() as u64, "place");
                fields.insert(
                    DAMAGE.to_owned(),
                    format!("{all} of the media were damaged already; the first: {first}").into(),
                );
            }
        }
        Ok(position)
    }

    fn accepts_base(&self, position: &Value) -> Result<(), String> {
        match position.get(FILES) {
            Some(Value::Bool(true)) => Ok(()),
            _ => Err("of media whose pages have no known place, such as compressed ones".to_owned()),
        }
    }

    fn facts(&self) -> Facts {
        let found = |found: &ForeignVerification| found.warnings.clone();
        let mut warnings = self.source.with_verification(found).unwrap_or_default();
        warnings.extend(self.stored_damage().iter().map(|damage| format!("stored as it is: {damage}")));
        Facts {
            warnings,
            writers_blocked: Duration::ZERO,
            free_bytes: self.source.gaps(),
            library: self.writer.clone(),
            direct: false,
        }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Err("it is in files of another program".to_owned())
    }
}

/// What a stored set says of damage in its media.
pub(crate) fn damage(position: &Value) -> Option<String> {
    Some(position.get(DAMAGE)?.as_str()?.to_owned())
}

/// The field of a position that tells of damage.
const DAMAGE: &str = "damaged_at_source";

/// The field of a position that tells whether the set has pages by their place.
const FILES: &str = "has_pages_by_place";
