//! Small objects, read and written whole: the records of a repository.

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, PutPayload};

use super::bucket::persistently;
use super::{Bucket, explained};
use crate::error::{Error, Result};

/// So many small objects are asked for at once: the store's answers take far longer than what is done with them.
const AT_ONCE: usize = 64;

impl Bucket {
    /// Writes a small object, over whatever is under its key.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn put(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        self.ask(key, self.over(key, bytes))
    }

    /// The same, also when the job is stopped.
    ///
    /// # Errors
    /// The store does not take it.
    pub fn put_at_last(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        self.tidy(key, self.over(key, bytes))
    }

    async fn over(&self, key: &str, bytes: Vec<u8>) -> Result<()> {
        let path = self.path(key)?;
        let payload = PutPayload::from(bytes);
        let once = || async { self.store.put(&path, payload.clone()).await.map(drop) };
        persistently(self.control.patience, once).await.map_err(|error| explained("write", &self.url(key), &error))
    }

    /// All of a small object of at most `most` bytes; nothing when it is not there.
    ///
    /// # Errors
    /// It is larger, or the store does not give it.
    pub fn read_small(&self, key: &str, most: u64) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        self.ask(key, self.small(&path, key, most))
    }

    /// The same of many, in their order.
    ///
    /// # Errors
    /// The store gives nothing at all within the job's patience, or a key is none.
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
        let failed = |error: &StoreError| explained("read", &self.url(key), error);
        let found = match self.store.get(path).await {
            Ok(found) => found,
            // Of a bucket that is not there nothing can be said but that.
            Err(error @ StoreError::NotFound { .. }) if error.to_string().contains("NoSuchBucket") => {
                return Err(failed(&error));
            }
            Err(StoreError::NotFound { .. }) => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        if found.meta.size > most {
            let why = format!("has {} bytes, where at most {most} were expected", found.meta.size);
            return Err(Error::refused(
                self.url(key),
                why,
                "it was not written by fullbore: look at it, and remove it",
            ));
        }
        found.bytes().await.map(Some).map_err(|error| failed(&error))
    }
}
