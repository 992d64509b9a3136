//! Groups of a log as transactions of a running server: how they begin and end, and what stays after an error.

use fullbore_core::Result;

use super::statements::Statements;
use super::target::Target;
use super::xa;
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::event::{CRC, HEADER, Header, group, is_part_of_an_alter, kind};
use crate::mysql_family::binlog::gtid::Gtid;
use crate::mysql_family::connection::Connection;

impl Statements {
    pub(super) fn begin_group(&mut self, gtid: Option<&Gtid>, header: &Header, event: &[u8]) -> Result<()> {
        self.end_group()?;
        let shown = gtid.map(|gtid| format!(" (GTID {gtid})")).unwrap_or_default();
        self.group = format!("{}:{}{shown}", self.file, self.at);
        if let Some(executed) = &self.executed {
            let next = match gtid {
                Some(gtid @ Gtid::MySql { uuid, tag, number }) if !executed.has(uuid, tag, *number) => gtid.to_string(),
                other => {
                    self.renamed += u64::from(other.is_some());
                    "AUTOMATIC".to_owned()
                }
            };
            self.next = next;
            self.take_gtid()?;
        }
        (self.empty, self.changed) = (true, false);
        if header.kind == kind::MARIADB_GTID {
            let body = event.get(HEADER..).unwrap_or_default();
            if is_part_of_an_alter(body.get(..body.len().saturating_sub(CRC)).unwrap_or_default()) {
                return Err(self.odd("an ALTER TABLE is logged in two parts (binlog_alter_two_phase)"));
            }
            let flags = body.get(12).copied().unwrap_or(group::STANDALONE);
            if flags & group::PREPARED_XA != 0 {
                let skip = if flags & group::COMMIT_ID != 0 { 13 + 8 } else { 13 };
                let id = body.get(skip..).and_then(xa::of_mariadb).ok_or_else(|| self.odd("an XA id is too short"))?;
                let mut target = session((self.connect)()?, self.dialect)?;
                target.describe(self.main.format()).map_err(|failure| self.failed(failure))?;
                target.zone.clone_from(&self.main.zone);
                target.settings.of_source.clone_from(&self.main.settings.of_source);
                self.of_xa = Some(target);
                self.run(format!("XA START {id}").as_bytes())?;
                self.open = true;
            } else if flags & group::STANDALONE == 0 {
                self.run(b"START TRANSACTION")?;
                self.open = true;
            }
        }
        Ok(())
    }

    /// The next transaction of the target has the GTID of the group.
    pub(super) fn take_gtid(&mut self) -> Result<()> {
        if self.executed.is_none() {
            return Ok(());
        }
        self.run(format!("SET @@SESSION.gtid_next = '{}'", self.next).as_bytes())
    }

    /// The next statement has no GTID of the log. The session owns it until its transaction ends.
    pub(super) fn give_gtid_back(&mut self) -> Result<()> {
        if self.executed.is_none() {
            return Ok(());
        }
        self.run(b"ROLLBACK")?;
        self.run(b"SET @@SESSION.gtid_next = 'AUTOMATIC'")
    }

    /// A group must be complete when the next one begins.
    fn end_group(&mut self) -> Result<()> {
        self.send_rows()?;
        if self.open {
            return Err(self.odd("a transaction has no end"));
        }
        if self.empty && self.executed.is_some() {
            // Nothing of it was applied: the GTID is taken all the same.
            self.run(b"BEGIN")?;
            self.run(b"COMMIT")?;
        }
        self.target().settle().map_err(|failure| self.failed(failure))?;
        self.empty = false;
        self.half = None;
        Ok(())
    }

    /// A set ends between groups.
    ///
    /// # Errors
    /// It ends within one, or the server refuses.
    pub fn end_of_set(&mut self) -> Result<()> {
        self.end_group()?;
        if self.executed.is_some() {
            self.run(b"SET @@SESSION.gtid_next = 'AUTOMATIC'")?;
        }
        Ok(())
    }

    /// After an error: nothing of the current group stays.
    pub fn give_up(&mut self) {
        let _ = self.target().settle(); // The error is known.
        let _ = self.run(b"ROLLBACK");
        let _ = self.give_gtid_back();
        if let Some(statement) = self.half.take()
            && let Some(name) = statement.created_table()
            && self.main.prepare(&statement).is_ok()
        {
            let _ = self.run(format!("DROP TABLE IF EXISTS {name}").as_bytes());
        }
    }
}

/// A session of the target. Texts of the log are sent as they are.
///
/// # Errors
/// It refuses, or is lost.
pub fn session(mut connection: Connection, dialect: Dialect) -> Result<Target> {
    connection.query("SET NAMES binary")?;
    if dialect == Dialect::MariaDb {
        // The source has changed the table: so does the target.
        connection.query("SET SESSION system_versioning_alter_history = KEEP")?;
    }
    let mut target = Target::begin(connection, [dialect; 2], None)?;
    target.settings.forget();
    Ok(target)
}
