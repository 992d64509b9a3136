//! The tables `[volume.NAME]` of a matrix.

use std::collections::BTreeMap;
use std::time::Duration;

use fullbore_core::{Error, Result, units};
use serde::Deserialize;
use toml::Spanned;

use super::Tables;
use super::read::Location;
use crate::emulated::{Ceiling, Promise};
use crate::volume::{OPERATION, Profile};

/// The greatest figures that a profile may have: bytes and operations per second, bytes of credit, milliseconds.
const MOST_RATE: u64 = 1 << 40;
const MOST_IOPS: u64 = 100_000_000;
const MOST_CREDIT: u64 = 1 << 50;
const MOST_LATENCY: f64 = 10_000.0;

/// `[volume.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table")]
pub(super) struct OwnTable {
    rate: Option<Spanned<String>>,
    iops: Option<Spanned<u64>>,
    io_size: Option<Spanned<String>>,
    burst_rate: Option<Spanned<String>>,
    burst_credit: Option<Spanned<String>>,
    latency_ms: Option<Spanned<f64>>,
}

/// The tables `[volume.NAME]`.
pub(super) fn own_profiles(place: &Location<'_>, tables: Tables<OwnTable>) -> Result<BTreeMap<String, Profile>> {
    let one = |(name, own): (String, Spanned<OwnTable>)| {
        let (start, own) = (own.span().start, own.into_inner());
        let wrong = |why: &str, hint: &str| place.wrong(start, format!("[volume.{name}]: {why}"), hint);
        let rate_of = |key: &'static str, value| {
            place.parsed(value, |text| bounded(key, units::bytes_per_second(key, text)?, 1, MOST_RATE))
        };
        let rate = rate_of("rate", own.rate)?.ok_or_else(|| wrong("it has no rate", "write rate = \"250MiB/s\""))?;
        let credit = place.parsed(own.burst_credit, |text| {
            bounded("burst-credit", units::bytes("burst-credit", text)?, 1, MOST_CREDIT)
        })?;
        let burst = match (rate_of("burst-rate", own.burst_rate)?, credit) {
            (Some(high), Some(credit)) if high > rate => Some((high as f64, credit as f64)),
            (None, None) => None,
            _ => {
                return Err(wrong(
                    "a burst needs a rate above `rate`, and credit",
                    "give burst-rate and burst-credit, or neither",
                ));
            }
        };
        let iops = place.within("iops", own.iops, 1..=MOST_IOPS)?;
        let size =
            place.parsed(own.io_size, |text| bounded("io-size", units::bytes("io-size", text)?, 512, 64 << 20))?;
        let latency = place.within("latency-ms", own.latency_ms, 0.0..=MOST_LATENCY)?.unwrap_or(0.0);
        let promise = Promise {
            bytes: Ceiling { rate: rate as f64, burst },
            operations: iops.map(|rate| Ceiling { rate: rate as f64, burst: None }),
            operation_bytes: size.map_or(OPERATION, |size| size as u32),
            latency: Duration::from_secs_f64(latency / 1000.0),
        };
        Ok((name.clone(), Profile { name, promise }))
    };
    tables.into_iter().map(one).collect()
}

fn bounded(key: &str, value: u64, least: u64, most: u64) -> Result<u64> {
    match (least..=most).contains(&value) {
        true => Ok(value),
        false => Err(Error::usage(key, format!("{value} is out of bounds"), format!("give {least} to {most}"))),
    }
}
