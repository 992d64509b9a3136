//! A clone as a backup's source: each reader has one connection, and the server's data goes straight into the pool's
//! buffers.

mod reader;
mod stream_table;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::error::counted;
use fullbore_core::source::{Extent, Reader, Source, Stream};
use fullbore_core::{Error, Result};
use serde_json::json;

use super::clone::descriptor::{Stage, file_flags};
use super::clone::donor::{Donor, DonorOptions};
use super::clone::encryption;
use super::clone::files::{CloneFile, FileId};
use super::clone::message::Ddl;
use super::clone::page_zero::PageSize;
use super::clone::task::Task;
use super::engine::{INCLUDE_OTHER_ENGINES, INSTALL_CLONE_PLUGIN};
use super::here;
use super::left_out::Tablespaces;
use super::other_engines::{self, OtherEngines};
use super::position::{self, LogStatus};
use super::preflight::{self, Consent};
use super::redo_copy::{self, RedoCopy};
use super::redo_position;
use super::restore;
use super::standstill::Standstill;
use crate::mysql_family::Dialect;
use crate::mysql_family::account::Channel;
use crate::mysql_family::clone_plugin::ClonePlugin;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::credentials::{Credentials, PasswordSources};
use crate::mysql_family::emptied::NOT_EMPTIED;
use crate::mysql_family::innodb::damage::{self, DamagedPage};
use crate::mysql_family::innodb::suspects::{Suspect, Suspects};
use crate::mysql_family::innodb::verify;
use crate::mysql_family::innodb::zeros::Zeros;
use crate::mysql_family::logical_set;
use crate::mysql_family::server_options::{ACCEPT_UNVERIFIED, PASSWORD_FILE};
use crate::mysql_family::url::ServerAddress;
use crate::{Facts, Options, Session, streams};
use reader::TaskReader;
use stream_table::{KnownStream, StreamTable};

/// The least unit of a file, and the unit of files without pages.
const LEAST_UNIT: u32 = 4096;
/// How often the server is asked whether it is still there.
const ASK_AFTER: Duration = Duration::from_secs(5);
/// How long the server may take to end the sessions of a clone that is given up.
const PARTING: Duration = Duration::from_secs(3);

/// A clone that is under way.
pub struct CloneSession {
    donor: Mutex<Donor>,
    tasks: Mutex<Vec<Option<Task>>>,
    table: Mutex<StreamTable>,
    control: Mutex<Control>,
    /// The size that the server reported, for estimates and progress.
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
    /// The tablespaces of the server before the clone.
    tablespaces: Tablespaces,
    /// True when the donor has announced all files that existed at the begin of the clone.
    told: AtomicBool,
    /// Whether keys may be stored.
    media_encrypted: bool,
    /// Tables that are not in a clone, with `--include-other-engines`.
    others: Option<OtherEngines>,
}

/// The connection for queries, beside the connections of the clone.
struct Control {
    connection: Connection,
    asked: Instant,
    standstill: Standstill,
    /// True when the announced tablespaces were compared with the server's.
    compared: bool,
    /// The latest reading of the position that is surely not after the copy's.
    before: LogStatus,
    /// The position after the clone.
    after: Option<LogStatus>,
    /// The position of the copy itself, after the search for it.
    exact: Option<LogStatus>,
}

impl CloneSession {
    /// Checks the server, and begins the clone with one connection for each reader.
    ///
    /// # Errors
    /// The server refuses, or the backup must not be stored in the requested way.
    pub fn open(url: &str, options: &Options) -> Result<Self> {
        let address = ServerAddress::parse(url)?;
        let sources = PasswordSources::of_this_process(options.given.file(&PASSWORD_FILE).map(Into::into));
        let credentials = Credentials::find(&address, &sources)?;
        let mut control = Connection::open_patient(&address, &credentials, options.halt.clone())?;
        let facts = preflight::ask(&mut control)?;
        let consent = Consent {
            unverified: options.given.has(&ACCEPT_UNVERIFIED),
            install_plugin: options.given.has(&INSTALL_CLONE_PLUGIN),
            other_engines: options.given.has(&INCLUDE_OTHER_ENGINES),
        };
        let warnings = preflight::judge(&address.name(), &facts, consent)?;
        if facts.encrypted.count > 0 && !options.media_encrypted {
            return Err(Error::refused(
                address.name(),
                format!(
                    "{} of its tablespaces are encrypted ({}, …), and CLONE sends their keys",
                    facts.encrypted.count,
                    facts.encrypted.first.first().map_or("", String::as_str)
                ),
                "encrypt the backup too: name its recipients with --encrypt-to",
            ));
        }
        let open_others = || OtherEngines::open(&address, &credentials, &facts.grants, &facts.version_text, options);
        let others = consent.other_engines.then(open_others).transpose()?;
        let page =
            PageSize::new(facts.page_size).ok_or_else(|| control.broken("it does not report its innodb_page_size"))?;
        let before = LogStatus::read(&mut control)?;
        let zeros = Zeros::since(position::checkpoint(&mut control)?);
        let tablespaces = Tablespaces::ask(&mut control)?;
        streams::demand(&address.name(), tablespaces.count() as u64)?;
        // Last: if anything else is missing, the server does not change.
        if facts.plugin == ClonePlugin::Absent {
            ClonePlugin::install(&mut control)?;
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

    fn table(&self) -> MutexGuard<'_, StreamTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All files that are in the copy.
    fn files(&self) -> Vec<CloneFile> {
        let donor = self.donor.lock().unwrap_or_else(PoisonError::into_inner);
        donor.files().into_iter().filter(|file| !file.deleted).collect()
    }

    /// The file of a piece, in its current state.
    fn file(&self, id: FileId) -> Result<CloneFile> {
        let donor = self.donor.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || Error::refused("the server", "it sent bytes of a file that it did not announce", "try again");
        donor.file(id).ok_or_else(unknown)
    }

    /// Damaged pages of files in the copy.
    fn damaged(&self) -> Vec<DamagedPage> {
        let (mut left, _) = self.suspects.left();
        let files = self.files();
        let table = self.table();
        let number = |file: &CloneFile| table.streams.get(&file.id).copied();
        let names: HashMap<u32, &str> =
            files.iter().filter_map(|file| Some((number(file)?, file.path.as_str()))).collect();
        // The restored server removes the files of unfinished DDL.
        let finished = |stream: u32| names.get(&stream).is_some_and(|name| !name.contains("#sql"));
        let format = |stream: u32| table.known(stream)?.judge?.numbered_format().filter(|_| finished(stream));
        left.extend(self.zeros.left(format));
        let named =
            |Suspect { stream, page, why }| Some(DamagedPage { file: (*names.get(&stream)?).into(), page, why });
        left.into_iter().filter_map(named).collect()
    }

    /// Called before the end of a stage is acknowledged: everything that is committed now is in the copy.
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

    /// The tables of other engines, which follow the clone when its first connection has seen its end.
    fn behind_the_clone(&self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let Some(others) = &self.others else { return Ok(None) };
        let text = || {
            let known = KnownStream { unit: other_engines::UNIT, identity: None, fsp_flags: None, judge: None };
            self.table().add(known)
        };
        let extent = others.next(text, buffer)?;
        if extent.is_none() {
            // These tables did not change between the two readings of the position.
            drop(self.read_position_after()?);
            others.unlock()?;
        }
        Ok(extent)
    }

    /// Reads the position after the clone, once, and searches for the position of the copy itself.
    fn read_position_after(&self) -> Result<MutexGuard<'_, Control>> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.after.is_none() {
            self.compare(&mut control.connection)?;
            let after = LogStatus::read(&mut control.connection)?;
            let found = self.redo.search(self.page.bytes());
            let ordered = control.connection.query("SELECT @@GLOBAL.binlog_order_commits")?.single() == Some("1");
            control.exact = found.and_then(|found| redo_copy::exact(&found, &control.before, &after, ordered));
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

    /// Checks the received bytes of a data file.
    fn look_at(&self, file: &CloneFile, offset: u64, bytes: &mut [u8]) -> Result<()> {
        if offset == 0 {
            self.first_page(file, bytes)?;
        }
        let page = u64::from(self.page.bytes());
        let at = (page * u64::from(redo_position::TRX_SYS_PAGE)).checked_sub(offset).map(|at| at as usize);
        if let (0, Some(at)) = (file.space, at)
            && let Some(page) = bytes.get(at..).and_then(|rest| rest.get(..page as usize))
        {
            self.redo.look_at(page);
        }
        Ok(())
    }

    /// Reads the size from the first page of a file, and wraps a key in it.
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
            // A tablespace that was encrypted, or created encrypted, since the clone began.
            return Err(Error::refused(
                &file.path,
                "its tablespace is encrypted, and CLONE sends its key",
                "encrypt the backup too: name its recipients with --encrypt-to",
            ));
        }
        let Some(first) = page.get_mut(..self.page.bytes() as usize) else {
            return Err(Error::usage(
                "--max-transfer-size",
                "a buffer is smaller than one page: fullbore needs the whole page to wrap its key",
                "use 1MiB",
            ));
        };
        encryption::wrap(first, self.page).map(drop).map_err(|_| {
            Error::refused(
                &file.path,
                "the key in its first page has an unknown form",
                "report this with the server's version",
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

    fn stream(&self, id: u32) -> Option<Stream> {
        // This is asked for every piece of a file.
        let unit = self.table().known(id)?.unit;
        Some(Stream { id, name: String::new(), unit, size: 0 })
    }

    /// The id of its tablespace, which stays through renames; one that is truncated or rebuilt gets another.
    fn identity(&self, id: u32) -> Option<String> {
        self.table().known(id)?.identity.clone()
    }

    fn detail(&self, id: u32) -> Option<serde_json::Value> {
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
            Ok(Stream { id, unit: KnownStream::of(&file).unit, name: file.path, size })
        };
        let mut found = self.files().into_iter().map(described).collect::<Result<Vec<_>>>()?;
        found.extend(self.others.iter().flat_map(OtherEngines::streams));
        // The media may have blocks of files that were dropped later.
        let named: HashSet<u32> = found.iter().map(|stream| stream.id).collect();
        let table = self.table();
        let gone = (1..).zip(&table.known).filter(|(id, _)| !named.contains(id));
        found.extend(gone.map(|(id, known)| Stream { id, unit: known.unit, name: String::new(), size: 0 }));
        Ok(found)
    }

    /// A reader for each connection; further readers have nothing to read.
    fn reader(&self, index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let task = tasks.get_mut(index).and_then(Option::take);
        Ok(Box::new(TaskReader { session: self, task, is_first: index == 0, stage: Stage::Init, rest: None }))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    fn check(&self) -> Result<()> {
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        if control.asked.elapsed() < ASK_AFTER {
            return Ok(());
        }
        control.asked = Instant::now();
        // As early as possible: a refusal must not come after hours of reading.
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
    /// A donor that waits inside of the server does not notice that the clone was given up.
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
        Dialect::MySql.name()
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
            position[NOT_EMPTIED] = json!(table.name);
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
        logical_set::refuse_as_base(position)?;
        let server = position.get("server_uuid").and_then(serde_json::Value::as_str).unwrap_or_default();
        if server == self.facts.server_uuid {
            return Ok(());
        }
        Err(format!("of another server (server_uuid {server:?}; this server has {:?})", self.facts.server_uuid))
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
                "outside the data directory of the server: {files} (`{first}`{more}); a restore puts them into the \
                 data directory"
            ));
        }
        Facts {
            warnings,
            // InnoDB: DDL and writes continue. Commits wait only for two short readings of the position.
            writers_blocked: self.others.as_ref().map_or(Duration::ZERO, OtherEngines::blocked),
            free_bytes: 0,
            library: format!("MySQL {}", self.facts.version_text),
            direct: false,
        }
    }

    /// The server reads the files, but the disk is the same.
    fn database_at(&self) -> Result<PathBuf, String> {
        here::data_directory(&self.facts.datadir, &self.facts.server_uuid, &self.facts.hostname)
    }
}
