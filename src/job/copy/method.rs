//! The way of a copy: as it is, if nothing changes, or made anew.

use std::path::PathBuf;

use fullbore_core::codec::Compression;
use fullbore_core::device::Device;
use fullbore_core::media::SetHeader;
use fullbore_core::{Error, Result};

use super::Request;
use fullbore_repository::discovery::Found;

/// How a set is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CopyMethod {
    /// The bytes of its families, as they are: a second copy of the same media set. No key is needed.
    AsItIs,
    /// Block by block, on new media.
    Anew {
        /// The number of families.
        stripes: usize,
        /// How blocks are packed; `None`: unchanged.
        compression: Option<Compression>,
        /// The recipients of the new data key; empty: the copy is not encrypted.
        recipients: Vec<PathBuf>,
    },
}

impl CopyMethod {
    /// Its name in reports and plans.
    pub fn name(&self) -> &'static str {
        match self {
            CopyMethod::AsItIs => "as it is",
            CopyMethod::Anew { .. } => "made anew",
        }
    }

    /// The number of families of the copy.
    pub fn families(&self, found: &Found) -> usize {
        match self {
            CopyMethod::AsItIs => found.families.into(),
            CopyMethod::Anew { stripes, .. } => *stripes,
        }
    }

    /// The way to copy a set for this request.
    ///
    /// # Errors
    /// The set is encrypted and would be made anew, but there are no recipients.
    pub fn of(request: &Request, found: &Found) -> Result<Self> {
        let header = &found.header;
        let families = usize::from(found.families);
        let spread = request.to.iter().all(Device::holds_many);
        let fewest = if spread { families.max(request.to.len()) } else { request.to.len() };
        let stripes = request.stripes.unwrap_or(fewest);
        let compression = request.compression.filter(|asked| !is_packed_so(header, *asked));
        let encrypted = !header.keys.is_empty();
        let recipients = match (encrypted, request.encrypt_to.is_empty()) {
            (_, false) => request.encrypt_to.clone(),
            (false, true) => request.encrypt_plain_to.clone(),
            (true, true) => Vec::new(),
        };
        let decrypts = encrypted && request.decrypt;
        if stripes == families && compression.is_none() && recipients.is_empty() && !decrypts {
            return Ok(CopyMethod::AsItIs);
        }
        if encrypted && recipients.is_empty() && !decrypts {
            return Err(Error::usage(
                format!("backup set {}", header.backup_set_id),
                "is encrypted, and this copy is made anew: its blocks get a fresh key, but no recipient is named",
                "name the recipients with --encrypt-to, or use --decrypt for a copy without encryption; with the same \
                 number of families and the same --compression it is copied as it is",
            ));
        }
        Ok(CopyMethod::Anew { stripes, compression, recipients })
    }
}

fn is_packed_so(header: &SetHeader, asked: Compression) -> bool {
    header.codec == (asked.codec().number(), asked.level())
}
