//! An upload: a backup that runs in a thread of its own while parts come.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use fullbore_core::conduct::{Conduct, Ended};
use fullbore_core::{Error, Result, threads};
use fullbore_engines::{IncomingObject, KEY_MAX, ObjectFacts, UploadSession};
use fullbore_gateway::storage::Done;
use fullbore_gateway::{Failure, FinishedPart, NewObject, ObjectInfo, Upload};
use fullbore_repository::format::SetRecord;
use fullbore_repository::inventory::StoredSet;

use super::bucket::Bucket;
use crate::job::repository::upload;
use crate::report::Report;

type Writing = JoinHandle<Result<SetRecord>>;

/// An upload that runs.
pub(super) struct RunningUpload {
    bucket: Arc<Bucket>,
    object: NewObject,
    incoming: IncomingObject,
    conduct: Conduct,
    /// The backup; `None` once somebody waits for its end.
    writing: Mutex<Option<Writing>>,
}

impl RunningUpload {
    /// Starts the backup of an object.
    ///
    /// # Errors
    /// Its thread cannot be started.
    pub fn begin(bucket: &Arc<Bucket>, object: NewObject) -> Done<Self> {
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
        let writing = Mutex::new(Some(writing));
        Ok(Self { bucket: Arc::clone(bucket), object, incoming, conduct, writing })
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

impl Upload for RunningUpload {
    fn write(&self, piece: u32, bytes: Vec<u8>) -> Done<Vec<u8>> {
        Ok(self.incoming.write(piece, bytes)?)
    }

    fn complete(&self, parts: &[FinishedPart], etag: &str) -> Done<ObjectInfo> {
        let facts = ObjectFacts {
            key: self.object.key.clone(),
            bytes: parts.iter().map(|part| part.bytes).sum(),
            etag: etag.to_owned(),
            completed_at: self.bucket.next_moment(),
            content_type: self.object.content_type.clone(),
            metadata: self.object.metadata.clone(),
            media: None,
        };
        let numbered = parts.iter().map(|part| (part.number, part.piece)).collect();
        self.incoming.complete(facts, numbered)?;
        let record = self.end()?;
        let stored = self.bucket.stored(StoredSet::committed(record));
        stored
            .ok_or_else(|| Error::refused("upload", "its set does not describe an object", "report this defect").into())
    }

    fn abort(&self, why: &str) {
        self.incoming.abort(why);
        self.conduct.end(Ended::Asked);
        let _ = self.end(); // It fails, which is meant. What it has written is removed.
    }
}
