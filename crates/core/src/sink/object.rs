//! A family in an object store: parts in flight, invisible before the upload is completed.
//!
//! ```text
//! written      an unfinished upload    KEY.claim, which says whose it is
//! published    KEY
//! ```
//! The claim is written only under a free key (`If-None-Match: *`), so that of two backups to one key only one begins.
//! Not every store can make the completion of an upload conditional in the same way. See
//! `docs/decisions/0010-object-stores.md`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, unbounded};
use object_store::PutPayload;
use serde::{Deserialize, Serialize};

use super::partial::Partial;
use super::parts::PartSizes;
use super::{DeviceAccount, Options, Sink, out_of_order};
use crate::device::BucketName;
use crate::error::{Error, Result};
use crate::io::Statistics;
use crate::media::FAMILY_MAGIC;
use crate::pool::Piece;
use crate::store::{Bucket, Head, Part, Request, Stores, Upload, UploadedPart, crc32c_of};

/// The end of a claim's key, after the key of its family.
pub const CLAIM: &str = ".claim";
/// After this time without bytes, a part that is not full checks whether a thread waits for its buffers.
const LEISURE: Duration = Duration::from_millis(20);
/// The longest claim that is read, in bytes.
const CLAIM_MAX: u64 = 64 << 10;

/// The content of a claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The media set that is written.
    pub set: String,
    /// The unfinished upload, for the run that has to give it up.
    pub upload: String,
    /// When it was begun, by the clock of its host: RFC 3339.
    pub begun: String,
}

/// A sink that writes an object.
pub struct ObjectSink {
    device: String,
    set_id: String,
    /// Keeps the threads of the requests.
    _stores: Stores,
    bucket: Arc<Bucket>,
    key: String,
    upload: Upload,
    sizes: PartSizes,
    partial: Partial,
    length: u64,
    parts: Vec<Option<Part>>,
    /// The parts that an earlier process has uploaded of the same bytes, by number from 0.
    there: HashMap<usize, UploadedPart>,
    /// Uploads under way, by the numbers of their parts.
    uploading: BTreeMap<usize, Request>,
    depth: usize,
    done: (Sender<Done>, Receiver<Done>),
    progress: Progress,
    failed: bool,
    /// It is a copy, which another process may be writing here as well.
    resumes: bool,
    statistics: Statistics,
    warnings: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    Synced,
    Published,
    /// Abandoned, or dead: nothing is left to do.
    Gone,
}

/// An upload of a part that has ended.
struct Done {
    number: usize,
    bytes: usize,
    took: Duration,
    result: Result<Part>,
}

/// Refuses a key that other keys begin with: if `night/` holds sets, `night` means a directory, and not one object.
fn refuse_prefix(device: &str, bucket: &Bucket, key: &str) -> Result<()> {
    if !bucket.has_objects_below(&format!("{key}/"))? {
        return Ok(());
    }
    let why = "is a prefix: there are objects below it";
    Err(Error::usage(device, why, "end it with `/` so that fullbore makes names in it, or name another object"))
}

impl ObjectSink {
    /// Begins the upload and claims the key; `device` is the family's name in messages.
    ///
    /// # Errors
    /// Before anything is written: the store refuses, an object is under that key without `init`, or another backup has
    /// the claim.
    pub fn create(device: &str, bucket: &BucketName, key: &str, options: &Options) -> Result<Self> {
        let stores = options.stores.clone();
        let bucket = stores.bucket(bucket)?;
        if options.init {
            bucket.refuse_locked(key)?;
        }
        if !options.name_is_unique {
            refuse_prefix(device, &bucket, key)?;
        }
        bucket.check_lockable()?;
        let parts_most = bucket.parts_most();
        let resumed =
            if options.resume && bucket.goes_on_with_uploads() { begun(&bucket, key, &options.set_id)? } else { None };
        let claimed_already = resumed.is_some();
        let (upload, there) = match resumed {
            Some(resumed) => resumed,
            None => (bucket.begin(key, &options.set_id)?, HashMap::new()),
        };
        let mut sink = Self {
            device: device.to_owned(),
            set_id: options.set_id.clone(),
            _stores: stores,
            bucket,
            key: key.to_owned(),
            upload,
            sizes: PartSizes::new(options.expected_size.unwrap_or(0), parts_most, options.part_size),
            partial: Partial::default(),
            length: 0,
            parts: Vec::new(),
            there,
            uploading: BTreeMap::new(),
            depth: options.queue_depth,
            done: unbounded(),
            progress: Progress::Open,
            failed: false,
            resumes: options.resume,
            statistics: Statistics::default(),
            warnings: Vec::new(),
        };
        let claimed = if claimed_already { Ok(()) } else { sink.claim(options.init) };
        let claimed = claimed.and_then(|()| match options.name_is_unique {
            true => Ok(()),
            false => sink.bucket.prove_conditional(&sink.claim_key()),
        });
        let claimed = claimed.and_then(|()| sink.bucket.check_beforehand(&sink.claim_key()));
        if let Err(error) = claimed {
            sink.give_up();
            return Err(error);
        }
        Ok(sink)
    }

    /// Lets the store forget the upload, and then the claim, as far as it can: the reason is known already, and a claim
    /// that stays points to the upload that stays.
    fn give_up(&mut self) {
        self.progress = Progress::Gone;
        if self.bucket.abort(&self.key, &self.upload).is_ok() {
            self.let_others_claim();
        }
    }

    /// Removes the claim if it is ours. This may be unknown: the answer to its writing was lost.
    fn let_others_claim(&self) {
        let claim_key = self.claim_key();
        let ours = |claim: &Claim| claim.upload == self.upload.0;
        if read_claim(&self.bucket, &claim_key).is_ok_and(|claim| ours(&claim)) {
            let _ = self.bucket.remove(&claim_key); // A later run can read what it is.
        }
    }

    fn claim_key(&self) -> String {
        format!("{}{CLAIM}", self.key)
    }

    /// Claims the key, unless another backup has it or an object is there.
    fn claim(&self, init: bool) -> Result<()> {
        let claim = Claim {
            set: self.set_id.clone(),
            upload: self.upload.0.clone(),
            begun: jiff::Timestamp::now().to_string(),
        };
        let text = serde_json::to_vec(&claim).map_err(|error| out_of_order(&self.device, error))?;
        let claim_key = self.claim_key();
        let there = if self.bucket.put_new(&claim_key, text.clone())? {
            self.bucket.head(&self.key)?
        } else {
            let there = self.bucket.head(&self.key)?;
            let other = read_claim(&self.bucket, &claim_key)?;
            let finished = there.as_ref().is_some_and(|there| there.set.as_ref() == Some(&other.set));
            if !finished {
                return Err(self.claimed(&other));
            }
            // Its backup was killed between its last two steps.
            self.bucket.remove(&claim_key)?;
            if !self.bucket.put_new(&claim_key, text)? {
                return Err(self.claimed(&other));
            }
            there
        };
        match there {
            None => Ok(()),
            Some(_) if init => self.refuse_foreign(),
            Some(_) => Err(Error::refused(
                &self.device,
                "exists already, and a backup overwrites nothing",
                "name another key, or a prefix that ends in `/` (there each backup gets its own names); \
                or replace it with --init",
            )),
        }
    }

    /// `--init` replaces families and nothing else: a mistyped key must not cost an object of another kind.
    fn refuse_foreign(&self) -> Result<()> {
        let start = self.bucket.read_start(&self.key, FAMILY_MAGIC.len())?;
        if start.is_none_or(|start| start == FAMILY_MAGIC.as_slice()) {
            return Ok(());
        }
        let why = "is not a media family, and --init replaces nothing else";
        Err(Error::refused(&self.device, why, "choose another key, or remove the object yourself"))
    }

    fn claimed(&self, by: &Claim) -> Error {
        Error::refused(
            &self.device,
            format!("is claimed by the backup of media set {}, begun at {}", by.set, by.begun),
            format!(
                "wait for that backup; if it was killed, remove `{}`, \
                and let the bucket's lifecycle remove unfinished uploads",
                self.bucket.url(&self.claim_key())
            ),
        )
    }

    fn check(&self) -> Result<()> {
        if self.failed || self.progress == Progress::Gone {
            return Err(Error::refused(&self.device, "an earlier operation on this family failed", ""));
        }
        Ok(())
    }

    /// Remembers that the family is lost.
    fn noted<T>(&mut self, result: Result<T>) -> Result<T> {
        self.failed |= result.is_err();
        result
    }

    /// The size of the part that comes next.
    fn next_part(&self) -> u64 {
        self.sizes.size(self.parts.len() as u64)
    }

    fn write_checked(&mut self, offset: u64, piece: Piece) -> Result<()> {
        if offset != self.length || self.progress != Progress::Open {
            let what =
                format!("a write at {offset} came after one that ended at {} ({:?})", self.length, self.progress);
            return Err(out_of_order(&self.device, what));
        }
        self.length += piece.len() as u64;
        self.partial.push(piece);
        while self.partial.length() >= self.next_part() {
            self.send(self.next_part())?;
        }
        Ok(())
    }

    /// Uploads the first `length` bytes of what waits as the next part.
    fn send(&mut self, length: u64) -> Result<()> {
        let number = self.parts.len();
        if number as u64 >= self.sizes.parts_most() {
            return Err(Error::refused(
                &self.device,
                format!("would have more than {} parts", self.sizes.parts_most()),
                "use more --stripes",
            ));
        }
        while self.uploading.len() >= self.depth {
            self.await_part()?;
        }
        let payload = self.partial.take(length as usize);
        if let Some(part) = self.there.remove(&number).filter(|there| is_of(there, &payload)) {
            self.parts.push(Some(Part::uploaded(&part)));
            return Ok(());
        }
        self.parts.push(None);
        let (bucket, key, upload) = (Arc::clone(&self.bucket), self.key.clone(), self.upload.clone());
        let (done, bytes, begun) = (self.done.0.clone(), payload.content_length(), Instant::now());
        let work = async move { bucket.write_part(&key, &upload, number, payload).await };
        let request = self.bucket.start(work, move |result| {
            let _ = done.send(Done { number, bytes, took: begun.elapsed(), result }); // The sink may be gone.
        });
        self.uploading.insert(number, request);
        self.statistics.queue_depth_sum += self.uploading.len() as u64;
        Ok(())
    }

    /// Waits for the end of one upload. Each has a deadline.
    fn await_part(&mut self) -> Result<()> {
        let Ok(done) = self.done.1.recv() else { return Err(Error::Halted) };
        self.take_part(done)
    }

    fn take_part(&mut self, Done { number, bytes, took, result }: Done) -> Result<()> {
        self.uploading.remove(&number);
        self.parts[number] = Some(result?);
        self.statistics.operations += 1;
        self.statistics.bytes += bytes as u64;
        self.statistics.latency.record(took);
        Ok(())
    }

    /// Returns every buffer, whatever becomes of its bytes.
    fn let_go(&mut self) {
        std::mem::take(&mut self.uploading).into_values().for_each(Request::end);
        self.partial = Partial::default();
    }

    fn settle_checked(&mut self, in_flight: usize) -> Result<()> {
        while self.in_flight() > in_flight {
            if !self.uploading.is_empty() {
                self.await_part()?;
            } else {
                self.partial.stage(self.next_part() as usize);
            }
        }
        Ok(())
    }

    /// Buffers under way return by themselves. Those of the part that is not full return only by a copy. It is made
    /// when a thread waits for a buffer and nothing is under way.
    fn ease_checked(&mut self) -> Result<()> {
        while let Ok(done) = self.done.1.try_recv() {
            self.take_part(done)?;
        }
        if self.uploading.is_empty() && self.partial.is_waited_for() {
            self.partial.stage(self.next_part() as usize);
        }
        Ok(())
    }

    fn sync_checked(&mut self) -> Result<()> {
        if self.progress != Progress::Open {
            return Ok(());
        }
        if self.partial.length() > 0 {
            self.send(self.partial.length())?;
        }
        self.settle_checked(0)?;
        self.progress = Progress::Synced;
        Ok(())
    }

    fn publish_checked(&mut self) -> Result<()> {
        if self.progress != Progress::Synced {
            return Err(out_of_order(&self.device, "published before it was synced"));
        }
        let parts = self.parts.iter().cloned().collect::<Option<Vec<_>>>();
        let parts = parts.ok_or_else(|| out_of_order(&self.device, "a part was not uploaded"))?;
        let completed = self.bucket.complete(&self.key, &self.upload, parts);
        self.progress = Progress::Published;
        // The answer may have been lost, or be wrong: the object in the store counts.
        let there = self.bucket.head(&self.key)?;
        let whole =
            there.as_ref().is_some_and(|there| there.size == self.length && there.set.as_deref() == Some(&self.set_id));
        match (whole, completed) {
            (true, _) => {}
            (false, Err(error)) => return Err(error),
            (false, Ok(())) => {
                let size = there.map_or_else(|| "nothing".to_owned(), |there| format!("{} bytes", there.size));
                let why =
                    format!("the store says that it is complete, but shows {size} where {} were written", self.length);
                return Err(Error::refused(&self.device, why, "do not trust this store with a backup"));
            }
        }
        self.bucket.check_kept(&self.key)?;
        match self.bucket.differs(&self.key) {
            Ok(differs) => self.warnings.extend(differs),
            Err(Error::Halted) => return Err(Error::Halted),
            // The family is whole: an unknown class is no reason to throw it away.
            Err(error) => self.warnings.push(error.one_line()),
        }
        self.let_others_claim();
        Ok(())
    }
}

/// An upload of the same media set to this key that was begun and killed, with the parts that the store has of it. If
/// another process still works on it, it sends the same bytes.
fn begun(bucket: &Arc<Bucket>, key: &str, set: &str) -> Result<Option<(Upload, HashMap<usize, UploadedPart>)>> {
    let claim_key = format!("{key}{CLAIM}");
    if bucket.head(&claim_key)?.is_none() || bucket.head(key)?.is_some() {
        return Ok(None);
    }
    let claim = read_claim(bucket, &claim_key)?;
    if claim.set != set {
        return Ok(None); // Of another backup: the claim refuses it.
    }
    let upload = Upload(claim.upload);
    match bucket.parts(key, &upload)? {
        Some(parts) => {
            let numbered = parts.into_iter().filter_map(|part| Some(((part.number as usize).checked_sub(1)?, part)));
            Ok(Some((upload, numbered.collect())))
        }
        // The store has forgotten it: only the claim is left.
        None => bucket.remove(&claim_key).map(|()| None),
    }
}

/// True when the store has these very bytes. A store that tells no checksums gets every part again.
fn is_of(there: &UploadedPart, payload: &PutPayload) -> bool {
    there.size == payload.content_length() as u64 && there.crc32c == Some(crc32c_of(payload))
}

fn read_claim(bucket: &Arc<Bucket>, key: &str) -> Result<Claim> {
    let bytes = bucket.read_at_last(key, CLAIM_MAX)?;
    serde_json::from_slice(&bytes).map_err(|_| {
        let hint = "if no backup is running, remove it: it is a claim on the key before `.claim`";
        Error::refused(bucket.url(key), "is not a claim of fullbore", hint)
    })
}

impl Sink for ObjectSink {
    fn device(&self) -> &str {
        &self.device
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.check()?;
        let written = self.write_checked(offset, piece);
        self.noted(written)
    }

    fn settle(&mut self, in_flight: usize) -> Result<()> {
        self.check()?;
        let settled = self.settle_checked(in_flight);
        self.noted(settled)
    }

    fn leisure(&self) -> Duration {
        LEISURE
    }

    fn in_a_row(&self) -> u64 {
        self.sizes.size(0)
    }

    fn ease(&mut self) -> Result<()> {
        self.check()?;
        let eased = self.ease_checked();
        self.noted(eased)
    }

    /// The part that is not full counts too while it holds buffers.
    fn in_flight(&self) -> usize {
        self.uploading.len() + usize::from(self.partial.holds_buffers())
    }

    /// The upload and its claim have been there since it was created: no need to wait.
    fn secure(&mut self) -> Result<()> {
        self.check()
    }

    fn sync(&mut self) -> Result<()> {
        self.check()?;
        let synced = self.sync_checked();
        self.noted(synced)
    }

    fn publish(&mut self) -> Result<()> {
        self.check()?;
        let published = self.publish_checked();
        self.noted(published)
    }

    /// The replaced object was gone with the last step of [`publish`](Sink::publish).
    fn retire(&mut self) -> Result<()> {
        self.check()
    }

    fn abandon(&mut self) {
        self.failed = true;
        if self.progress == Progress::Gone {
            return;
        }
        self.let_go();
        // As far as the store lets us: a claim points to what stays. For a copy, the very same object may be that of
        // another run which has committed: it stays, and the next copy takes it as it is.
        if self.progress == Progress::Published && !self.resumes {
            let ours = |there: &Head| there.set.as_deref() == Some(&self.set_id);
            if matches!(self.bucket.head_at_last(&self.key), Ok(Some(there)) if ours(&there)) {
                let _ = self.bucket.remove(&self.key);
            }
        }
        self.give_up();
    }

    fn account(&self) -> DeviceAccount {
        let warnings = self.warnings.clone();
        DeviceAccount { warnings, ..DeviceAccount::new(self.bucket.shown(), &self.statistics, false) }
    }

    #[cfg(any(test, feature = "testkit"))]
    fn die(&mut self) {
        self.let_go();
        self.progress = Progress::Gone;
    }
}

impl Drop for ObjectSink {
    fn drop(&mut self) {
        if self.progress != Progress::Published {
            self.abandon();
        }
    }
}
