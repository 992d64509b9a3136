//! Sinks: where one media family goes. A new one is a file here and a line in [`open`].

mod commit;
mod file;
mod leftover;
mod mirror;
mod null;
#[cfg(feature = "s3")]
mod object;
#[cfg(feature = "s3")]
mod partial;
mod parts;
mod pipe;
mod existing;
#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::device::{Destination, Device};
use crate::error::{Error, Result};
pub use crate::io::DeviceAccount;
use crate::io::Mode;
use crate::pool::Piece;
use crate::store::Stores;

pub use commit::{Step, check_directory, make_directory, real_name};
#[cfg(any(test, feature = "testkit"))]
pub use commit::{StepFault, StepHook};
pub use existing::StandingSink;
pub use file::FileSink;
pub use leftover::{Leftover, LeftoverKind, leftovers, leftovers_in};
pub use mirror::MirrorSink;
pub use null::NullSink;
#[cfg(feature = "s3")]
pub use object::{CLAIM, Claim, ObjectSink};
pub use parts::{LARGEST_PART, LEAST_PART, PartSizes, SMALLEST_PART, object_most, usual_part};
pub use pipe::PipeSink;

/// Where one family is written. It is append-only.
///
/// Order of calls: `write`* (`secure` among them) → `sync` → `publish` → `retire`; or `abandon` at any time before
/// `retire`, also after `publish`, when another family of the set has failed. A sink that is dropped before `publish`
/// abandons itself.
///
/// Completed writes return their buffers only in `write`, `settle` and `sync`. Before a caller waits for anything but
/// this sink, it settles the sink, or the pool may run dry.
pub trait Sink: Send {
    /// The device as the user named it, for messages.
    fn device(&self) -> &str;

    /// Queues `piece` at `offset` (bytes from the start of the family; each call follows the one before). May
    /// return before the bytes are on the device; an error may belong to an earlier piece. After an error the family
    /// is lost: every later `write`, `sync` and `publish` fails too.
    fn write(&mut self, offset: u64, piece: Piece) -> Result<()>;

    /// Waits until at most `in_flight` writes are under way: 0 waits for all. Returns their buffers to the pool.
    fn settle(&mut self, in_flight: usize) -> Result<()>;

    /// Writes under way now.
    fn in_flight(&self) -> usize;

    /// How long to wait for more bytes before a call of [`ease`](Sink::ease). Longer than nothing where operations take
    /// long and return their buffers by themselves: bytes that come meanwhile need not wait for the end of one.
    fn leisure(&self) -> Duration {
        Duration::ZERO
    }

    /// Bytes that should come in a row, before another family gets any: the length of a part of an object. 0 where it
    /// makes no difference.
    fn in_a_row(&self) -> u64 {
        0
    }

    /// Returns a buffer, because nothing came and another thread may wait for it; one call need not return all.
    fn ease(&mut self) -> Result<()> {
        self.settle(self.in_flight().saturating_sub(1))
    }

    /// Returns when a later run can find this family after a kill: a file is durable so far, with its working name; an
    /// object has its claim. More bytes may follow.
    fn secure(&mut self) -> Result<()> {
        self.settle(0)
    }

    /// Returns when every byte is durable, under the name that the device has so far.
    fn sync(&mut self) -> Result<()>;

    /// Gives the family its final name, durably. An old family of that name is kept until [`retire`](Sink::retire).
    fn publish(&mut self) -> Result<()>;

    /// Removes what the family replaced (`--init`); the whole set has been published by now.
    fn retire(&mut self) -> Result<()>;

    /// Removes everything this sink has made, as far as it can, and puts back what it had moved away.
    fn abandon(&mut self);

    /// What the device did.
    fn account(&self) -> DeviceAccount;

    /// The other places that the family is written to in the same pass, and what their devices did.
    fn mirrors(&self) -> Vec<(&str, DeviceAccount)> {
        Vec::new()
    }

    /// From now on, behaves like a process that was killed at this instant: nothing is cleaned up, also not by `drop`,
    /// and every lock is released. Buffers still return to the pool: the test continues. A sink without files does
    /// nothing.
    #[cfg(any(test, feature = "testkit"))]
    fn die(&mut self) {}
}

/// How a family is to be written.
pub struct Options {
    /// The id of the set that is written, a hyphenated UUID: the working name is `NAME.new-SETID`.
    pub set_id: String,
    /// The id of the set that `--init` replaces, if it could be read: it is kept as `NAME.old-SETID`.
    pub old_set_id: Option<String>,
    /// An existing family may be replaced.
    pub init: bool,
    /// The name was made for the set, so no other run writes under it. A store need not be able to refuse a second
    /// writer.
    pub name_is_unique: bool,
    /// A missing directory may be made.
    pub mkdir: bool,
    /// Bytes to reserve on the device before the first write.
    pub expected_size: Option<u64>,
    /// Bytes of a part where the device is an object store that takes enough of them.
    pub part_size: u64,
    /// Writes in flight, 1 to 1024.
    pub queue_depth: usize,
    /// How files are written.
    pub mode: Mode,
    /// The bytes are always the same, because it is a copy: an upload of a killed copy is continued, with the parts
    /// that the store has.
    pub resume: bool,
    /// The object stores of the job.
    pub stores: Stores,
    /// Called before each step of the commit: where a test lets it fail.
    #[cfg(any(test, feature = "testkit"))]
    pub hook: Option<StepHook>,
}

impl Options {
    /// The options of a plain backup of set `set_id`: nothing is overwritten, no directory made, nothing reserved.
    pub fn new(set_id: impl Into<String>) -> Self {
        Self {
            set_id: set_id.into(),
            old_set_id: None,
            init: false,
            name_is_unique: false,
            mkdir: false,
            expected_size: None,
            part_size: LEAST_PART,
            queue_depth: 4,
            mode: Mode::Auto,
            resume: false,
            stores: Stores::default(),
            #[cfg(any(test, feature = "testkit"))]
            hook: None,
        }
    }
}

/// Opens the sink for a device. Every possible refusal comes now, before a byte of the source is read.
///
/// # Errors
/// As those of the sinks; a usage error for a directory, whose names are made by the caller ([`Device::join`]).
pub fn open(device: &Device, options: Options) -> Result<Box<dyn Sink>> {
    match device.place() {
        Destination::File(path) => Ok(Box::new(FileSink::create(&device.to_string(), path, options)?)),
        #[cfg(not(feature = "s3"))]
        Destination::Object { .. } => Err(options.stores.refuse(&device.to_string())),
        #[cfg(feature = "s3")]
        Destination::Object { bucket, key } => {
            Ok(Box::new(ObjectSink::create(&device.to_string(), bucket, key, &options)?))
        }
        Destination::Null => Ok(Box::new(NullSink::new())),
        Destination::Pipe => Ok(Box::new(PipeSink::stdout()?)),
        Destination::Directory(path) if path.is_dir() => {
            Err(Error::usage(device.to_string(), "is a directory, but a file is needed", "name the file in it"))
        }
        Destination::Directory(_) | Destination::Prefix { .. } => Err(Error::usage(
            device.to_string(),
            "names a directory",
            "name a file, or make names with --name-template",
        )),
    }
}

/// A call that no correct caller makes.
pub(crate) fn out_of_order(device: &str, what: impl std::fmt::Display) -> Error {
    Error::refused(device, format!("{what}"), "this is a defect of fullbore: please report it")
}
