//! Real S3 servers for tests, and emulators of Azure and Google: `ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new())` is one, until it is dropped.
//!
//! ```no_run
//! use fullbore_test_servers::{ObjectStore, StoreKind, StoreOptions};
//!
//! let mut store = ObjectStore::start(StoreKind::Versitygw, &StoreOptions::new());
//! store.make_bucket("backups");
//! std::process::Command::new("fullbore").envs(store.environment());
//! store.kill();
//! store.start_again();
//! ```

mod emulators;
mod google_front;
mod options;
mod process;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::s3_client::{Call, S3Client, elements};

use emulators::azure_key;
use google_front::GoogleFront;
pub(crate) use options::make_certificates;
pub use options::{StoreKind, StoreOptions};
use options::{cannot, free_port, random_keys};
use process::Running;

/// How long a server may take until it answers. They need 0.1 to 1 s; a busy machine is patient.
const START: Duration = Duration::from_secs(60);
const HOST: &str = "127.0.0.1";

/// An object in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// The whole key.
    pub key: String,
    /// Bytes.
    pub size: u64,
}

/// A server with its data in a temporary directory. Dropping it kills the server and removes the directory; so does the
/// end of the test's process, whatever ends it.
pub struct ObjectStore {
    kind: StoreKind,
    options: StoreOptions,
    directory: TempDir,
    port: u16,
    client: S3Client,
    running: Option<Running>,
    /// What Google's emulator lacks.
    front: Option<GoogleFront>,
}

impl fmt::Debug for ObjectStore {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(to, "ObjectStore({} at {})", self.kind.name(), self.endpoint())
    }
}

impl ObjectStore {
    /// Starts a server and waits until it answers.
    ///
    /// # Panics
    /// If it is not installed (with what to run) or does not start (with the end of its log).
    pub fn start(kind: StoreKind, options: &StoreOptions) -> Self {
        Self::try_start(kind, options).unwrap_or_else(|message| panic!("{message}"))
    }

    /// The same, with the message.
    ///
    /// # Errors
    /// If it is not installed or does not start.
    pub fn try_start(kind: StoreKind, options: &StoreOptions) -> Result<Self, String> {
        kind.program()?;
        let directory =
            tempfile::Builder::new().prefix("fullbore-store-").tempdir().map_err(cannot("make a directory"))?;
        for name in ["data", "versions", "tls"] {
            fs::create_dir(directory.path().join(name)).map_err(cannot("make a directory"))?;
        }
        let (access_key, secret_key) = random_keys().map_err(cannot("make keys"))?;
        let secret_key = if kind == StoreKind::Azurite { azure_key(&secret_key) } else { secret_key };
        let ca = options.tls.then(|| directory.path().join("tls/ca.pem"));
        if options.tls {
            make_certificates(&directory.path().join("tls"))?;
        }
        let client = S3Client { endpoint: String::new(), region: options.region.clone(), access_key, secret_key, ca };
        let mut store = Self { kind, options: options.clone(), directory, port: 0, client, running: None, front: None };
        let mut attempts = 0;
        loop {
            store.port = free_port().map_err(cannot("find a free port"))?;
            let scheme = if store.options.tls { "https" } else { "http" };
            store.client.endpoint = format!("{scheme}://{HOST}:{}", store.port);
            attempts += 1;
            match store.run() {
                // Somebody else may have taken the port since.
                Err(message) if attempts == 5 => return Err(message),
                Err(_) => {}
                Ok(()) => break,
            }
        }
        if kind == StoreKind::FakeGcs {
            let server = format!("{HOST}:{}", store.port);
            store.front = Some(GoogleFront::start(&server, store.secret_key()).map_err(cannot("start the front"))?);
        }
        Ok(store)
    }

    /// Ends the server as a power cut would, by SIGKILL. Its data stays.
    ///
    /// # Panics
    /// If it cannot be ended.
    pub fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            running.end(true).unwrap_or_else(|message| panic!("{message}"));
        }
    }

    /// Starts it again after `kill`, on the same port, data and keys.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start_again(&mut self) {
        self.kill();
        self.run().unwrap_or_else(|message| panic!("{message}"));
    }

    fn run(&mut self) -> Result<(), String> {
        let mut running = Running::start(self)?;
        let (started, root) = (Instant::now(), self.proof_of_life());
        let why = loop {
            match self.client.send(&root) {
                // Nobody else knows the secret: who says 200 is this server.
                Ok(answer) if answer.status == 200 => {
                    self.running = Some(running);
                    return Ok(());
                }
                // While it starts it may say 503.
                Ok(answer) if answer.status < 500 => break format!("answers {}: {}", answer.status, answer.text()),
                _ if running.server_ended() => break "ended at its start".to_owned(),
                _ if started.elapsed() > START => break format!("does not answer in {} s", START.as_secs()),
                _ => thread::sleep(Duration::from_millis(20)),
            }
        };
        let log = self.log();
        let tail = log.char_indices().rev().nth(3000).map_or(0, |(at, _)| at);
        let _ = running.end(true);
        Err(format!("{} {why}; its log ends with:\n{}", self.kind.name(), &log[tail..]))
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// If the server does not.
    pub fn make_bucket(&self, name: &str) {
        self.demand_bucket(name);
    }

    /// Makes a bucket with Object Lock, and so with versions; the store was started with `StoreOptions::versioning`.
    ///
    /// # Panics
    /// If the server does not.
    pub fn make_bucket_with_object_lock(&self, name: &str) {
        self.client.demand(&Call::new("PUT", &format!("/{name}")).header("x-amz-bucket-object-lock-enabled", "true"));
    }

    /// All objects of a bucket in the order of their keys, as the server lists them.
    ///
    /// # Panics
    /// If the server does not list them.
    pub fn objects(&self, bucket: &str) -> Vec<Object> {
        match self.kind {
            StoreKind::Versitygw | StoreKind::Minio => self.s3_objects(bucket),
            StoreKind::Azurite => self.azure_objects(bucket),
            StoreKind::FakeGcs => self.google_objects(bucket),
        }
    }

    fn s3_objects(&self, bucket: &str) -> Vec<Object> {
        let (mut found, mut token): (Vec<Object>, Option<String>) = (Vec::new(), None);
        loop {
            let mut call = Call::new("GET", &format!("/{bucket}")).query("list-type", "2");
            if let Some(token) = &token {
                call = call.query("continuation-token", token);
            }
            let page = self.client.demand(&call).text();
            for object in elements(&page, "Contents") {
                let part = |name: &str| elements(&object, name).into_iter().next().unwrap_or_default();
                let size = part("Size").parse().unwrap_or_else(|_| panic!("an object without a size: {object}"));
                found.push(Object { key: part("Key"), size });
            }
            token = elements(&page, "NextContinuationToken").into_iter().next();
            if token.is_none() {
                return found;
            }
        }
    }

    /// The multipart uploads of a bucket that were neither completed nor aborted: key and upload id. At most 1,000.
    ///
    /// # Panics
    /// If the server does not list them.
    pub fn uploads(&self, bucket: &str) -> Vec<(String, String)> {
        if self.kind == StoreKind::Azurite {
            return self.azure_uploads(bucket);
        }
        let page = self.client.demand(&Call::new("GET", &format!("/{bucket}")).query("uploads", "")).text();
        let upload = |text: &String| {
            let part = |name: &str| elements(text, name).into_iter().next().unwrap_or_default();
            (part("Key"), part("UploadId"))
        };
        elements(&page, "Upload").iter().map(upload).collect()
    }

    /// A client with the right keys.
    pub fn client(&self) -> S3Client {
        self.client.clone()
    }

    /// Which server.
    pub fn kind(&self) -> StoreKind {
        self.kind
    }

    /// `http://127.0.0.1:PORT`, or with `https`.
    pub fn endpoint(&self) -> &str {
        &self.client.endpoint
    }

    /// The port that it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The access key, made anew for each store.
    pub fn access_key(&self) -> &str {
        &self.client.access_key
    }

    /// Its secret.
    pub fn secret_key(&self) -> &str {
        &self.client.secret_key
    }

    /// The region that requests must be signed for.
    pub fn region(&self) -> &str {
        &self.client.region
    }

    /// The environment in which any client finds this store. With TLS, `AWS_CA_BUNDLE` is the authority.
    pub fn environment(&self) -> Vec<(&'static str, String)> {
        let front = self.front.as_ref().map(GoogleFront::endpoint);
        self.environment_at(front.as_deref().unwrap_or_else(|| self.endpoint()))
    }

    /// The same by way of another endpoint, such as a proxy's.
    pub fn environment_at(&self, endpoint: &str) -> Vec<(&'static str, String)> {
        let ca = self.ca().map(|ca| ca.display().to_string());
        match self.kind {
            StoreKind::Versitygw | StoreKind::Minio => {}
            StoreKind::Azurite => {
                let mut environment = vec![
                    ("AZURE_STORAGE_ENDPOINT", format!("{endpoint}/{}", self.access_key())),
                    ("AZURE_STORAGE_ACCOUNT_NAME", self.access_key().to_owned()),
                    ("AZURE_STORAGE_ACCOUNT_KEY", self.secret_key().to_owned()),
                ];
                environment.extend(ca.map(|ca| ("SSL_CERT_FILE", ca)));
                return environment;
            }
            StoreKind::FakeGcs => {
                let token = ("GOOGLE_BEARER_TOKEN", self.secret_key().to_owned());
                return vec![("STORAGE_EMULATOR_HOST", endpoint.to_owned()), token];
            }
        }
        let mut environment = vec![
            ("AWS_ENDPOINT_URL", endpoint.to_owned()),
            ("AWS_ACCESS_KEY_ID", self.access_key().to_owned()),
            ("AWS_SECRET_ACCESS_KEY", self.secret_key().to_owned()),
            ("AWS_REGION", self.region().to_owned()),
            // A machine in the cloud would be asked who it is otherwise.
            ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        ];
        environment.extend(ca.map(|ca| ("AWS_CA_BUNDLE", ca)));
        environment
    }

    /// The certificate of the authority that signed the server's, with TLS.
    pub fn ca(&self) -> Option<&Path> {
        self.client.ca.as_deref()
    }

    /// Where its buckets lie: folders, in versitygw with objects as files.
    pub fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// The server's process.
    ///
    /// # Panics
    /// If it does not run.
    pub fn pid(&self) -> u32 {
        self.running().pid()
    }

    /// The process that ends the server with this one.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn supervisor(&self) -> u32 {
        self.running().supervisor()
    }

    fn running(&self) -> &Running {
        self.running.as_ref().unwrap_or_else(|| panic!("{self:?} was killed and not started again"))
    }

    /// What the server has said so far.
    pub fn log(&self) -> String {
        fs::read(self.directory.path().join("log"))
            .map_or_else(|error| error.to_string(), |log| String::from_utf8_lossy(&log).into_owned())
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // A panic here would hide the test's own; and the end of this process ends the server at the latest.
            let _ = running.end(false);
        }
    }
}
