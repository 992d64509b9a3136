//! `--table`: single InnoDB tables out of the physical backup of a server. Only the files that they need are restored,
//! beside the target. A private server on these files exports the tables.

use std::fs;
use std::path::Path;

use fullbore_core::halt::Halt;
use fullbore_core::media::ManifestStream;
use fullbore_core::{Error, Result};
use fullbore_engines::Restorer;
use fullbore_engines::engine::{SERVER_OPTION, SERVER_PROGRAM};
use fullbore_engines::mysql_family::Dialect;
use fullbore_engines::mysql_family::single_table::export::{Export, Exported};
use fullbore_engines::mysql_family::single_table::{self, Selection, TableName};
use fullbore_engines::mysql_family::start_check::{ServerProgram, TABLE};

use super::super::reading;
use super::directory::{last_title, manifests, refuse_damage, size_of, unpack_files};
use super::{Into, Owner, Request, plan_line, unfinished};
use crate::report::{Report, TableReport, TablesReport};
use fullbore_core::conduct::Conduct;
use fullbore_core::units::{counted, show_bytes};
use fullbore_repository::discovery;

/// The restored files, and the exported tables, in the directory with the working name.
const DATA: &str = "data";
const OUT: &str = "tables";

/// Exports tables from an open full, or from a full and its differential, into `dir:PATH`, which is empty or missing.
pub(super) fn restore(
    chain: &[discovery::Found],
    mut opened: reading::Opened,
    request: &Request,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<()> {
    refuse_flags(request)?;
    let manifests = manifests(chain, &mut opened, conduct);
    let Some(manifest) = manifests.last() else { return Ok(()) };
    let (engine, position, last) = (&manifest.engine, &manifest.position.last.value(), &manifest.streams);
    fullbore_engines::check_names(engine, last)?;
    let Into::Directory(target) = &request.into else {
        return Err(Error::usage("--table", "tables are exported into a directory", "name it with --into dir:PATH"));
    };
    let names = request.tables().iter().map(|name| TableName::parse(name)).collect::<Result<Vec<_>>>()?;
    let Some(dialect) = Dialect::named(engine) else {
        return Err(Error::usage(TABLE, "only tables of MySQL and MariaDB can be exported", "leave it out"));
    };
    let selection = Selection::of(dialect, last, position, &names)?;
    let given = request.set_options.of(engine);
    let named = given.file(&SERVER_PROGRAM);
    let program = ServerProgram::find(engine, &manifest.engine_version, named, TABLE)?;
    let origin = last_title(chain);
    refuse_damage(manifest, &origin, request, report)?;
    let owner = Owner::wanted(request)?;
    let needed: Vec<ManifestStream> = last.iter().filter(|stream| selection.needs(&stream.name)).cloned().collect();
    let files = TablesReport::begin(&program, needed.len(), size_of(&needed), last.len(), size_of(last));
    if request.dry_run {
        chain.iter().for_each(|found| plan_line(found, report));
        let (count, bytes) = (counted(files.restored_files, "file"), show_bytes(files.restored_bytes));
        report.sets.push(format!("of these, {count} with {bytes}, temporarily restored beside the target"));
        report.status = "planned".into();
        return Ok(());
    }
    let restore = unfinished::make(target, request.mkdir, size_of(&needed))?;
    let [data, out] = [DATA, OUT].map(|name| restore.temporary().join(name));
    make(&data)?;
    make(&out)?;
    let is_needed = |stream: &ManifestStream| selection.needs(&stream.name);
    unpack_files(chain, &mut opened, &manifests, &is_needed, &data, false, conduct, report)?;
    single_table::prepare(dialect, &data, position, last)?;
    fullbore_engines::directory(engine)?.lengthen(&data, position)?;
    let options = given.texts(&SERVER_OPTION);
    let export =
        Export { program: &program, data: &data, out: &out, position, options, selection: &selection, origin: &origin };
    let halt = Halt::new();
    let exported =
        report.timed("exporting tables with a server", |_| conduct.until_signalled(&halt, || export.run(&halt)))?;
    report.tables = Some(book(files, &exported));
    conduct.check()?;
    if let Some(owner) = owner {
        owner.take(&out)?;
    }
    restore.publish_part(OUT)
}

/// Refuses flags that only a logical set has together with `--table`.
fn refuse_flags(request: &Request) -> Result<()> {
    let flags = [("--replace", request.replace), ("--resume", request.resume), ("--check", request.check.is_some())];
    match flags.iter().find(|(_, given)| *given) {
        Some((flag, _)) => {
            let why = "tables out of files are exported into a new directory";
            Err(Error::usage(format!("--table with {flag}"), why, format!("leave {flag} out")))
        }
        None => Ok(()),
    }
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir(directory).map_err(|e| Error::io("make", directory.display().to_string(), e))
}

fn book(mut files: TablesReport, exported: &Exported) -> TablesReport {
    files.ready_s = exported.ready.as_secs_f64();
    let tables = exported.tables.iter().map(|table| TableReport {
        table: table.name.to_string(),
        files: table.files.clone(),
        bytes: table.bytes,
    });
    files.tables = tables.collect();
    files
}

impl TablesReport {
    fn begin(program: &ServerProgram, files: usize, bytes: u64, all_files: usize, all_bytes: u64) -> Self {
        Self {
            program: program.path().display().to_string(),
            version: program.version.clone(),
            ready_s: 0.0,
            restored_files: files as u64,
            restored_bytes: bytes,
            passed_over_files: (all_files - files) as u64,
            passed_over_bytes: all_bytes - bytes,
            tables: Vec::new(),
        }
    }
}
