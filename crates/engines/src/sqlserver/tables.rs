//! The columns of RESTORE HEADERONLY, FILELISTONLY and LABELONLY, under SQL Server's own names and in its order. A
//! column that a backup file is not known to hold is left out: nothing is guessed.

use jiff::civil::DateTime;
use serde_json::Value;
use uuid::Uuid;

use super::configuration::Configuration;
use super::configuration::{BackupKind, DatabaseFile, FileKind};
use super::label::MediaLabel;
use super::lsn::Lsn;
use super::media::{self, BackupSet, guid};
use super::set::SetHeader;
use crate::engine::Row;

/// The code of a kind in BackupType, and its BackupTypeDescription.
pub fn backup_type(kind: BackupKind) -> (Option<u8>, String) {
    let (code, words) = match kind {
        BackupKind::Full => (1, "DATABASE"),
        BackupKind::Log => (2, "TRANSACTION LOG"),
        BackupKind::Files => (4, "FILE OR FILEGROUP"),
        BackupKind::Differential => (5, "DATABASE DIFFERENTIAL"),
        BackupKind::FilesDifferential => (6, "FILE OR FILEGROUP DIFFERENTIAL"),
        BackupKind::Partial => (7, "PARTIAL"),
        BackupKind::PartialDifferential => (8, "PARTIAL DIFFERENTIAL"),
        BackupKind::Unknown(letter) => return (None, format!("UNKNOWN KIND {}", char::from(letter).escape_default())),
    };
    (Some(code), words.to_owned())
}

/// RESTORE HEADERONLY.
pub fn header(set: &BackupSet) -> Row {
    let (begun, database) = (&set.header, &set.configuration.database);
    let (code, description) = backup_type(database.kind);
    let first_fork = if database.first_fork.is_nil() { database.fork } else { database.first_fork };
    Row(vec![
        ("BackupName", text(&begun.name)),
        ("BackupDescription", text(&begun.description)),
        ("BackupType", code.into()),
        ("Position", begun.position.into()),
        ("UserName", text(&begun.user)),
        ("ServerName", text(&database.server)),
        ("DatabaseName", text(&database.database)),
        ("DatabaseVersion", database.database_version.into()),
        ("DatabaseCreationDate", date(database.created)),
        ("BackupSize", database.size.into()),
        ("FirstLSN", lsn(database.first)),
        ("LastLSN", lsn(database.last)),
        ("CheckpointLSN", lsn(database.checkpoint)),
        ("DatabaseBackupLSN", lsn(database.full_backup)),
        ("BackupStartDate", date(database.started)),
        ("BackupFinishDate", date(database.finished)),
        ("SortOrder", database.sort_order.into()),
        ("UnicodeLocaleId", database.unicode.0.into()),
        ("UnicodeComparisonStyle", database.unicode.1.into()),
        ("CompatibilityLevel", database.compatibility.into()),
        ("SoftwareVersionMajor", database.software.0.into()),
        ("SoftwareVersionMinor", database.software.1.into()),
        ("SoftwareVersionBuild", database.software.2.into()),
        ("MachineName", text(&set.machine)),
        ("BindingID", id(database.binding)),
        ("RecoveryForkID", id(database.fork)),
        ("FamilyGUID", id(database.family)),
        ("HasBackupChecksums", database.has_checksums.into()),
        ("FirstRecoveryForkID", id(first_fork)),
        ("ForkPointLSN", lsn(database.fork_point)),
        ("DifferentialBaseLSN", lsn(database.base_lsn)),
        ("DifferentialBaseGUID", id(database.base)),
        ("BackupTypeDescription", description.into()),
        ("BackupSetGUID", id(begun.guid)),
        ("CompressedBackupSize", database.compressed_size.filter(|size| *size > 0).unwrap_or(database.size).into()),
    ])
}

/// RESTORE FILELISTONLY: one file of a set.
pub fn file(set: &BackupSet, file: &DatabaseFile) -> Row {
    let kind = match file.kind {
        FileKind::Data => Value::from("D"),
        FileKind::Log => "L".into(),
        FileKind::Other(_) => Value::Null,
    };
    Row(vec![
        ("LogicalName", text(&file.logical_name)),
        ("PhysicalName", text(&file.physical_name)),
        ("Type", kind),
        ("FileGroupName", text(set.configuration.filegroup_of(file))),
        ("Size", file.size.into()),
        ("MaxSize", file.max_size.into()),
        ("FileId", file.id.into()),
        ("UniqueId", id(file.unique_id)),
        ("BackupSizeInBytes", file.backup_bytes.into()),
        ("SourceBlockSize", file.block_size.into()),
        ("FileGroupId", file.filegroup.into()),
        ("DifferentialBaseLSN", lsn(file.base_lsn)),
        ("DifferentialBaseGUID", id(file.base)),
    ])
}

/// RESTORE LABELONLY: one family.
pub fn label(label: &MediaLabel) -> Row {
    let MediaLabel { tape, stripe } = label;
    Row(vec![
        ("MediaName", text(&tape.name)),
        ("MediaSetId", guid(stripe.media_set).into()),
        ("FamilyCount", stripe.families.into()),
        ("FamilySequenceNumber", stripe.family.into()),
        // SQL Server shows this number as the first part of a GUID.
        ("MediaFamilyId", format!("{:08X}-0000-0000-0000-000000000000", tape.family_id).into()),
        ("MediaSequenceNumber", tape.medium.into()),
        ("MediaDescription", text(&tape.description)),
        ("SoftwareName", text(&tape.software)),
        ("SoftwareVendorId", tape.vendor.into()),
        ("MediaDate", date(tape.written)),
        ("MirrorCount", stripe.mirrors.into()),
    ])
}

/// A set in messages.
pub fn title(header: &SetHeader, configuration: &Configuration) -> String {
    let database = &configuration.database;
    let kind = backup_type(database.kind).1.to_lowercase();
    format!("file {}: {kind} of `{}`, {}", header.position, database.database, media::guid(header.guid))
}

/// One line of a list: what, of which database, from where to where in its log.
pub fn line(set: &BackupSet) -> Row {
    let database = &set.configuration.database;
    Row(vec![
        ("DatabaseName", text(&database.database)),
        ("BackupTypeDescription", backup_type(database.kind).1.into()),
        ("BackupFinishDate", date(database.finished.or(database.started))),
        ("Position", set.header.position.into()),
        ("FirstLSN", lsn(database.first)),
        ("LastLSN", lsn(database.last)),
        ("BackupSetGUID", id(set.header.guid)),
    ])
}

fn text(text: &str) -> Value {
    if text.is_empty() { Value::Null } else { text.into() }
}

/// An LSN has up to 25 digits, more than a number of JSON keeps: it is a text.
fn lsn(lsn: Lsn) -> Value {
    if lsn.is_zero() { Value::Null } else { lsn.to_string().into() }
}

fn id(id: Uuid) -> Value {
    if id.is_nil() { Value::Null } else { guid(id).into() }
}

fn date(date: Option<DateTime>) -> Value {
    date.map_or(Value::Null, |date| date.to_string().into())
}
