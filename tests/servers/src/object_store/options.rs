//! What there is to choose about a store, and what has to be there before it starts.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::HOST;
use crate::output;

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// versitygw over a file system: small and quick to start, what tests use.
    Versitygw,
    /// MinIO: what benches use too.
    Minio,
    /// Azurite: Microsoft's emulator of Azure Blob Storage.
    Azurite,
    /// fake-gcs-server: an emulator of Google Cloud Storage, without its multipart uploads.
    FakeGcs,
}

impl StoreKind {
    /// The name that `install-stores` knows it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Versitygw => "versitygw",
            Self::Minio => "minio",
            Self::Azurite => "azurite",
            Self::FakeGcs => "fake-gcs",
        }
    }

    /// What installs it.
    fn needs(self) -> &'static str {
        if self == Self::Azurite { "node and npm" } else { "go" }
    }

    /// Whether it is installed, for tests of what is not installed everywhere.
    pub fn is_installed(self) -> bool {
        self.program().is_ok()
    }

    /// Where its program lies.
    ///
    /// # Errors
    /// What to run, if it is not installed.
    pub fn program(self) -> Result<PathBuf, String> {
        let (directory, name) = (servers_directory(), self.name());
        if !directory.join(name).join("installed").exists() {
            let install = Path::new(env!("CARGO_MANIFEST_DIR")).join("install-stores");
            let (directory, install) = (directory.display(), install.display());
            return Err(format!(
                "{name} is not installed in {directory}: run `{install} {name}` (minutes; needs {})",
                self.needs()
            ));
        }
        Ok(directory.join(name).join("bin").join(name))
    }
}

/// How a store is to be started. The default: plain HTTP, `us-east-1`, no versions.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub(super) versioning: bool,
    pub(super) tls: bool,
    pub(super) region: String,
    pub(super) virtual_host: Option<String>,
    pub(super) max_parts: u32,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { versioning: false, tls: false, region: "us-east-1".to_owned(), virtual_host: None, max_parts: 10_000 }
    }
}

impl StoreOptions {
    /// The default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Buckets can have versions and Object Lock. MinIO's always can.
    pub fn versioning(mut self) -> Self {
        self.versioning = true;
        self
    }

    /// HTTPS, with a certificate for 127.0.0.1 and localhost by an authority of its own: `ObjectStore::ca`.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// A bucket is named by the host as well: `http://BUCKET.domain:PORT/KEY`. `localhost` is such a domain for curl and for
    /// machines with nss-myhostname.
    pub fn virtual_host(mut self, domain: &str) -> Self {
        self.virtual_host = Some(domain.to_owned());
        self
    }

    /// Fewer parts in an upload than S3's 10,000, as some stores have it. MinIO has always 10,000.
    pub fn max_parts(mut self, parts: u32) -> Self {
        self.max_parts = parts;
        self
    }

    /// The region that requests must be signed for.
    pub fn region(mut self, region: &str) -> Self {
        region.clone_into(&mut self.region);
        self
    }
}

/// The same rule as in `install`.
fn servers_directory() -> PathBuf {
    let of = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(directory) = of("FULLBORE_TEST_SERVERS") {
        directory
    } else if let Some(cache) = of("XDG_CACHE_HOME") {
        cache.join("fullbore/servers")
    } else if rustix::process::geteuid().is_root() {
        PathBuf::from("/var/cache/fullbore/servers")
    } else {
        of("HOME").unwrap_or_default().join(".cache/fullbore/servers")
    }
}

/// For `map_err`: says what was tried.
pub(super) fn cannot<E: fmt::Display>(what: &str) -> impl Fn(E) -> String {
    move |error| format!("cannot {what}: {error}")
}

/// An access key and a secret that no other store has.
pub(super) fn random_keys() -> io::Result<(String, String)> {
    let mut bytes = [0; 30];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    Ok((hex(&bytes[..10]), hex(&bytes[10..])))
}

/// A free port below those that the kernel gives to outgoing connections, so that none of these takes it meanwhile.
pub(super) fn free_port() -> io::Result<u16> {
    let mut last = io::Error::other("no attempt");
    for _ in 0..200 {
        let port = fastrand::u16(12_000..32_000);
        match TcpListener::bind((HOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// An authority (`ca.pem`) and a server's certificate from it (`public.crt`, `private.key`, the names that MinIO wants) in
/// `folder`: rustls takes no certificate that is both.
pub(crate) fn make_certificates(folder: &Path) -> Result<(), String> {
    let extensions =
        "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\nextendedKeyUsage=serverAuth\n";
    fs::write(folder.join("extensions"), extensions).map_err(cannot("write what a certificate is for"))?;
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    for arguments in [
        format!("req -x509 {new_key} -days 3650 -subj /CN=fullbore-tests -keyout ca-key.pem -out ca.pem"),
        format!("req {new_key} -subj /CN=localhost -keyout private.key -out request.pem"),
        "x509 -req -days 3650 -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -extfile extensions \
         -out public.crt"
            .to_owned(),
    ] {
        let mut openssl = Command::new("openssl");
        openssl.current_dir(folder).args(arguments.split_whitespace()).stdin(Stdio::null());
        output(&mut openssl).map_err(cannot("make a certificate with openssl"))?;
    }
    Ok(())
}
