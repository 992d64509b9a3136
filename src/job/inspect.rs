//! HEADERONLY, FILELISTONLY, LABELONLY and the list of a directory: the descriptions on media, without their data.

use std::path::PathBuf;

use fullbore_core::codec::CodecId;
use fullbore_core::device::Device;
use fullbore_core::media::{Manifest, SetKind};
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use serde::Serialize;

use fullbore_repository::chain::{self, moment};
use fullbore_repository::discovery::{self, Found};

/// The description of one set, without a key.
#[derive(Debug, Clone, Serialize)]
pub struct SetSummary {
    /// Identity of the backup.
    pub backup_set_id: String,
    /// Identity of the media.
    pub media_set_id: String,
    /// full, differential, log.
    pub kind: String,
    /// The full of a differential; the set that a log set continues.
    pub base_backup_set_id: Option<String>,
    /// Name of the engine.
    pub engine: String,
    /// Name and description; absent on encrypted media.
    pub name: Option<String>,
    /// See `name`.
    pub description: Option<String>,
    /// See `name`; absent too if the media have no name.
    pub media_name: Option<String>,
    /// The database; absent on encrypted media.
    pub database: Option<String>,
    /// The host that made it; absent on encrypted and incomplete media.
    pub host: Option<String>,
    /// RFC 3339.
    pub started_at: String,
    /// For a log set: the end of the set that it continues, RFC 3339. Absent if the manifest is encrypted.
    pub log_from: Option<String>,
    /// For a log set: when its last commit was seen.
    pub log_at: Option<String>,
    /// For a log set: the time until which nothing else was committed.
    pub log_until: Option<String>,
    /// The number of its families.
    pub families: u16,
    /// The devices of its existing families.
    pub devices: Vec<String>,
    /// The chosen codec.
    pub codec: String,
    /// True when a key is needed.
    pub encrypted: bool,
    /// Key ids of the recipients.
    pub recipients: Vec<String>,
    /// Bytes of the existing families.
    pub stored_bytes: u64,
    /// Bytes of the restored database; absent if the manifest is encrypted.
    pub database_bytes: Option<u64>,
    /// MAXTRANSFERSIZE.
    pub max_transfer_size: u32,
    /// BLOCKSIZE.
    pub block_size: u32,
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// True when nothing is missing.
    pub complete: bool,
    /// What is missing.
    pub why_incomplete: Option<String>,
}

/// Remarks about the sets.
#[derive(Debug, Clone, Default)]
pub struct Remarks {
    /// What to look at.
    pub warnings: Vec<String>,
    /// What is worth knowing; no action is needed.
    pub notes: Vec<String>,
    /// True if a set is not whole, other than unfinished files of a killed or running backup.
    pub incomplete: bool,
}

/// Looks at the media that `from` names.
///
/// # Errors
/// Nothing was found.
pub fn header(from: &[String], stores: &Stores) -> Result<(Vec<SetSummary>, Remarks)> {
    let mut discovered = discovery::find(from, stores)?;
    discovered.must_hold_something()?;
    discovered.learn_times()?;
    discovered.learn_hosts()?;
    let summaries = discovered.sets.iter().map(summary).collect::<Result<Vec<_>>>()?;
    let (leftovers, damaged): (Vec<_>, Vec<_>) =
        discovered.unreadable.iter().partition(|unreadable| unreadable.leftover);
    let any_whole = discovered.sets.iter().any(|found| found.set.incomplete.is_none());
    let named = |bad: &&discovery::Unreadable| format!("`{}`: {}", bad.device, bad.error.one_line());
    let mut remarks = Remarks {
        warnings: damaged.iter().map(named).collect(),
        notes: discovered.notes.iter().cloned().chain(discovered.leftover_notes()).collect(),
        incomplete: discovered
            .sets
            .iter()
            .any(|found| found.set.incomplete.is_some() && !(any_whole && found.set.is_unfinished())),
    };
    if !any_whole {
        remarks.warnings.extend(leftovers.iter().map(named));
    }
    remarks.warnings.extend(chain::clock_doubts(&discovered.known(), jiff::Timestamp::now().as_microsecond()));
    Ok((summaries, remarks))
}

fn summary(found: &Found) -> Result<SetSummary> {
    let header = found.header.clone();
    let label = header.label.clone();
    let log = found.set.log_range.as_ref().filter(|_| header.kind == SetKind::Log);
    Ok(SetSummary {
        backup_set_id: header.backup_set_id.to_string(),
        media_set_id: header.media_set_id.to_string(),
        kind: header.kind.to_string(),
        base_backup_set_id: header.base_backup_set_id.map(|id| id.to_string()),
        engine: header.engine.clone(),
        name: label.as_ref().map(|label| label.name.clone()),
        description: label.as_ref().map(|label| label.description.clone()),
        media_name: label.as_ref().map(|label| label.media_name.clone()).filter(|name| !name.is_empty()),
        database: label.map(|label| label.database),
        host: found.host.clone(),
        started_at: chain::show_time(header.started_at),
        log_from: log.map(|log| moment::show(log.from)),
        log_at: log.map(|log| moment::show(log.at)),
        log_until: log.map(|log| moment::show(log.until)),
        families: header.families,
        devices: found.devices.iter().map(Device::to_string).collect(),
        codec: show_codec(header.codec),
        encrypted: !header.keys.is_empty(),
        recipients: header.keys.iter().map(|key| key.key_id.to_string()).collect(),
        stored_bytes: found.stored_bytes,
        database_bytes: found.database_bytes,
        max_transfer_size: header.transfer_size,
        block_size: header.block_size,
        tool_version: header.tool_version,
        complete: found.set.incomplete.is_none(),
        why_incomplete: found.set.incomplete.clone(),
    })
}

pub(super) fn show_codec((codec, level): (u8, i8)) -> String {
    let name = CodecId::from_number(codec).map_or("unknown", CodecId::name);
    match codec {
        2 | 3 => format!("{name}:{level}"),
        _ => name.to_owned(),
    }
}

/// The manifests of all whole sets: what each restores to, with positions; and notes about the others. Reads the end of
/// one family of each.
///
/// # Errors
/// A set is encrypted and the key is missing or wrong, or its manifest is damaged.
pub fn manifests(from: &[String], key: Option<&PathBuf>, stores: &Stores) -> Result<(Vec<Manifest>, Vec<String>)> {
    let key = discovery::read_key(key.map(PathBuf::as_path))?;
    let (manifests, notes) = discovery::settled(from, stores, |discovered| {
        let nothing = Pool::new(0, 4096)?;
        let (mut manifests, mut notes) = (Vec::new(), Vec::new());
        let any_whole = discovered.sets.iter().any(|found| found.set.incomplete.is_none());
        // Beside whole sets, the set of a killed or running backup is not worth a note here.
        for found in discovered.sets.iter().filter(|found| !(any_whole && found.set.is_unfinished())) {
            if let Some(why) = &found.set.incomplete {
                notes.push(format!("cannot read {}: {why}", chain::title(&found.set)));
                continue;
            }
            let set = discovery::open_set(found, &nothing, 1, key.as_ref())?;
            if let Some(manifest) = set.manifest() {
                fullbore_engines::check_names(&manifest.engine, &manifest.streams)?;
                manifests.push(manifest.clone());
            }
        }
        Ok((manifests, notes))
    })?;
    if let (true, Some(note)) = (manifests.is_empty(), notes.first()) {
        return Err(Error::incomplete("media set", note, "name all families of the set, also those on other disks"));
    }
    if manifests.is_empty() {
        return Err(discovery::nothing_found());
    }
    Ok((manifests, notes))
}
