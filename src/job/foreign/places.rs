//! Where a family of another program's media is: on a device, or in an object of a repository.

use std::fmt;
use std::sync::Arc;

use fullbore_core::conduct::Conduct;
use fullbore_core::device::{Destination, Device};
use fullbore_core::{Error, Result};
use fullbore_engines::{FamilyBytes, ForeignMedia};

/// Opens an object at its first byte.
type Open = Arc<dyn Fn(&Conduct) -> Result<Box<dyn FamilyBytes>> + Send + Sync>;

/// Where a family is.
#[derive(Debug, Clone)]
pub enum Place {
    /// On a device.
    Device(Device),
    /// In an object of a repository.
    Object(ForeignObject),
}

/// A family in an object of a repository. It never changes.
#[derive(Clone)]
pub struct ForeignObject {
    /// Its name in messages.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its first bytes.
    pub head: Vec<u8>,
    open: Open,
}

impl fmt::Debug for ForeignObject {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ForeignObject({}, {} bytes)", self.name, self.bytes)
    }
}

impl ForeignObject {
    /// An object that `open` opens. Its first bytes are not known yet.
    pub fn new(name: String, bytes: u64, open: Open) -> Self {
        Self { name, bytes, head: Vec::new(), open }
    }

    /// The same, with its first bytes.
    pub fn with_head(self, head: Vec<u8>) -> Self {
        Self { head, ..self }
    }

    /// At its first byte.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(&self, conduct: &Conduct) -> Result<Box<dyn FamilyBytes>> {
        (self.open)(conduct)
    }

    /// The kind of media, by its first bytes.
    ///
    /// # Errors
    /// It is of no kind that this program knows.
    pub fn media(&self) -> Result<&'static dyn ForeignMedia> {
        let other = || Error::incomplete(format!("`{}`", self.name), "is not media of another program", "leave it out");
        fullbore_engines::foreign(&self.head).ok_or_else(other)
    }
}

impl Place {
    /// Its name in messages. No two places of a job have the same.
    pub fn name(&self) -> String {
        match self {
            Self::Device(device) => device.to_string(),
            Self::Object(object) => object.name.clone(),
        }
    }

    /// True for standard input, which is read once.
    pub fn is_pipe(&self) -> bool {
        matches!(self, Self::Device(device) if matches!(device.place(), Destination::Pipe))
    }

    /// Bytes of a file or of an object of a repository; 0 for an object in a store.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Object(object) => object.bytes,
            Self::Device(device) => match device.place() {
                Destination::File(path) => path.metadata().map_or(0, |metadata| metadata.len()),
                _ => 0,
            },
        }
    }
}
