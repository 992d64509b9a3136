//! Log sets of a server: they are staged in the restored directory, and one run of its server applies them.

use std::path::Path;

use fullbore_core::cipher::SecretKey;
use fullbore_core::conduct::Conduct;
use fullbore_core::halt::Halt;
use fullbore_core::media::Manifest;
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};
use fullbore_engines::Options;
use fullbore_engines::engine::{
    GivenOptions, LoadOrder, LogReplay, RefreshBase, RefreshOrder, ReplayInto, ReplayOn, Replayed, SERVER_OPTION,
    SERVER_PROGRAM, SetEnd,
};
use fullbore_repository::discovery;

use super::Request;
use super::log::{self, Unpacked};
use crate::report::Report;

/// A replay that is possible: the server's program is here.
pub(super) struct Prepared<'a> {
    replay: Box<dyn LogReplay + 'a>,
    /// The end of the base, then of what is staged.
    stands: SetEnd,
}

impl<'a> Prepared<'a> {
    /// Before anything is restored. `manifest` is that of the full or the differential below the log sets.
    ///
    /// # Errors
    /// The engine has no log backups, or its server is not here.
    pub fn new(options: &'a GivenOptions, manifest: &'a Manifest, position: &'a serde_json::Value) -> Result<Self> {
        let on = ReplayOn {
            program: options.file(&SERVER_PROGRAM),
            options: options.texts(&SERVER_OPTION),
            engine_version: &manifest.engine_version,
            position,
            streams: &manifest.streams,
            accounts: true,
        };
        Self::of(on, manifest)
    }

    /// The same behind the rows of a logical set, which are in a new data directory. `accounts`: those of the source are
    /// there, too.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn behind_rows(
        options: &'a GivenOptions,
        manifest: &'a Manifest,
        position: &'a serde_json::Value,
        accounts: bool,
    ) -> Result<Self> {
        let program = options.file(&SERVER_PROGRAM);
        let (options, engine_version) = (options.texts(&SERVER_OPTION), &manifest.engine_version);
        Self::of(ReplayOn { program, options, engine_version, position, streams: &[], accounts }, manifest)
    }

    fn of(on: ReplayOn<'a>, manifest: &Manifest) -> Result<Self> {
        let replay = log::engine_of(&manifest.engine)?.replay(on)?.ok_or_else(|| {
            Error::refused("media set", "its log sets are not for a directory", "restore into a file")
        })?;
        Ok(Self { replay, stands: log::end_of(manifest)? })
    }

    /// The same for a running server, into which the rows of a logical set are loaded first.
    ///
    /// # Errors
    /// The server cannot be reached, or cannot apply the log.
    pub fn into_server(
        url: &str,
        options: &Options,
        manifest: &Manifest,
        position: &serde_json::Value,
        order: &LoadOrder,
    ) -> Result<Self> {
        let engine = log::engine_of(&manifest.engine)?;
        let (catalogs, replace) = (&order.catalogs[..], order.replace);
        let engine_version = &manifest.engine_version;
        let on = ReplayInto { url, options, engine_version, position, catalogs, replace };
        let replay = engine.replay_into(on)?.ok_or_else(|| {
            Error::refused("media set", "its log sets are not for a running server", "restore into a file")
        })?;
        Ok(Self { replay, stands: log::end_of(manifest)? })
    }

    /// The same for a server that remembers how far it is, and stands here. With a base, its rows are loaded first.
    ///
    /// # Errors
    /// The server cannot be reached, cannot apply the log, or holds something else.
    pub fn refreshing(order: &RefreshOrder<'_>, base: Option<&RefreshBase<'_>>, stands: SetEnd) -> Result<Self> {
        Ok(Self { replay: super::refresh::engine_of(order.engine)?.refresh(order, base)?, stands })
    }

    /// The rows of a logical set are loaded now.
    ///
    /// # Errors
    /// The server refuses.
    pub fn loads(&mut self) -> Result<()> {
        self.replay.loads()
    }

    /// Marks a running server as not complete.
    ///
    /// # Errors
    /// It refuses.
    pub fn mark(&mut self) -> Result<()> {
        self.replay.mark()
    }

    /// Stages the log sets in the directory, and lets the server apply them.
    ///
    /// # Errors
    /// A set is damaged or missing, or the server does not apply them.
    pub fn run(
        mut self,
        directory: &Path,
        logs: &[discovery::Found],
        request: &Request,
        key: Option<&SecretKey>,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<Replayed> {
        self.stage(directory, logs, request, key, conduct, report)?;
        self.apply(directory, request, conduct, report)
    }

    /// Stages the log sets in the directory.
    ///
    /// # Errors
    /// A set is damaged or missing.
    pub fn stage(
        &mut self,
        directory: &Path,
        logs: &[discovery::Found],
        request: &Request,
        key: Option<&SecretKey>,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<()> {
        let stop = request.stop();
        for found in logs {
            let unpacked = Unpacked::within(directory, found, request, key, conduct, report)?;
            // Behind a stop, it only looks at the commits.
            self.stands = self.replay.stage(&unpacked.set(directory, &self.stands), stop.as_ref())?.stands;
        }
        Ok(())
    }

    /// True if what was staged can be applied through a connection only.
    pub fn wants_statements(&self) -> bool {
        self.replay.wants_statements()
    }

    /// Lets the server apply what was staged. The report gets what it says.
    ///
    /// # Errors
    /// The server does not apply it.
    pub fn apply(
        self,
        directory: &Path,
        request: &Request,
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<Replayed> {
        let (stands, stop) = (self.stands, request.stop());
        let halt = Halt::new();
        let replay = self.replay;
        let applying = |_: &mut Report| conduct.until_signalled(&halt, || replay.run(directory, stop.as_ref(), &halt));
        let mut applied = report.timed("applying the log", applying)?;
        report.notes.push(format!(
            "a server applied {} from the log in {:.1} seconds, up to {}{}",
            counted(applied.transactions, "transaction"),
            applied.seconds,
            applied.place,
            if applied.gtid.is_empty() { String::new() } else { format!(" (GTIDs {})", applied.gtid) }
        ));
        report.notes.append(&mut applied.notes);
        report.warnings.append(&mut applied.warnings);
        if let Some(point) = &mut report.point {
            let place = applied.place.rsplit_once(':');
            point.binary_log_file = place.map(|(file, _)| file.to_owned());
            point.binary_log_position = place.and_then(|(_, offset)| offset.parse().ok());
            point.gtid = Some(applied.gtid.clone()).filter(|gtid| !gtid.is_empty());
        }
        if let Some(time) = request.reading.choice.stop_at {
            log::tell_stop(time, stands.time, report);
        }
        Ok(applied)
    }
}
