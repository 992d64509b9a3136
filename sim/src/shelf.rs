//! Where the families of a simulated set stand: in memory, or in files of a temporary directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use fullbore_core::Result;
use fullbore_core::device::Device;
use fullbore_core::io::Mode;
use fullbore_core::pool::Pool;
use fullbore_core::sink::{self, Sink};
use fullbore_core::store::Stores;
use fullbore_core::supply::{self, Supply};
use fullbore_core::testkit::{FaultPlan, FaultSink, MemorySink, MemorySupply, Shelf};
use uuid::Uuid;

/// The most families that a simulated set has.
const FAMILIES: usize = 64;

/// A place for families.
pub enum Media {
    /// One shelf per family.
    Memory(Vec<Shelf>),
    /// A directory, and how its files are read and written.
    Files(PathBuf, Mode),
}

/// How the families of one set are to be written.
pub struct Writing<'a> {
    /// Its id.
    pub set_id: Uuid,
    /// How many there are.
    pub families: u16,
    /// The set that it replaces.
    pub replaces: Option<Uuid>,
    /// Writes in flight.
    pub queue_depth: usize,
    /// Bytes to reserve.
    pub expected_size: Option<u64>,
    /// What goes wrong.
    pub plan: &'a FaultPlan,
}

/// The name of a family's file.
pub fn name_of(family: u16) -> String {
    format!("family-{family}.bore")
}

impl Media {
    /// Empty shelves.
    pub fn memory() -> Self {
        Media::Memory((0..FAMILIES).map(|_| Arc::new(Mutex::new(Vec::new()))).collect())
    }

    /// The sinks of a set, each failing as planned.
    pub fn sinks(&self, writing: &Writing<'_>) -> Result<Vec<Box<dyn Sink>>> {
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        for family in 1..=writing.families {
            let at = usize::from(family) - 1;
            let inner: Box<dyn Sink> = match self {
                Media::Memory(shelves) => Box::new(MemorySink::new(name_of(family), &shelves[at], false)),
                Media::Files(directory, mode) => {
                    let options = sink::Options {
                        old_set_id: writing.replaces.map(|id| id.to_string()),
                        init: writing.replaces.is_some(),
                        expected_size: writing.expected_size,
                        queue_depth: writing.queue_depth,
                        mode: *mode,
                        hook: Some(writing.plan.hook(at)),
                        ..sink::Options::new(writing.set_id.to_string())
                    };
                    sink::open(&Device::file(directory.join(name_of(family))), options)?
                }
            };
            sinks.push(Box::new(FaultSink::new(inner, writing.plan, at)));
        }
        Ok(sinks)
    }

    /// Everything that is there, by name and in order.
    pub fn names(&self) -> Vec<String> {
        match self {
            Media::Memory(shelves) => {
                let filled = |shelf: &Shelf| !lock(shelf).is_empty();
                let families = shelves.iter().zip(1..).filter(|(shelf, _)| filled(shelf));
                families.map(|(_, family)| name_of(family)).collect()
            }
            Media::Files(directory, _) => {
                let entries = fs::read_dir(directory).into_iter().flatten().flatten();
                let mut names: Vec<String> =
                    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
                names.sort();
                names
            }
        }
    }

    /// A supply of what stands under a name.
    pub fn supply(&self, name: &str, pool: &Arc<Pool>, queue_depth: usize) -> Result<Box<dyn Supply>> {
        match self {
            Media::Memory(shelves) => Ok(Box::new(MemorySupply::new(name, &shelves[place(name)], pool))),
            Media::Files(directory, mode) => {
                supply::open(&Device::file(directory.join(name)), pool, queue_depth, *mode, &Stores::default())
            }
        }
    }

    /// The bytes under a name; none when nothing is there.
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        match self {
            Media::Memory(shelves) => lock(&shelves[place(name)]).clone(),
            Media::Files(directory, _) => fs::read(directory.join(name)).unwrap_or_default(),
        }
    }

    /// Puts bytes under a name; no bytes mean that nothing is there any more.
    pub fn put(&self, name: &str, bytes: Vec<u8>) -> std::io::Result<()> {
        match self {
            Media::Memory(shelves) => *lock(&shelves[place(name)]) = bytes,
            Media::Files(directory, _) if bytes.is_empty() => remove(&directory.join(name))?,
            Media::Files(directory, _) => fs::write(directory.join(name), bytes)?,
        }
        Ok(())
    }
}

fn remove(path: &Path) -> std::io::Result<()> {
    if path.exists() { fs::remove_file(path) } else { Ok(()) }
}

fn place(name: &str) -> usize {
    let number = name.trim_start_matches("family-").trim_end_matches(".bore");
    number.parse::<usize>().map_or(0, |family| family - 1)
}

fn lock(shelf: &Shelf) -> std::sync::MutexGuard<'_, Vec<u8>> {
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}
