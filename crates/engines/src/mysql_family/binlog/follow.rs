//! Follows the log of a server: each set is what was logged since the last one. Nothing holds the log: the server keeps
//! its files for as long as it is told to, and a file that is gone is an error.

use fullbore_core::{Error, Result};

use super::end::End;
use super::engine::{end_of, ends};
use super::preflight::{Server, Status, is_beyond, status};
use super::session::{BinlogSession, join_first};
use crate::engine::{LogFollower, LogSession, SetEnd};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::{Options, Session};

/// A follower of a server's log.
pub struct Follower {
    dialect: Dialect,
    url: String,
    options: Options,
    /// The connection for queries; made again if the server was started again.
    asking: Option<(Server, Connection)>,
    /// Where the next set begins.
    stands: Option<End>,
    /// The server could not be reached the last time.
    lost: bool,
}

impl Follower {
    /// Connects to the server.
    ///
    /// # Errors
    /// The server cannot be reached, or has no usable binary log.
    pub fn open(dialect: Dialect, url: &str, options: &Options) -> Result<Self> {
        let asking = Some(Server::open(dialect, url, options)?);
        Ok(Self { dialect, url: url.to_owned(), options: options.clone(), asking, stands: None, lost: false })
    }

    fn stands(&self) -> Result<End> {
        self.stands.clone().ok_or(Error::Halted)
    }

    /// Asks the server, over a new connection if the last one is lost.
    fn ask<T>(&mut self, question: impl Fn(&Server, &mut Connection) -> Result<T>) -> Result<T> {
        if let Some((server, connection)) = &mut self.asking {
            match question(server, connection) {
                Err(error) if connection.query("DO 1").is_ok() => return Err(error),
                Err(_) => self.asking = None,
                done => return done,
            }
        }
        self.lost = true;
        let (server, connection) = self.asking.insert(Server::open(self.dialect, &self.url, &self.options)?);
        let answer = question(server, connection)?;
        self.lost = false;
        Ok(answer)
    }
}

impl LogFollower for Follower {
    fn join(&mut self, bases: &[SetEnd]) -> Result<usize> {
        let bases = ends(self.dialect, bases)?;
        let at = self.ask(|server, connection| join_first(server, connection, &bases).map(|joined| joined.0))?;
        self.stands = bases.get(at).cloned();
        Ok(at)
    }

    fn snapshot(&self) -> Result<Box<dyn Session>> {
        crate::named(self.dialect.name()).ok_or(Error::Halted)?.open(&self.url, &self.options)
    }

    fn join_own(&mut self, position: &serde_json::Value) -> Result<()> {
        let finished = Some(jiff::Timestamp::now().as_microsecond());
        self.stands = Some(End { finished, ..end_of(self.dialect, position)? });
        Ok(())
    }

    fn has_news(&mut self) -> Result<bool> {
        let stands = self.stands()?;
        // An account that may not ask pulls.
        let is_news =
            |server: &Server, now: Status| server.identity != stands.server || is_beyond(&now, &stands.binlog);
        self.ask(|server, connection| Ok(status(connection)?.is_none_or(|now| is_news(server, now))))
    }

    fn next_set(&mut self) -> Result<Option<Box<dyn LogSession>>> {
        let stands = self.stands()?;
        let session = self.ask(|server, connection| {
            let (_, joined) = join_first(server, connection, std::slice::from_ref(&stands))?;
            BinlogSession::new(server, connection, joined)
        })?;
        Ok(session.map(|session| Box::new(session) as Box<dyn LogSession>))
    }

    fn shipped(&mut self, end: &SetEnd) -> Result<()> {
        self.stands = Some(end_of(self.dialect, &end.position)?);
        Ok(())
    }

    /// The server has the log, and keeps it by its own rules.
    fn may_grow(&self) -> bool {
        true
    }

    fn shorten(&mut self, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn log_file_bytes(&self) -> u64 {
        0
    }

    /// A server that is started again has its log.
    fn may_pass(&self, _: &Error) -> bool {
        self.lost
    }
}
