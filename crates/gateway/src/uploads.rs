//! The uploads that run: their parts, their buffers, and the time since the last byte came.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use s3s::dto::{Checksum, CompletedPart, Timestamp};
use s3s::{S3Result, s3_error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::budget::Lease;
use crate::digests::{hex, md5};
use crate::storage::{FinishedPart, ObjectInfo, Upload};

/// Bytes of a buffer.
pub(crate) const BUFFER: usize = 1 << 20;
/// Buffers of an upload: as many parts are received at once. Further parts wait for one.
pub(crate) const BUFFERS: usize = 8;
/// Pieces of an upload, at most: parts that are sent again are new pieces. Each may end with a short block, and a download
/// takes memory for 40,000 of them.
const PIECES_MAX: u32 = 30_000;
/// Completed uploads that are remembered, for clients that ask again because the answer was lost.
const REMEMBERED: usize = 1000;
/// The greatest number of a part.
pub(crate) const PARTS_MAX: u16 = 10_000;

/// A part that was received whole.
#[derive(Clone)]
pub(crate) struct Part {
    pub piece: u32,
    pub bytes: u64,
    pub md5: [u8; 16],
    /// The sums that the client has sent, which are right.
    pub sums: Checksum,
    pub received: Timestamp,
}

/// The parts of an upload.
#[derive(Default)]
struct Parts {
    /// The last whole attempt at each part.
    received: BTreeMap<u16, Part>,
    /// The number of the next piece.
    next: u32,
}

/// An upload.
pub(crate) struct Running {
    pub id: String,
    pub bucket: String,
    pub key: String,
    /// The id of the access key that began it.
    pub owner: String,
    pub begun: Timestamp,
    pub upload: Box<dyn Upload>,
    parts: Mutex<Parts>,
    buffers: Arc<Semaphore>,
    free: Mutex<Vec<Vec<u8>>>,
    moved: Mutex<Instant>,
    /// Bodies that come in. Each has its own time limit.
    receiving: AtomicUsize,
    /// True for an object that comes in one request: it has no parts, and nobody else sees it.
    whole: bool,
    _memory: Lease,
}

/// A buffer of an upload. It goes back when this is dropped.
pub(crate) struct Buffer {
    pub bytes: Vec<u8>,
    of: Arc<Running>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        // A write that failed has kept it.
        if bytes.capacity() >= BUFFER {
            held(&self.of.free).push(bytes);
        }
    }
}

/// A body that comes in.
pub(crate) struct Receiving(Arc<Running>);

impl Drop for Receiving {
    fn drop(&mut self) {
        self.0.moves();
        self.0.receiving.fetch_sub(1, Ordering::AcqRel);
    }
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Running {
    /// An upload of a key in a bucket; `memory` is for its buffers and for the storage.
    pub fn new((bucket, key): (&str, &str), owner: &str, upload: Box<dyn Upload>, memory: Lease) -> Self {
        Self {
            id: Uuid::new_v4().simple().to_string(),
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            owner: owner.to_owned(),
            begun: now(),
            upload,
            parts: Mutex::default(),
            buffers: Arc::new(Semaphore::new(BUFFERS)),
            free: Mutex::default(),
            moved: Mutex::new(Instant::now()),
            receiving: AtomicUsize::new(0),
            whole: false,
            _memory: memory,
        }
    }

    /// The same for an object that comes in one request.
    pub fn whole(self) -> Self {
        Self { whole: true, ..self }
    }

    /// A body comes in, as long as the result lives: meanwhile the upload does not stand still.
    pub fn receiving(self: &Arc<Self>) -> Receiving {
        self.receiving.fetch_add(1, Ordering::AcqRel);
        Receiving(Arc::clone(self))
    }

    /// A free buffer. Waits for one.
    pub async fn buffer(self: &Arc<Self>) -> S3Result<Buffer> {
        let permit = Arc::clone(&self.buffers).acquire_owned().await;
        let permit = permit.map_err(|_| s3_error!(NoSuchUpload, "the upload has ended"))?;
        let bytes = held(&self.free).pop().unwrap_or_else(|| Vec::with_capacity(BUFFER));
        Ok(Buffer { bytes, of: Arc::clone(self), _permit: permit })
    }

    /// Bytes have come.
    pub fn moves(&self) {
        *held(&self.moved) = Instant::now();
    }

    /// A new piece.
    pub fn new_piece(&self) -> S3Result<u32> {
        self.moves();
        let mut parts = held(&self.parts);
        parts.next += 1;
        if parts.next > PIECES_MAX {
            return Err(s3_error!(InvalidRequest, "parts of this upload were sent again too often"));
        }
        Ok(parts.next)
    }

    /// A part was received whole. It replaces an earlier one with its number.
    pub fn received(&self, number: u16, part: Part) {
        held(&self.parts).received.insert(number, part);
        self.moves();
    }

    /// The parts so far.
    pub fn parts(&self) -> Vec<(u16, Part)> {
        held(&self.parts).received.iter().map(|(number, part)| (*number, part.clone())).collect()
    }

    /// The parts that the client lists, in its order, and the ETag of the object.
    pub fn chosen(&self, listed: &[CompletedPart]) -> S3Result<(Vec<FinishedPart>, String)> {
        chosen(&held(&self.parts).received, listed)
    }
}

/// Checks a list of parts against the received ones.
fn chosen(received: &BTreeMap<u16, Part>, listed: &[CompletedPart]) -> S3Result<(Vec<FinishedPart>, String)> {
    if listed.is_empty() {
        return Err(s3_error!(MalformedXML, "the list of parts is empty"));
    }
    let (mut parts, mut sums, mut before) = (Vec::new(), Vec::new(), 0);
    for one in listed {
        let number = one.part_number.and_then(|number| u16::try_from(number).ok()).unwrap_or(0);
        if number <= before {
            return Err(s3_error!(InvalidPartOrder, "the numbers of the parts do not ascend"));
        }
        before = number;
        let missing = || s3_error!(InvalidPart, "part {number} was not received whole");
        let part = received.get(&number).ok_or_else(missing)?;
        let etag = one.e_tag.as_ref().map(|etag| etag.value());
        if etag.is_some_and(|etag| etag != hex(&part.md5)) {
            return Err(s3_error!(InvalidPart, "part {number} has another ETag: it was sent again"));
        }
        if !has_sums(part, one) {
            return Err(s3_error!(InvalidPart, "part {number} was not received with the checksum that the list says"));
        }
        sums.extend_from_slice(&part.md5);
        parts.push(FinishedPart { number, piece: part.piece, bytes: part.bytes, md5: part.md5 });
    }
    let etag = format!("{}-{}", hex(&md5(&sums)), parts.len());
    Ok((parts, etag))
}

/// True if each checksum of a listed part is one that its bytes were checked with.
fn has_sums(part: &Part, listed: &CompletedPart) -> bool {
    [
        (&listed.checksum_crc32, &part.sums.checksum_crc32),
        (&listed.checksum_crc32c, &part.sums.checksum_crc32c),
        (&listed.checksum_crc64nvme, &part.sums.checksum_crc64nvme),
        (&listed.checksum_sha1, &part.sums.checksum_sha1),
        (&listed.checksum_sha256, &part.sums.checksum_sha256),
    ]
    .into_iter()
    .all(|(listed, checked)| listed.is_none() || listed == checked)
}

/// The present moment, as answers show it.
pub(crate) fn now() -> Timestamp {
    Timestamp::from(std::time::SystemTime::now())
}

/// All uploads.
#[derive(Default)]
pub(crate) struct Uploads {
    running: Mutex<HashMap<String, Arc<Running>>>,
    /// The last completed ones: id, bucket, and the object.
    completed: Mutex<VecDeque<(String, String, ObjectInfo)>>,
}

impl Uploads {
    /// Adds one.
    pub fn add(&self, upload: Running) -> Arc<Running> {
        let upload = Arc::new(upload);
        held(&self.running).insert(upload.id.clone(), Arc::clone(&upload));
        upload
    }

    /// The upload with this id, bucket and key.
    pub fn find(&self, id: &str, bucket: &str, key: &str) -> S3Result<Arc<Running>> {
        let found = held(&self.running).get(id).cloned();
        let found = found.filter(|upload| !upload.whole && upload.bucket == bucket && upload.key == key);
        found.ok_or_else(|| s3_error!(NoSuchUpload, "this gateway has no such upload: it has ended, or stood still"))
    }

    /// Takes an upload out: from now on it gets no other request. Only one caller gets it.
    pub fn take(&self, id: &str) -> Option<Arc<Running>> {
        held(&self.running).remove(id)
    }

    /// Those of a bucket, by key.
    pub fn of_bucket(&self, bucket: &str) -> Vec<Arc<Running>> {
        let is_shown = |upload: &&Arc<Running>| !upload.whole && upload.bucket == bucket;
        let mut found: Vec<_> = held(&self.running).values().filter(is_shown).cloned().collect();
        found.sort_by(|a, b| (&a.key, &a.id).cmp(&(&b.key, &b.id)));
        found
    }

    /// Takes out all of them.
    pub fn take_all(&self) -> Vec<Arc<Running>> {
        std::mem::take(&mut *held(&self.running)).into_values().collect()
    }

    /// Takes out the uploads without a byte for this time.
    pub fn take_still(&self, limit: Duration) -> Vec<Arc<Running>> {
        let mut running = held(&self.running);
        let is_still =
            |upload: &Running| upload.receiving.load(Ordering::Acquire) == 0 && held(&upload.moved).elapsed() >= limit;
        let ids: Vec<String> =
            running.iter().filter(|(_, upload)| is_still(upload)).map(|(id, _)| id.clone()).collect();
        ids.iter().filter_map(|id| running.remove(id)).collect()
    }

    /// The number of running ones.
    pub fn count(&self) -> usize {
        held(&self.running).len()
    }

    /// Remembers a completed one.
    pub fn remember(&self, id: &str, bucket: &str, object: &ObjectInfo) {
        let mut completed = held(&self.completed);
        if completed.len() == REMEMBERED {
            completed.pop_front();
        }
        completed.push_back((id.to_owned(), bucket.to_owned(), object.clone()));
    }

    /// The object of a completed one.
    pub fn remembered(&self, id: &str, bucket: &str, key: &str) -> Option<ObjectInfo> {
        let completed = held(&self.completed);
        let found = completed.iter().find(|(of, at, object)| of == id && at == bucket && object.key == key);
        found.map(|(_, _, object)| object.clone())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use s3s::dto::ETag;

    use super::*;
    use crate::budget::Budget;
    use crate::storage::{Done, Failure};

    fn received() -> BTreeMap<u16, Part> {
        let part = |piece| Part {
            piece,
            bytes: u64::from(piece) * 10,
            md5: [piece as u8; 16],
            sums: Checksum::default(),
            received: now(),
        };
        [(1, part(7)), (3, part(2)), (10_000, part(5))].into()
    }

    fn listed(parts: &[(i32, Option<u8>)]) -> Vec<CompletedPart> {
        let etag = |sum: &Option<u8>| sum.map(|sum| ETag::Strong(hex(&[sum; 16])));
        let one = |(number, sum): &(i32, Option<u8>)| CompletedPart {
            part_number: Some(*number),
            e_tag: etag(sum),
            ..CompletedPart::default()
        };
        parts.iter().map(one).collect()
    }

    /// An upload that takes everything and keeps nothing.
    struct Nothing;

    impl Upload for Nothing {
        fn write(&self, _: u32, bytes: Vec<u8>) -> Done<Vec<u8>> {
            Ok(bytes)
        }

        fn complete(&self, _: &[FinishedPart], _: &str) -> Done<ObjectInfo> {
            Err(Failure::NoObject)
        }

        fn abort(&self, _: &str) {}
    }

    fn running() -> Running {
        Running::new(("b", "k"), "ALL", Box::new(Nothing), Budget::new(1).take(1).unwrap())
    }

    #[test]
    fn a_part_that_is_sent_again_more_often_than_a_download_could_read_is_refused() {
        let upload = running();
        assert!((0..PIECES_MAX).all(|_| upload.new_piece().is_ok()));
        assert_eq!(upload.new_piece().unwrap_err().code().as_str(), "InvalidRequest");
    }

    #[test]
    fn an_upload_does_not_stand_still_while_a_body_comes_and_one_of_one_request_is_not_listed() {
        let uploads = Uploads::default();
        let (parts, whole) = (uploads.add(running()), uploads.add(running().whole()));
        let receiving = (parts.receiving(), whole.receiving());
        assert!(uploads.take_still(Duration::ZERO).is_empty());
        assert_eq!(uploads.of_bucket("b").len(), 1);
        assert!(uploads.find(&whole.id, "b", "k").is_err() && uploads.find(&parts.id, "b", "k").is_ok());
        drop(receiving);
        assert_eq!(uploads.take_still(Duration::ZERO).len(), 2);
    }

    #[test]
    fn the_listed_parts_count_in_their_order_and_others_do_not() {
        let (parts, etag) = chosen(&received(), &listed(&[(1, Some(7)), (10_000, None)])).unwrap();
        let pieces: Vec<_> = parts.iter().map(|part| (part.number, part.piece, part.bytes)).collect();
        assert_eq!(pieces, [(1, 7, 70), (10_000, 5, 50)]);
        assert!(etag.ends_with("-2") && etag.len() == 34);
    }

    #[test]
    fn a_checksum_of_a_listed_part_counts_only_if_its_bytes_were_checked_with_it() {
        let mut received = received();
        let mut list = listed(&[(1, None)]);
        list[0].checksum_crc32 = Some("AAAAAA==".to_owned());
        assert_eq!(chosen(&received, &list).unwrap_err().code().as_str(), "InvalidPart");
        received.get_mut(&1).unwrap().sums.checksum_crc32 = Some("AAAAAA==".to_owned());
        assert!(chosen(&received, &list).is_ok());
    }

    #[test]
    fn a_list_with_unknown_parts_in_another_order_or_with_another_sum_is_refused() {
        for (list, code) in [
            (&[][..], "MalformedXML"),
            (&[(2, None)], "InvalidPart"),
            (&[(0, None)], "InvalidPartOrder"),
            (&[(-1, None)], "InvalidPartOrder"),
            (&[(70_000, None)], "InvalidPartOrder"),
            (&[(3, None), (1, None)], "InvalidPartOrder"),
            (&[(1, None), (1, None)], "InvalidPartOrder"),
            (&[(1, Some(8))], "InvalidPart"),
        ] {
            let refused = chosen(&received(), &listed(list)).unwrap_err();
            assert_eq!(refused.code().as_str(), code, "{list:?}");
        }
    }
}
