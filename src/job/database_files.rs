//! The files of a database of another program, as a restore writes them: their directory, and what the report says.

use fullbore_engines::ForeignRestore;

use super::into_directory::Accepted;
use crate::report::Report;

/// How the directory begins that holds stored media while their database is restored.
pub const UNFINISHED: &str = ".restore-unfinished-";

/// The directory of a restore: empty, or with other files too.
pub fn accepted(missing: bool, files: bool) -> Accepted<'static> {
    Accepted { missing, files, hint: &next_step }
}

fn next_step(file: &str) -> String {
    match file.starts_with(UNFINISHED) {
        true => format!("an interrupted restore has left {file}: remove it"),
        false => "name an empty directory".to_owned(),
    }
}

/// Reports the files that were written.
pub fn tell(done: ForeignRestore, report: &mut Report) {
    report.kind.get_or_insert_with(|| done.kind.to_string());
    report.database.get_or_insert(done.database);
    report.sets = done.sets;
    report.warnings.extend(done.warnings);
    for file in &done.files {
        report.source_bytes += file.bytes;
        report.notes.push(format!(
            "`{}` is the file `{}`: {} bytes, {} of them written",
            file.path.display(),
            file.logical,
            file.size,
            file.bytes
        ));
    }
    report.notes.push(
        "the first page of a log file is not in a backup: SQL Server attaches the data files with FOR ATTACH_REBUILD_LOG \
         (this is not tried yet)"
            .to_owned(),
    );
}
