//! Logical sets: the rows and statements of a running server, and their way into another one
//! (`docs/decisions/0024-logical-sets.md`, `docs/engines/mysql-logical.md`).
//!
//! [`session`] is the backup: it lists the tables ([`listing`]), makes a [`snapshot`] of several connections, and asks
//! for the statements ([`describe`]). Each [`reader`] takes its work from the [`queue`] and fills ordered streams with
//! text ([`tsv`], [`small`]). [`load`] is the way back into a server, [`files`] into a directory, [`tables_out`] into an
//! export.

mod accounts;
mod ahead;
pub mod catalog;
mod catalogs;
mod code_text;
mod computed;
pub mod describe;
mod encode;
pub mod files;
mod insert;
mod judge;
mod key;
pub mod listing;
pub mod load;
mod out;
mod query;
mod queue;
mod reader;
mod rowing;
pub mod selection;
pub mod server;
pub mod session;
mod shapes;
mod set;
mod small;
mod snapshot;
mod storage;
mod tables_out;
pub mod tsv;

use std::sync::{Mutex, MutexGuard, PoisonError};

use fullbore_core::unpack::MediaSet;
use fullbore_core::{Error, Result};
use serde_json::Value;

use crate::Options;
use crate::engine::{ForeignTables, GivenOptions, Load, LoadOrder, LogicalEngine};
use crate::mysql_family::server_options::{DISABLE_REDO, LOGICAL, METHOD, OF_LOGICAL};
use crate::mysql_family::url::ServerAddress;

/// Locks what a thread that has panicked leaves as it is, too.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The field of a position that names the method of its backup.
const METHOD_FIELD: &str = "method";

/// Whether the user asks for a logical backup of the server that `url` names.
///
/// # Errors
/// An option is for the other method.
pub fn is_wanted(url: &str, options: &Options) -> Result<bool> {
    if options.given.has(&DISABLE_REDO) {
        let why = "a backup only reads";
        return Err(Error::usage("--disable-redo", why, "leave it out: restore --into mysql://… takes it"));
    }
    if LogicalSets.is_wanted(&options.given) {
        return Ok(true);
    }
    let hint = "add --method logical";
    if let Some(option) = OF_LOGICAL.iter().find(|option| options.given.value(option).is_some()) {
        let why = "a physical backup is always of the whole server";
        return Err(Error::usage(format!("--{}", option.name), why, hint));
    }
    match ServerAddress::parse(url)?.database {
        None => Ok(false),
        Some(name) => {
            let why = format!("it names the database `{name}`, but a physical backup is always of the whole server");
            Err(Error::usage("the database's URL", why, hint))
        }
    }
}

/// Why a set with this position cannot be the full of a differential, if it is a logical one.
///
/// # Errors
/// It is.
pub fn refuse_as_base(position: &Value) -> Result<(), String> {
    match LogicalSets.is_logical(position) {
        true => Err("of rows and statements (--method logical), which has no differentials".to_owned()),
        false => Ok(()),
    }
}

/// Logical sets of both engines.
pub struct LogicalSets;

impl LogicalEngine for LogicalSets {
    fn is_logical(&self, position: &Value) -> bool {
        position.get(METHOD_FIELD).and_then(Value::as_str) == Some(LOGICAL)
    }

    fn is_wanted(&self, options: &GivenOptions) -> bool {
        options.choice(&METHOD) == LOGICAL
    }

    fn is_catalog(&self, stream: &fullbore_core::media::ManifestStream) -> bool {
        set::is_catalog(stream)
    }

    fn finish_files(&self, directory: &std::path::Path, position: &Value) -> Result<()> {
        files::finish(directory, position)
    }

    fn tables(&self, set: MediaSet, title: String) -> Result<Box<dyn ForeignTables>> {
        Ok(Box::new(tables_out::LogicalTables::open(set, title)?))
    }

    fn load(&self, url: &str, order: LoadOrder, options: &Options) -> Result<Box<dyn Load>> {
        Ok(Box::new(load::ServerLoad::begin(url, order, options)?))
    }
}
