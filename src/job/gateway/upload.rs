//! An upload: a backup that runs in a thread of its own while parts come.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fullbore_core::conduct::{Conduct, Ended};
use fullbore_core::{Error, Result, threads};
use fullbore_engines::{IncomingObject, KEY_MAX, ObjectFacts, ObjectMedia, UploadSession};
use fullbore_gateway::budget::Budget;
use fullbore_gateway::storage::Done;
use fullbore_gateway::{Failure, FinishedPart, NewObject, ObjectInfo, Upload};
use fullbore_repository::format::SetRecord;
use fullbore_repository::inventory::StoredSet;

use super::bucket::Bucket;
use super::in_passing::{InPassing, Outcome};
use super::media;
use crate::job::repository::upload;
use crate::job::uploaded::reader::{self, most_blocks};
use crate::report::Report;

type Writing = JoinHandle<Result<SetRecord>>;

/// An upload that runs.
pub(super) struct RunningUpload {
    bucket: Arc<Bucket>,
    object: NewObject,
    incoming: IncomingObject,
    conduct: Conduct,
    check: InPassing,
    budget: Budget,
    /// The backup; `None` once somebody waits for its end.
    writing: Mutex<Option<Writing>>,
    /// Blocks that were written, also those of parts that were sent again.
    blocks: AtomicU64,
    /// True once somebody wants it to end.
    is_ended: AtomicBool,
}

impl RunningUpload {
    /// Starts the backup of an object.
    ///
    /// # Errors
    /// Its thread cannot be started.
    pub fn begin(bucket: &Arc<Bucket>, object: NewObject, budget: &Budget) -> Done<Self> {
        if object.key.is_empty() || object.key.len() > KEY_MAX {
            return Err(Failure::Refused(format!("a key has 1 to {KEY_MAX} bytes")));
        }
        let conduct = bucket.own_conduct()?;
        let halt = conduct.halt();
        let incoming = IncomingObject::new(&object.key, &halt);
        let session = UploadSession { upload: incoming.clone(), client: object.client.clone() };
        let (of, request, its) = (Arc::clone(bucket), bucket.request(&object.key), conduct.clone());
        let write = move || {
            let mut report = Report::begin("gateway");
            let written = upload::write(&session, &request, of.setting(), &its, &halt, &mut report);
            if let Err(error) = &written {
                // The next write gets this reason.
                session.upload.abort(&error.one_line());
            }
            written
        };
        let writing = threads::start("upload", write)?;
        let (check, writing) = (InPassing::new(&object.key, budget.clone()), Mutex::new(Some(writing)));
        let (bucket, budget) = (Arc::clone(bucket), budget.clone());
        let (blocks, is_ended) = (AtomicU64::new(0), AtomicBool::new(false));
        Ok(Self { bucket, object, incoming, conduct, check, budget, writing, blocks, is_ended })
    }

    /// Waits for the end of the backup. The second caller waits, too, and gets nothing.
    fn end(&self) -> Option<Result<SetRecord>> {
        let mut writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = writing.take()?.join();
        Some(ended.unwrap_or_else(|_| {
            Err(Error::refused("upload", "its thread has failed", "look at the messages of the gateway"))
        }))
    }

    /// Why a write failed: the reason of its backup, if it has one. The log tells it once.
    fn cause(&self, error: Error) -> Error {
        let cause = match self.end() {
            Some(Err(cause)) => cause,
            _ => return error,
        };
        if !self.is_ended.load(Ordering::Acquire) {
            self.tell_failed(&cause);
        }
        cause
    }

    fn tell_failed(&self, cause: &Error) {
        let key = self.object.key.escape_debug();
        (self.bucket.tell)(&format!("upload of `{key}` failed: {}", cause.one_line()));
    }

    /// Tells what was stored, and which families of its media set are missing.
    fn tell_of(&self, stored: &ObjectMedia) {
        let (missing, checked) = self.bucket.missing_families(stored);
        let numbers = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let state = match (stored.families, missing.len()) {
            (0, _) => String::new(),
            (_, 0) if checked && media::was_checked(stored) => "; all families of the media set are there".to_owned(),
            (_, 0) => "; all families of the media set are there, but some were not checked".to_owned(),
            (families, _) => format!("; of {families} families, these are not there yet: {numbers}"),
        };
        (self.bucket.tell)(&format!("{}{state}", media::line(&self.object.key, stored)));
    }

    /// Checks the object of a set in a thread of its own.
    fn read_back(&self, set: StoredSet, bytes: u64) {
        let (bucket, budget, key) = (Arc::clone(&self.bucket), self.budget.clone(), self.object.key.clone());
        let shown = key.escape_debug().to_string();
        let started = threads::start("read back", move || {
            let shown = key.escape_debug();
            let line = match (budget.take(reader::memory(bytes)), bucket.open_set(&set)) {
                (Some(_memory), Ok(reader)) => media::read_back(&key, reader, bytes, &bucket.conduct),
                (None, _) => Some(format!("`{shown}`: not checked: no memory is left for reading it back")),
                (_, Err(error)) => Some(format!("`{shown}`: not checked: {}", error.one_line())),
            };
            line.iter().for_each(|line| (bucket.tell)(line));
        });
        if started.is_err() {
            (self.bucket.tell)(&format!("`{shown}`: not checked: no thread could be started"));
        }
    }

    /// The moment of an upload with so many bytes that is complete.
    fn moment(&self, bytes: u64) -> Done<i64> {
        if self.blocks.load(Ordering::Acquire) > most_blocks(bytes) {
            let why = "its parts were sent again too often: nobody could read so many blocks; upload it again";
            return Err(Failure::Refused(why.to_owned()));
        }
        Ok(self.bucket.next_moment()?)
    }
}

impl Upload for RunningUpload {
    fn begins(&self, piece: u32, number: u16) {
        self.check.begins(piece, number);
    }

    fn is_whole(&self, piece: u32, md5: [u8; 16]) {
        self.check.is_whole(piece, md5);
    }

    fn write(&self, piece: u32, bytes: Vec<u8>) -> Done<Vec<u8>> {
        self.check.bytes(piece, &bytes);
        self.blocks.fetch_add(u64::from(!bytes.is_empty()), Ordering::AcqRel);
        Ok(self.incoming.write(piece, bytes).map_err(|error| self.cause(error))?)
    }

    fn complete(&self, parts: &[FinishedPart], etag: &str) -> Done<ObjectInfo> {
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let completed_at = self.moment(bytes).inspect_err(|_| self.abort("could not be completed"))?;
        let (outcome, head) = self.check.finish(parts);
        let media = media::facts(&self.object.key, &outcome, head);
        let facts = ObjectFacts {
            key: self.object.key.clone(),
            bytes,
            etag: etag.to_owned(),
            completed_at,
            content_type: self.object.content_type.clone(),
            metadata: self.object.metadata.clone(),
            media: media.clone(),
        };
        let numbered = parts.iter().map(|part| (part.number, part.piece)).collect();
        self.incoming.complete(facts, numbered).map_err(|error| self.cause(error))?;
        let over = || Error::refused("upload", "has ended", "upload it again");
        let record = match self.end().ok_or_else(over)? {
            Ok(record) => record,
            Err(cause) => {
                self.tell_failed(&cause);
                return Err(cause.into());
            }
        };
        let set = StoredSet::committed(record);
        let stored = self.bucket.stored(set.clone());
        if let Some(media) = &media {
            self.tell_of(media);
        }
        if let Outcome::Unchecked(..) | Outcome::Unknown = outcome {
            self.read_back(set, bytes);
        }
        stored
            .ok_or_else(|| Error::refused("upload", "its set does not describe an object", "report this defect").into())
    }

    fn abort(&self, why: &str) {
        self.is_ended.store(true, Ordering::Release);
        self.incoming.abort(why);
        self.conduct.end(Ended::Asked);
        let _ = self.end(); // It fails, which is meant. What it has written is removed.
    }
}
