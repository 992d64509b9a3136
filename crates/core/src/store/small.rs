//! Small objects, read and written whole: the records of a repository. Each has a checksum of its bytes in its
//! metadata: an answer has none, and a wrong bit in a time or an id would go unnoticed.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{Attributes, GetOptions, PutMode, PutOptions, PutPayload};

use super::bucket::persistently;
use super::errors::is_absent;
use super::signed::generic;
use super::{Bucket, explained};
use crate::checksum::crc32c;
use crate::error::{Error, Result};

/// The number of small objects that are read at once: the store's answers take far longer than the work with them.
const AT_ONCE: usize = 64;
/// The metadata of a small object with the CRC-32C of its bytes, in hexadecimal digits.
const CHECKSUM: &str = "fullbore-crc32c";
/// The error of bytes with a wrong checksum, also after retries.
const CHANGED: &str = "its bytes differ from those that were written: they changed on the way, or in the store";

fn digits(bytes: &[u8]) -> String {
    format!("{:08x}", crc32c(bytes))
}

impl Bucket {
    /// How a small object is written: over an existing one, or only under a free key.
    pub(super) fn with_checksum(&self, bytes: &[u8], mode: PutMode) -> PutOptions {
        let attributes = Attributes::from_iter([(self.client.metadata(CHECKSUM), digits(bytes))]);
        PutOptions { mode, attributes, ..PutOptions::default() }
    }

    /// Refuses changed bytes, so that they are asked for again. An object of another program has no checksum.
    fn checked(&self, bytes: Bytes, attributes: &Attributes) -> object_store::Result<Bytes> {
        match attributes.get(&self.client.metadata(CHECKSUM)) {
            Some(written) if written.as_ref() != digits(&bytes) => Err(generic(CHANGED)),
            _ => Ok(bytes),
        }
    }

    /// Writes a small object, over an existing one.
    ///
    /// # Errors
    /// The store refuses it.
    pub fn put(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        self.ask(key, self.over(key, bytes))
    }

    /// The same, also when the job is stopped.
    ///
    /// # Errors
    /// The store refuses it.
    pub fn put_at_last(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        self.tidy(key, self.over(key, bytes))
    }

    async fn over(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        let path = self.path(key)?;
        let options = self.with_checksum(&bytes, PutMode::Overwrite);
        let payload = PutPayload::from(bytes);
        let once = || async { self.client.objects().put_opts(&path, payload.clone(), options.clone()).await.map(drop) };
        persistently(self.control.patience, once).await.map_err(|error| explained("write", &self.url(key), &error))
    }

    /// All of a small object of at most `most` bytes; nothing when it is not there.
    ///
    /// # Errors
    /// It is larger, or the store does not send it.
    pub fn read_small(&self, key: &str, most: u64) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        self.ask(key, self.small(&path, key, most))
    }

    /// The same for many keys, in their order.
    ///
    /// # Errors
    /// The store sends nothing at all within the job's patience, or a key is not valid.
    pub fn read_many(&self, keys: &[String], most: u64) -> Result<Vec<Result<Option<Bytes>>>> {
        let paths = keys.iter().map(|key| self.path(key)).collect::<Result<Vec<_>>>()?;
        let Some(first) = keys.first() else { return Ok(Vec::new()) };
        let mut found = Vec::with_capacity(keys.len());
        // Each batch has the patience of one request: a dead store is noticed, and many objects may take their time.
        for (keys, paths) in keys.chunks(AT_ONCE * 16).zip(paths.chunks(AT_ONCE * 16)) {
            let batch = stream::iter(keys.iter().zip(paths)).map(|(key, path)| self.small(path, key, most));
            found.extend(self.ask(first, async { Ok(batch.buffered(AT_ONCE).collect::<Vec<_>>().await) })?);
        }
        Ok(found)
    }

    async fn small(&self, path: &Path, key: &str, most: u64) -> Result<Option<Bytes>> {
        let once = || async {
            match self.client.objects().get_opts(path, GetOptions::default()).await {
                Ok(found) if found.meta.size > most => Ok(Err(found.meta.size)),
                Ok(found) => {
                    let attributes = found.attributes.clone();
                    self.checked(found.bytes().await?, &attributes).map(|bytes| Ok(Some(bytes)))
                }
                Err(error) if is_absent(&error) => Ok(Ok(None)),
                Err(error) => Err(error),
            }
        };
        let found = persistently(self.control.patience, once).await.map_err(|error| match error.to_string() {
            text if text.contains(CHANGED) => Error::incomplete(
                self.url(key),
                CHANGED,
                "look at it, and remove it: other objects have the same facts",
            ),
            _ => explained("read", &self.url(key), &error),
        });
        found?.map_err(|size| {
            let why = format!("has {size} bytes, but at most {most} were expected");
            Error::incomplete(self.url(key), why, "fullbore did not write it: look at it, and remove it")
        })
    }
}
