//! The processes of a store: the server, and the script `store-supervisor`, which ends it with this process.
//!
//! Why not `PR_SET_PDEATHSIG` alone: the kernel sends that when the *thread* ends that started the server, and a test's
//! thread may end before what it started is no longer wanted; and nothing would remove the directory.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::options::cannot;
use super::{HOST, ObjectStore, StoreKind};

/// How long a server that was killed may take to be gone.
const END: Duration = Duration::from_secs(20);

/// A supervisor with its server.
pub(super) struct Running {
    supervisor: Child,
    /// Open for as long as the server is to live.
    lifeline: Option<ChildStdin>,
    pid: u32,
}

impl Running {
    /// Starts the server that `store` describes; whether it answers is not known yet.
    pub(super) fn start(store: &ObjectStore) -> Result<Self, String> {
        let mut command = command(store)?;
        // Not in the terminal's group: the end of this process is what ends it.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut supervisor = command.spawn().map_err(cannot("run store-supervisor"))?;
        let lifeline = supervisor.stdin.take();
        let said = supervisor.stdout.take().ok_or("store-supervisor has no stdout")?;
        let mut line = String::new();
        BufReader::new(said.take(100)).read_line(&mut line).map_err(cannot("read from store-supervisor"))?;
        let pid = line.trim().parse().map_err(|_| format!("store-supervisor said `{line}`, no process id"))?;
        Ok(Self { supervisor, lifeline, pid })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn supervisor(&self) -> u32 {
        self.supervisor.id()
    }

    /// Whether the server is gone, by itself or with its supervisor.
    pub(super) fn server_ended(&mut self) -> bool {
        // A process that has ended and was not waited for is a zombie.
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid));
        stat.map_or(true, |stat| stat.contains(") Z ")) || matches!(self.supervisor.try_wait(), Ok(Some(_)))
    }

    /// Kills the server. Without `keep` its directory is removed too.
    pub(super) fn end(mut self, keep: bool) -> Result<(), String> {
        if let Some(mut lifeline) = self.lifeline.take()
            && keep
        {
            // It may be gone already.
            let _ = lifeline.write_all(b"keep\n");
        }
        let started = Instant::now();
        while started.elapsed() < END {
            if let Ok(Some(_)) = self.supervisor.try_wait() {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(2));
        }
        // The kernel kills the server with it.
        let _ = self.supervisor.kill();
        let _ = self.supervisor.wait();
        Err(format!("the supervisor of server {} did not end in {} s", self.pid, END.as_secs()))
    }
}

/// The supervisor with the server's command line; the keys are in its environment alone.
fn command(store: &ObjectStore) -> Result<Command, String> {
    let place = store.directory.path();
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("store-supervisor"));
    command.arg(place).arg(store.kind.program()?);
    // The machine's own settings for such a server are not the test's.
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("HOME", place);
    let (access_key, secret_key) = (store.access_key(), store.secret_key());
    let address = format!("{HOST}:{}", store.port);
    match store.kind {
        StoreKind::Versitygw => {
            command.env("ROOT_ACCESS_KEY", access_key).env("ROOT_SECRET_KEY", secret_key);
            // Connections stay open between requests, as S3's do: that is where stale ones come from.
            command.args(["--keep-alive", "--port", &address, "--region", store.region()]);
            command.args(["--mp-max-parts", &store.options.max_parts.to_string()]);
            if let Some(domain) = &store.options.virtual_host {
                command.args(["--virtual-domain", &format!("{domain}:{}", store.port)]);
            }
            if store.options.tls {
                command.arg("--cert").arg(place.join("tls/public.crt"));
                command.arg("--key").arg(place.join("tls/private.key"));
            }
            command.arg("posix");
            if store.options.versioning {
                // Outside of the data: versitygw demands it.
                command.arg("--versioning-dir").arg(place.join("versions"));
            }
            command.arg(store.data());
        }
        StoreKind::Minio => {
            command.env("MINIO_ROOT_USER", access_key).env("MINIO_ROOT_PASSWORD", secret_key);
            command.env("MINIO_REGION", store.region()).env("MINIO_BROWSER", "off");
            // Without a key it encrypts nothing. It protects a directory of tests, and is nobody's secret.
            command.env("MINIO_KMS_SECRET_KEY", "fullbore-tests:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
            if let Some(domain) = &store.options.virtual_host {
                command.env("MINIO_DOMAIN", domain);
            }
            command.args(["server", "--quiet", "--address", &address, "--console-address", "127.0.0.1:0"]);
            // It is on HTTPS when there are certificates in that directory.
            command.arg("--certs-dir").arg(place.join("tls")).arg(store.data());
        }
        StoreKind::Azurite => {
            command.env("AZURITE_ACCOUNTS", format!("{access_key}:{secret_key}"));
            command.args(["--blobHost", HOST, "--blobPort", &store.port.to_string()]);
            // Nothing of a test goes to Microsoft.
            command.args(["--silent", "--disableTelemetry", "--location"]).arg(store.data());
            if store.options.tls {
                command.arg("--cert").arg(place.join("tls/public.crt"));
                command.arg("--key").arg(place.join("tls/private.key"));
            }
        }
        StoreKind::FakeGcs => {
            command.args(["-scheme", "http", "-host", HOST, "-port", &store.port.to_string()]);
            // Whom path-style requests are for.
            command.args(["-public-host", &address, "-backend", "filesystem", "-filesystem-root"]).arg(store.data());
        }
    }
    Ok(command)
}
