//! `fullbore gateway`: objects that other programs upload become backup sets of a repository. The protocol is in the crate
//! `fullbore-gateway`; here is its storage.

mod bucket;
mod in_passing;
mod media;
mod upload;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fullbore_core::codec::Compression;
use fullbore_core::conduct::Conduct;
use fullbore_core::plan::Knobs;
use fullbore_core::{Error, Result};
use fullbore_gateway::budget::Budget;
use fullbore_gateway::keys::Keys;
use fullbore_gateway::server::{self, Settings};
use fullbore_gateway::storage::{BucketInfo, Done};
use fullbore_gateway::{Failure, NewObject, ObjectInfo, ObjectReader, Storage, Tell, Upload};
use fullbore_repository::config::Config;

use crate::job::uploaded::reader;
use bucket::Bucket;
pub use fullbore_gateway::certificate;

/// What the user asked for.
#[derive(Clone)]
pub struct Request {
    /// `--repo`, and its configuration. Each is a bucket.
    pub repositories: Vec<(String, Config)>,
    /// Address, TLS, memory and time limits.
    pub server: Settings,
    /// `--keys`.
    pub keys: PathBuf,
    /// How sets are written.
    pub writing: Writing,
}

/// How sets are written; a repository's configuration says what is left out here.
#[derive(Clone, Default)]
pub struct Writing {
    /// `--compression`.
    pub compression: Option<Compression>,
    /// `--stripes`.
    pub stripes: Option<usize>,
    /// `--encrypt-to`.
    pub encrypt_to: Vec<PathBuf>,
    /// `--key`: opens encrypted sets for downloads.
    pub key: Option<PathBuf>,
    /// Buffers and threads of each upload.
    pub knobs: Knobs,
}

/// Serves until a signal comes: that is its normal end.
///
/// # Errors
/// A repository, a key, a certificate or the address cannot be used.
pub fn run(request: &Request, conduct: &Conduct, tell: Tell) -> Result<()> {
    let keys = Keys::read(&request.keys)?;
    let mut buckets = BTreeMap::new();
    for (name, config) in &request.repositories {
        let bucket = Bucket::open(name, config, &request.writing, conduct, &tell)?;
        if let Some(other) = buckets.insert(bucket.name.clone(), Arc::new(bucket)) {
            let why = "two repositories would be this bucket";
            return Err(Error::usage(format!("--repo {}", other.name), why, "give them names in the configuration"));
        }
    }
    for bucket in buckets.values() {
        tell(&format!("bucket `{}` is repository {}", bucket.name, bucket.repository.places[0]));
    }
    let storage = Arc::new(Repositories { buckets });
    server::serve(&request.server, keys, storage, tell, &|| conduct.check().is_err())
}

/// The repositories as buckets.
struct Repositories {
    buckets: BTreeMap<String, Arc<Bucket>>,
}

impl Repositories {
    fn bucket(&self, name: &str) -> Done<&Arc<Bucket>> {
        self.buckets.get(name).ok_or(Failure::NoBucket)
    }
}

impl Storage for Repositories {
    fn buckets(&self) -> Vec<BucketInfo> {
        let info = |bucket: &Arc<Bucket>| BucketInfo { name: bucket.name.clone(), created: bucket.created() };
        self.buckets.values().map(info).collect()
    }

    fn upload_memory(&self) -> u64 {
        self.buckets.values().map(|bucket| bucket.upload_memory()).max().unwrap_or(0)
    }

    fn download_memory(&self, bytes: u64) -> u64 {
        reader::memory(bytes)
    }

    fn begin(&self, bucket: &str, object: NewObject, budget: &Budget) -> Done<Box<dyn Upload>> {
        Ok(Box::new(upload::RunningUpload::begin(self.bucket(bucket)?, object, budget)?))
    }

    fn find(&self, bucket: &str, key: &str) -> Done<ObjectInfo> {
        self.bucket(bucket)?.info(key)
    }

    fn open(&self, bucket: &str, key: &str) -> Done<(ObjectInfo, Box<dyn ObjectReader>)> {
        self.bucket(bucket)?.open_object(key)
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, most: usize) -> Done<Vec<ObjectInfo>> {
        self.bucket(bucket)?.list(prefix, after, most)
    }

    fn remove(&self, bucket: &str, key: &str) -> Done<()> {
        self.bucket(bucket)?.remove(key)
    }
}
