//! Unpacks a compressed backup of another program: one container in, one plain file out, byte for byte.
//!
//! ```text
//! supply ─► container, workers (fullbore_engines::compressed) ─► sink
//! ```
//! The plain file gets its name when all of it is durable. Until then, and after an error, nothing has this name.

use std::io::Read;
use std::sync::Arc;
use std::time::Instant;

use fullbore_core::device::{Destination, Device};
use fullbore_core::io::Mode;
use fullbore_core::meter::Progress;
use fullbore_core::pool::{Buffer, Piece, Pool};
use fullbore_core::sink::{self, Sink};
use fullbore_core::supply::{self, Supply};
use fullbore_core::{Error, Result};
use fullbore_engines::compressed::PlainStream;
use uuid::Uuid;

use crate::report::Report;
use fullbore_core::conduct::Conduct;

/// Bytes of one read and of one write.
const TRANSFER: usize = 1 << 20;
/// Reads ahead, and writes in flight, if the user says nothing.
const QUEUE_DEPTH: usize = 4;
/// Most of them.
const QUEUE_DEPTH_MAX: usize = 1024;
/// Most threads that unpack.
const WORKERS_MAX: usize = 256;
/// How a plain backup of SQL Server begins.
const PLAIN: &[u8; 4] = b"TAPE";

/// What to unpack, and where to.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The container: a file, an object or `-`.
    pub from: String,
    /// The plain file: a file, an object, `-` or `nul:`.
    pub to: String,
    /// `--init`: replace an unpacked file of an earlier run.
    pub init: bool,
    /// `--mkdir`.
    pub mkdir: bool,
    /// Threads that unpack; `None`: one per core.
    pub workers: Option<usize>,
    /// Reads ahead and writes in flight; `None`: 4.
    pub queue_depth: Option<usize>,
}

/// Unpacks; fills `report`.
///
/// # Errors
/// Any error; then nothing was left behind, and a file to be replaced is as it was.
pub fn run(request: &Request, conduct: &Conduct, report: &mut Report) -> Result<()> {
    let begun = Instant::now();
    let (from, to) = (Device::parse(&request.from)?, Device::parse(&request.to)?);
    let workers = within("--workers", request.workers, WORKERS_MAX)?.unwrap_or_else(cores);
    let queue_depth = within("--queue-depth", request.queue_depth, QUEUE_DEPTH_MAX)?.unwrap_or(QUEUE_DEPTH);
    refuse_same(&from, &to)?;
    // A pipe gives its bytes in pieces of its own, so two buffers more than reads are enough for every supply.
    let pool = Pool::new(queue_depth + 2, TRANSFER)?;
    conduct.close_on_signal(&pool)?;
    let supply = supply::open(&from, &pool, queue_depth, Mode::from_environment()?, &conduct.stores);
    let supply = supply.map_err(Error::on_named_thing)?;
    let size = supply.size().unwrap_or(0);
    conduct.progress.total.store(size, std::sync::atomic::Ordering::Relaxed);
    let source = Pieces { supply, piece: None, read: 0, progress: Arc::clone(&conduct.progress) };
    let mut stream =
        PlainStream::open(source, &from.to_string(), workers).map_err(|error| conduct.why_halted(error))?;
    if request.init {
        check_replaced(&to, conduct)?;
    }
    let options = sink::Options {
        init: request.init,
        mkdir: request.mkdir,
        queue_depth,
        mode: Mode::from_environment()?,
        stores: conduct.stores.clone(),
        ..sink::Options::new(Uuid::new_v4().to_string())
    };
    let mut sink = sink::open(&to, options)?;
    let written = write(&mut stream, &mut *sink, queue_depth, conduct).map_err(|error| conduct.why_halted(error));
    let plain = written.inspect_err(|_| sink.abandon())?;
    report.source_bytes = plain;
    report.allocated_bytes = plain;
    report.stored_bytes = stream.source().read;
    report.into = Some(to.to_string());
    report.add_device(&from.to_string(), &stream.source().supply.account());
    report.add_device(&to.to_string(), &sink.account());
    report.set_speed(begun.elapsed().as_secs_f64());
    Ok(())
}

/// Writes the stream to the sink and publishes it; returns its bytes.
fn write(stream: &mut impl Read, sink: &mut dyn Sink, queue_depth: usize, conduct: &Conduct) -> Result<u64> {
    let pool = Pool::new(queue_depth + 2, TRANSFER)?;
    let mut offset = 0;
    loop {
        conduct.check()?;
        let mut buffer = free_buffer(&pool, sink, conduct)?;
        let filled = fill(stream, &mut buffer)?;
        if filled == 0 {
            break;
        }
        sink.write(offset, Piece::new(buffer, 0..filled))?;
        offset += filled as u64;
    }
    sink.sync()?;
    conduct.check()?;
    sink.publish()?;
    sink.retire()?;
    Ok(offset)
}

/// A buffer that no write has. Completed writes return their buffers only when the sink is asked.
fn free_buffer(pool: &Arc<Pool>, sink: &mut dyn Sink, conduct: &Conduct) -> Result<Buffer> {
    loop {
        if let Some(buffer) = pool.try_take() {
            return Ok(buffer);
        }
        sink.ease()?;
        // A store does not wait for its requests there. Others have no leisure.
        std::thread::sleep(sink.leisure());
        conduct.check()?;
    }
}

/// Fills the buffer; fewer bytes only at the end of the stream.
fn fill(stream: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) => return Err(Error::of_read("the plain stream", error)),
        }
    }
    Ok(filled)
}

/// `--init` replaces a plain backup, and no other kind of file: a slip must not cost a database.
fn check_replaced(to: &Device, conduct: &Conduct) -> Result<()> {
    if !matches!(to.place(), Destination::File(_) | Destination::Object { .. }) {
        return Ok(());
    }
    let nothing = Pool::new(0, 4096)?;
    let found = supply::open(to, &nothing, 1, Mode::from_environment()?, &conduct.stores);
    // Nothing is there, or the sink says what is wrong with it.
    let Ok(mut found) = found else { return Ok(()) };
    let mut start = [0; PLAIN.len()];
    if found.size() == Some(0) || found.read_at(0, &mut start)? == start.len() && start == *PLAIN {
        return Ok(());
    }
    let why = "exists and is not a plain backup of SQL Server (it does not begin with TAPE)";
    Err(Error::refused(to.to_string(), why, "name another file: --init replaces only such a backup"))
}

fn refuse_same(from: &Device, to: &Device) -> Result<()> {
    // Standard input and standard output are one device by name, but two pipes.
    let is_pipe = matches!(from.place(), Destination::Pipe);
    if !is_pipe && from.identity().is_some() && from.identity() == to.identity() {
        let hint = "name another file with --to";
        return Err(Error::usage(to.to_string(), "is the compressed backup itself", hint));
    }
    Ok(())
}

fn within(flag: &str, number: Option<usize>, most: usize) -> Result<Option<usize>> {
    match number {
        Some(number) if !(1..=most).contains(&number) => {
            Err(Error::usage(format!("{flag} {number}"), "is out of range", format!("use 1 to {most}")))
        }
        number => Ok(number),
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).min(WORKERS_MAX)
}

/// The bytes of a supply, one piece after the other.
struct Pieces {
    supply: Box<dyn Supply>,
    /// The piece that is being read, and how much of it was.
    piece: Option<(Piece, usize)>,
    /// Bytes read so far.
    read: u64,
    progress: Arc<Progress>,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.piece.as_ref().is_none_or(|(piece, done)| *done >= piece.len()) {
            // The old piece returns its buffer first.
            self.piece = None;
            self.piece = self.supply.next().map_err(std::io::Error::other)?.map(|piece| (piece, 0));
        }
        let Some((piece, done)) = &mut self.piece else { return Ok(0) };
        let rest = piece.get(*done..).unwrap_or_default();
        let now = rest.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..now), rest.get(..now)) {
            to.copy_from_slice(from);
        }
        *done += now;
        self.read += now as u64;
        self.progress.advance(now as u64);
        self.progress.stored.fetch_add(now as u64, std::sync::atomic::Ordering::Relaxed);
        Ok(now)
    }
}
