//! One bucket: the requests that sinks and supplies need, each with a deadline.

use std::future::Future;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use object_store::multipart::PartId;
use object_store::path::Path;
use object_store::{
    BackoffConfig, Error as StoreError, GetOptions, GetResult, ListResult, ObjectMeta, ObjectStoreExt, PutMode,
    PutPayload, RetryConfig,
};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::client::{Client, ClientSettings, SET};
use super::connection::Connector;
use super::errors::{has_no_multipart, is_absent, is_denied};
use super::outage::{Endurance, Tried, jittered, may_pass, stays};
use super::signed::{UploadedPart, generic};
use super::{Control, cut_off, explained, in_the_end, multipart};
use crate::device::BucketName;
use crate::error::{Error, Result};
use crate::pool::Buffer;

/// How often a request is tried again; the job's patience may end it earlier.
const RETRIES: usize = 10;
/// One try may take a quarter of the patience, and no try begins after half of it. So the error says why the last try
/// failed, not only that the time is up.
const ONE_TRY: u32 = 4;
const ALL_RETRIES: u32 = 2;
/// The wait before the second try of a request that a retry might do twice; each further wait is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// How long a connection attempt may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Bytes of the longest answer that is read, other than a range of an object. A page of a listing has 1,000 keys of
/// 1,024 bytes, which may be escaped.
const ANSWER_MOST: usize = 8 << 20;
/// Bytes of memory that a listing may take, and what each of its objects takes besides its key.
const LISTING_MOST: usize = 256 << 20;
const LISTED: usize = 64;

/// The error of a store that refuses a free key as taken, each time, and then has no object there.
const TAKEN_BY_NOTHING: &str = "the store refuses this key as taken (412), but then finds no object there";

/// A bucket at the endpoint that the environment names.
pub struct Bucket {
    name: BucketName,
    pub(super) client: Client,
    pub(super) control: Arc<Control>,
    /// Whether objects can be locked here, once the store was asked; nothing if the account may not ask.
    pub(super) locks: OnceLock<Option<bool>>,
    handle: Handle,
}

/// A request that runs on its own.
pub struct Request {
    task: JoinHandle<()>,
    handle: Handle,
}

impl Request {
    /// Gives it up; when this returns, it no longer holds a buffer.
    pub fn end(self) {
        self.task.abort();
        let _ = self.handle.block_on(self.task); // The error says that it was given up.
    }
}

/// What a store says of an object without sending it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Bytes.
    pub size: u64,
    /// It changes when the object is replaced.
    pub tag: Option<String>,
    /// When it was written, in microseconds since 1970, by the store's clock.
    pub modified: i64,
    /// The media set that it was written for, if fullbore wrote it.
    pub set: Option<String>,
}

/// One object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its whole key.
    pub key: String,
    /// Bytes.
    pub size: u64,
    /// When it was written, in microseconds since 1970, by the store's clock.
    pub modified: i64,
}

/// A multipart upload that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload(pub String);

/// A part that the store has.
#[derive(Debug, Clone)]
pub struct Part(PartId);

impl Part {
    /// A part that another process uploaded, by the name that the completion uses.
    pub fn uploaded(part: &UploadedPart) -> Self {
        Self(multipart::part(&part.tag, part.crc32c))
    }
}

/// Tries again what the crate tries only once, because a second try might do it twice: here that does no harm. If an
/// upload is begun twice, one is never finished, and costs nothing but its name.
pub(super) async fn persistently<T, F>(patience: Duration, mut once: impl FnMut() -> F) -> object_store::Result<T>
where
    F: Future<Output = object_store::Result<T>>,
{
    let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
    loop {
        match once().await {
            // Only what the network or the store did not let through; any other error stays as it is.
            Err(error @ StoreError::Generic { .. })
                if !stays(&error) && begun.elapsed() + pause < patience / ONE_TRY =>
            {
                tokio::time::sleep(pause).await;
            }
            done => return done,
        }
        pause *= 2;
    }
}

/// Tries again what the crate does not send, and so does not try again: answers that may differ the next time, and
/// bytes that changed on the way.
async fn again<T, F>(patience: Duration, mut once: impl FnMut() -> F) -> object_store::Result<T>
where
    F: Future<Output = object_store::Result<T>>,
{
    let (begun, mut pause) = (Instant::now(), FIRST_PAUSE);
    for _ in 0..RETRIES {
        match once().await {
            Err(error) if may_pass(&error) && begun.elapsed() + pause < patience / ALL_RETRIES => {
                tokio::time::sleep(jittered(pause)).await;
            }
            done => return done,
        }
        pause *= 2;
    }
    once().await
}

/// How connections are made: how long one try may take, and the number of tries.
fn manner(control: &Control) -> ClientSettings {
    let (patience, one_try) = (control.patience, control.patience / ONE_TRY);
    ClientSettings {
        connector: Connector {
            one_try,
            connect: one_try.min(CONNECT),
            certificates: Vec::new(),
            answer_most: ANSWER_MOST,
            retries: Arc::clone(&control.retries),
        },
        retry: RetryConfig {
            backoff: BackoffConfig::default(),
            max_retries: RETRIES,
            retry_timeout: patience / ALL_RETRIES,
        },
    }
}

fn listed(object: ObjectMeta) -> Listed {
    let modified = object.last_modified.timestamp_micros();
    Listed { key: object.location.into(), size: object.size, modified }
}

/// Bytes of memory that a page of a listing takes; an empty page takes some too.
fn held_by(page: &ListResult) -> usize {
    let keys = page.objects.iter().map(|object| object.location.as_ref().len() + LISTED);
    let prefixes = page.common_prefixes.iter().map(|prefix| prefix.as_ref().len() + LISTED);
    LISTED + keys.chain(prefixes).sum::<usize>()
}

fn endless(url: &str) -> Error {
    Error::refused(
        url,
        format!("cannot list it: the store's listing does not end, or is larger than {} MiB", LISTING_MOST >> 20),
        "use a prefix for each repository; otherwise do not trust this store",
    )
}

impl Bucket {
    pub(super) fn open(name: &BucketName, control: Arc<Control>, handle: Handle) -> Result<Self> {
        let client = Client::open(name, &control, &manner(&control))?;
        Ok(Self { name: name.clone(), client, control, locks: OnceLock::new(), handle })
    }

    /// The most parts that an object may have here.
    pub fn parts_most(&self) -> u64 {
        self.client.parts_most()
    }

    /// True where fullbore can continue an upload that another process began: in S3, which reports the checksums of
    /// parts, unless objects get a lock with the request that begins them.
    pub fn goes_on_with_uploads(&self) -> bool {
        self.client.is_s3() && self.control.objects.lock.is_none()
    }

    /// The object as a user names it.
    pub fn url(&self, key: &str) -> String {
        format!("{}/{key}", self.name)
    }

    /// The bucket as a user names it: `s3://bucket`.
    pub fn shown(&self) -> String {
        self.name.to_string()
    }

    pub(super) fn path(&self, key: &str) -> Result<Path> {
        let wrong = |error: object_store::path::Error| {
            Error::usage(
                self.url(key),
                format!("is not a valid object key: {error}"),
                "use a key without empty parts, `.` and `..`",
            )
        };
        Path::parse(key).map_err(wrong)
    }

    pub(super) fn ask<T>(&self, key: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let url = self.url(key);
        self.handle.block_on(self.control.answered(&url, work))
    }

    pub(super) fn tidy<T>(&self, key: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        let url = self.url(key);
        self.handle.block_on(in_the_end(&url, work))
    }

    /// Starts `work`, which has its own deadlines, and gives its result to `then`, on a thread of the runtime.
    pub fn start<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        then: impl FnOnce(Result<T>) + Send + 'static,
    ) -> Request {
        let control = Arc::clone(&self.control);
        let task = self.handle.spawn(async move { then(control.unless_stopped(work).await.flatten()) });
        Request { task, handle: self.handle.clone() }
    }

    /// Asks until the store answers, or an outage has lasted too long.
    fn ask_on<T, F>(&self, key: &str, action: &str, once: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let url = self.url(key);
        self.handle.block_on(async {
            let mut endurance = Endurance::new(&self.control, &url);
            loop {
                if let Some(answer) = endurance.tried(async { Tried::of(once().await, action, &url) }).await? {
                    return Ok(answer);
                }
            }
        })
    }

    /// What is under that key; nothing if no object is there. Outlasts an outage.
    pub fn head(&self, key: &str) -> Result<Option<Head>> {
        let path = self.path(key)?;
        self.ask_on(key, "look at", || self.head_of(&path))
    }

    /// The same, also when the job is stopped.
    pub fn head_at_last(&self, key: &str) -> Result<Option<Head>> {
        let path = self.path(key)?;
        let explained = |error| explained("look at", &self.url(key), &error);
        self.tidy(key, async { self.head_of(&path).await.map_err(explained) })
    }

    async fn head_of(&self, path: &Path) -> object_store::Result<Option<Head>> {
        let options = GetOptions { head: true, ..GetOptions::default() };
        match self.client.objects().get_opts(path, options).await {
            Ok(found) => Ok(Some(Head {
                size: found.meta.size,
                tag: found.meta.e_tag.clone(),
                modified: found.meta.last_modified.timestamp_micros(),
                set: found.attributes.get(&self.client.metadata(SET)).map(|set| set.to_string()),
            })),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn unread(&self, key: &str) -> impl Fn(StoreError) -> Error {
        let url = self.url(key);
        move |error| explained("read", &url, &error)
    }

    async fn get(&self, path: &Path, range: Range<u64>, tag: Option<String>) -> object_store::Result<GetResult> {
        let options = GetOptions { range: Some(range.into()), if_match: tag, ..GetOptions::default() };
        self.client.objects().get_opts(path, options).await
    }

    async fn bytes(&self, path: &Path, range: Range<u64>, tag: Option<String>) -> object_store::Result<Bytes> {
        self.get(path, range, tag).await?.bytes().await
    }

    /// The bytes `range` of an object, as it was when it had that tag; fewer where it ends. Outlasts an outage.
    pub fn read(&self, key: &str, range: Range<u64>, tag: Option<String>) -> Result<Bytes> {
        let path = self.path(key)?;
        self.ask_on(key, "read", || self.bytes(&path, range.clone(), tag.clone()))
    }

    /// The first `length` bytes of a small object; also when the job is stopped.
    pub fn read_at_last(&self, key: &str, length: u64) -> Result<Bytes> {
        let path = self.path(key)?;
        self.tidy(key, async { self.bytes(&path, 0..length, None).await.map_err(self.unread(key)) })
    }

    /// The first `length` bytes of an object, or all of it; nothing when it is not there, or empty.
    pub fn read_start(&self, key: &str, length: usize) -> Result<Option<Bytes>> {
        let path = self.path(key)?;
        self.ask(key, async {
            match self.bytes(&path, 0..length as u64, None).await {
                Ok(bytes) => Ok(Some(bytes)),
                Err(error) if is_absent(&error) => Ok(None),
                // An empty object has no range.
                Err(error) if error.to_string().contains("InvalidRange") => Ok(None),
                Err(error) => Err(self.unread(key)(error)),
            }
        })
    }

    /// Reads `length` bytes from `offset` on into buffers of one size, which have room for them. Outlasts an outage.
    pub async fn read_into(
        &self,
        key: &str,
        offset: u64,
        length: usize,
        tag: Option<String>,
        mut buffers: Vec<Buffer>,
    ) -> Result<Vec<Buffer>> {
        let (path, url) = (self.path(key)?, self.url(key));
        let mut endurance = Endurance::new(&self.control, &url);
        while endurance.tried(self.fill(&path, &url, offset, length, tag.clone(), &mut buffers)).await?.is_none() {}
        Ok(buffers)
    }

    async fn fill(
        &self,
        path: &Path,
        url: &str,
        offset: u64,
        length: usize,
        tag: Option<String>,
        buffers: &mut [Buffer],
    ) -> Tried<()> {
        let got = self.get(path, offset..offset + length as u64, tag).await;
        let mut stream = match Tried::of(got, "read", url) {
            Tried::Done(Ok(got)) => got.into_stream(),
            Tried::Done(Err(error)) => return Tried::Done(Err(error)),
            Tried::Away(error) => return Tried::Away(error),
        };
        let size = buffers.first().map_or(1, |buffer| buffer.len());
        let mut got = 0;
        while let Some(bytes) = stream.next().await {
            let bytes = match Tried::of(bytes, "read", url) {
                Tried::Done(Ok(bytes)) => bytes,
                Tried::Done(Err(error)) => return Tried::Done(Err(error)),
                Tried::Away(error) => return Tried::Away(error),
            };
            let mut rest = &bytes[..];
            while !rest.is_empty() && got < length {
                let (index, within) = (got / size, got % size);
                let taken = (size - within).min(length - got).min(rest.len());
                buffers[index][within..within + taken].copy_from_slice(&rest[..taken]);
                got += taken;
                rest = &rest[taken..];
            }
            if !rest.is_empty() {
                let why = "the store sent more bytes than requested";
                return Tried::Done(Err(Error::refused(url, why, "do not trust this store")));
            }
        }
        Tried::Done(if got < length { Err(cut_off(url, offset + got as u64)) } else { Ok(()) })
    }

    /// The objects whose keys begin with `prefix` and have no further `/`.
    pub fn list(&self, prefix: &str) -> Result<Vec<Listed>> {
        let directory = match prefix.trim_end_matches('/') {
            "" => String::new(),
            directory => format!("{}/", self.path(directory)?),
        };
        self.ask(prefix, async {
            let (mut found, mut held, mut token) = (Vec::new(), 0, None);
            loop {
                let once = || self.client.page(&directory, token.clone());
                let page = persistently(self.control.patience, once).await;
                let page = page.map_err(|error| explained("list", &self.url(prefix), &error))?;
                held += held_by(&page.result);
                found.extend(page.result.objects.into_iter().map(listed));
                match page.page_token {
                    None => return Ok(found),
                    next if held > LISTING_MOST || next == token => return Err(endless(&self.url(prefix))),
                    next => token = next,
                }
            }
        })
    }

    /// Whether there are objects whose keys begin with `prefix`, which ends in `/`; false where the account may not
    /// ask.
    pub fn has_objects_below(&self, prefix: &str) -> Result<bool> {
        self.ask(prefix, async {
            let once = || self.client.page(prefix, None);
            let page = match persistently(self.control.patience, once).await {
                // An account that may write objects may lack the right to list them.
                Err(error) if is_denied(&error) => return Ok(false),
                page => page.map_err(|error| explained("list", &self.url(prefix), &error))?,
            };
            Ok(!page.result.objects.is_empty() || !page.result.common_prefixes.is_empty())
        })
    }

    /// Writes a small object under a key that is free; false if it is not.
    pub fn put_new(&self, key: &str, bytes: Vec<u8>) -> Result<bool> {
        let path = self.path(key)?;
        let ours = Bytes::from(bytes);
        let once = || async {
            let options = self.with_checksum(&ours, PutMode::Create);
            match self.client.objects().put_opts(&path, PutPayload::from_bytes(ours.clone()), options).await {
                Ok(_) => Ok(true),
                // It may be ours: the answer to an earlier try was lost.
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => {
                    match self.client.objects().get(&path).await {
                        Ok(there) => Ok(there.bytes().await? == ours),
                        // Its owner may have removed it meanwhile.
                        Err(error) if is_absent(&error) => Err(generic(TAKEN_BY_NOTHING)),
                        Err(error) => Err(error),
                    }
                }
                Err(error) => Err(error),
            }
        };
        self.ask(key, async {
            persistently(self.control.patience, once).await.map_err(|error| explained("write", &self.url(key), &error))
        })
    }

    /// Proves, with an object that was just created, that the store refuses a second one under its key.
    ///
    /// # Errors
    /// The store ignores the condition; then the object is gone.
    pub fn prove_conditional(&self, key: &str) -> Result<()> {
        if !self.put_new(key, b"a second writer, who must be refused".to_vec())? {
            return Ok(());
        }
        self.remove(key)?;
        Err(Error::refused(
            self.url(key),
            "another writer replaced this object: the store ignores `If-None-Match`",
            "two backups to one key would not notice each other; name a prefix that ends in `/`: \
            there each backup gets its own names",
        ))
    }

    /// Removes an object, if it exists. Also when the job is stopped.
    pub fn remove(&self, key: &str) -> Result<()> {
        let path = self.path(key)?;
        self.tidy(key, async {
            let removed = persistently(self.control.patience, || self.client.remove(&path)).await;
            removed.map_err(|error| explained("remove", &self.url(key), &error))
        })
    }

    /// Begins an object of the media set `set`: it is invisible until it is completed.
    pub fn begin(&self, key: &str, set: &str) -> Result<Upload> {
        let path = self.path(key)?;
        let once = || self.client.begin(&path, set, &self.control);
        self.ask(key, async {
            let begun = persistently(self.control.patience, once).await;
            begun.map(Upload).map_err(|error| {
                let explained = explained("begin to write", &self.url(key), &error);
                let why = "fullbore writes objects with multipart uploads, and this store may not support them";
                if has_no_multipart(&error) { explained.noting(why) } else { explained }
            })
        })
    }

    /// Uploads part `number`, from 0. Outlasts an outage.
    pub async fn write_part(&self, key: &str, upload: &Upload, number: usize, payload: PutPayload) -> Result<Part> {
        let (path, url) = (self.path(key)?, self.url(key));
        let mut endurance = Endurance::new(&self.control, &url);
        loop {
            let sent = || self.client.write_part(&path, &upload.0, number, payload.clone());
            let once = async { Tried::of(again(self.control.patience, sent).await, "write", &url) };
            if let Some(part) = endurance.tried(once).await? {
                return Ok(Part(part));
            }
        }
    }

    /// Makes the object out of its parts. When this returns, the store has it. Outlasts an outage.
    pub fn complete(&self, key: &str, upload: &Upload, parts: Vec<Part>) -> Result<()> {
        let path = self.path(key)?;
        let parts: Vec<PartId> = parts.into_iter().map(|part| part.0).collect();
        let put = || self.client.complete(&path, &upload.0, parts.clone());
        self.ask_on(key, "complete", || again(self.control.patience, put))
    }

    /// Gives up an upload: its parts are removed. Also when the job is stopped.
    pub fn abort(&self, key: &str, upload: &Upload) -> Result<()> {
        let path = self.path(key)?;
        self.tidy(key, async {
            let aborted = persistently(self.control.patience, || self.client.abort(&path, &upload.0)).await;
            aborted.map_err(|error| explained("give up the upload of", &self.url(key), &error))
        })
    }
}
