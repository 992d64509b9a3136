//! The seam: where objects go, and where they come from. Every call may block, and comes from a thread that may wait.

use std::collections::BTreeMap;

use fullbore_core::Error;

use crate::budget::Budget;

/// An object that is there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its key.
    pub key: String,
    /// Its length.
    pub bytes: u64,
    /// Its ETag, without quotes.
    pub etag: String,
    /// When it was completed, in microseconds since 1970.
    pub modified: i64,
    /// The type that the client gave it.
    pub content_type: Option<String>,
    /// Names and values of the client's own.
    pub metadata: BTreeMap<String, String>,
}

/// An object that begins.
#[derive(Debug, Clone, Default)]
pub struct NewObject {
    /// Its key, of 1 to 1,024 bytes.
    pub key: String,
    /// The type that the client gives it.
    pub content_type: Option<String>,
    /// Names and values of the client's own: 2,048 bytes at most.
    pub metadata: BTreeMap<String, String>,
    /// The client, as it calls itself.
    pub client: String,
}

/// A part that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedPart {
    /// Its number, from 1.
    pub number: u16,
    /// The piece with its bytes.
    pub piece: u32,
    /// Its length.
    pub bytes: u64,
    /// Its MD5.
    pub md5: [u8; 16],
}

/// A bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketInfo {
    /// Its name.
    pub name: String,
    /// When it was made, in microseconds since 1970.
    pub created: i64,
}

/// Why a call failed.
#[derive(Debug)]
pub enum Failure {
    /// There is no such bucket.
    NoBucket,
    /// There is no such object.
    NoObject,
    /// The memory, or another limit, is used up for now. The text says which.
    Busy(String),
    /// The storage does not do this. The text says why.
    Refused(String),
    /// Anything else.
    Failed(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Failed(error)
    }
}

/// The result of a call.
pub type Done<T> = Result<T, Failure>;

/// Where objects go, and where they come from.
pub trait Storage: Send + Sync + 'static {
    /// The buckets, in the order of their names.
    fn buckets(&self) -> Vec<BucketInfo>;

    /// Bytes of memory that an upload needs, besides the buffers of this crate.
    fn upload_memory(&self) -> u64;

    /// Bytes of memory that a download of an object of this length needs.
    fn download_memory(&self, bytes: u64) -> u64;

    /// Begins an upload. It has no effect before it is complete. Memory beyond that of an upload comes from `budget`.
    ///
    /// # Errors
    /// There is no such bucket, or it cannot be written to.
    fn begin(&self, bucket: &str, object: NewObject, budget: &Budget) -> Done<Box<dyn Upload>>;

    /// The newest object with this key.
    ///
    /// # Errors
    /// There is none.
    fn find(&self, bucket: &str, key: &str) -> Done<ObjectInfo>;

    /// The same, to be read.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    fn open(&self, bucket: &str, key: &str) -> Done<(ObjectInfo, Box<dyn ObjectReader>)>;

    /// Objects with this prefix whose keys are after `after`, in the order of their keys, `most` at most.
    ///
    /// # Errors
    /// There is no such bucket, or it cannot be read.
    fn list(&self, bucket: &str, prefix: &str, after: &str, most: usize) -> Done<Vec<ObjectInfo>>;

    /// Removes all objects with this key. None is no error.
    ///
    /// # Errors
    /// The storage cannot, or may not.
    fn remove(&self, bucket: &str, key: &str) -> Done<()>;
}

/// An object that is being uploaded. It is dropped after its end only.
pub trait Upload: Send + Sync + 'static {
    /// A piece begins: an attempt at the part with this number.
    fn begins(&self, piece: u32, number: u16) {
        let _ = (piece, number);
    }

    /// A piece has all its bytes, with this MD5. It replaces earlier pieces of its part.
    fn is_whole(&self, piece: u32, md5: [u8; 16]) {
        let _ = (piece, md5);
    }

    /// The next bytes of a piece. Gives the buffer back. One thread at a time writes one piece. A piece without bytes is
    /// written once, with an empty buffer.
    ///
    /// # Errors
    /// The upload has ended, or cannot go on.
    fn write(&self, piece: u32, bytes: Vec<u8>) -> Done<Vec<u8>>;

    /// Makes these parts, in this order, the object. Returns when it is durable.
    ///
    /// # Errors
    /// The object is not there.
    fn complete(&self, parts: &[FinishedPart], etag: &str) -> Done<ObjectInfo>;

    /// Ends it: nothing of it stays. Returns when its resources are free.
    fn abort(&self, why: &str);
}

/// An object that is being read.
pub trait ObjectReader: Send + 'static {
    /// Bytes from `at` on: one or more, as many as come at once.
    ///
    /// # Errors
    /// The object has no byte there, or it cannot be read.
    fn read(&mut self, at: u64) -> Done<Vec<u8>>;
}
