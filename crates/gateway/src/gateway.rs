//! The state behind the protocol: the storage, the memory, and the uploads that run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use s3s::dto::StreamingBlob;
use s3s::{S3Result, s3_error};
use tokio::task::spawn_blocking;

use crate::answers::blocking;
use crate::budget::{Budget, Lease};
use crate::receive::{Received, Said, receive};
use crate::storage::{NewObject, ObjectInfo, Storage};
use crate::uploads::{BUFFER, BUFFERS, Running, Uploads};

/// Takes a line for the log.
pub type Tell = Arc<dyn Fn(&str) + Send + Sync>;

/// Bytes of the metadata of an object, at most: as in S3.
const METADATA_MAX: usize = 2048;
/// Uploads that run at the same time, at most.
const UPLOADS_MAX: usize = 1000;

/// The gateway behind the protocol.
pub(crate) struct Gateway {
    pub storage: Arc<dyn Storage>,
    pub budget: Budget,
    pub uploads: Uploads,
    /// The longest time without a byte.
    pub still: Duration,
    /// No new uploads: the gateway ends.
    pub ending: AtomicBool,
    pub tell: Tell,
}

/// An upload of one request: it ends without an object if its request ends early, unless somebody has taken it out.
pub(crate) struct Unfinished {
    pub gateway: Arc<Gateway>,
    pub id: String,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if let Some(upload) = self.gateway.uploads.take(&self.id) {
            abort(upload, "the connection ended early");
        }
    }
}

/// Ends an upload without waiting for that.
fn abort(upload: Arc<Running>, why: &'static str) {
    // Outside of the runtime, nothing waits for this thread.
    match tokio::runtime::Handle::try_current() {
        Ok(runtime) => drop(runtime.spawn_blocking(move || upload.upload.abort(why))),
        Err(_) => upload.upload.abort(why),
    }
}

impl Gateway {
    /// With so many bytes of memory; uploads without a byte for `still` end.
    pub fn new(storage: Arc<dyn Storage>, memory: u64, still: Duration, tell: &Tell) -> Self {
        let (budget, uploads, ending) = (Budget::new(memory), Uploads::default(), AtomicBool::new(false));
        Self { storage, budget, uploads, still, ending, tell: Arc::clone(tell) }
    }

    /// Memory for one upload, or the answer that there is none left.
    fn lease(&self) -> S3Result<Lease> {
        if self.ending.load(Ordering::Acquire) {
            return Err(s3_error!(ServiceUnavailable, "the gateway ends: try again later"));
        }
        if self.uploads.count() >= UPLOADS_MAX {
            return Err(s3_error!(SlowDown, "{UPLOADS_MAX} uploads are running: try again later"));
        }
        self.take(self.memory_of_upload())
    }

    /// So many bytes of memory, or the answer that they are not left.
    pub fn take(&self, bytes: u64) -> S3Result<Lease> {
        let spent = || s3_error!(SlowDown, "the memory of the gateway is in use by other requests: try again later");
        self.budget.take(bytes).ok_or_else(spent)
    }

    /// Bytes of memory that an upload needs.
    fn memory_of_upload(&self) -> u64 {
        (BUFFER * BUFFERS) as u64 + self.storage.upload_memory()
    }

    /// Begins an upload.
    pub async fn begin(self: &Arc<Self>, bucket: &str, object: NewObject, owner: &str) -> S3Result<Running> {
        let metadata: usize = object.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if metadata > METADATA_MAX {
            return Err(s3_error!(MetadataTooLarge, "the metadata has {metadata} bytes, and may have {METADATA_MAX}"));
        }
        let memory = self.lease()?;
        let (storage, place, key) = (Arc::clone(&self.storage), bucket.to_owned(), object.key.clone());
        let budget = self.budget.clone();
        let upload = blocking(move || storage.begin(&place, object, &budget)).await?;
        Ok(Running::new((bucket, &key), owner, upload, memory))
    }

    /// Receives a body into a new piece of an upload.
    pub async fn receive(
        &self,
        (upload, number): (&Arc<Running>, u16),
        body: Option<StreamingBlob>,
        said: &Said,
    ) -> S3Result<(u32, Received)> {
        let piece = upload.new_piece()?;
        upload.upload.begins(piece, number);
        let received = receive(upload, piece, body, said).await?;
        let (whole, md5) = (Arc::clone(upload), received.md5);
        blocking(move || {
            whole.upload.is_whole(piece, md5);
            Ok(())
        })
        .await?;
        Ok((piece, received))
    }

    /// Refuses a budget that is too small for one upload.
    pub fn must_hold_one(&self) -> fullbore_core::Result<()> {
        let needed = self.memory_of_upload();
        if self.budget.whole() >= needed {
            return Ok(());
        }
        let [has, needs] = [self.budget.whole(), needed].map(fullbore_core::units::show_bytes);
        let why = format!("{has} are too little: one upload needs {needs}");
        Err(fullbore_core::Error::usage("--memory", why, "allow more, or lower --stripes or --workers"))
    }

    /// Ends all uploads, and waits until their resources are free, for at most this time.
    pub async fn end_all_uploads(&self, most: Duration) {
        let ends = self.uploads.take_all().into_iter().map(|upload| {
            let key = upload.key.escape_debug().to_string();
            (self.tell)(&format!("upload {} of `{key}` was ended with the gateway", upload.id));
            spawn_blocking(move || upload.upload.abort("the gateway ends"))
        });
        // All of them begin to end before the first is waited for.
        let ends: Vec<_> = ends.collect();
        let all = async {
            for end in ends {
                let _ = end.await; // A thread that failed has told why.
            }
        };
        let _ = tokio::time::timeout(most, all).await; // What is left is removed by the next prune.
    }

    /// Ends the uploads that stand still, for ever. `every` is the time between two looks.
    pub async fn end_still_uploads(self: Arc<Self>, every: Duration) {
        loop {
            tokio::time::sleep(every).await;
            for upload in self.uploads.take_still(self.still) {
                let key = upload.key.escape_debug().to_string();
                (self.tell)(&format!("upload {} of `{key}` stood still, and was ended", upload.id));
                abort(upload, "stood still for longer than --idle-timeout");
            }
        }
    }

    /// Completes an upload in a task of its own: a client that goes away does not stop it.
    pub fn complete(
        self: &Arc<Self>,
        upload: Arc<Running>,
        parts: Vec<crate::FinishedPart>,
        etag: String,
    ) -> tokio::task::JoinHandle<S3Result<ObjectInfo>> {
        let gateway = Arc::clone(self);
        tokio::spawn(async move {
            let (id, bucket) = (upload.id.clone(), upload.bucket.clone());
            let object = blocking(move || upload.upload.complete(&parts, &etag)).await?;
            gateway.uploads.remember(&id, &bucket, &object);
            Ok(object)
        })
    }
}
