//! Relay logs in a restored directory: the events of the log sets, for the server that applies them.

use std::fs::{self, File};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use fullbore_core::checksum::Crc32;
use fullbore_core::{Error, Result};

use super::end::Piece;
use super::event::{ARTIFICIAL, CRC, HEADER, Header, MAGIC, kind};
use super::through::batch::{FLAGS, applied_flags};

/// The base name of the relay logs. The server removes them when it forgets its source.
pub(super) const RELAY: &str = "fullbore-relay";
const BUFFER: usize = 1 << 20;

/// The relay logs of a restore.
pub struct Relays {
    directory: PathBuf,
    /// Their names, in order.
    pub names: Vec<String>,
    /// The first source file, for MariaDB.
    pub first_file: String,
    current: Option<Relay>,
}

/// The relay log that is being written.
struct Relay {
    out: BufWriter<File>,
    path: PathBuf,
    /// The source file.
    file: String,
}

impl Relay {
    fn failed(&self, error: std::io::Error) -> Error {
        Error::io("write", self.path.display().to_string(), error)
    }
}

impl Relays {
    /// None yet, in a directory. `first_file` is the file that the base ends in.
    pub fn new(directory: &Path, first_file: &str) -> Self {
        let (directory, first_file) = (directory.to_owned(), first_file.to_owned());
        Self { directory, names: Vec::new(), first_file, current: None }
    }

    /// The next event is of this piece: begins a relay log for each source file. `head` has the file's first events.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn enter(&mut self, piece: &Piece, head: &[u8]) -> Result<()> {
        if self.current.as_ref().is_some_and(|relay| relay.file == piece.file) {
            return Ok(());
        }
        self.close()?;
        if self.names.is_empty() {
            self.first_file.clone_from(&piece.file);
        }
        self.begin(&piece.file, head)
    }

    fn begin(&mut self, file: &str, head: &[u8]) -> Result<()> {
        let name = format!("{RELAY}.{:06}", self.names.len() + 1);
        let path = self.directory.join(&name);
        let failed = |error| Error::io("write", path.display().to_string(), error);
        let mut out = BufWriter::with_capacity(BUFFER, File::create_new(&path).map_err(failed)?);
        out.write_all(MAGIC).and_then(|()| out.write_all(head)).map_err(failed)?;
        self.names.push(name);
        self.current = Some(Relay { out, path, file: file.to_owned() });
        Ok(())
    }

    /// Writes bytes of an event.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let relay = self.current.as_mut().ok_or(Error::Halted)?;
        relay.out.write_all(bytes).map_err(|error| relay.failed(error))
    }

    /// Writes what is in memory.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flush(&mut self) -> Result<()> {
        self.current.as_mut().map_or(Ok(()), |relay| relay.out.flush().map_err(|error| relay.failed(error)))
    }

    /// Adds the last relay log of MySQL: it has no transaction, and says which file of the source comes next, as a source does
    /// that sends its log.
    ///
    /// MySQL 8.1 and later cut the last relay log at their start, behind the last transaction that they understand. They do not
    /// understand the second XA transaction with the same name, and remove a relay log that ends with a DDL of MyISAM.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn end(&mut self) -> Result<()> {
        self.flush()?;
        let Some(Relay { path, file, .. }) = self.current.take() else { return Ok(()) };
        let format = first_event(&path).map_err(|error| Error::io("read", path.display().to_string(), error))?;
        self.begin(&file, &format)?;
        self.write(&rotation(&file, &format))?;
        self.close()
    }

    /// Closes the last relay log.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn close(&mut self) -> Result<()> {
        self.flush()?;
        self.current = None;
        Ok(())
    }
}

/// An event of rows on its way into a relay log: with the flags and the checksum with which a server applies it.
pub(super) struct Rows {
    kind: u8,
    /// The bytes before the checksum.
    size: usize,
    /// How many bytes have passed.
    at: usize,
    crc: Crc32,
    bytes: Vec<u8>,
}

impl Rows {
    pub(super) fn new(header: &Header) -> Self {
        let size = (header.size as usize).saturating_sub(CRC);
        Self { kind: header.kind, size, at: 0, crc: Crc32::new(), bytes: Vec::new() }
    }

    /// The next bytes of the event, as they are written.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> &[u8] {
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        if let Some(flags) = FLAGS.checked_sub(self.at).and_then(|place| self.bytes.get_mut(place)) {
            *flags = applied_flags(self.kind, *flags);
        }
        let (body, end) = self.bytes.split_at_mut(bytes.len().min(self.size.saturating_sub(self.at)));
        self.crc.update(body);
        let behind = (self.at + body.len()).saturating_sub(self.size);
        let crc = self.crc.finish().to_le_bytes();
        end.iter_mut().zip(crc.into_iter().skip(behind)).for_each(|(byte, new)| *byte = new);
        self.at += bytes.len();
        &self.bytes
    }
}

/// The first event of a relay log: the format of the others.
fn first_event(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut relay = File::open(path)?;
    let mut event = vec![0; MAGIC.len() + HEADER];
    relay.read_exact(&mut event)?;
    event.drain(..MAGIC.len());
    let size = u32::from_le_bytes([event[9], event[10], event[11], event[12]]);
    relay.take(u64::from(size).saturating_sub(HEADER as u64)).read_to_end(&mut event)?;
    Ok(event)
}

/// The event of a source that begins to send a file: it is in no file of the source. The source is that of the `format`.
fn rotation(file: &str, format: &[u8]) -> Vec<u8> {
    let size = (HEADER + size_of::<u64>() + file.len() + CRC) as u32;
    let mut event = vec![0; HEADER];
    event[4] = kind::ROTATE;
    event[5..9].copy_from_slice(&format[5..9]);
    event[9..13].copy_from_slice(&size.to_le_bytes());
    event[17..].copy_from_slice(&ARTIFICIAL.to_le_bytes());
    event.extend_from_slice(&(MAGIC.len() as u64).to_le_bytes());
    event.extend_from_slice(file.as_bytes());
    let mut crc = Crc32::new();
    crc.update(&event);
    event.extend_from_slice(&crc.finish().to_le_bytes());
    event
}

/// Removes relay logs from a directory, and what belongs to them.
pub(in crate::mysql_family) fn clear(directory: &Path) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_str().is_some_and(|name| name.starts_with(RELAY)));
    ours.for_each(|entry| drop(fs::remove_file(entry.path()))); // What stays does no harm.
}
