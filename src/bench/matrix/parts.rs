//! The tables of a matrix: data sets, instances, loads, axes, exclusions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fullbore_core::{Error, Result};
use serde::Deserialize;
use toml::Spanned;

use super::read::{Location, Words, nearest};
use super::{Axis, AxisWords, MOST_PRICE, MOST_VALUES, NONE, Tables};
use crate::bench::volume::{self, Profile};
use crate::units;

/// Bytes of the smallest and the largest database before scaling, and of the smallest after it.
const SIZE: (u64, u64) = (16 << 10, 64 << 40);
const LEAST_MADE: u64 = 256 << 10;
/// The share of bytes that no codec packs. It gives a ratio of about 2 : 1, as in the published reports.
const USUAL_RANDOM: f64 = 0.4;
const MOST_CONNECTIONS: u64 = 64;
const USUAL_ALONE: u64 = 3;
const MOST_CLASS_THREADS: u64 = 1024;
/// The least memory in which a child starts, in bytes: every plan needs this besides its pool.
const LEAST_MEMORY: u64 = fullbore_core::plan::FIXED_MEMORY;

/// A database.
#[derive(Debug, Clone, PartialEq)]
pub struct Data {
    /// Its origin.
    pub from: DataFrom,
}

/// The origin of a database.
#[derive(Debug, Clone, PartialEq)]
pub enum DataFrom {
    /// It exists, and is only read.
    Source(String),
    /// The bench makes it.
    Made {
        /// Bytes before scaling.
        full_bytes: u64,
        /// Bytes after scaling.
        bytes: u64,
        /// The share of bytes that no codec packs.
        random: f64,
        /// The same seed gives the same rows.
        seed: u64,
    },
}

/// An instance class.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// Processors.
    pub threads: Option<usize>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// The price of an hour.
    pub price_per_hour: Option<f64>,
}

/// Connections that work on the database during the job.
#[derive(Debug, Clone, PartialEq)]
pub struct Load {
    /// Writing connections.
    pub writers: usize,
    /// Reading connections.
    pub readers: usize,
    /// Seconds for which they first work alone.
    pub seconds: u64,
}

/// The names that axes may use.
pub(super) struct Names<'a> {
    pub data: &'a BTreeMap<String, Data>,
    pub instances: &'a BTreeMap<String, Instance>,
    pub loads: &'a BTreeMap<String, Load>,
    pub volumes: &'a BTreeMap<String, Profile>,
}

/// `[data.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct DataTable {
    source: Option<String>,
    size: Option<Spanned<String>>,
    random: Option<Spanned<f64>>,
    seed: Option<Spanned<u64>>,
}

/// `[instance.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", expecting = "a table")]
pub(super) struct InstanceTable {
    threads: Option<Spanned<u64>>,
    memory: Option<Spanned<String>>,
    price_per_hour: Option<Spanned<f64>>,
}

/// `[load.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub(super) struct LoadTable {
    writers: Option<Spanned<u64>>,
    readers: Option<Spanned<u64>>,
    seconds: Option<Spanned<u64>>,
}

/// Refuses a list that is too long.
fn few(what: &str, count: usize) -> Result<()> {
    match count {
        0..=MOST_VALUES => Ok(()),
        many => Err(Error::usage(what, format!("{many} are too many"), format!("give at most {MOST_VALUES}"))),
    }
}

pub(super) fn data(place: &Location<'_>, tables: Tables<DataTable>, scale: f64) -> Result<BTreeMap<String, Data>> {
    few("[data]", tables.len())?;
    if tables.is_empty() {
        let hint = "name a database: [data.small] with size = \"1GiB\"";
        return Err(place.wrong(0, "there is no [data.NAME]", hint));
    }
    tables.into_iter().map(|(name, set)| one_data(place, &name, set, scale).map(|data| (name, data))).collect()
}

fn one_data(place: &Location<'_>, name: &str, table: Spanned<DataTable>, scale: f64) -> Result<Data> {
    let (start, table) = (table.span().start, table.into_inner());
    let size = place.parsed(table.size, |text| {
        let bytes = units::bytes("size", text)?;
        let within = (SIZE.0..=SIZE.1).contains(&bytes);
        let hint = format!("give {} to {}", units::show_bytes(SIZE.0), units::show_bytes(SIZE.1));
        if within { Ok(bytes) } else { Err(Error::usage("size", format!("`{text}` is out of bounds"), hint)) }
    })?;
    let random = place.within("random", table.random, 0.0..=1.0)?;
    let seed = place.within("seed", table.seed, 0..=i64::MAX as u64)?;
    match (table.source, size) {
        (Some(source), None) if random.is_none() && seed.is_none() => Ok(Data { from: DataFrom::Source(source) }),
        (None, Some(full_bytes)) => Ok(Data {
            from: DataFrom::Made {
                full_bytes,
                bytes: ((full_bytes as f64 * scale) as u64).max(LEAST_MADE),
                random: random.unwrap_or(USUAL_RANDOM),
                seed: seed.unwrap_or(1),
            },
        }),
        _ => {
            let why = format!("[data.{name}]: it needs either a size or a source");
            Err(place.wrong(start, why, "write size = \"1GiB\", or source = \"sqlite:…\" alone"))
        }
    }
}

pub(super) fn instances(place: &Location<'_>, tables: Tables<InstanceTable>) -> Result<BTreeMap<String, Instance>> {
    few("[instance]", tables.len())?;
    let one = |(name, class): (String, Spanned<InstanceTable>)| {
        let class = class.into_inner();
        let threads = place.within("threads", class.threads, 1..=MOST_CLASS_THREADS)?.map(|threads| threads as usize);
        let memory = place.parsed(class.memory, |text| {
            let bytes = units::bytes("memory", text)?;
            let hint = format!("give at least {}", units::show_bytes(LEAST_MEMORY));
            if bytes >= LEAST_MEMORY {
                Ok(bytes)
            } else {
                Err(Error::usage("memory", format!("`{text}` is too little"), hint))
            }
        })?;
        let price_per_hour = place.within("price-per-hour", class.price_per_hour, 0.0..=MOST_PRICE)?;
        Ok((name, Instance { threads, memory, price_per_hour }))
    };
    tables.into_iter().map(one).collect()
}

pub(super) fn loads(place: &Location<'_>, tables: Tables<LoadTable>) -> Result<BTreeMap<String, Load>> {
    few("[load]", tables.len())?;
    let one = |(name, load): (String, Spanned<LoadTable>)| {
        let (start, load) = (load.span().start, load.into_inner());
        let writers = place.within("writers", load.writers, 0..=MOST_CONNECTIONS)?.unwrap_or(0) as usize;
        let readers = place.within("readers", load.readers, 0..=MOST_CONNECTIONS)?.unwrap_or(0) as usize;
        if writers + readers == 0 {
            let why = format!("[load.{name}]: a load needs connections");
            return Err(place.wrong(start, why, "write writers = 1"));
        }
        let seconds = place.within("seconds", load.seconds, 1..=600)?.unwrap_or(USUAL_ALONE);
        Ok((name, Load { writers, readers, seconds }))
    };
    tables.into_iter().map(one).collect()
}

pub(super) fn paths(words: Option<Spanned<Words>>) -> Result<Vec<PathBuf>> {
    let words = words.map(Words::each).unwrap_or_default();
    few("media-directories", words.len())?;
    Ok(words.into_iter().map(|(_, path)| path.into()).collect())
}

/// The values of each axis in the file, and always of `operation` and `data`.
pub(super) fn axes(place: &Location<'_>, written: AxisWords, names: &Names<'_>) -> Result<BTreeMap<Axis, Vec<String>>> {
    let each = |(axis, value)| Ok((axis, words(place, axis, value, names)?));
    let mut axes = written.into_iter().map(each).collect::<Result<BTreeMap<_, _>>>()?;
    axes.entry(Axis::Operation).or_insert_with(|| vec!["backup".into()]);
    axes.entry(Axis::Data).or_insert_with(|| names.data.keys().cloned().collect());
    Ok(axes)
}

fn words(place: &Location<'_>, axis: Axis, value: Spanned<Words>, names: &Names<'_>) -> Result<Vec<String>> {
    let start = value.span().start;
    let mut words: Vec<String> = Vec::new();
    let each = Words::each(value);
    few(axis.name(), each.len())?;
    for (start, word) in each {
        axis.check(&word).map_err(|error| place.because(start, &error))?;
        check_name(place, axis, start, &word, names)?;
        // `zstd` and `zstd:1`, `1MiB` and `1048576` are one value.
        if words.iter().any(|known| axis.is_same(known, &word)) {
            return Err(place.wrong(start, format!("`{word}` is listed twice"), "list each value once"));
        }
        words.push(word);
    }
    if words.is_empty() {
        return Err(place.wrong(start, format!("`{}` has no values", axis.name()), "leave it out, or give one"));
    }
    Ok(words)
}

fn check_name(place: &Location<'_>, axis: Axis, start: usize, word: &str, names: &Names<'_>) -> Result<()> {
    let there: Vec<&str> = match axis {
        Axis::Data => names.data.keys().map(String::as_str).collect(),
        Axis::Instance => names.instances.keys().map(String::as_str).collect(),
        Axis::Load if word != NONE => names.loads.keys().map(String::as_str).collect(),
        Axis::Volume | Axis::MediaVolume if word != NONE && !names.volumes.contains_key(word) => {
            return volume::profile(word).map(drop).map_err(|error| place.because(start, &error));
        }
        _ => return Ok(()),
    };
    if there.contains(&word) {
        return Ok(());
    }
    let hint = if there.is_empty() { format!("add a table [{}.{word}]", axis.name()) } else { nearest(word, &there) };
    Err(place.wrong(start, format!("there is no [{}.{word}]", axis.name()), hint))
}

/// The profiles that the axes use.
pub(super) fn used_volumes(
    axes: &BTreeMap<Axis, Vec<String>>,
    own: &BTreeMap<String, Profile>,
) -> Result<BTreeMap<String, Profile>> {
    let named = [Axis::Volume, Axis::MediaVolume].into_iter().filter_map(|axis| axes.get(&axis)).flatten();
    let found = named.filter(|name| *name != NONE).map(|name| match own.get(name) {
        Some(profile) => Ok((name.clone(), profile.clone())),
        None => volume::profile(name).map(|profile| (name.clone(), profile)),
    });
    found.collect()
}

pub(super) fn exclusions(
    place: &Location<'_>,
    rules: Vec<Spanned<AxisWords>>,
    axes: &BTreeMap<Axis, Vec<String>>,
) -> Result<Vec<BTreeMap<Axis, Vec<String>>>> {
    few("[[exclude]]", rules.len())?;
    let condition = |(axis, value): (Axis, Spanned<Words>)| {
        let Some(there) = axes.get(&axis) else {
            let why = format!("`{}` is not an axis of this matrix", axis.name());
            return Err(place.wrong(value.span().start, why, "leave it out"));
        };
        let each = Words::each(value);
        few(axis.name(), each.len())?;
        if let Some((start, word)) = each.iter().find(|(_, word)| !there.contains(word)) {
            let there: Vec<&str> = there.iter().map(String::as_str).collect();
            let why = format!("`{word}` is not one of the values of `{}`", axis.name());
            return Err(place.wrong(*start, why, nearest(word, &there)));
        }
        Ok((axis, each.into_iter().map(|(_, word)| word).collect()))
    };
    let one = |rule: Spanned<AxisWords>| {
        if rule.get_ref().is_empty() {
            let why = "an [[exclude]] without conditions excludes every cell";
            return Err(place.wrong(rule.span().start, why, "name values in it"));
        }
        rule.into_inner().into_iter().map(condition).collect()
    };
    rules.into_iter().map(one).collect()
}
