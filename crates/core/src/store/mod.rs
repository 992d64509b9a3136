//! Object stores: S3, Azure Blob Storage and Google Cloud Storage. This is the only place with async code: requests run
//! on a small runtime of the job. For the rest of the program a call blocks, at most for the job's patience.
//!
//! Public sources: Amazon S3 API Reference (PutObject, CreateMultipartUpload, UploadPart, CompleteMultipartUpload,
//! GetObject).

#[cfg(feature = "azure")]
mod azure;
#[cfg(feature = "azure")]
mod azure_settings;
mod bucket;
mod client;
mod connection;
mod outage;
mod errors;
#[cfg(feature = "gcs")]
mod google;
mod attributes;
mod locked;
mod multipart;
mod object_options;
mod profile;
mod raw;
mod retries;
mod s3;
mod signed;
mod small;
mod xml;
mod error_codes;

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::device::BucketName;
use crate::error::{Error, Result};

pub use attributes::Kept;
pub use bucket::{Bucket, Head, Listed, Part, Request, Upload};
pub(crate) use errors::cut_off;
use errors::explained;
pub use locked::{Lock, Locked, PERMISSIONS};
pub use multipart::crc32c_of;
pub use object_options::{Encryption, LockMode, ObjectLock, ObjectOptions, storage_class, tag};
use retries::Retries;
pub use signed::{UnfinishedUpload, UploadedPart};

/// The longest that a request may take, all its retries included, when nothing else is said.
pub const PATIENCE: Duration = Duration::from_secs(180);
/// The same for cleanup after a failure: a user who stops a job does not want to wait for a dead store.
const LAST_PATIENCE: Duration = Duration::from_secs(10);
/// How often a request looks whether a signal has come.
const TICK: Duration = Duration::from_millis(100);
/// Prefixes of the variables that name stores and their keys.
const SETTINGS: [&str; 3] = ["AWS_", "AZURE_", "GOOGLE_"];
/// Prefixes of the variables that name an account and its place: a profile that the user names replaces them.
const OF_AN_ACCOUNT: [&str; 12] = [
    "AWS_PROFILE",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_TOKEN",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT",
    "AWS_ROLE_",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_",
];
/// Where Google's own libraries find an emulator.
const EMULATOR: &str = "STORAGE_EMULATOR_HOST";
/// Threads that carry requests out. They hash and encrypt as well: one is not enough for two fast devices.
const THREADS: usize = 2;

/// The stores of one job: its buckets, each opened once, and the threads that their requests run on. Nothing is started
/// before the first bucket is asked for.
#[derive(Clone)]
pub struct Stores {
    control: Arc<Control>,
    open: Arc<Mutex<Open>>,
}

/// How requests are made, and what ends them early.
struct Control {
    patience: Duration,
    /// Variables as in the environment, by their names.
    settings: Vec<(String, String)>,
    /// How families are to be kept; [`lock`](Control::lock) says until when they are locked.
    objects: ObjectOptions,
    /// New objects are locked until then, in seconds since 1970. A long job moves it.
    locked_until: AtomicI64,
    /// How often requests have been stopped.
    stopped: Arc<watch::Sender<u64>>,
    /// The requests that are failing now.
    retries: Arc<Retries>,
    /// Not 0 once a signal has come.
    signal: Arc<OnceLock<Arc<AtomicUsize>>>,
}

#[derive(Default)]
struct Open {
    runtime: Option<Runtime>,
    buckets: BTreeMap<BucketName, Arc<Bucket>>,
}

impl Drop for Open {
    fn drop(&mut self) {
        // Does not wait for a name server that does not answer.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// At the endpoint and with the credentials that the environment names.
impl Default for Stores {
    fn default() -> Self {
        Self::of_environment(PATIENCE)
    }
}

impl Stores {
    /// Stores at the endpoint and with the credentials of the environment and its profile (`AWS_…`, `AZURE_…`,
    /// `GOOGLE_…`). A request may take this long, all its retries included.
    pub fn of_environment(patience: Duration) -> Self {
        Self::of_environment_keeping(patience, ObjectOptions::default(), None)
    }

    /// The same, keeping families as `objects` says. With a named profile, only its keys, its region and its endpoint
    /// count.
    pub fn of_environment_keeping(patience: Duration, objects: ObjectOptions, profile: Option<&str>) -> Self {
        let text = |text: std::ffi::OsString| text.into_string().ok();
        let variables = std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?)));
        let ours = |name: &str| name == EMULATOR || SETTINGS.iter().any(|start| name.starts_with(start));
        let mut settings: Vec<(String, String)> = variables.filter(|(name, _)| ours(name)).collect();
        settings.extend(crate::io::home().and_then(|home| Some(("HOME".to_owned(), home.to_str()?.to_owned()))));
        if let Some(profile) = profile {
            settings.retain(|(name, _)| !OF_AN_ACCOUNT.iter().any(|start| name.starts_with(start)));
            settings.push(("AWS_PROFILE".into(), profile.into()));
        }
        Self::keeping(patience, settings, objects)
    }

    /// The same with these variables.
    pub fn new(patience: Duration, settings: Vec<(String, String)>) -> Self {
        Self::keeping(patience, settings, ObjectOptions::default())
    }

    /// With these variables, keeping families as `objects` says. An empty variable is as one that is not set: a file
    /// of variables may have `AWS_ENDPOINT_URL=`.
    pub fn keeping(patience: Duration, mut settings: Vec<(String, String)>, objects: ObjectOptions) -> Self {
        settings.retain(|(_, value)| !value.is_empty());
        let locked_until = AtomicI64::new(objects.lock.as_ref().map_or(0, |lock| lock.until.as_second()));
        let (stopped, signal) = (Arc::new(watch::Sender::new(0)), Arc::default());
        let control = Control { patience, stopped, retries: Arc::default(), signal, settings, objects, locked_until };
        Self { control: Arc::new(control), open: Arc::default() }
    }

    /// These stores; their requests end whenever those of `other` do: for a job that needs two accounts. Call it before
    /// the first bucket is opened.
    #[must_use]
    pub fn ending_with(mut self, other: &Self) -> Self {
        if let Some(control) = Arc::get_mut(&mut self.control) {
            control.stopped = Arc::clone(&other.control.stopped);
            control.signal = Arc::clone(&other.control.signal);
        }
        self.telling_as(other)
    }

    /// These stores; notes about their failing requests go where those of `other` go. Call it before the first bucket
    /// is opened.
    #[must_use]
    pub fn telling_as(mut self, other: &Self) -> Self {
        if let Some(control) = Arc::get_mut(&mut self.control) {
            control.retries = Arc::clone(&other.control.retries);
        }
        self
    }

    /// From now on `tell` gets each request that fails for some seconds and is tried again.
    pub fn tell_retries(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        self.control.retries.tell(tell);
    }

    /// True when these may be other stores than `other`, at another endpoint or of another account: then one name may
    /// mean two things.
    pub fn differ_from(&self, other: &Self) -> bool {
        self.control.settings != other.control.settings
    }

    /// The bucket of that name, at the endpoint and with the credentials of the environment. Asks the store nothing.
    ///
    /// # Errors
    /// The environment contradicts itself, the service is not built in, or no thread can be had.
    pub fn bucket(&self, name: impl Into<BucketName>) -> Result<Arc<Bucket>> {
        let name = name.into();
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bucket) = open.buckets.get(&name) {
            return Ok(Arc::clone(bucket));
        }
        let handle = match &open.runtime {
            Some(runtime) => runtime.handle().clone(),
            None => open.runtime.insert(start()?).handle().clone(),
        };
        let bucket = Arc::new(Bucket::open(&name, Arc::clone(&self.control), handle)?);
        open.buckets.insert(name, Arc::clone(&bucket));
        Ok(bucket)
    }

    /// New objects are locked until then; nothing: they are not locked.
    pub fn locks_until(&self) -> Option<jiff::Timestamp> {
        self.control.lock().map(|lock| lock.until)
    }

    /// From now on, new objects are locked until then, in whole seconds, if they are locked at all.
    pub fn lock_until(&self, until: jiff::Timestamp) {
        self.control.locked_until.store(until.as_second(), Ordering::Relaxed);
    }

    /// Ends every request that is under way, except those that clean up.
    pub fn stop(&self) {
        self.control.stopped.send_modify(|times| *times += 1);
    }

    /// From now on a number in `signal` other than 0 ends every request, except those that clean up.
    pub fn stop_on(&self, signal: &Arc<AtomicUsize>) {
        let _ = self.control.signal.set(Arc::clone(signal)); // A job has one.
    }
}

/// Requests that are repeated end by themselves after the job's patience, and name the cause: they get the last word.
const LAST_WORD: Duration = Duration::from_secs(2);

impl Control {
    /// The lock of objects that are begun now.
    fn lock(&self) -> Option<ObjectLock> {
        let asked = self.objects.lock.as_ref()?;
        let until = jiff::Timestamp::from_second(self.locked_until.load(Ordering::Relaxed));
        Some(ObjectLock { mode: asked.mode, until: until.unwrap_or(asked.until) })
    }

    /// Waits for an answer, at most for the job's patience; [`Error::Halted`] when the job is stopped.
    async fn answered<T>(&self, thing: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
        match self.unless_stopped(tokio::time::timeout(self.patience + LAST_WORD, work)).await? {
            Ok(answer) => answer,
            Err(_) => Err(silent(thing, self.patience)),
        }
    }

    /// Waits for `work`, unless the job is stopped.
    async fn unless_stopped<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let mut stopped = self.stopped.subscribe();
        tokio::select! {
            biased;
            _ = stopped.changed() => Err(Error::Halted),
            () = self.signalled() => Err(Error::Halted),
            done = work => Ok(done),
        }
    }

    /// Returns once a signal has come.
    async fn signalled(&self) {
        while self.signal.get().is_none_or(|signal| signal.load(Ordering::Relaxed) == 0) {
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Waits for work that cleans up, also in a stopped job.
async fn in_the_end<T>(thing: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(LAST_PATIENCE, work).await.unwrap_or_else(|_| Err(silent(thing, LAST_PATIENCE)))
}

fn silent(thing: &str, patience: Duration) -> Error {
    Error::refused(
        thing,
        format!("the store gave no answer within {} s", patience.as_secs()),
        "check the endpoint and the network; --device-timeout makes the wait longer",
    )
}

fn start() -> Result<Runtime> {
    let built = Builder::new_multi_thread().worker_threads(THREADS).thread_name("store").enable_all().build();
    built.map_err(|error| Error::io("start the threads of", "the object store", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_variable_is_as_one_that_is_not_set() {
        let settings = [("AWS_ENDPOINT_URL", ""), ("AWS_REGION", "eu-1"), ("AWS_SESSION_TOKEN", "")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let stores = Stores::new(PATIENCE, settings.to_vec());
        assert_eq!(stores.control.settings, [("AWS_REGION".to_owned(), "eu-1".to_owned())]);
    }
}
