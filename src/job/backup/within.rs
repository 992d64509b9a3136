//! What a backup reports to its repository.

use fullbore_core::Result;
use fullbore_core::device::Device;
use fullbore_core::media::Manifest;
use fullbore_core::pipeline::BackupOutcome;

use super::Within;
use super::resolve::Resolved;
use fullbore_model::profile::PathLocation;
use fullbore_repository::format::{FORMAT, RunRecord, SetRecord};
use fullbore_repository::inventory::family_record;

impl Within<'_> {
    /// Records which set will be written, and where: if this host dies, its leftovers can be found.
    pub(super) fn begins(&self, resolved: &Resolved<'_>) -> Result<()> {
        let sides = [(&resolved.devices, Some((self.repository, self.task))), (&resolved.mirrors, self.second)];
        for (devices, side) in sides {
            let Some((repository, task)) = side else { continue };
            task.of_engine(&resolved.set.engine);
            let families = devices.iter().map(|device| family_record(device, 0, repository));
            task.writes(resolved.set.backup_set_id, families.collect::<Result<_>>()?)?;
        }
        Ok(())
    }

    /// Asks all repositories of the set for permission to commit.
    pub(super) fn permit(&self) -> Result<()> {
        self.task.permit()?;
        self.second.map_or(Ok(()), |(_, task)| task.permit())
    }

    /// The record of the committed set. `unread_bytes` are the bytes of its source that were not read.
    pub(super) fn described(
        &self,
        resolved: &Resolved<'_>,
        outcome: &BackupOutcome,
        manifest: &Manifest,
        unread_bytes: u64,
    ) -> Result<SetRecord> {
        self.task.stored();
        self.second.iter().for_each(|(_, task)| task.stored());
        let set = &resolved.set;
        let families = resolved.devices.iter().zip(&outcome.families);
        let families = families.map(|(device, family)| family_record(device, family.bytes, self.repository));
        let finished = manifest.finished_at.parse::<jiff::Timestamp>().ok();
        Ok(SetRecord {
            format: FORMAT,
            backup_set_id: set.backup_set_id,
            media_set_id: set.media_set_id,
            kind: set.kind,
            base: set.base_backup_set_id,
            copy_only: manifest.copy_only,
            engine: set.engine.clone(),
            database: manifest.database.clone(),
            name: manifest.name.clone(),
            started_at: set.started_at,
            finished_at: finished.map_or(set.started_at, |time| time.as_microsecond()),
            host: manifest.host.clone(),
            families: families.collect::<Result<_>>()?,
            database_bytes: manifest.database_bytes(),
            encrypted: resolved.data_key.is_some(),
            codec: manifest.codec.clone(),
            position: manifest.position.clone(),
            stored_at: None,
            run: Some(RunRecord {
                plain_bytes: outcome.source_bytes.saturating_sub(unread_bytes),
                throttle: resolved.plan.throttle,
                media: media_of(resolved.devices.iter().chain(&resolved.mirrors)),
            }),
        })
    }
}

/// The directories and prefixes that these families are in, each once.
fn media_of<'a>(families: impl Iterator<Item = &'a Device>) -> Vec<String> {
    let mut media: Vec<String> = Vec::new();
    for family in families {
        let Some(place) = PathLocation::of(family).real() else { continue };
        let prefix = place.rsplit_once('/').filter(|_| family.is_in_store()).map(|(prefix, _)| format!("{prefix}/"));
        let place = prefix.unwrap_or(place);
        if !media.contains(&place) {
            media.push(place);
        }
    }
    media
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn families_of_one_place_name_it_once_and_so_that_it_is_understood_again() {
        let names =
            ["s3://bucket/a/1.bore", "s3://bucket/a/2.bore", "s3://bucket/3.bore", "/proc/self/../4.bore", "nul:"];
        let families = names.map(|name| Device::parse(name).unwrap());
        let media = media_of(families.iter());
        assert_eq!(media[..2], ["s3://bucket/a/", "s3://bucket/"]);
        assert_eq!(media.len(), 3, "{media:?}");
        assert!(media.iter().all(|place| Device::parse(place).is_ok()));
    }
}
