//! An upload: a backup that runs in a thread of its own while parts come.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fullbore_core::conduct::{Conduct, Ended};
use fullbore_core::{Error, Result, threads};
use fullbore_engines::{ForeignMedia, IncomingObject, KEY_MAX, ObjectFacts, ObjectMedia, UploadSession};
use fullbore_gateway::budget::Budget;
use fullbore_gateway::storage::Done;
use fullbore_gateway::{Failure, FinishedPart, NewObject, ObjectInfo, Upload};
use fullbore_repository::format::SetRecord;
use fullbore_repository::inventory::StoredSet;

use super::bucket::Bucket;
use super::in_passing::{InPassing, Outcome};
use super::media;
use crate::job::repository::upload;
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
        Ok(Self { bucket, object, incoming, conduct, check, budget, writing })
    }

    /// Waits for the end of the backup. The second caller gets nothing.
    fn end(&self) -> Result<SetRecord> {
        let writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = writing.map(JoinHandle::join);
        match ended {
            Some(Ok(done)) => done,
            Some(Err(_)) => {
                Err(Error::refused("upload", "its thread has failed", "look at the messages of the gateway"))
            }
            None => Err(Error::refused("upload", "has ended", "upload it again")),
        }
    }
}

impl RunningUpload {
    /// Tells what was stored, and which families of its media set are missing.
    fn tell_of(&self, stored: &ObjectMedia) {
        let missing = self.bucket.missing_families(stored);
        let numbers = missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let state = match (stored.families, missing.len()) {
            (0, _) => String::new(),
            (_, 0) => "; all families of the media set are there".to_owned(),
            (families, _) => format!("; of {families} families, these are not there yet: {numbers}"),
        };
        (self.bucket.tell)(&format!("{}{state}", media::line(&self.object.key, stored)));
    }

    /// Checks the stored object in a thread of its own.
    fn read_back(&self, kind: &'static dyn ForeignMedia) {
        let (bucket, budget, key) = (Arc::clone(&self.bucket), self.budget.clone(), self.object.key.clone());
        let shown = key.escape_debug().to_string();
        let started = threads::start("read back", move || {
            let read = bucket.open_object(&key).map(|(object, reader)| {
                let memory = budget.take(super::reader::memory(object.bytes));
                memory.map(|_memory| media::read_back(&key, kind, reader, object.bytes))
            });
            let shown = key.escape_debug();
            let line = match read {
                Ok(Some(line)) => line,
                Ok(None) => format!("`{shown}`: not checked: no memory is left for reading it back"),
                Err(_) => format!("`{shown}`: not checked: it could not be opened again"),
            };
            (bucket.tell)(&line);
        });
        if started.is_err() {
            (self.bucket.tell)(&format!("`{shown}`: not checked: no thread could be started"));
        }
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
        Ok(self.incoming.write(piece, bytes)?)
    }

    fn complete(&self, parts: &[FinishedPart], etag: &str) -> Done<ObjectInfo> {
        let (outcome, head) = self.check.finish(parts);
        let media = media::facts(&self.object.key, &outcome, head);
        let facts = ObjectFacts {
            key: self.object.key.clone(),
            bytes: parts.iter().map(|part| part.bytes).sum(),
            etag: etag.to_owned(),
            completed_at: self.bucket.next_moment(),
            content_type: self.object.content_type.clone(),
            metadata: self.object.metadata.clone(),
            media: media.clone(),
        };
        let numbered = parts.iter().map(|part| (part.number, part.piece)).collect();
        self.incoming.complete(facts, numbered)?;
        let record = self.end()?;
        let stored = self.bucket.stored(StoredSet::committed(record));
        if let Some(media) = &media {
            self.tell_of(media);
        }
        if let Outcome::Unchecked(kind, _) = outcome {
            self.read_back(kind);
        }
        stored
            .ok_or_else(|| Error::refused("upload", "its set does not describe an object", "report this defect").into())
    }

    fn abort(&self, why: &str) {
        self.incoming.abort(why);
        self.conduct.end(Ended::Asked);
        let _ = self.end(); // It fails, which is meant. What it has written is removed.
    }
}
