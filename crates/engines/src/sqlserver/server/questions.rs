//! The questions to the server, and the calls of procedures. Names and texts are quoted by [`words`](super::words).

use fullbore_core::media::SetKind;

use super::place::Place;
use super::words::{device, devices, text};
use crate::engine::BackupOrder;

/// The most earlier backups that an estimate looks at.
pub const EARLIER_MOST: usize = 50;

/// Who answers: session, version, and the minutes that the server's clock is ahead of UTC.
pub const SERVER: &str = "SELECT CONVERT(int, @@SPID) AS session, \
    CONVERT(nvarchar(128), SERVERPROPERTY('ProductVersion')) AS version, \
    CONVERT(nvarchar(128), SERVERPROPERTY('Edition')) AS edition, \
    CONVERT(int, DATEPART(TZOFFSET, SYSDATETIMEOFFSET())) AS zone_minutes, \
    CONVERT(nvarchar(23), GETDATE(), 126) AS now, \
    CONVERT(nvarchar(128), @@SERVERNAME) AS server_name";

/// The state of a database, and the bytes of its data files. No row: there is no such database.
pub fn database(name: &str) -> String {
    format!(
        "SELECT d.state_desc AS state, d.recovery_model_desc AS recovery_model, \
         CONVERT(int, d.is_in_standby) AS in_standby, \
         (SELECT SUM(CONVERT(bigint, f.size)) * 8192 FROM sys.master_files AS f \
         WHERE f.database_id = d.database_id AND f.type = 0) AS bytes \
         FROM sys.databases AS d WHERE d.name = {}",
        text(name)
    )
}

/// How far the request of a session is.
pub fn progress(session: i64) -> String {
    format!(
        "SELECT CONVERT(float, percent_complete) AS percent_complete FROM sys.dm_exec_requests WHERE session_id = {session}"
    )
}

/// The language of messages: the number of an operating system's error is read in English only.
pub const ENGLISH: &str = "SET LANGUAGE us_english";

/// A question that every login may ask.
pub const ALIVE: &str = "SELECT 1 AS alive";

/// What follows a BACKUP or RESTORE in its batch: the server answers 0 if the statement ended without an error.
pub const ENDED: &str = "; SELECT CONVERT(int, @@ERROR) AS ended_with";
/// The column of that answer.
pub const ENDED_COLUMN: &str = "ended_with";

/// Ends a session.
pub fn kill(session: i64) -> String {
    format!("KILL {session}")
}

/// The label of one file.
pub fn label(place: &Place) -> String {
    format!("RESTORE LABELONLY FROM {}", device(place))
}

/// The sets on the files of one media set.
pub fn headers(places: &[Place]) -> String {
    format!("RESTORE HEADERONLY FROM {}", devices(places))
}

/// How long statements of this session wait for a lock.
pub fn lock_timeout(milliseconds: Option<u64>) -> String {
    match milliseconds {
        Some(time) => format!("SET LOCK_TIMEOUT {}", time.min(i32::MAX as u64)),
        None => "SET LOCK_TIMEOUT -1".to_owned(),
    }
}

/// The number of the newest set in the history.
pub const NEWEST_SET: &str = "SELECT CONVERT(bigint, ISNULL(MAX(backup_set_id), 0)) AS newest FROM msdb.dbo.backupset";

/// `backupset.type`.
pub fn type_of(kind: SetKind) -> &'static str {
    match kind {
        SetKind::Full => "D",
        SetKind::Differential => "I",
        SetKind::Log => "L",
    }
}

/// The set that was written after the set `before`, to `first` if that is known.
pub fn set_after(before: i64, database: &str, kind: SetKind, first: Option<&Place>) -> String {
    let path = first.map(|place| match place {
        Place::Disk(path) => path.as_str(),
        Place::Url(url) => url.as_str(),
        Place::Nul => "NUL",
    });
    let to = path.map_or_else(String::new, |path| {
        format!(
            " AND EXISTS (SELECT 1 FROM msdb.dbo.backupmediafamily AS f \
             WHERE f.media_set_id = s.media_set_id AND f.physical_device_name = {})",
            text(path)
        )
    });
    format!(
        "SELECT TOP (1) CONVERT(nvarchar(36), s.backup_set_uuid) AS set_id, \
         CONVERT(nvarchar(36), m.media_uuid) AS media_id, CONVERT(bigint, s.backup_size) AS bytes, \
         CONVERT(bigint, ISNULL(s.compressed_backup_size, s.backup_size)) AS stored_bytes, \
         CONVERT(nvarchar(23), s.backup_start_date, 126) AS started, \
         CONVERT(nvarchar(23), s.backup_finish_date, 126) AS finished, \
         CONVERT(nvarchar(30), s.first_lsn) AS first_lsn, CONVERT(nvarchar(30), s.last_lsn) AS last_lsn, \
         CONVERT(nvarchar(30), s.checkpoint_lsn) AS checkpoint_lsn, \
         CONVERT(int, s.has_backup_checksums) AS has_checksums, CONVERT(int, s.is_damaged) AS is_damaged \
         FROM msdb.dbo.backupset AS s JOIN msdb.dbo.backupmediaset AS m ON m.media_set_id = s.media_set_id \
         WHERE s.backup_set_id > {before} AND s.database_name = {} AND s.type = '{}'{to} ORDER BY s.backup_set_id DESC",
        text(database),
        type_of(kind)
    )
}

/// The newest backups of a database of one kind.
pub fn earlier(database: &str, kind: SetKind) -> String {
    format!(
        "SELECT TOP ({EARLIER_MOST}) CONVERT(bigint, s.backup_size) AS bytes, \
         CONVERT(bigint, ISNULL(s.compressed_backup_size, s.backup_size)) AS stored_bytes, \
         CONVERT(bigint, DATEDIFF(second, s.backup_start_date, s.backup_finish_date)) AS seconds, \
         CONVERT(bigint, m.media_family_count) AS files, CONVERT(nvarchar(23), s.backup_finish_date, 126) AS finished \
         FROM msdb.dbo.backupset AS s JOIN msdb.dbo.backupmediaset AS m ON m.media_set_id = s.media_set_id \
         WHERE s.database_name = {} AND s.type = '{}' AND s.is_snapshot = 0 AND s.is_damaged = 0 \
         ORDER BY s.backup_finish_date DESC",
        text(database),
        type_of(kind)
    )
}

/// The call that starts a backup on RDS.
pub fn rds_backup(database: &str, arn: &str, files: usize, order: &BackupOrder, kms_key: Option<&str>) -> String {
    let mut arguments = vec![
        format!("@source_db_name = {}", text(database)),
        format!("@s3_arn_to_backup_to = {}", text(arn)),
        format!("@overwrite_s3_backup_file = {}", u8::from(order.init)),
        format!("@type = {}", text(if order.kind == SetKind::Differential { "DIFFERENTIAL" } else { "FULL" })),
    ];
    if files > 1 {
        arguments.push(format!("@number_of_files = {files}"));
    }
    arguments.extend(kms_key.map(|key| format!("@kms_master_key_arn = {}", text(key))));
    arguments.extend(order.block_size.map(|bytes| format!("@block_size = {bytes}")));
    arguments.extend(order.transfer_size.map(|bytes| format!("@max_transfer_size = {bytes}")));
    arguments.extend(order.buffer_count.map(|count| format!("@buffer_count = {count}")));
    format!("EXEC msdb.dbo.rds_backup_database {}", arguments.join(", "))
}

/// The call that starts a restore on RDS.
pub fn rds_restore(
    database: &str,
    arn: &str,
    kind: SetKind,
    (no_recovery, stop_at): (bool, Option<&str>),
    (buffer_count, kms_key): (Option<usize>, Option<&str>),
) -> String {
    let mut arguments = vec![
        format!("@restore_db_name = {}", text(database)),
        format!("@s3_arn_to_restore_from = {}", text(arn)),
        format!("@with_norecovery = {}", u8::from(no_recovery)),
    ];
    let procedure = match kind {
        SetKind::Log => "rds_restore_log",
        SetKind::Full | SetKind::Differential => {
            let word = if kind == SetKind::Full { "FULL" } else { "DIFFERENTIAL" };
            arguments.push(format!("@type = {}", text(word)));
            "rds_restore_database"
        }
    };
    arguments.extend(stop_at.map(|time| format!("@stopat = {}", text(time))));
    arguments.extend(kms_key.map(|key| format!("@kms_master_key_arn = {}", text(key))));
    arguments.extend(buffer_count.map(|count| format!("@buffer_count = {count}")));
    format!("EXEC msdb.dbo.{procedure} {}", arguments.join(", "))
}

/// The call that opens a database that RDS is restoring.
pub fn rds_finish(database: &str) -> String {
    format!("EXEC msdb.dbo.rds_finish_restore @db_name = {}", text(database))
}

/// The state of a task of RDS.
pub fn rds_status(database: &str, task: i64) -> String {
    format!("EXEC msdb.dbo.rds_task_status @db_name = {}, @task_id = {task}", text(database))
}

/// The call that asks a task of RDS to end.
pub fn rds_cancel(task: i64) -> String {
    format!("EXEC msdb.dbo.rds_cancel_task @task_id = {task}")
}
