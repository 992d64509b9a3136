//! `--check full` of a server: starts the restored server once, checks it and stops it, before the directory gets its
//! name.

use std::path::Path;

use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::media::{Manifest, ManifestStream};
use fullbore_engines::GivenOptions;
use fullbore_engines::engine::{SERVER_OPTION, SERVER_PROGRAM};
use fullbore_engines::mysql_family::start_check::ServerProgram;

use crate::report::{Report, StartCheckReport};
use fullbore_core::conduct::Conduct;

/// A check that is possible: its program exists and fits the backup.
pub(super) struct Prepared<'a> {
    options: &'a [String],
    program: ServerProgram,
}

impl<'a> Prepared<'a> {
    /// Before anything is restored.
    pub fn new(given: &'a GivenOptions, manifest: &Manifest) -> Result<Self> {
        let named = given.file(&SERVER_PROGRAM);
        let program = ServerProgram::find(&manifest.engine, &manifest.engine_version, named, "--check full")?;
        Ok(Self { options: given.texts(&SERVER_OPTION), program })
    }

    /// On the restored directory itself.
    pub fn run(
        &self,
        directory: &Path,
        position: &serde_json::Value,
        streams: &[ManifestStream],
        conduct: &Conduct,
        report: &mut Report,
    ) -> Result<()> {
        let halt = Halt::new();
        let check = || self.program.check(directory, position, streams, self.options, &halt);
        let checked = conduct.until_signalled(&halt, check)?;
        report.start_check = Some(StartCheckReport {
            program: self.program.path().display().to_string(),
            version: self.program.version.clone(),
            ready_s: checked.ready.as_secs_f64(),
            tables: checked.tables,
            loaded: checked.loaded,
            check_s: checked.checking.as_secs_f64(),
        });
        Ok(())
    }
}
