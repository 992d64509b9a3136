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
    GivenOptions, LoadOrder, LogReplay, ReplayInto, ReplayOn, SERVER_OPTION, SERVER_PROGRAM, SetEnd, UnpackedLog,
};
use fullbore_repository::chain;
use fullbore_repository::discovery;

use super::Request;
use super::log::{self, Unpacking};
use crate::report::Report;

/// A replay that is possible: the server's program is here.
pub(super) struct Prepared<'a> {
    replay: Box<dyn LogReplay + 'a>,
    base: SetEnd,
}

impl<'a> Prepared<'a> {
    /// Before anything is restored. `manifest` is that of the full or the differential below the log sets.
    ///
    /// # Errors
    /// The engine has no log backups, or its server is not here.
    pub fn new(options: &'a GivenOptions, manifest: &'a Manifest, position: &'a serde_json::Value) -> Result<Self> {
        let engine = log::engine_of(&manifest.engine)?;
        let on = ReplayOn {
            program: options.file(&SERVER_PROGRAM),
            options: options.texts(&SERVER_OPTION),
            engine_version: &manifest.engine_version,
            position,
            streams: &manifest.streams,
        };
        let replay = engine.replay(on)?.ok_or_else(|| {
            Error::refused("media set", "its log sets are not for a directory", "restore into a file")
        })?;
        Ok(Self { replay, base: log::end_of(manifest)? })
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
        Ok(Self { replay, base: log::end_of(manifest)? })
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
    ) -> Result<()> {
        let (mut stands, stop) = (self.base.clone(), request.stop());
        for found in logs {
            let opened = log::open(found, request, key, report)?;
            let engine = log::engine_of(&found.header.engine)?;
            let unpacking = Unpacking::within(directory, engine);
            let outcome = log::unpack_one(found, opened, &unpacking, directory, conduct, report)?;
            let (name, streams) = (chain::title(&found.set), unpacking.open()?);
            let position = &outcome.manifest.position;
            let set = UnpackedLog { name: &name, streams: &streams, position, database: directory, stands: &stands };
            let staged = self.replay.stage(&set, stop.as_ref())?;
            stands = staged.stands;
            if staged.stopped {
                break;
            }
        }
        let halt = Halt::new();
        let replay = self.replay;
        let applying = |_: &mut Report| conduct.until_signalled(&halt, || replay.run(directory, stop.as_ref(), &halt));
        let applied = report.timed("applying the log", applying)?;
        report.notes.push(format!(
            "a server applied {} from the log in {:.1} seconds, up to {}{}",
            counted(applied.transactions, "transaction"),
            applied.seconds,
            applied.place,
            if applied.gtid.is_empty() { String::new() } else { format!(" (GTIDs {})", applied.gtid) }
        ));
        report.notes.extend(applied.notes);
        report.warnings.extend(applied.warnings);
        if let Some(point) = &mut report.point {
            let place = applied.place.rsplit_once(':');
            point.binary_log_file = place.map(|(file, _)| file.to_owned());
            point.binary_log_position = place.and_then(|(_, offset)| offset.parse().ok());
            point.gtid = Some(applied.gtid).filter(|gtid| !gtid.is_empty());
        }
        if let Some(time) = request.reading.choice.stop_at {
            log::tell_stop(time, stands.time, report);
        }
        Ok(())
    }
}
