//! The replacement for object stores in a program that was built without them (feature `s3`).

use crate::error::Error;

/// No stores.
#[derive(Clone, Default)]
pub struct Stores;

impl Stores {
    /// Ends no request: there are none.
    pub fn stop(&self) {}

    /// Why nothing there can be reached.
    pub fn refuse(&self, shown: &str) -> Error {
        Error::usage(
            shown,
            "is in an object store, and this program was built without support for object stores",
            "build it with the feature `s3`",
        )
    }
}
