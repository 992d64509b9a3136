//! A stub in the place of a SQL Server: it speaks TDS, keeps a small model, and notes every batch.
//!
//! It shows what fullbore sends, and how fullbore takes answers. It proves nothing about a real SQL Server.

mod model;
mod statements;
mod wire;

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use model::{Database, Faults, Model, Past, Running, StoredFile, StoredSet, Task};
use wire::Reply;

/// The number of the first session.
const FIRST_SESSION: i64 = 51;

/// A listening stub. It ends when it is dropped.
pub struct SqlServerStub {
    port: u16,
    model: Arc<Mutex<Model>>,
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
                std::thread::spawn(move || {
                    let _ = serve(stream, session, &model); // The client ended the connection.
                });
            }
        });
        Self { port, model }
    }

    /// The URL of a database on it. It does not speak TLS.
    pub fn url(&self, database: &str) -> String {
        format!("mssql://{USER}@127.0.0.1:{}/{database}?encrypt=never", self.port)
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
fn serve(mut stream: TcpStream, session: i64, model: &Mutex<Model>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    loop {
        let (kind, message) = wire::read_message(&mut stream)?;
        if lock(model).is_gone {
            return stream.shutdown(Shutdown::Both);
        }
        match kind {
            wire::PRELOGIN => Reply::to(&mut stream).end_with(&wire::prelogin())?,
            wire::LOGIN => {
                let login = wire::login(&message).ok_or_else(|| io::Error::other("a login that is cut off"))?;
                let mut reply = Reply::to(&mut stream);
                if login.user != USER || login.password != PASSWORD {
                    reply.error(18456, 14, &format!("Login failed for user '{}'.", login.user));
                    reply.end(true)?;
                    return stream.shutdown(Shutdown::Both);
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
