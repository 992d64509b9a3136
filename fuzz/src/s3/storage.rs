//! Objects in memory, which check what the gateway says of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fullbore_core::Error;
use fullbore_gateway::budget::Budget;
use fullbore_gateway::storage::{BucketInfo, Done};
use fullbore_gateway::{Failure, FinishedPart, NewObject, ObjectInfo, ObjectReader, Storage, Upload};

/// The only bucket.
pub const BUCKET: &str = "b";
/// Bytes that a reader gives at once: small, so that answers have several pieces.
const PIECE: usize = 1000;

/// Objects by key.
type Objects = Arc<Mutex<BTreeMap<String, (ObjectInfo, Vec<u8>)>>>;

/// The objects of a bucket.
#[derive(Default)]
pub struct InMemory(Objects);

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn must_be(bucket: &str) -> Done<()> {
    if bucket == BUCKET { Ok(()) } else { Err(Failure::NoBucket) }
}

impl InMemory {
    /// The number of its objects.
    pub fn count(&self) -> usize {
        held(&self.0).len()
    }

    fn object(&self, bucket: &str, key: &str) -> Done<(ObjectInfo, Vec<u8>)> {
        must_be(bucket)?;
        held(&self.0).get(key).cloned().ok_or(Failure::NoObject)
    }
}

impl Storage for InMemory {
    fn buckets(&self) -> Vec<BucketInfo> {
        vec![BucketInfo { name: BUCKET.to_owned(), created: 0 }]
    }

    fn upload_memory(&self) -> u64 {
        1000
    }

    fn download_memory(&self, _: u64) -> u64 {
        1000
    }

    fn begin(&self, bucket: &str, object: NewObject, _: &Budget) -> Done<Box<dyn Upload>> {
        must_be(bucket)?;
        assert!(!object.key.is_empty());
        Ok(Box::new(Incoming { object, objects: Arc::clone(&self.0), pieces: Mutex::default() }))
    }

    fn find(&self, bucket: &str, key: &str) -> Done<ObjectInfo> {
        Ok(self.object(bucket, key)?.0)
    }

    fn open(&self, bucket: &str, key: &str) -> Done<(ObjectInfo, Box<dyn ObjectReader>)> {
        let (info, bytes) = self.object(bucket, key)?;
        Ok((info, Box::new(Stored(bytes))))
    }

    fn list(&self, bucket: &str, prefix: &str, after: &str, most: usize) -> Done<Vec<ObjectInfo>> {
        must_be(bucket)?;
        let objects = held(&self.0);
        let found = objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
        Ok(found.take(most).map(|(_, (info, _))| info.clone()).collect())
    }

    fn remove(&self, bucket: &str, key: &str) -> Done<()> {
        must_be(bucket)?;
        held(&self.0).remove(key);
        Ok(())
    }
}

/// Bytes of a piece, and the MD5 that it was said to have.
type Piece = (Vec<u8>, Option<[u8; 16]>);

/// An object that comes in.
struct Incoming {
    object: NewObject,
    objects: Objects,
    pieces: Mutex<BTreeMap<u32, Piece>>,
}

impl Upload for Incoming {
    fn is_whole(&self, piece: u32, md5: [u8; 16]) {
        let mut pieces = held(&self.pieces);
        let (_, said) = pieces.get_mut(&piece).expect("a whole piece was written");
        assert_eq!(said.replace(md5), None, "a piece is whole once");
    }

    fn write(&self, piece: u32, bytes: Vec<u8>) -> Done<Vec<u8>> {
        held(&self.pieces).entry(piece).or_default().0.extend_from_slice(&bytes);
        Ok(bytes)
    }

    fn complete(&self, parts: &[FinishedPart], etag: &str) -> Done<ObjectInfo> {
        let pieces = held(&self.pieces);
        let mut whole = Vec::new();
        for part in parts {
            let (bytes, md5) = pieces.get(&part.piece).expect("a listed part was written");
            assert_eq!((bytes.len() as u64, *md5), (part.bytes, Some(part.md5)), "a listed part is whole");
            whole.extend_from_slice(bytes);
        }
        assert!(parts.is_sorted_by(|one, next| one.number < next.number));
        let NewObject { key, content_type, metadata, .. } = self.object.clone();
        let (bytes, etag) = (whole.len() as u64, etag.to_owned());
        let info = ObjectInfo { key: key.clone(), bytes, etag, modified: 0, content_type, metadata };
        held(&self.objects).insert(key, (info.clone(), whole));
        Ok(info)
    }

    fn abort(&self, _: &str) {}
}

/// An object that is read.
struct Stored(Vec<u8>);

impl ObjectReader for Stored {
    fn read(&mut self, at: u64) -> Done<Vec<u8>> {
        let rest = usize::try_from(at).ok().and_then(|at| self.0.get(at..)).filter(|rest| !rest.is_empty());
        let rest = rest.ok_or_else(|| Error::incomplete("object", format!("it has no byte at {at}"), ""))?;
        Ok(rest.iter().take(PIECE).copied().collect())
    }
}
