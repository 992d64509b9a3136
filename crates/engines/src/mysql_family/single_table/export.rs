//! A private server on restored files exports tables: their files are moved while `FLUSH TABLES … FOR EXPORT` locks
//! them.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::io::sync_directory;
use fullbore_core::{Error, Result};

use super::statements::{Definition, Partition, statements};
use super::{Selection, TableName, WantedTable, file_name, missing_files};
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::start_check::{Running, ServerProgram, fault_of_table};

/// How long the server may be silent while it reads or writes one table.
const TABLE_LIMIT: Duration = Duration::from_secs(24 * 3600);
/// How long a rollback may make no progress.
const ROLLBACK_LIMIT: Duration = Duration::from_secs(120);
/// How often to read the list of transactions. InnoDB renews it only if it was not read for 100 ms: with more frequent
/// reads it would never change.
const TICK: Duration = Duration::from_millis(300);
/// Recovery skips the tablespaces that were not restored: their redo is lost on purpose.
const WITHOUT_THE_OTHERS: &str = "innodb-force-recovery=1";

/// The tables to export, from where and to where.
pub struct Export<'a> {
    /// The server's program.
    pub program: &'a ServerProgram,
    /// The restored files, which become a data directory.
    pub data: &'a Path,
    /// An empty directory on the same file system: the tables come here.
    pub out: &'a Path,
    /// The position of the backup.
    pub position: &'a serde_json::Value,
    /// Further options of the server, without their dashes.
    pub options: &'a [String],
    /// The tables.
    pub selection: &'a Selection,
    /// The name of the backup, for the comment in the statements.
    pub origin: &'a str,
}

/// The exported tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// From the start of the server until it answered: recovery.
    pub ready: Duration,
    /// The tables, in the requested order.
    pub tables: Vec<ExportedTable>,
}

/// One table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportedTable {
    /// Its name.
    pub name: TableName,
    /// Files below the target, with the file of statements.
    pub files: Vec<String>,
    /// Bytes in them.
    pub bytes: u64,
}

impl Export<'_> {
    /// Starts the server, lets it recover, checks the tables and exports them, durably. The server has ended in any
    /// case; the files of the tables are no longer in the data directory.
    ///
    /// # Errors
    /// The server does not start, does not know a table, or finds it damaged.
    pub fn run(&self, halt: &Halt) -> Result<Exported> {
        let begun = Instant::now();
        let (mut server, mut connection) = self.rolled_back(halt)?;
        let ready = begun.elapsed();
        connection.set_silence(TABLE_LIMIT);
        let definitions = self.flush(&mut connection).map_err(|error| server.explained(error))?;
        missing_files::check(&server.log()?, self.selection)?;
        // Killed while the tables are locked: no thread writes to their files any more, and the .cfg files for the
        // import stay.
        drop(server);
        drop(connection);
        halt.check()?;
        let tables = definitions.iter().map(|definition| self.hand_out(definition)).collect::<Result<_>>()?;
        sync_directory(self.out)?;
        Ok(Exported { ready, tables })
    }

    /// A server that has rolled back all changes that were not committed.
    fn rolled_back(&self, halt: &Halt) -> Result<(Running, Connection)> {
        let (mut server, mut connection) = self.recovered(halt)?;
        wait_for_rollback(&mut connection, halt).map_err(|error| server.explained(error))?;
        Ok((server, connection))
    }

    /// A server that has recovered. MySQL skips missing tablespaces without the option too, and then rolls back
    /// uncommitted changes at once; with the option it cannot write GTIDs.
    fn recovered(&self, halt: &Halt) -> Result<(Running, Connection)> {
        if self.program.dialect == Dialect::MySql {
            let mut server = Running::start(self.program, self.data, self.position, self.options)?;
            if let Ok(connection) = server.wait_until_ready(halt) {
                return Ok((server, connection));
            }
            halt.check()?;
        }
        let options = [self.options, &[WITHOUT_THE_OTHERS.to_owned()]].concat();
        let mut server = Running::start(self.program, self.data, self.position, &options)?;
        let connection = server.wait_until_ready(halt)?;
        Ok((server, connection))
    }

    /// Checks the tables and locks them for export; returns their definitions.
    fn flush(&self, connection: &mut Connection) -> Result<Vec<Definition>> {
        let tables = &self.selection.tables;
        let definitions = tables.iter().map(|table| self.definition(connection, table)).collect::<Result<Vec<_>>>()?;
        let all: Vec<String> = tables.iter().map(|table| table.name.quoted()).collect();
        connection.query(&format!("FLUSH TABLES {} FOR EXPORT", all.join(", ")))?;
        Ok(definitions)
    }

    fn definition(&self, connection: &mut Connection, table: &WantedTable) -> Result<Definition> {
        let name = &table.name;
        let refused = |why: String| Err(Error::refused(format!("table {name}"), why, WHOLE));
        let this = format!("table_schema = {} AND table_name = {}", literal(&name.schema), literal(&name.table));
        let known = connection.query(&format!(
            "SELECT table_type, engine, row_format, table_comment FROM information_schema.tables WHERE {this}"
        ))?;
        match (known.value(0, 0), known.value(0, 1)) {
            (None, _) => return refused("the restored server does not have it".into()),
            (Some("BASE TABLE" | "SYSTEM VERSIONED"), Some(engine)) if engine.eq_ignore_ascii_case("innodb") => {}
            (Some("BASE TABLE" | "SYSTEM VERSIONED"), None) => {
                let why = known.value(0, 3).unwrap_or_default();
                return refused(format!("the restored server cannot open it: {why}"));
            }
            (Some(kind), engine) => {
                let engine = engine.map_or(String::new(), |engine| format!(" of {engine}"));
                let kind = kind.to_lowercase();
                return refused(format!("it is a {kind}{engine}, and only InnoDB tables can be taken out"));
            }
        }
        check(connection, name)?;
        let create = connection.query(&format!("SHOW CREATE TABLE {}", name.quoted()))?;
        let Some(create) = create.value(0, 1) else {
            return refused("the restored server does not report its definition".into());
        };
        let parts = connection.query(&format!(
            "SELECT partition_name, subpartition_name FROM information_schema.partitions WHERE {this} AND \
             partition_name IS NOT NULL ORDER BY partition_ordinal_position, subpartition_ordinal_position"
        ))?;
        let mut partitions = Vec::new();
        for row in &parts.rows {
            let [Some(partition), subpartition] = &row[..] else { continue };
            partitions.push(Partition::of(table, partition, subpartition.as_deref()));
        }
        Ok(Definition {
            dialect: self.program.dialect,
            version: self.program.version.clone(),
            origin: self.origin.to_owned(),
            name: name.clone(),
            create: create.to_owned(),
            row_format: known.value(0, 2).unwrap_or_default().to_owned(),
            partitions,
            table: table.clone(),
            files: Vec::new(),
        })
    }

    /// Moves the files of a table, and writes its statements.
    fn hand_out(&self, definition: &Definition) -> Result<ExportedTable> {
        let mut files = BTreeSet::new();
        let spaces = definition.table.spaces.iter().map(|path| self.data.join(path));
        let mut folders = BTreeSet::new();
        for space in spaces {
            let is_encrypted = space.with_extension("cfp").exists();
            let endings: &[&str] = if is_encrypted { &["ibd", "cfg", "cfp"] } else { &["ibd", "cfg"] };
            for ending in endings {
                files.insert(space.with_extension(ending));
            }
        }
        files.extend(definition.table.definition.iter().map(|path| self.data.join(path)));
        files.extend(
            definition
                .table
                .definition
                .iter()
                .map(|path| self.data.join(path).with_extension("par"))
                .filter(|path| path.exists()),
        );
        let (mut names, mut bytes) = (Vec::new(), 0);
        for path in files {
            let relative = path.strip_prefix(self.data).unwrap_or(&path);
            let to = self.out.join(relative);
            let folder = to.parent().unwrap_or(self.out).to_owned();
            if !folder.exists() {
                make_folder(&folder)?;
            }
            bytes += take(&path, &to)?;
            folders.insert(folder);
            names.push(relative.display().to_string());
        }
        let name =
            format!("{}.{}.sql", file_name::encode(&definition.name.schema), file_name::encode(&definition.name.table));
        let whole = Definition { files: names.clone(), ..definition.clone() };
        bytes += write(&self.out.join(&name), &statements(&whole))?;
        names.push(name);
        folders.iter().try_for_each(|folder| sync_directory(folder))?;
        Ok(ExportedTable { name: definition.name.clone(), files: names, bytes })
    }
}

const WHOLE: &str = "restore the whole directory, without --table";

/// Waits until the rollback has removed all uncommitted changes: an import would treat them as committed.
fn wait_for_rollback(connection: &mut Connection, halt: &Halt) -> Result<()> {
    let prepared = connection.query("XA RECOVER")?.rows.len();
    if prepared > 0 {
        let why = format!(
            "the backup has {prepared} prepared XA transactions, and only their coordinator knows whether they commit"
        );
        let hint = "restore the whole directory, start the server, commit or roll back the transactions that `XA \
                    RECOVER` lists, and export the table there";
        return Err(Error::refused("--table", why, hint));
    }
    // Transactions that recovery found belong to no connection.
    let recovered = "SELECT COUNT(*), COALESCE(SUM(trx_rows_modified), 0) FROM information_schema.innodb_trx WHERE \
                     trx_mysql_thread_id = 0";
    let (mut left, mut since) = (None, Instant::now());
    loop {
        let now = connection.query(recovered)?.rows.into_iter().next();
        if now.as_ref().and_then(|row| row.first()?.as_deref()) == Some("0") {
            return Ok(());
        }
        halt.check()?;
        if now != left {
            (left, since) = (now, Instant::now());
        }
        if since.elapsed() > ROLLBACK_LIMIT {
            let why = "the private server makes no progress in the rollback of transactions that were open when the \
                       backup ended";
            return Err(Error::refused("--table", why, WHOLE));
        }
        std::thread::sleep(TICK);
    }
}

/// Refuses to export a damaged table.
fn check(connection: &mut Connection, name: &TableName) -> Result<()> {
    let Some(bad) = fault_of_table(connection, &name.quoted())? else { return Ok(()) };
    let hint = "it may have been damaged before the backup: restore the whole directory to inspect it, or take the \
                table from another set";
    Err(Error::refused(format!("table {name}"), format!("CHECK TABLE on the restored server says: {bad}"), hint))
}

fn make_folder(folder: &Path) -> Result<()> {
    let made = DirBuilder::new().mode(0o770).create(folder);
    made.map_err(|e| Error::io("make", folder.display().to_string(), e))
}

/// Moves a file of a server that has ended, durably; returns its size.
fn take(from: &Path, to: &Path) -> Result<u64> {
    let failed = |action: &str, path: &Path| {
        let (action, path) = (action.to_owned(), path.display().to_string());
        move |e| Error::io(action, path, e)
    };
    let file = File::open(from).map_err(failed("open", from))?;
    file.sync_all().map_err(failed("sync", from))?;
    let size = file.metadata().map_err(failed("look at", from))?.len();
    fs::rename(from, to).map_err(failed("move", from))?;
    Ok(size)
}

fn write(path: &PathBuf, text: &str) -> Result<u64> {
    let failed = |e| Error::io("write", path.display().to_string(), e);
    let mut file = File::options().write(true).create_new(true).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(text.len() as u64)
}
