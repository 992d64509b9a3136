//! What a backup tells the repository that it goes to.

use fullbore_core::Result;
use fullbore_core::media::Manifest;
use fullbore_core::pipeline::BackupOutcome;

use super::{Prepared, Within};
use crate::repository::format::{FORMAT, SetRecord};
use crate::repository::inventory::family_record;

impl Within<'_> {
    /// Which set will be written, and where: what is left of it can be found should this host die.
    pub(super) fn begins(&self, prepared: &Prepared) -> Result<()> {
        let sides = [(&prepared.devices, Some((self.repository, self.task))), (&prepared.mirrors, self.second)];
        for (devices, side) in sides {
            let Some((repository, task)) = side else { continue };
            let families = devices.iter().map(|device| family_record(device, 0, repository));
            task.writes(prepared.set.backup_set_id, families.collect::<Result<_>>()?)?;
        }
        Ok(())
    }

    /// Leave to commit, of all repositories that the set goes to.
    pub(super) fn permit(&self) -> Result<()> {
        self.task.permit()?;
        self.second.map_or(Ok(()), |(_, task)| task.permit())
    }

    /// The record of the set that was committed.
    pub(super) fn described(
        &self,
        prepared: &Prepared,
        outcome: &BackupOutcome,
        manifest: &Manifest,
    ) -> Result<SetRecord> {
        self.task.stored();
        self.second.iter().for_each(|(_, task)| task.stored());
        let set = &prepared.set;
        let families = prepared.devices.iter().zip(&outcome.families);
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
            database_bytes: manifest.streams.iter().map(|stream| stream.size).sum(),
            encrypted: prepared.data_key.is_some(),
            codec: manifest.codec.clone(),
            position: manifest.position.clone(),
        })
    }
}
