//! A clone as a backup's source: each reader has one connection of it, and what the server sends goes straight into the
//! pool's buffers.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::error::counted;
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
use super::here;
use super::left_out::Tablespaces;
use super::log;
use super::other_engines::{self, OtherEngines};
use super::position::{self, LogStatus};
use super::preflight::{self, Channel, ClonePlugin, Consent};
use super::redo_copy::{self, RedoCopy};
use super::restore;
use super::standstill::Standstill;
use super::url::ServerAddress;
use crate::innodb::Dialect;
use crate::innodb::damage::{self, DamagedPage};
use crate::innodb::suspects::{Judge, Suspect, Suspects};
use crate::innodb::verify;
use crate::innodb::zeros::Zeros;
use crate::{Facts, Options, Session, streams};

/// The least unit of a file, and that of files without pages.
const LEAST_UNIT: u32 = 4096;
/// How often the server is asked whether it is still there.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// How long the server may take to end the sessions of a clone that is given up.
const PARTING: Duration = Duration::from_secs(3);

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
    redo: RedoCopy,
    /// Pages that look damaged, as long as no later stage has sent them again.
    suspects: Suspects,
    /// Pages that may have lost their content.
    zeros: Zeros,
    continue_after_error: bool,
    /// What the server had before the clone.
    tablespaces: Tablespaces,
    /// All files are told that were there when the clone began.
    told: AtomicBool,
    /// Whether keys may be stored.
    media_encrypted: bool,
    /// Tables that are not in a clone, with `--include-other-engines`.
    others: Option<OtherEngines>,
}

/// The connection that asks, beside those of the clone.
struct Control {
    connection: Connection,
    asked: Instant,
    standstill: Standstill,
    /// It was looked whether the server tells of all its tablespaces.
    compared: bool,
    /// The latest reading of the position that is surely not after the copy's.
    before: LogStatus,
    /// The position after the clone.
    after: Option<LogStatus>,
    /// The position of the copy itself, once it was looked for.
    exact: Option<LogStatus>,
}

/// The numbers of the streams, and what their first pages say.
#[derive(Default)]
struct Table {
    streams: HashMap<FileId, u16>,
    /// The streams by their numbers, from 1 on.
    known: Vec<Known>,
    /// Size in bytes by the first page.
    sizes: HashMap<FileId, u64>,
}

/// What a stream is, whatever its file is called.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Known {
    unit: u32,
    identity: Option<String>,
    /// Of a tablespace.
    fsp_flags: Option<u32>,
    judge: Option<Judge>,
}

impl Known {
    fn of(file: &CloneFile) -> Self {
        let pages = matches!(file.id, FileId::Data(_)) && file.fsp_flags != u32::MAX;
        // The system tablespace has several files, whose names do not change.
        let identity = || match file.space {
            0 => format!("space:0:{}", file.path),
            space => format!("space:{space}"),
        };
        let unit = if pages { file.page_size.max(LEAST_UNIT) } else { LEAST_UNIT };
        let identity = pages.then(identity).filter(|identity| identity.len() <= 256);
        let fsp_flags = pages.then_some(file.fsp_flags);
        let judge =
            fsp_flags.and_then(|flags| Judge::new(Dialect::MySql, flags, identity.as_deref().unwrap_or_default()));
        Self { unit, identity, fsp_flags, judge }
    }
}

impl Table {
    /// The number of a file, which it gets when it is first asked for.
    fn number(&mut self, file: &CloneFile) -> Result<u16> {
        if let Some(&number) = self.streams.get(&file.id) {
            return Ok(number);
        }
        let number = self.add(Known::of(file))?;
        self.streams.insert(file.id, number);
        Ok(number)
    }

    /// What a piece of a file is stored by: its stream, the unit, and how its pages are judged.
    fn place(&mut self, file: &CloneFile) -> Result<(u16, u32, Option<Judge>)> {
        let number = self.number(file)?;
        let known = &self.known[usize::from(number) - 1];
        Ok((number, known.unit, known.judge))
    }

    fn add(&mut self, known: Known) -> Result<u16> {
        let number = streams::number(self.known.len() as u64)?;
        self.known.push(known);
        Ok(number)
    }

    fn known(&self, number: u16) -> Option<&Known> {
        self.known.get(usize::from(number).checked_sub(1)?)
    }
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
        let mut control = Connection::open_patient(&address, &credentials, options.halt.clone())?;
        let facts = preflight::ask(&mut control)?;
        let consent = Consent {
            unverified: options.accept_unverified,
            install_plugin: options.install_clone_plugin,
            other_engines: options.include_other_engines,
        };
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
        let open_others = || OtherEngines::open(&address, &credentials, &facts.grants, &facts.version_text, options);
        let others = options.include_other_engines.then(open_others).transpose()?;
        let page =
            PageSize::new(facts.page_size).ok_or_else(|| control.broken("it does not tell its innodb_page_size"))?;
        let before = LogStatus::read(&mut control)?;
        let zeros = Zeros::since(position::checkpoint(&mut control)?);
        let tablespaces = Tablespaces::ask(&mut control)?;
        streams::demand(&address.name(), tablespaces.count() as u64)?;
        // Last: where anything else is missing, the server stays as it was.
        if facts.plugin == ClonePlugin::Absent {
            preflight::install_plugin(&mut control)?;
        }
        let halt = options.halt.clone().unwrap_or_default();
        let donor_options = DonorOptions { tasks: options.readers.max(1), ddl: Ddl::Runs, halt };
        let mut donor = Donor::begin(&address, &credentials, &donor_options)?;
        let tasks = donor.take_tasks().into_iter().map(Some).collect();
        let expected = [Stream { id: 1, name: String::new(), unit: LEAST_UNIT, size: facts.data_bytes }];
        Ok(Self {
            donor: Mutex::new(donor),
            tasks: Mutex::new(tasks),
            table: Mutex::default(),
            control: Mutex::new(Control {
                connection: control,
                asked: Instant::now(),
                standstill: Standstill::default(),
                compared: false,
                before,
                after: None,
                exact: None,
            }),
            expected,
            page,
            facts,
            warnings,
            redo: RedoCopy::default(),
            suspects: Suspects::default(),
            zeros,
            continue_after_error: options.continue_after_error,
            tablespaces,
            told: AtomicBool::new(false),
            media_encrypted: options.media_encrypted,
            others,
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

    /// The file of a piece, as it is known now.
    fn file(&self, id: FileId) -> Result<CloneFile> {
        let donor = self.donor.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || Error::refused("the server", "it sent bytes of a file that it did not tell of", "try again");
        donor.file(id).ok_or_else(unknown)
    }

    /// Pages that stayed damaged, of files that are in the copy.
    fn damaged(&self) -> Vec<DamagedPage> {
        let (mut left, _) = self.suspects.left();
        let files = self.files();
        let table = self.table();
        let number = |file: &CloneFile| table.streams.get(&file.id).copied();
        let names: HashMap<u16, &str> =
            files.iter().filter_map(|file| Some((number(file)?, file.path.as_str()))).collect();
        // What DDL has not finished the restored server removes.
        let finished = |stream: u16| names.get(&stream).is_some_and(|name| !name.contains("#sql"));
        let format = |stream: u16| table.known(stream)?.judge?.numbered_format().filter(|_| finished(stream));
        left.extend(self.zeros.left(format));
        let named =
            |Suspect { stream, page, why }| Some(DamagedPage { file: (*names.get(&stream)?).into(), page, why });
        left.into_iter().filter_map(named).collect()
    }

    /// The end of a stage is about to be acknowledged: what is committed now is in the copy.
    fn stage_ends(&self, stage: Stage) -> Result<()> {
        if stage == Stage::PageCopy {
            // Before the moment that the copy is consistent with; until after it.
            if let Some(others) = &self.others {
                others.lock()?;
            }
            let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
            control.before = LogStatus::read(&mut control.connection)?;
        }
        Ok(())
    }

    /// What is behind the clone, once its first connection has seen its end: the tables of other engines.
    fn behind_the_clone(&self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let Some(others) = &self.others else { return Ok(None) };
        let text = || {
            let known = Known { unit: other_engines::UNIT, identity: None, fsp_flags: None, judge: None };
            self.table().add(known)
        };
        let extent = others.next(text, buffer)?;
        if extent.is_none() {
            // Between both readings of the position these tables stood still.
            drop(self.read_position_after()?);
            others.unlock()?;
        }
        Ok(extent)
    }

    /// Reads the position behind the clone, once, and looks for that of the copy itself.
    fn read_position_after(&self) -> Result<MutexGuard<'_, Control>> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.after.is_none() {
            self.compare(&mut control.connection)?;
            let after = LogStatus::read(&mut control.connection)?;
            let found = self.redo.search(self.page.bytes());
            control.exact = found.and_then(|found| redo_copy::between(&found, &control.before, &after));
            control.after = Some(after);
        }
        Ok(control)
    }

    /// Refuses a clone that leaves tablespaces out.
    fn compare(&self, connection: &mut Connection) -> Result<()> {
        let now = Tablespaces::ask(connection)?;
        let sent: BTreeSet<u32> = self.files().iter().map(|file| file.space).collect();
        self.tablespaces.demand(&now, &sent)
    }

    /// Learns from what is sent of a data file.
    fn look_at(&self, file: &CloneFile, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if offset == 0 {
            self.first_page(file, bytes)?;
        }
        let page = u64::from(self.page.bytes());
        let at = (page * u64::from(log::TRX_SYS_PAGE)).checked_sub(offset).map(|at| at as usize);
        if let (0, Some(at)) = (file.space, at)
            && let Some(page) = bytes.get(at..).and_then(|rest| rest.get(..page as usize))
        {
            self.redo.look_at(page);
        }
        Ok(())
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
        // This is asked for every piece of a file.
        let unit = self.table().known(id)?.unit;
        Some(Stream { id, name: String::new(), unit, size: 0 })
    }

    /// The id of its tablespace, which stays through renames; one that is truncated or rebuilt gets another.
    fn identity(&self, id: u16) -> Option<String> {
        self.table().known(id)?.identity.clone()
    }

    fn detail(&self, id: u16) -> Option<serde_json::Value> {
        let text = self.others.as_ref().and_then(|others| others.detail(id));
        text.or_else(|| self.table().known(id)?.fsp_flags.map(verify::detail))
    }

    fn found(&self) -> Result<Vec<Stream>> {
        if let (false, Some(refusal)) = (self.continue_after_error, damage::refuse(&self.damaged())) {
            return Err(refusal);
        }
        let described = |file: CloneFile| {
            let size = self.final_size(&file);
            let id = self.table().number(&file)?;
            Ok(Stream { id, unit: Known::of(&file).unit, name: file.path, size })
        };
        let mut found = self.files().into_iter().map(described).collect::<Result<Vec<_>>>()?;
        found.extend(self.others.iter().flat_map(OtherEngines::streams));
        // Of those that were dropped, blocks may be on the media.
        let named: HashSet<u16> = found.iter().map(|stream| stream.id).collect();
        let table = self.table();
        let gone = (1..).zip(&table.known).filter(|(id, _)| !named.contains(id));
        found.extend(gone.map(|(id, known)| Stream { id, unit: known.unit, name: String::new(), size: 0 }));
        Ok(found)
    }

    /// A reader for each connection; more of them have nothing to read.
    fn reader(&self, index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tasks.get_mut(index).and_then(Option::take);
        Ok(Box::new(TaskReader { session: self, task, is_first: index == 0, stage: Stage::Init, rest: None }))
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
        // As soon as that can be known: who reads for hours wants to hear it before.
        if self.told.load(Ordering::Relaxed) && !std::mem::replace(&mut control.compared, true) {
            self.compare(&mut control.connection)?;
        } else {
            control.connection.query("DO 1")?;
        }
        if !self.facts.channels.is_empty() {
            let Control { connection, standstill, .. } = &mut *control;
            standstill.look(connection)?;
        }
        drop(control);
        self.others.as_ref().map_or(Ok(()), OtherEngines::keep_alive)
    }
}

impl Drop for CloneSession {
    /// A donor that waits for something inside of the server does not notice that nobody wants its clone any more.
    fn drop(&mut self) {
        let control = self.control.get_mut().unwrap_or_else(PoisonError::into_inner);
        if control.after.is_some() {
            return; // The clone was complete.
        }
        control.connection.clean_up_within(PARTING);
        for session in self.donor.get_mut().unwrap_or_else(PoisonError::into_inner).sessions() {
            let _ = control.connection.query(&format!("KILL {session}")); // It may have ended by itself.
        }
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
        let control = self.read_position_after()?;
        let outside: Vec<_> = self
            .files()
            .into_iter()
            .filter_map(|file| Some(json!({ "path": file.path, "was": file.outside? })))
            .collect();
        let mut position = json!({
            "server_uuid": self.facts.server_uuid,
            "innodb_page_size": self.facts.page_size,
            "lower_case_table_names": self.facts.lower_case_table_names,
            "replica_of": self.facts.channels.iter().map(Channel::described).collect::<Vec<_>>(),
            "binary_log_exact": control.exact,
            "binary_log_not_before": control.before,
            "binary_log_not_after": control.after,
            "outside_the_data_directory": outside,
        });
        damage::write(&self.damaged(), &mut position);
        if let Some(table) = self.facts.not_emptied() {
            position[restore::NOT_EMPTIED] = json!(table.name);
        }
        if let Some(others) = &self.others {
            position["other_engines"] = json!({
                "tables": others.count(),
                "still_from": control.before,
                "still_until": control.after,
                "writers_blocked_s": others.blocked().as_secs_f64(),
            });
        }
        Ok(position)
    }

    fn accepts_base(&self, position: &serde_json::Value) -> Result<(), String> {
        let server = position.get("server_uuid").and_then(serde_json::Value::as_str).unwrap_or_default();
        if server == self.facts.server_uuid {
            return Ok(());
        }
        Err(format!("of another server, whose server_uuid is {server:?} and not {:?}", self.facts.server_uuid))
    }

    fn facts(&self) -> Facts {
        let mut warnings = self.warnings.clone();
        warnings.extend(damage::warning(&self.damaged()));
        warnings.extend(self.others.iter().flat_map(OtherEngines::warnings));
        let outside: Vec<String> = self.files().into_iter().filter_map(|file| file.outside).collect();
        if let Some(first) = outside.first() {
            let files = counted(outside.len() as u64, "file");
            let more = if outside.len() > 1 { ", …" } else { "" };
            warnings.push(format!(
                "outside the data directory of the server: {files} (`{first}`{more}); a restore puts them into it"
            ));
        }
        Facts {
            warnings,
            // Of InnoDB: DDL and writes go on; commits wait for two readings of the position, which take no time to speak of.
            writers_blocked: self.others.as_ref().map_or(Duration::ZERO, OtherEngines::blocked),
            free_bytes: 0,
            library: format!("MySQL {}", self.facts.version_text),
            direct: false,
        }
    }

    /// The server reads it, and not this program: its disk is the same.
    fn database_at(&self) -> Result<PathBuf, String> {
        here::data_directory(&self.facts.datadir, &self.facts.server_uuid, &self.facts.hostname)
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
    /// On the first connection files are told before their bytes come, and it ends last.
    is_first: bool,
    /// The stage that runs, as the first task knows it.
    stage: Stage,
    rest: Option<Rest>,
}

/// How much of a buffer is filled at once: whole units, so that each is hashed. A buffer shorter than one gets parts of it,
/// which a differential always stores.
fn whole_units(buffer: usize, unit: u32) -> usize {
    let whole = buffer / unit as usize * unit as usize;
    if whole > 0 { whole } else { buffer / LEAST_UNIT as usize * LEAST_UNIT as usize }
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
                None if self.is_first => return self.session.behind_the_clone(buffer),
                None => return Ok(None),
                Some(Event::StageBegins(StateDescriptor { stage, .. })) => self.stage = stage,
                Some(Event::StageEnds(stage)) => self.session.stage_ends(stage)?,
                Some(Event::Data(extent)) => {
                    if self.is_first {
                        self.session.told.store(true, Ordering::Relaxed);
                    }
                    self.rest = Some(Rest::Wire { extent, done: 0 });
                }
                Some(Event::File(Change::Born(file, page))) => self.rest = Some(Rest::Page { file, page, done: 0 }),
                // Its number now: all files are told before the first byte, and there may be too many. Names and sizes are asked for at the end.
                Some(Event::File(Change::Found(file))) => {
                    self.session.table().number(&file)?;
                }
                Some(Event::File(_)) => {}
            }
        }
    }
}

impl TaskReader<'_> {
    fn wire_extent(&mut self, extent: DataExtent, done: u32, buffer: &mut [u8]) -> Result<Extent> {
        let file = self.session.file(extent.file)?;
        let (stream, unit, judge) = self.session.table().place(&file)?;
        let room = whole_units(buffer.len(), unit);
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
        match extent.file {
            FileId::Data(_) => {
                self.session.look_at(&file, offset, &mut buffer[..length])?;
                if let Some(judge) = judge {
                    self.session.suspects.look(stream, &judge, u64::MAX, offset, &buffer[..length]);
                    if let Some(format) = judge.numbered_format() {
                        self.session.zeros.look(stream, &format, offset, &buffer[..length]);
                    }
                }
            }
            FileId::Redo(index) => self.session.redo.keep(index, file.size, offset, &buffer[..length]),
        }
        self.rest = Some(Rest::Wire { extent, done: done + length as u32 });
        Ok(Extent { stream, layer: layer_of(extent.stage), offset, length: length as u32 })
    }

    fn page_extent(&mut self, file: CloneFile, mut page: Vec<u8>, done: usize, buffer: &mut [u8]) -> Result<Extent> {
        if done == 0 {
            self.session.first_page(&file, &mut page)?;
        }
        let (stream, unit, _) = self.session.table().place(&file)?;
        let length = whole_units(buffer.len(), unit).min(page.len() - done);
        buffer[..length].copy_from_slice(&page[done..done + length]);
        self.rest = Some(Rest::Page { file, page, done: done + length });
        Ok(Extent { stream, layer: layer_of(self.stage), offset: done as u64, length: length as u32 })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(index: u32, space: u32, page_size: u32, path: &str) -> CloneFile {
        CloneFile {
            id: FileId::Data(index),
            space,
            path: path.into(),
            outside: None,
            size: 0,
            page_size,
            fsp_flags: 0,
            flags: 0,
            deleted: false,
        }
    }

    #[test]
    fn a_known_file_keeps_its_number_when_all_are_taken_and_one_more_is_an_error() {
        let mut table = Table::default();
        for index in 0..65_535 {
            assert_eq!(u32::from(table.number(&file(index, 100 + index, 16384, "a.ibd")).unwrap()), index + 1);
        }
        assert_eq!(table.number(&file(65_534, 65_634, 16384, "b.ibd")).unwrap(), 65_535);
        let error = table.number(&file(65_535, 65_635, 16384, "c.ibd")).unwrap_err().to_string();
        assert!(error.contains("65535"), "{error}");
        assert_eq!(table.known(1).unwrap().identity.as_deref(), Some("space:100"));
        assert!(table.known(0).is_none());
    }

    #[test]
    fn a_tablespace_is_known_by_its_id_and_files_without_pages_by_nothing() {
        assert_eq!(
            Known::of(&file(1, 7, 8192, "shop/a.ibd")),
            Known {
                unit: 8192,
                identity: Some("space:7".into()),
                fsp_flags: Some(0),
                judge: Judge::new(Dialect::MySql, 0, "space:7")
            }
        );
        assert_eq!(Known::of(&file(1, 7, 1024, "shop/a.ibd")).unit, 4096);
        let (one, two) = (file(1, 0, 16384, "ibdata1"), file(2, 0, 16384, "ibdata2"));
        assert_ne!(Known::of(&one).identity, Known::of(&two).identity);
        let dump = CloneFile { fsp_flags: u32::MAX, ..file(0, u32::MAX, 16384, "ib_buffer_pool") };
        assert_eq!(Known::of(&dump), Known { unit: 4096, identity: None, fsp_flags: None, judge: None });
        let redo = CloneFile { id: FileId::Redo(3), ..file(0, 0xFFFF_FFF0, 512, "#innodb_redo/#ib_redo3") };
        assert_eq!(Known::of(&redo).identity, None);
    }

    #[test]
    fn a_buffer_is_filled_with_whole_units_if_it_has_room_for_one() {
        assert_eq!(whole_units((1 << 20) - 4096, 16384), 63 * 16384);
        assert_eq!(whole_units((64 << 10) - 4096, 65536), (64 << 10) - 4096);
    }
}
