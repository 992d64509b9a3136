//! RESTORE of a logical set into a new data directory: a private server takes the rows, and the log sets behind them.

use std::path::Path;

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::io::{PrivateDirectory, scratch_directory};
use fullbore_core::media::Manifest;
use fullbore_core::{Error, Result};
use fullbore_engines::engine::{LoadOrder, LogicalEngine, SERVER_PROGRAM};
use fullbore_engines::mysql_family::new_directory::{LoadingServer, NewDirectory, has_tables_without_transactions};
use fullbore_engines::mysql_family::server_options::USERS;
use fullbore_engines::{Options, Restorer};
use fullbore_repository::discovery;

use super::super::reading;
use super::directory::size_of;
use super::logical::{fill, order};
use super::replay::Prepared;
use super::{Check, Into, Owner, Request, plan_line, start, unfinished};
use crate::report::Report;

/// The data directory, within the directory of a restore that is not complete.
const PART: &str = "data";
/// The name for the verdict of the work before the rows.
const MAKING: &str = "making the data directory";
const STOPPING: &str = "stopping the server";

/// Whether the request asks for the data directory of a server, and not for files of text.
pub(super) fn is_wanted(request: &Request) -> bool {
    let asked = request.data_directory
        || request.stop().is_some()
        || request.set_options.flags().value(&SERVER_PROGRAM).is_some();
    asked && matches!(request.into, Into::Directory(_))
}

/// Refuses options of a load where nothing is loaded.
///
/// # Errors
/// It names the first of them.
pub(in crate::job) fn refuse_options(request: &Request, loads: bool) -> Result<()> {
    let first = request.target_options.iter().next();
    let Some(option) = first.filter(|_| !loads && matches!(request.into, Into::Directory(_))) else { return Ok(()) };
    let why = "is for a restore into a running server, or of a logical set into a data directory";
    let hint = "leave it out; or add --stop-at or --server-program, which make a data directory out of a logical set";
    Err(Error::usage(format!("--{}", option.name), why, hint))
}

/// One restore.
struct NewServer<'a> {
    new: NewDirectory,
    manifest: &'a Manifest,
    position: serde_json::Value,
    order: LoadOrder,
    /// `--users`.
    users: bool,
    halt: Halt,
    conduct: &'a Conduct,
}

/// Restores a logical set, and log sets behind it.
///
/// # Errors
/// No fitting server program is here, the target is not empty, or a server refuses. Then there is no directory.
pub(super) fn restore(
    logical: &'static dyn LogicalEngine,
    (found, manifest, logs): (&discovery::Found, &Manifest, &[discovery::Found]),
    opened: &mut reading::Opened,
    request: &Request,
    key: Option<&SecretKey>,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    let Into::Directory(target) = &request.into else { return Err(Error::Halted) };
    let given = request.set_options.of(&manifest.engine);
    let position = manifest.position.last.value();
    let new = NewDirectory::find(&manifest.engine, &manifest.engine_version, &given)?;
    let users = request.target_options.has(&USERS);
    let replay = (!logs.is_empty()).then(|| Prepared::behind_rows(&given, manifest, &position, users)).transpose()?;
    let start = (request.check == Some(Check::Full)).then(|| start::Prepared::new(&given, manifest)).transpose()?;
    let owner = Owner::wanted(request)?;
    let order = LoadOrder { new_server: true, replace: false, ..order(logical, manifest, opened, request)? };
    if request.dry_run {
        [found].into_iter().chain(logs).for_each(|found| plan_line(found, report));
        report.status = "planned".into();
        return Ok(());
    }
    let restore = unfinished::make(target, request.mkdir, size_of(&manifest.streams))?;
    let directory = &restore.temporary().join(PART);
    let (position, halt) = (manifest.position.last.value(), conduct.halt());
    let on = NewServer { new, manifest, position, order, users, halt, conduct };
    let mut server = on.make(directory, report)?;
    let filled = on.fill(logical, &server, (opened, found), report);
    filled.map_err(|error| server.explained(error))?;
    match replay {
        None => on.finish(server, None, report)?,
        Some(_) if has_tables_without_transactions(&on.order.catalogs)? => {
            on.apply_statements(server, logs, request, key, report)?;
        }
        Some(mut replay) => {
            on.finish(server, None, report)?;
            replay.stage(directory, logs, request, key, conduct, report)?;
            if replay.wants_statements() {
                drop(replay);
                let server = on.start(directory)?;
                on.apply_statements(server, logs, request, key, report)?;
            } else {
                replay.apply(directory, request, conduct, report)?;
            }
        }
    }
    if let Some(start) = start {
        report.timed("start check", |report| start.run(directory, &on.position, &[], conduct, report))?;
    }
    conduct.check()?;
    if let Some(owner) = owner {
        owner.take(directory)?;
    }
    report.notes.push(on.told_accounts());
    restore.publish_part(PART)
}

impl NewServer<'_> {
    /// Makes the data directory, and starts a server on it that is ready for the rows.
    fn make(&self, directory: &Path, report: &mut Report) -> Result<LoadingServer> {
        let make = || self.new.make(directory, &self.position, &self.halt);
        report.timed(MAKING, |_| self.conduct.until_signalled(&self.halt, make))?;
        let mut server = self.start(directory)?;
        report.warnings.extend(self.conduct.until_signalled(&self.halt, || server.prepare())?);
        Ok(server)
    }

    fn start(&self, directory: &Path) -> Result<LoadingServer> {
        self.conduct.until_signalled(&self.halt, || self.new.start(directory, &self.position, &self.halt))
    }

    fn options(&self, server: &LoadingServer) -> Options {
        Options { halt: Some(self.halt.clone()), given: server.options(self.users), ..Options::default() }
    }

    fn fill(
        &self,
        logical: &'static dyn LogicalEngine,
        server: &LoadingServer,
        (opened, found): (&mut reading::Opened, &discovery::Found),
        report: &mut Report,
    ) -> Result<()> {
        let (url, options) = (server.url(), self.options(server));
        let load = || logical.load(&url, self.order.clone(), &options);
        let load = self.conduct.until_signalled(&self.halt, || report.timed("creating tables", |_| load()))?;
        fill(load.as_ref(), (opened, found), &self.halt, self.conduct, report)
    }

    /// Applies the log sets through a connection, and stops the server.
    fn apply_statements(
        &self,
        mut server: LoadingServer,
        logs: &[discovery::Found],
        request: &Request,
        key: Option<&SecretKey>,
        report: &mut Report,
    ) -> Result<()> {
        let (url, options) = (server.url(), self.options(&server));
        let (halt, conduct) = (&self.halt, self.conduct);
        let replay = || Prepared::into_server(&url, &options, self.manifest, &self.position, &self.order);
        let mut replay = conduct.until_signalled(halt, replay)?;
        conduct.until_signalled(halt, || replay.mark())?;
        let scratch = PrivateDirectory::new(&scratch_directory(), "logs")?;
        let run = || replay.run(scratch.path(), logs, request, key, conduct, report);
        let applied = conduct.until_signalled(halt, run).map_err(|error| server.explained(error))?;
        self.finish(server, Some(&applied.gtid), report)
    }

    fn finish(&self, server: LoadingServer, gtids: Option<&str>, report: &mut Report) -> Result<()> {
        let finish = || server.finish(gtids, &self.halt);
        report.timed(STOPPING, |_| self.conduct.until_signalled(&self.halt, finish))
    }

    fn told_accounts(&self) -> String {
        let accounts = match self.users {
            true => {
                "the accounts of the set, and those of the log; root@localhost, if the set has none, only for root of this \
                     machine over the socket"
            }
            false => {
                "no accounts but root@localhost, only for root of this machine over the socket; statements of the log \
                      about accounts were left out"
            }
        };
        format!("the directory is the data directory of a {} server. It has {accounts}", self.manifest.engine_version)
    }
}
