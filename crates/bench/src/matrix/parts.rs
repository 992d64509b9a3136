//! The tables of a matrix: data sets, instances, loads, axes, exclusions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fullbore_core::child::Limits;
use fullbore_core::{Error, Result};

use super::read::{Table, Value, nearest};
use super::{Axis, MOST_VALUES, NONE};
use crate::volume::{self, Profile};
use fullbore_core::units;

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

impl Instance {
    /// Its processors and memory.
    pub fn limits(&self) -> Limits {
        Limits { threads: self.threads, memory: self.memory }
    }
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

/// Refuses a list that is too long.
fn few<T>(what: &str, list: Vec<T>) -> Result<Vec<T>> {
    match list.len() {
        0..=MOST_VALUES => Ok(list),
        many => Err(Error::usage(what, format!("{many} are too many"), format!("give at most {MOST_VALUES}"))),
    }
}

pub(super) fn data(table: &Table<'_>, scale: f64) -> Result<BTreeMap<String, Data>> {
    let sets = few("[data]", table.tables("data")?)?;
    if sets.is_empty() {
        return Err(table.wrong("there is no [data.NAME]", "name a database: [data.small] with size = \"1GiB\""));
    }
    sets.into_iter().map(|(name, set)| one_data(&set, scale).map(|data| (name, data))).collect()
}

fn one_data(table: &Table<'_>, scale: f64) -> Result<Data> {
    table.only(&["source", "size", "random", "seed"])?;
    let size = table.parsed("size", |text| {
        let bytes = units::bytes("size", text)?;
        let within = (SIZE.0..=SIZE.1).contains(&bytes);
        let hint = format!("give {} to {}", units::show_bytes(SIZE.0), units::show_bytes(SIZE.1));
        if within { Ok(bytes) } else { Err(Error::usage("size", format!("`{text}` is out of bounds"), hint)) }
    })?;
    let random = table.number("random", 0.0, 1.0)?;
    let seed = table.whole_number("seed", 0, i64::MAX as u64)?;
    match (table.text("source")?, size) {
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
            Err(table
                .wrong("it needs either a size or a source", "write size = \"1GiB\", or source = \"sqlite:…\" alone"))
        }
    }
}

pub(super) fn instances(table: &Table<'_>) -> Result<BTreeMap<String, Instance>> {
    let one = |(name, class): (String, Table<'_>)| {
        class.only(&["threads", "memory", "price-per-hour"])?;
        let threads = class.whole_number("threads", 1, MOST_CLASS_THREADS)?.map(|threads| threads as usize);
        let memory = class.parsed("memory", |text| {
            let bytes = units::bytes("memory", text)?;
            let hint = format!("give at least {}", units::show_bytes(LEAST_MEMORY));
            if bytes >= LEAST_MEMORY {
                Ok(bytes)
            } else {
                Err(Error::usage("memory", format!("`{text}` is too little"), hint))
            }
        })?;
        Ok((name, Instance { threads, memory, price_per_hour: class.number("price-per-hour", 0.0, 1e6)? }))
    };
    few("[instance]", table.tables("instance")?)?.into_iter().map(one).collect()
}

pub(super) fn loads(table: &Table<'_>) -> Result<BTreeMap<String, Load>> {
    let one = |(name, load): (String, Table<'_>)| {
        load.only(&["writers", "readers", "seconds"])?;
        let count = |key| load.whole_number(key, 0, MOST_CONNECTIONS).map(|count| count.unwrap_or(0) as usize);
        let (writers, readers) = (count("writers")?, count("readers")?);
        if writers + readers == 0 {
            return Err(load.wrong("a load needs connections", "write writers = 1"));
        }
        Ok((name, Load { writers, readers, seconds: load.whole_number("seconds", 1, 600)?.unwrap_or(USUAL_ALONE) }))
    };
    few("[load]", table.tables("load")?)?.into_iter().map(one).collect()
}

pub(super) fn paths(table: &Table<'_>, key: &'static str) -> Result<Vec<PathBuf>> {
    let Some(value) = table.get(key) else { return Ok(Vec::new()) };
    few(key, value.each())?.iter().map(|one| one.text().map(PathBuf::from)).collect()
}

/// The values of each axis in the file, and always of `operation` and `data`.
pub(super) fn axes(table: &Table<'_>, names: &Names<'_>) -> Result<BTreeMap<Axis, Vec<String>>> {
    let mut axes = BTreeMap::new();
    let named = table.table("axes")?;
    if let Some(named) = &named {
        named.only(&Axis::ALL.map(Axis::name))?;
    }
    for axis in Axis::ALL {
        if let Some(value) = named.as_ref().and_then(|named| named.get(axis.name())) {
            axes.insert(axis, words(axis, &value, names)?);
        }
    }
    axes.entry(Axis::Operation).or_insert_with(|| vec!["backup".into()]);
    axes.entry(Axis::Data).or_insert_with(|| names.data.keys().cloned().collect());
    Ok(axes)
}

fn words(axis: Axis, value: &Value<'_>, names: &Names<'_>) -> Result<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    for one in few(axis.name(), value.each())? {
        let word = one.word()?;
        axis.check(&word).map_err(|error| one.because(&error))?;
        check_name(axis, &word, &one, names)?;
        // `zstd` and `zstd:1`, `1MiB` and `1048576` are one value.
        if words.iter().any(|known| axis.is_same(known, &word)) {
            return Err(one.refused(format!("`{word}` is listed twice"), "list each value once"));
        }
        words.push(word);
    }
    if words.is_empty() {
        return Err(value.refused(format!("`{}` has no values", axis.name()), "leave it out, or give one"));
    }
    Ok(words)
}

fn check_name(axis: Axis, word: &str, value: &Value<'_>, names: &Names<'_>) -> Result<()> {
    let there: Vec<&str> = match axis {
        Axis::Data => names.data.keys().map(String::as_str).collect(),
        Axis::Instance => names.instances.keys().map(String::as_str).collect(),
        Axis::Load if word != NONE => names.loads.keys().map(String::as_str).collect(),
        Axis::Volume | Axis::MediaVolume if word != NONE && !names.volumes.contains_key(word) => {
            return volume::profile(word).map(drop).map_err(|error| value.because(&error));
        }
        _ => return Ok(()),
    };
    if there.contains(&word) {
        return Ok(());
    }
    let hint = if there.is_empty() { format!("add a table [{}.{word}]", axis.name()) } else { nearest(word, &there) };
    Err(value.refused(format!("there is no [{}.{word}]", axis.name()), hint))
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
    table: &Table<'_>,
    axes: &BTreeMap<Axis, Vec<String>>,
) -> Result<Vec<BTreeMap<Axis, Vec<String>>>> {
    let one = |rule: Table<'_>| {
        rule.only(&Axis::ALL.map(Axis::name))?;
        let mut conditions = BTreeMap::new();
        for axis in Axis::ALL {
            let Some(value) = rule.get(axis.name()) else { continue };
            let Some(there) = axes.get(&axis) else {
                return Err(value.refused(format!("`{}` is not an axis of this matrix", axis.name()), "leave it out"));
            };
            let mut words = Vec::new();
            for each in few(axis.name(), value.each())? {
                let word = each.word()?;
                if !there.contains(&word) {
                    let there: Vec<&str> = there.iter().map(String::as_str).collect();
                    let why = format!("`{word}` is not one of the values of `{}`", axis.name());
                    return Err(each.refused(why, nearest(&word, &there)));
                }
                words.push(word);
            }
            conditions.insert(axis, words);
        }
        match conditions.is_empty() {
            true => Err(table.wrong("an [[exclude]] without conditions excludes every cell", "name values in it")),
            false => Ok(conditions),
        }
    };
    few("[[exclude]]", table.list("exclude")?)?.into_iter().map(one).collect()
}
