//! The replication protocol: a server sends the events of its log from a place on (COM_BINLOG_DUMP), here up to its
//! end. MySQL's and MariaDB's protocol documentation describe it.

use fullbore_core::checksum::Crc32;
use fullbore_core::{Error, Result};

use super::end::Piece;
use super::event::{BODY_MAX, Body, CRC, HEADER, Header, IN_USE, MAGIC, kind};
use super::preflight::{Clock, Server};
use super::walk::Walk;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Message, ServerError};

const COM_BINLOG_DUMP: u8 = 0x12;
/// End at the end of the log, with an EOF packet.
const NON_BLOCK: u16 = 1;
/// MariaDB: also the events with the texts of statements. Without them the bytes are not those of the file.
const SEND_ANNOTATE_ROWS: u16 = 2;
/// ER_MASTER_FATAL_ERROR_READING_BINLOG: the text says what it is.
const CANNOT_READ: u32 = 1236;
const ACCESS_DENIED: [u32; 2] = [1045, 1227];
/// The longest error packet.
const ERROR_MAX: usize = 4096;

/// Events from a server, and how far they are read.
pub struct Pull {
    connection: Connection,
    server: String,
    /// The place, and what is known of the groups.
    pub walk: Walk,
    /// The pieces of files that were pulled since [`restart`](Self::restart).
    pub pieces: Vec<Piece>,
    /// The bytes of an event that are ready.
    ready: Vec<u8>,
    taken: usize,
    /// The rest of an event.
    current: Option<Current>,
    /// Times behind this clock are not believed.
    clock: Option<Clock>,
    /// The server has said that this is the end of the log, and closes the connection.
    ended: bool,
}

/// An event whose body passes.
struct Current {
    message: Message,
    header: Header,
    /// Bytes left, without the checksum.
    left: usize,
    crc: Crc32,
}

impl Pull {
    /// Asks for the events of a file from `offset` on. `walk` is at that place.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn begin(server: &Server, walk: Walk) -> Result<Self> {
        let mut connection = server.connect()?;
        let offset = u32::try_from(walk.offset).unwrap_or(MAGIC.len() as u32);
        let mut flags = NON_BLOCK;
        if server.dialect == Dialect::MariaDb {
            flags |= SEND_ANNOTATE_ROWS;
        }
        let mut body = offset.to_le_bytes().to_vec();
        body.extend_from_slice(&flags.to_le_bytes());
        body.extend_from_slice(&server.server_id.to_le_bytes());
        // Never an empty name: the server would begin at its oldest file.
        body.extend_from_slice(walk.file.as_bytes());
        connection.send(COM_BINLOG_DUMP, &body)?;
        let (pieces, ready) = (Vec::new(), Vec::new());
        Ok(Self {
            connection,
            server: server.name(),
            walk,
            pieces,
            ready,
            taken: 0,
            current: None,
            clock: None,
            ended: false,
        })
    }

    /// From now on, pieces are counted anew.
    pub fn restart(&mut self) {
        self.pieces.clear();
        self.walk.forget_groups();
    }

    /// Goes to the next event of a file. False at the end of the log.
    ///
    /// # Errors
    /// An event is damaged or missing, or the server refuses or is lost.
    pub fn next(&mut self) -> Result<bool> {
        while !self.ended {
            let mut message = self.connection.begin()?;
            let mut first = [0];
            self.connection.read_exact(&mut message, &mut first)?;
            match first[0] {
                0x00 => {}
                0xFE => {
                    self.connection.rest(message, 16)?;
                    self.ended = true;
                    return Ok(false);
                }
                0xFF => {
                    let body = self.connection.rest(message, ERROR_MAX)?;
                    return Err(self.refusal(ServerError::parse(&self.server, &body)));
                }
                _ => return Err(self.connection.broken("it sent a packet that is not an event")),
            }
            if self.event(message)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the event of a packet. False if it is in no file.
    fn event(&mut self, mut message: Message) -> Result<bool> {
        let mut bytes = [0; HEADER];
        self.connection.read_exact(&mut message, &mut bytes)?;
        let header = Header::parse(&bytes);
        let header = header.ok_or_else(|| self.damaged("an event is shorter than its header"))?;
        let left = header.size as usize - HEADER - CRC;
        // The first event of a file comes again where a dump begins behind it.
        let again = header.kind == kind::FORMAT && self.walk.offset != MAGIC.len() as u64;
        if header.is_artificial() || again {
            let body = self.connection.rest(message, BODY_MAX)?;
            return self.artificial(&header, &body).map(|()| false);
        }
        if header.kind == kind::FORMAT {
            // The flag is not in the checksum, and not in a closed file.
            bytes[17] &= !(IN_USE as u8);
        }
        let mut crc = Crc32::new();
        crc.update(&bytes);
        self.ready.clear();
        self.taken = 0;
        self.ready.extend_from_slice(&bytes);
        self.count(header.size.into());
        if !header.has_known_body() {
            self.current = Some(Current { message, header, left, crc });
            return Ok(true);
        }
        if left > BODY_MAX {
            return Err(self.damaged(&format!("an event of type {} has {left} bytes", header.kind)));
        }
        let rest = self.connection.rest(message, left + CRC)?;
        let (body, stored) = rest.split_at_checked(left).ok_or_else(|| self.damaged("an event is cut"))?;
        crc.update(body);
        let parsed = Body::parse(&header, body).map_err(|why| self.damaged(why))?;
        self.ready.extend_from_slice(&rest);
        let stored = stored.to_vec();
        self.passed(&header, &parsed, &crc, &stored)?;
        Ok(true)
    }

    /// An event that the server made for us: the name of the file that follows.
    fn artificial(&mut self, header: &Header, body: &[u8]) -> Result<()> {
        if header.kind != kind::ROTATE {
            return Ok(());
        }
        // It has a checksum like all others.
        let body = body.len().checked_sub(CRC).and_then(|end| body.get(..end)).unwrap_or_default();
        match Body::parse(header, body) {
            Ok(Body::Rotate { offset, file }) => self.walk.enter(&file, offset).map_err(|why| self.damaged(&why)),
            _ => Err(self.damaged("it names the next file in an unknown form")),
        }
    }

    /// Fills `buffer` with bytes of events; fewer only at the end of the log.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn fill(&mut self, buffer: &mut [u8]) -> Result<usize> {
        let mut done = 0;
        while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let now = self.take(rest)?;
            if now == 0 && !self.next()? {
                break;
            }
            done += now;
        }
        Ok(done)
    }

    /// Bytes of the current event; 0 at its end.
    fn take(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if let Some(ready) = self.ready.get(self.taken..).filter(|ready| !ready.is_empty()) {
            let length = ready.len().min(buffer.len());
            buffer[..length].copy_from_slice(&ready[..length]);
            self.taken += length;
            return Ok(length);
        }
        let Some(mut current) = self.current.take() else { return Ok(0) };
        let length = current.left.min(buffer.len());
        if length > 0 {
            self.connection.read_exact(&mut current.message, &mut buffer[..length])?;
            current.crc.update(&buffer[..length]);
            current.left -= length;
            self.current = Some(current);
            return Ok(length);
        }
        let mut stored = [0; CRC];
        self.connection.read_exact(&mut current.message, &mut stored)?;
        self.connection.end(current.message)?;
        self.ready.clear();
        self.taken = 0;
        self.ready.extend_from_slice(&stored);
        self.passed(&current.header, &Body::Other, &current.crc, &stored)?;
        self.take(buffer)
    }

    /// The bytes of the event that [`next`](Self::next) went to, before any of them is taken.
    pub fn size(&self) -> usize {
        self.ready.first_chunk().map_or(0, |header| Header::read(header).size as usize)
    }

    /// Reads the current event to its end, and forgets its bytes.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn skip(&mut self) -> Result<()> {
        let mut scratch = [0; 8192];
        while self.take(&mut scratch)? > 0 {}
        Ok(())
    }

    /// The same, but keeps its bytes.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn whole(&mut self, bytes: &mut Vec<u8>) -> Result<()> {
        let mut scratch = [0; 8192];
        loop {
            match self.take(&mut scratch)? {
                0 => return Ok(()),
                length => bytes.extend_from_slice(&scratch[..length]),
            }
        }
    }

    fn passed(&mut self, header: &Header, body: &Body, crc: &Crc32, stored: &[u8]) -> Result<()> {
        let stored = stored.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        let computed = crc.finish();
        if stored != Some(computed) {
            return Err(self.damaged("the checksum of an event is wrong"));
        }
        if let (Body::Group(_), Some(clock)) = (body, &self.clock) {
            self.walk.believe_until(clock.current());
        }
        self.walk.pass(header, body, computed).map_err(|why| self.damaged(&why))
    }

    /// From here on, no group was committed before `newest` or behind the time of the server's clock.
    pub fn believe(&mut self, newest: Option<i64>, clock: Clock) {
        self.walk.newest = newest;
        self.clock = Some(clock);
    }

    /// Counts the bytes of an event at the current place.
    fn count(&mut self, bytes: u64) {
        match self.pieces.last_mut().filter(|piece| piece.file == self.walk.file) {
            Some(piece) => piece.bytes += bytes,
            None => {
                let (file, from) = (self.walk.file.clone(), self.walk.offset);
                self.pieces.push(Piece { file, from, bytes, head: 0 });
            }
        }
    }

    fn damaged(&self, why: &str) -> Error {
        Error::refused(
            &self.server,
            format!("its binary log {} cannot be read at {}: {why}", self.walk.file, self.walk.offset),
            "look at the file on the server with mysqlbinlog or mariadb-binlog. If it has no checksums: SET GLOBAL binlog_checksum = CRC32. \
             Then, or if it is damaged, take a new full, and remove the file when no replica needs it (PURGE BINARY LOGS TO the file \
             behind it)",
        )
    }

    fn refusal(&self, error: ServerError) -> Error {
        let (file, offset) = (&self.walk.file, self.walk.offset);
        if ACCESS_DENIED.contains(&error.code) {
            let hint = "the account needs it to read the log: GRANT REPLICATION SLAVE ON *.* TO …";
            return Error::refused(&self.server, format!("the account lacks REPLICATION SLAVE: {error}"), hint);
        }
        let missing = ["Could not find", "could not find", "purged"].iter().any(|text| error.message.contains(text));
        if error.code == CANNOT_READ && missing {
            return Error::refused(
                &self.server,
                format!("the binary log {file} is not there any more: {error}"),
                "it was purged, or the log was reset: take a new full. Against purging, keep the files longer \
                 (binlog_expire_logs_seconds), or take log backups more often",
            );
        }
        if error.code == CANNOT_READ {
            return Error::refused(
                &self.server,
                format!("the binary log {file} does not have the place {offset} that the last set ends at: {error}"),
                "the log was reset, or the server has lost its end (a power cut with sync_binlog other than 1): take a \
                 new full",
            );
        }
        error.into_error()
    }
}
