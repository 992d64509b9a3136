//! A stub in the place of a SQL Server: it speaks TDS, keeps a small model, and notes every batch.
//!
//! It shows what fullbore sends, and how fullbore takes answers. It proves nothing about a real SQL Server.

mod model;
mod statements;
mod tls;
mod wire;

use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use tempfile::TempDir;

use crate::object_store::make_certificates;
pub use model::{Database, Faults, Model, Past, Running, StoredFile, StoredSet, Task};
use tls::Stream;
use wire::Reply;

/// The number of the first session.
const FIRST_SESSION: i64 = 51;

/// A listening stub. It ends when it is dropped.
pub struct SqlServerStub {
    port: u16,
    model: Arc<Mutex<Model>>,
    /// With TLS: the folder of its certificate.
    certificates: Option<TempDir>,
}

/// The account that the stub knows.
pub const USER: &str = "sa";
/// Its password.
pub const PASSWORD: &str = "N0t-in-any-text";

impl SqlServerStub {
    /// Starts one, with a database `shop`.
    ///
    /// # Panics
    /// If no port can be opened.
    pub fn start() -> Self {
        Self::start_with(None)
    }

    /// Starts one that demands TLS. Its certificate is for 127.0.0.1, from an authority of its own.
    ///
    /// # Panics
    /// If no port can be opened, or openssl makes no certificate.
    pub fn start_with_tls() -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder for certificates: {error}"));
        make_certificates(folder.path()).unwrap_or_else(|error| panic!("{error}"));
        Self::start_with(Some(folder))
    }

    fn start_with(certificates: Option<TempDir>) -> Self {
        let tls = certificates.as_ref().map(|folder| tls::config(folder.path()));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no port for the stub: {error}"));
        let port = listener.local_addr().map_or(0, |address| address.port());
        let model = Arc::new(Mutex::new(Model::default()));
        let (sessions, shared) = (AtomicI64::new(FIRST_SESSION), Arc::clone(&model));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if lock(&shared).is_gone {
                    return;
                }
                let (session, model) = (sessions.fetch_add(1, Ordering::Relaxed), Arc::clone(&shared));
                let tls = tls.clone();
                std::thread::spawn(move || {
                    let _ = serve(stream, session, &model, tls); // The client ended the connection.
                });
            }
        });
        Self { port, model, certificates }
    }

    /// The URL of a database on it, with what its TLS needs.
    pub fn url(&self, database: &str) -> String {
        let option = match &self.certificates {
            None => "encrypt=never".to_owned(),
            Some(folder) => format!("certificate-authority={}", folder.path().join("ca.pem").display()),
        };
        format!("mssql://{USER}@127.0.0.1:{}/{database}?{option}", self.port)
    }

    /// The same URL with the name of an instance and without its port: SQL Server Browser says it. The stub's own browser
    /// listens until the stub ends.
    ///
    /// # Panics
    /// If no port can be opened.
    pub fn url_of_instance(&self, database: &str, instance: &str) -> String {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("no port for a browser: {error}"));
        let browser = socket.local_addr().map_or(0, |address| address.port());
        let (model, port, known) = (Arc::clone(&self.model), self.port, instance.to_owned());
        let _ = socket.set_read_timeout(Some(Duration::from_millis(50)));
        std::thread::spawn(move || {
            let mut question = [0; 64];
            while !lock(&model).is_gone {
                let Ok((length, from)) = socket.recv_from(&mut question) else { continue };
                // As MC-SQLR has it: the kind of the question, the name, a zero byte.
                if question.get(..length) == Some(&[&[4], known.as_bytes(), &[0]].concat()[..]) {
                    let text =
                        format!("ServerName;STUB;InstanceName;{known};IsClustered;No;Version;16.0.4135.4;tcp;{port};;");
                    let length = (text.len() as u16).to_le_bytes();
                    let _ = socket.send_to(&[&[5], &length[..], text.as_bytes()].concat(), from);
                }
            }
        });
        let url = self.url(database).replace(&format!(":{port}/"), "/");
        format!("{url}&instance={instance}&browser-port={browser}")
    }

    /// Looks into the model, or changes it.
    pub fn with<T>(&self, work: impl FnOnce(&mut Model) -> T) -> T {
        work(&mut lock(&self.model))
    }

    /// All batches so far that begin with `word`.
    pub fn batches(&self, word: &str) -> Vec<String> {
        let known = lock(&self.model);
        known.batches.iter().filter(|(_, batch)| batch.starts_with(word)).map(|(_, batch)| batch.clone()).collect()
    }
}

impl Drop for SqlServerStub {
    fn drop(&mut self) {
        lock(&self.model).is_gone = true;
        let _ = TcpStream::connect(("127.0.0.1", self.port)); // Wakes the listener.
    }
}

fn lock(model: &Mutex<Model>) -> MutexGuard<'_, Model> {
    model.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection, from its prelogin to its end.
fn serve(socket: TcpStream, session: i64, model: &Mutex<Model>, tls: Option<Arc<ServerConfig>>) -> io::Result<()> {
    socket.set_nodelay(true)?;
    let mut stream = Stream::Plain(socket);
    loop {
        let (kind, message) = wire::read_message(&mut stream)?;
        while lock(model).is_silent && !lock(model).is_gone {
            std::thread::sleep(Duration::from_millis(10));
        }
        if lock(model).is_gone {
            return stream.shutdown();
        }
        match kind {
            wire::PRELOGIN => {
                Reply::to(&mut stream).end_with(&wire::prelogin(tls.is_some()))?;
                if let Some(config) = &tls {
                    stream = stream.secured(Arc::clone(config))?;
                }
            }
            wire::LOGIN => {
                let login = wire::login(&message).ok_or_else(|| io::Error::other("a login that is cut off"))?;
                let mut reply = Reply::to(&mut stream);
                if login.user != USER || login.password != PASSWORD {
                    reply.error(18456, 14, &format!("Login failed for user '{}'.", login.user));
                    reply.end(true)?;
                    return stream.shutdown();
                }
                reply.database("master");
                reply.login_ack();
                reply.end(false)?;
            }
            wire::BATCH => {
                let batch = wire::batch(&message).ok_or_else(|| io::Error::other("a batch that is cut off"))?;
                statements::answer(&batch, session, model, &mut stream)?;
            }
            other => return Err(io::Error::other(format!("a message of kind {other}"))),
        }
    }
}
