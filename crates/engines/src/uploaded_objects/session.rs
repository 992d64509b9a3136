//! A session on an upload: an ordinary backup stores it.

use std::path::PathBuf;
use std::time::Duration;

use fullbore_core::source::Source;
use fullbore_core::{Error, Result};
use serde_json::Value;

use super::engine::UploadedObject;
use super::incoming::IncomingObject;
use crate::engine::Engine;
use crate::{Facts, Session};

/// An upload, and the program that sends it.
pub struct UploadSession {
    /// The upload.
    pub upload: IncomingObject,
    /// The client, as it calls itself.
    pub client: String,
}

impl Session for UploadSession {
    fn engine(&self) -> &'static str {
        UploadedObject.name()
    }

    fn source(&self) -> &dyn Source {
        &self.upload
    }

    fn position(&self) -> Result<Value> {
        let facts = self.upload.facts().ok_or(Error::Halted)?;
        serde_json::to_value(facts).map_err(|e| Error::io("describe", "an upload", e.into()))
    }

    fn facts(&self) -> Facts {
        Facts {
            warnings: Vec::new(),
            writers_blocked: Duration::ZERO,
            free_bytes: 0,
            library: self.client.clone(),
            direct: false,
        }
    }

    fn database_at(&self) -> Result<PathBuf, String> {
        Err("it comes over the network".to_owned())
    }
}
