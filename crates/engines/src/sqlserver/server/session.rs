//! A database on a connected server: its backups, and what they have in common with its restores.

use fullbore_core::media::SetKind;
use fullbore_core::{Error, Result};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::address::{Address, password};
use super::answer::Row;
use super::failure::Failure;
use super::link::{Link, Sight};
use super::place::{Place, files};
use super::{RDS, browser, found, questions, words};
use crate::Options;
use crate::engine::{
    BackupOrder, EarlierBackup, Look, PASSWORD_FILE, RestoreOrder, Seen, ServerFile, ServerOutcome, ServerSession,
    ServerSet,
};

/// After so many looks without a row, the login cannot see the run: a shorter run may be missed by chance.
const LOOKS_WITHOUT_ROW: u32 = 3;

const DAMAGED: &str =
    "the backup holds damaged pages of the database (is_damaged of msdb.dbo.backupset): run DBCC CHECKDB";

/// How far a clock may be from UTC, in minutes.
const ZONE_MAX: i64 = 14 * 60;

/// A database on a connected server.
pub struct Session {
    pub(super) link: Link,
    pub(super) address: Address,
    /// It is Amazon RDS.
    pub(super) is_rds: bool,
    /// Version and edition.
    pub(super) server: String,
    /// The number of the session that runs the statements.
    pub(super) number: i64,
    /// How far the server's clock is ahead of UTC, if the server says a possible number.
    pub(super) zone_minutes: Option<i64>,
}

/// A backup after all checks.
struct Planned {
    files: Vec<Place>,
    statement: String,
    /// Bytes of the data files, for the display.
    total_bytes: u64,
    replaces: bool,
}

impl Session {
    /// Connects, and asks who answers.
    ///
    /// # Errors
    /// The URL is wrong, the server cannot be reached, or it refuses the login.
    pub fn open(url: &str, options: &Options) -> Result<Self> {
        let mut address = Address::parse(url)?;
        if let Some(instance) = &address.instance {
            address.port = browser::port_of(&address.host, instance, address.browser_port)?;
        }
        let is_rds = options.given.has(&RDS);
        let of_rds = [("kms-key", address.kms_key.is_some()), ("rds-task", address.rds_task.is_some())];
        if let Some((name, _)) = of_rds.into_iter().find(|(_, given)| *given && !is_rds) {
            return Err(Error::usage(name, "is an option of Amazon RDS", "add rds=true, or leave it out"));
        }
        let environment = std::env::var("FULLBORE_PASSWORD").ok().map(Zeroizing::new);
        let password = password(options.given.file(&PASSWORD_FILE), environment)?;
        let mut link = Link::open(address.clone(), password, options.halt.clone())?;
        let rows = link.ask(questions::SERVER).map_err(|failure| failure.on(&address.name()))?;
        let row = rows.into_iter().next().unwrap_or_default();
        let number = row.integer("session").filter(|number| *number > 0);
        let unknown = || Error::refused(address.name(), "does not say its session", "is it a SQL Server?");
        let (version, edition) = (row.text("version"), row.text("edition"));
        let said: Vec<String> = version.into_iter().chain(edition).collect();
        Ok(Self {
            is_rds,
            server: format!("SQL Server {}", said.join(", ")),
            number: number.ok_or_else(unknown)?,
            zone_minutes: row.integer("zone_minutes").filter(|minutes| (-ZONE_MAX..=ZONE_MAX).contains(minutes)),
            link,
            address,
        })
    }

    /// The server and its database, for messages.
    pub(super) fn thing(&self) -> String {
        format!("{}/{}", self.address.name(), self.address.database)
    }

    /// The error if the server does not have the database of a backup.
    pub(super) fn no_such_database(&self) -> Error {
        let hint = "check the name after the host: mssql://USER@HOST/DATABASE";
        Error::usage(self.thing(), "the server has no such database", hint)
    }

    /// The row of the database, if it exists.
    pub(super) fn database_row(&mut self) -> Result<Option<Row>> {
        let question = questions::database(&self.address.database);
        Ok(self.ask(&question)?.into_iter().next())
    }

    pub(super) fn ask(&mut self, question: &str) -> Result<Vec<Row>> {
        self.link.ask(question).map_err(|failure| failure.on(&self.thing()))
    }

    /// An outcome with what is known of every run.
    pub(super) fn outcome(&self, files: &[Place], statements: Vec<String>) -> ServerOutcome {
        let file = |place: &Place| ServerFile { place: place.shown(), bytes: None };
        ServerOutcome {
            files: files.iter().map(file).collect(),
            statements,
            server: self.server.clone(),
            run: Some(format!("session {}", self.number)),
            ..ServerOutcome::default()
        }
    }

    /// Runs a statement of BACKUP or RESTORE, and shows how far it is. Returns notes.
    pub(super) fn run(&mut self, statement: &str, total_bytes: u64, look: Look<'_>) -> Result<Vec<String>, Failure> {
        let (question, end) = (questions::progress(self.number), questions::kill(self.number));
        let mut seen = Seen { percent: 0.0, total_bytes };
        let (mut notes, mut looks, mut rows) = (Vec::new(), 0, 0);
        let mut hear = |sight: Sight<'_>| {
            looks += 1;
            match sight {
                Sight::Row(row) => {
                    rows += 1;
                    seen.percent = row.percent("percent_complete").unwrap_or(0.0).max(seen.percent);
                }
                Sight::Nothing => {}
                Sight::Refused(failure) => notes.push(format!(
                    "the progress is not known: the login may not see sys.dm_exec_requests ({}); grant VIEW SERVER STATE",
                    failure.code().unwrap_or_default()
                )),
            }
            look(&seen)
        };
        self.link.run(statement, &question, &end, &mut hear)?;
        // A login without the right may see its own session only, and no error.
        if rows == 0 && looks >= LOOKS_WITHOUT_ROW && notes.is_empty() {
            notes.push("the progress was not known: the login sees no other session; grant VIEW SERVER STATE".into());
        }
        look(&Seen { percent: 100.0, total_bytes }).ok(); // It is done, whatever is asked now.
        Ok(notes)
    }

    fn planned(&mut self, order: &BackupOrder) -> Result<Planned> {
        if order.copy_only && order.kind == SetKind::Differential {
            return Err(Error::usage("--copy-only", "has no effect on a differential", "leave it out"));
        }
        let row = self.database_row()?.ok_or_else(|| self.no_such_database())?;
        let is_simple = row.text("recovery_model").is_some_and(|model| model == "SIMPLE");
        if order.kind == SetKind::Log && is_simple {
            let hint = "use --kind full or differential, or ALTER DATABASE … SET RECOVERY FULL and then a full";
            return Err(Error::refused(self.thing(), "its recovery model is SIMPLE: it has no log backups", hint));
        }
        let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
        let stem = format!("{}-{}-{now}", file_name(&self.address.database), order.kind);
        let files = files(&order.to, order.stripes, &stem)?;
        if files.contains(&Place::Nul) && order.kind != SetKind::Differential && !order.copy_only {
            let why = "the backup is thrown away, but it would become the base of differentials or break the log chain";
            return Err(Error::usage("nul:", why, "add --copy-only"));
        }
        // The words are checked before the server is asked about the files.
        words::backup(&self.address.database, &files, order, false)?;
        let replaces = found::replaces(&mut self.link, &self.address.database, &files, order.init)?;
        let statement = words::backup(&self.address.database, &files, order, replaces)?;
        Ok(Planned { files, statement, total_bytes: row.bytes("bytes").unwrap_or(0), replaces })
    }

    fn run_backup(&mut self, order: &BackupOrder, look: Look<'_>) -> Result<ServerOutcome> {
        let planned = self.planned(order)?;
        let wait = questions::lock_timeout(order.lock_timeout_ms);
        self.ask(&wait)?;
        let before = self.ask(questions::NEWEST_SET)?.first().and_then(|row| row.integer("newest"));
        let thing = self.thing();
        let ran = self.run(&planned.statement, planned.total_bytes, look);
        let notes = ran.map_err(|failure| self.failed(failure, &planned, &thing))?;
        let mut outcome = self.outcome(&planned.files, vec![wait, planned.statement]);
        outcome.notes = notes;
        let written = before.map(|before| {
            let first = planned.files.first();
            self.link.ask(&questions::set_after(before, &self.address.database, order.kind, first))
        });
        self.describe(written, order.kind, &mut outcome);
        Ok(outcome)
    }

    /// The error of a backup that failed, with what it leaves behind.
    fn failed(&self, failure: Failure, planned: &Planned, thing: &str) -> Error {
        let may_be_done = failure.may_be_done();
        let mut error = failure.on(thing);
        if may_be_done {
            error = error.noting("the backup may have finished on the server: look into msdb.dbo.backupset");
        }
        if planned.replaces {
            error = error.noting("SQL Server may have overwritten the earlier backup there already");
        }
        error
    }

    /// Fills in what the server's history says of the written set.
    pub(super) fn describe(
        &self,
        found: Option<Result<Vec<Row>, Failure>>,
        kind: SetKind,
        outcome: &mut ServerOutcome,
    ) {
        let why = match found {
            Some(Ok(rows)) => match rows.first() {
                Some(row) => {
                    outcome.set = written_set(row, kind);
                    if row.integer("is_damaged") == Some(1) {
                        outcome.warnings.push(DAMAGED.into());
                    }
                    return;
                }
                None => "it has no row of this backup".to_owned(),
            },
            Some(Err(failure)) => failure.on("msdb.dbo.backupset").without_hint(),
            None => "it cannot be read".to_owned(),
        };
        outcome.set.kind = Some(kind);
        outcome
            .warnings
            .push(format!("the backup is done, but its sizes and LSNs are not known from the server's history: {why}"));
    }
}

impl ServerSession for Session {
    fn name(&self) -> String {
        self.address.name()
    }

    fn database(&self) -> &str {
        &self.address.database
    }

    fn plan_backup(&mut self, order: &BackupOrder) -> Result<ServerOutcome> {
        if self.is_rds {
            return self.plan_rds_backup(order);
        }
        let planned = self.planned(order)?;
        let wait = questions::lock_timeout(order.lock_timeout_ms);
        Ok(self.outcome(&planned.files, vec![wait, planned.statement]))
    }

    fn backup(&mut self, order: &BackupOrder, look: Look<'_>) -> Result<ServerOutcome> {
        if self.is_rds { self.rds_backup(order, look) } else { self.run_backup(order, look) }
    }

    fn plan_restore(&mut self, order: &RestoreOrder) -> Result<ServerOutcome> {
        if self.is_rds {
            self.plan_rds_restore(order)
        } else {
            self.planned_restore(order).map(|planned| planned.outcome)
        }
    }

    fn restore(&mut self, order: &RestoreOrder, look: Look<'_>) -> Result<ServerOutcome> {
        if self.is_rds { self.rds_restore(order, look) } else { self.run_restore(order, look) }
    }

    fn history(&mut self, order: &BackupOrder) -> Result<(Vec<EarlierBackup>, u64)> {
        let row = self.database_row()?;
        let rows = self.ask(&questions::earlier(&self.address.database, order.kind))?;
        let earlier = rows.iter().filter_map(|row| {
            Some(EarlierBackup {
                bytes: row.bytes("bytes")?,
                stored_bytes: row.bytes("stored_bytes")?,
                // The server counts whole seconds.
                seconds: row.bytes("seconds")?.max(1) as f64,
                files: usize::try_from(row.integer("files")?).ok()?,
                finished_at: row.text("finished")?,
            })
        });
        Ok((earlier.collect(), row.and_then(|row| row.bytes("bytes")).unwrap_or(0)))
    }
}

/// An LSN in a report, as the tools of SQL Server show it.
pub(super) fn lsn(row: &Row, column: &str) -> Value {
    row.lsn(column).map_or(Value::Null, |lsn| json!({ "lsn": lsn }))
}

fn written_set(row: &Row, kind: SetKind) -> ServerSet {
    ServerSet {
        kind: Some(kind),
        backup_set_id: row.guid("set_id"),
        media_set_id: row.guid("media_id"),
        bytes: row.bytes("bytes").unwrap_or(0),
        stored_bytes: row.bytes("stored_bytes").unwrap_or(0),
        started_at: row.text("started"),
        finished_at: row.text("finished"),
        first: lsn(row, "first_lsn"),
        checkpoint: lsn(row, "checkpoint_lsn"),
        last: lsn(row, "last_lsn"),
        has_checksums: row.integer("has_checksums").map(|bit| bit != 0),
    }
}

/// The name of a database as a part of a file name.
fn file_name(database: &str) -> String {
    let letter = |letter: char| if letter.is_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
    database.chars().map(letter).take(60).collect()
}
