//! The emulated volumes for a child of `fullbore bench`, in `FULLBORE_BENCH_VOLUMES`, a JSON object. For benchmarks
//! only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::emulated::{Ceiling, EmulatedVolumes, Promise, Volume};
use fullbore_core::conduct::Volumes;
use fullbore_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// The variable.
pub const VARIABLE: &str = "FULLBORE_BENCH_VOLUMES";

/// The volumes of a job, in the form of the variable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handed {
    /// Under the database.
    pub database: Option<HandedVolume>,
    /// Under the families in a directory.
    pub media: Vec<(PathBuf, HandedVolume)>,
}

/// A volume's promise in numbers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandedVolume {
    /// Bytes per second, and with a burst its rate and the bytes of credit.
    pub bytes: (f64, Option<(f64, f64)>),
    /// The same of operations.
    pub operations: Option<(f64, Option<(f64, f64)>)>,
    /// Bytes of the largest operation that counts as one.
    pub operation_bytes: u32,
    /// Seconds.
    pub latency: f64,
}

impl From<Promise> for HandedVolume {
    fn from(promise: Promise) -> Self {
        let of = |ceiling: Ceiling| (ceiling.rate, ceiling.burst);
        Self {
            bytes: of(promise.bytes),
            operations: promise.operations.map(of),
            operation_bytes: promise.operation_bytes,
            latency: promise.latency.as_secs_f64(),
        }
    }
}

/// The bounds of the numbers: outside of them, a bucket would wait for ever or divide by zero.
fn sane((rate, burst): (f64, Option<(f64, f64)>)) -> Option<Ceiling> {
    let within = |number: f64| (1e-3..=1e15).contains(&number);
    let fine = within(rate) && burst.is_none_or(|(high, credit)| within(high) && (0.0..=1e18).contains(&credit));
    fine.then_some(Ceiling { rate, burst })
}

impl HandedVolume {
    fn promise(self) -> Option<Promise> {
        let operations = match self.operations {
            None => None,
            Some(operations) => Some(sane(operations)?),
        };
        let fine = self.operation_bytes > 0 && (0.0..=60.0).contains(&self.latency);
        fine.then_some(Promise {
            bytes: sane(self.bytes)?,
            operations,
            operation_bytes: self.operation_bytes,
            latency: Duration::from_secs_f64(self.latency),
        })
    }
}

/// The volumes for this process; nearly always none.
///
/// # Errors
/// The variable is set, but not in the form of [`Handed`].
pub fn volumes() -> Result<Option<Arc<dyn Volumes>>> {
    match std::env::var_os(VARIABLE) {
        None => Ok(None),
        Some(text) => Ok(Some(Arc::new(of_text(&text.to_string_lossy())?))),
    }
}

fn of_text(text: &str) -> Result<EmulatedVolumes> {
    let wrong = |why: String| Error::usage(VARIABLE, why, "only `fullbore bench` sets it: unset it");
    let handed: Handed = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
    let volume = |handed: HandedVolume| -> Result<Arc<Volume>> {
        let promise = handed.promise().ok_or_else(|| wrong("it has a number out of bounds".into()))?;
        Ok(Arc::new(Volume::new(promise)))
    };
    let media = handed.media.into_iter().map(|(directory, each)| Ok((directory, volume(each)?)));
    Ok(EmulatedVolumes { database: handed.database.map(volume).transpose()?, media: media.collect::<Result<_>>()? })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_handed_over_buffer_arrives() {
        let promise = crate::volume::profile("gp2-100gb").unwrap().promise;
        let handed = Handed { database: Some(promise.into()), media: vec![("/m".into(), promise.into())] };
        let text = serde_json::to_string(&handed).unwrap();
        let volumes = of_text(&text).unwrap();
        assert!(volumes.database.is_some() && volumes.media.len() == 1);
        assert_eq!(serde_json::from_str::<Handed>(&text).unwrap().database.unwrap().promise().unwrap(), promise);
    }

    #[test]
    fn numbers_out_of_bounds_and_other_text_are_refused() {
        let with = |bytes: &str| {
            format!(
                r#"{{"database":{{"bytes":{bytes},"operations":null,"operation_bytes":1,"latency":0}},"media":[]}}"#
            )
        };
        of_text(&with("[1.0,null]")).unwrap();
        for text in [with("[0.0,null]"), with("[-1.0,null]"), with("[1.0,[1e99,1.0]]"), "{}".into(), "x".into()] {
            assert!(of_text(&text).is_err(), "{text}");
        }
    }
}
