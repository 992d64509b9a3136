//! A clone as a backup's source: each reader has one connection of it, and what the server sends goes straight into the
//! pool's buffers.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};
use serde_json::json;

use super::clone::descriptor::{Stage, StateDescriptor, file_flags};
use super::clone::donor::{Donor, DonorOptions};
use super::clone::encryption;
use super::clone::files::{Change, CloneFile, FileId};
use super::clone::message::Ddl;
use super::clone::page_zero::PageSize;
use super::clone::task::{DataExtent, Event, Task};
use super::connection::Connection;
use super::credentials::{Credentials, PasswordSources};
use super::position::LogStatus;
use super::preflight::{self, ClonePlugin, Consent};
use super::restore;
use super::url::ServerAddress;
use crate::{Facts, Options, Session};

/// What a buffer is filled with, in multiples of it where there is more.
const STEP: usize = 4096;
/// The unit that is told for every file; a clone has no page map yet.
const UNIT: u32 = 16384;
/// How often the server is asked whether it is still there.
const ASK_AFTER: Duration = Duration::from_secs(5);

/// A clone that is under way.
pub struct CloneSession {
    donor: Mutex<Donor>,
    tasks: Mutex<Vec<Option<Task>>>,
    table: Mutex<Table>,
    control: Mutex<Control>,
    /// What the server told of its size, for estimates and progress.
    expected: [Stream; 1],
    page: PageSize,
    facts: preflight::Facts,
    warnings: Vec<String>,
    before: LogStatus,
    /// Whether keys may be stored.
    media_encrypted: bool,
}

/// The connection that asks, beside those of the clone.
struct Control {
    connection: Connection,
    asked: Instant,
    /// The position after the clone.
    after: Option<LogStatus>,
}

/// The numbers of the streams, and what their first pages say.
#[derive(Default)]
struct Table {
    streams: HashMap<FileId, u16>,
    /// Size in bytes by the first page.
    sizes: HashMap<FileId, u64>,
}

impl CloneSession {
    /// Asks what has to be asked, and begins the clone with as many connections as there will be readers.
    ///
    /// # Errors
    /// What the server refuses, or what must not be stored as it is wanted.
    pub fn open(url: &str, options: &Options) -> Result<Self> {
        let address = ServerAddress::parse(url)?;
        let sources = PasswordSources::of_this_process(options.password_file.clone());
        let credentials = Credentials::find(&address, &sources)?;
        let mut control = Connection::open(&address, &credentials, options.halt.clone())?;
        let facts = preflight::ask(&mut control)?;
        let consent = Consent { unverified: options.accept_unverified, install_plugin: options.install_clone_plugin };
        let warnings = preflight::judge(&address.name(), &facts, consent)?;
        if facts.encrypted.count > 0 && !options.media_encrypted {
            return Err(Error::refused(
                address.name(),
                format!(
                    "{} of its tablespaces are encrypted ({}, …), and CLONE hands out their keys",
                    facts.encrypted.count,
                    facts.encrypted.first.first().map_or("", String::as_str)
                ),
                "encrypt the backup as well: name its recipients with --encrypt-to",
            ));
        }
        if facts.plugin == ClonePlugin::Absent {
            preflight::install_plugin(&mut control)?;
        }
        let page =
            PageSize::new(facts.page_size).ok_or_else(|| control.broken("it does not tell its innodb_page_size"))?;
        let before = LogStatus::read(&mut control)?;
        let halt = options.halt.clone().unwrap_or_default();
        let donor_options = DonorOptions { tasks: options.readers.max(1), ddl: Ddl::Runs, halt };
        let mut donor = Donor::begin(&address, &credentials, &donor_options)?;
        let tasks = donor.take_tasks().into_iter().map(Some).collect();
        let expected = [Stream { id: 1, name: String::new(), unit: UNIT, size: facts.data_bytes }];
        Ok(Self {
            donor: Mutex::new(donor),
            tasks: Mutex::new(tasks),
            table: Mutex::default(),
            control: Mutex::new(Control { connection: control, asked: Instant::now(), after: None }),
            expected,
            page,
            facts,
            warnings,
            before,
            media_encrypted: options.media_encrypted,
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All files that are in the copy.
    fn files(&self) -> Vec<CloneFile> {
        let donor = self.donor.lock().unwrap_or_else(PoisonError::into_inner);
        donor.files().into_iter().filter(|file| !file.deleted).collect()
    }

    fn stream_of(&self, file: FileId) -> Result<u16> {
        let streams = &mut self.table().streams;
        let next = u16::try_from(streams.len() + 1).map_err(|_| {
            Error::refused("the server", "it has more than 65535 files", "this version cannot back it up")
        })?;
        Ok(*streams.entry(file).or_insert(next))
    }

    /// Learns from the first page of a file, and wraps the key that it may hold.
    fn first_page(&self, file: &CloneFile, page: &mut [u8]) -> Result<()> {
        if file.fsp_flags == u32::MAX || matches!(file.id, FileId::Redo(_)) {
            return Ok(());
        }
        let size = restore::size_in_page_zero(page, file.page_size);
        self.table().sizes.insert(file.id, size);
        if file.flags & file_flags::ENCRYPTED == 0 || file.page_size != self.page.bytes() {
            return Ok(());
        }
        if !self.media_encrypted {
            // One that was encrypted, or created so, since the clone began.
            return Err(Error::refused(
                &file.path,
                "its tablespace is encrypted, and CLONE hands out its key",
                "encrypt the backup as well: name its recipients with --encrypt-to",
            ));
        }
        let Some(first) = page.get_mut(..self.page.bytes() as usize) else {
            return Err(Error::usage(
                "--max-transfer-size",
                "a buffer does not hold a whole page, whose key has to be wrapped",
                "take 1MiB",
            ));
        };
        encryption::wrap(first, self.page).map(drop).map_err(|_| {
            Error::refused(
                &file.path,
                "the key in its first page has a form that is not known",
                "report this, with the server's version",
            )
        })
    }

    fn final_size(&self, file: &CloneFile) -> u64 {
        match (file.id, self.table().sizes.get(&file.id)) {
            (FileId::Data(_), Some(&size)) => restore::final_size(file.size.max(size), file.page_size),
            _ => file.size,
        }
    }
}

impl Source for CloneSession {
    fn streams(&self) -> &[Stream] {
        &self.expected
    }

    fn is_open(&self) -> bool {
        true
    }

    fn stream(&self, id: u16) -> Option<Stream> {
        // They are numbered from 1 on; this is asked for every piece of a file.
        let known = (1..=self.table().streams.len()).contains(&usize::from(id));
        known.then(|| Stream { id, name: String::new(), unit: UNIT, size: 0 })
    }

    fn found(&self) -> Vec<Stream> {
        let described = |file: CloneFile| {
            let size = self.final_size(&file);
            // A file of which nothing was sent has its number now.
            self.stream_of(file.id).map(|id| Stream { id, name: file.path, unit: UNIT, size })
        };
        self.files().into_iter().filter_map(|file| described(file).ok()).collect()
    }

    /// A reader for each connection; more of them have nothing to read.
    fn reader(&self, index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tasks.get_mut(index).and_then(Option::take);
        Ok(Box::new(TaskReader { session: self, task, stage: Stage::Init, rest: None }))
    }

    fn is_free(&self, _: u16, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.asked.elapsed() < ASK_AFTER {
            return Ok(());
        }
        control.asked = Instant::now();
        control.connection.query("DO 1").map(drop).map_err(Error::from)
    }
}

impl Session for CloneSession {
    fn engine(&self) -> &'static str {
        "mysql"
    }

    fn source(&self) -> &dyn Source {
        self
    }

    /// Bounds of the moment that the copy is consistent with: readings of the binary log before and after the clone.
    fn position(&self) -> Result<serde_json::Value> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.after.is_none() {
            control.after = Some(LogStatus::read(&mut control.connection)?);
        }
        let outside: Vec<_> = self
            .files()
            .into_iter()
            .filter_map(|file| Some(json!({ "path": file.path, "was": file.outside? })))
            .collect();
        Ok(json!({
            "server_uuid": self.facts.server_uuid,
            "innodb_page_size": self.facts.page_size,
            "lower_case_table_names": self.facts.lower_case_table_names,
            "binary_log_not_before": self.before,
            "binary_log_not_after": control.after,
            "outside_the_data_directory": outside,
        }))
    }

    fn facts(&self) -> Facts {
        let mut warnings = self.warnings.clone();
        let outside: Vec<String> = self.files().into_iter().filter_map(|file| file.outside).collect();
        if let Some(first) = outside.first() {
            let count = outside.len();
            warnings.push(format!(
                "{count} files stand outside the data directory of the server (`{first}`, …); a restore puts them into it"
            ));
        }
        Facts {
            warnings,
            // DDL and writes go on; commits wait for two readings of the position, which take no time to speak of.
            writers_blocked: Duration::ZERO,
            free_bytes: 0,
            library: format!("MySQL {}", self.facts.version_text),
            direct: false,
        }
    }
}

/// What is left of the last thing that the server sent.
enum Rest {
    /// Bytes on the connection.
    Wire { extent: DataExtent, done: u32 },
    /// The first page of a file that was created meanwhile.
    Page { file: CloneFile, page: Vec<u8>, done: usize },
}

/// One connection of the clone.
struct TaskReader<'a> {
    session: &'a CloneSession,
    task: Option<Task>,
    /// The stage that runs, as the first task knows it.
    stage: Stage,
    rest: Option<Rest>,
}

/// Bytes of a later stage replace those of an earlier one.
fn layer_of(stage: Stage) -> u16 {
    match stage {
        Stage::Init | Stage::FileCopy => 0,
        Stage::PageCopy => 1,
        Stage::RedoCopy | Stage::Done => 2,
    }
}

impl Reader for TaskReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        loop {
            match self.rest.take() {
                Some(Rest::Wire { extent, done }) if done < extent.length => {
                    return self.wire_extent(extent, done, buffer).map(Some);
                }
                Some(Rest::Page { file, page, done }) if done < page.len() => {
                    return self.page_extent(file, page, done, buffer).map(Some);
                }
                _ => {}
            }
            let Some(task) = &mut self.task else { return Ok(None) };
            match task.next_event()? {
                None => return Ok(None),
                Some(Event::StageBegins(StateDescriptor { stage, .. })) => self.stage = stage,
                Some(Event::StageEnds(_)) => {}
                Some(Event::Data(extent)) => self.rest = Some(Rest::Wire { extent, done: 0 }),
                Some(Event::File(Change::Born(file, page))) => self.rest = Some(Rest::Page { file, page, done: 0 }),
                // Names and sizes are asked for at the end.
                Some(Event::File(_)) => {}
            }
        }
    }
}

impl TaskReader<'_> {
    fn wire_extent(&mut self, extent: DataExtent, done: u32, buffer: &mut [u8]) -> Result<Extent> {
        let room = buffer.len() / STEP * STEP;
        let length = room.min((extent.length - done) as usize);
        let offset = extent.offset + u64::from(done);
        let task = self.task.as_mut().ok_or(Error::Halted)?;
        let mut filled = 0;
        while filled < length {
            match task.read(&mut buffer[filled..length])? {
                0 => return Err(Error::refused("the server", "it sent less of a file than it announced", "try again")),
                count => filled += count,
            }
        }
        if offset == 0 {
            let donor = self.session.donor.lock().unwrap_or_else(PoisonError::into_inner);
            let file = donor.file(extent.file);
            drop(donor);
            if let Some(file) = file {
                self.session.first_page(&file, &mut buffer[..length])?;
            }
        }
        let stream = self.session.stream_of(extent.file)?;
        self.rest = Some(Rest::Wire { extent, done: done + length as u32 });
        Ok(Extent { stream, layer: layer_of(extent.stage), offset, length: length as u32 })
    }

    fn page_extent(&mut self, file: CloneFile, mut page: Vec<u8>, done: usize, buffer: &mut [u8]) -> Result<Extent> {
        if done == 0 {
            self.session.first_page(&file, &mut page)?;
        }
        let length = (buffer.len() / STEP * STEP).min(page.len() - done);
        buffer[..length].copy_from_slice(&page[done..done + length]);
        let stream = self.session.stream_of(file.id)?;
        self.rest = Some(Rest::Page { file, page, done: done + length });
        Ok(Extent { stream, layer: layer_of(self.stage), offset: done as u64, length: length as u32 })
    }
}
