//! SQL Server's backup files as media that the rest of the program can show and verify.

use std::path::Path;

use fullbore_core::{Error, Result};
use serde_json::Value;

use super::chain;
use super::compressed::MAGIC;
use super::configuration::BackupKind;
use super::database_files::DatabaseFiles;
use super::engine::SqlServer;
use super::media::{self, Family, MediaSet, guid};
use super::restore::{grouped, layers, titles, write};
use super::room::must_fit;
use super::tables_out::data_files::DataFiles;
use super::tables_out::tables::{About, DatabaseTables};
use super::{points, position, restore, stored_chain, survey, tables, verify};
use crate::engine::{
    Engine, FilePlaces, ForeignCopy, ForeignDescription, ForeignFamily, ForeignMedia, ForeignMediaSet, ForeignRestore,
    ForeignSet, ForeignTables, ForeignVerification, NeededMedia, Surveyed,
};
use crate::foreign_set::tap::Inlet;

/// The row of [`FOREIGN_MEDIA`](crate::FOREIGN_MEDIA).
pub struct SqlServerBackup;

impl ForeignMedia for SqlServerBackup {
    fn title(&self) -> &'static str {
        "SQL Server backup"
    }

    fn engine(&self) -> &'static dyn Engine {
        &SqlServer
    }

    fn scheme(&self) -> &'static str {
        "bak"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        head.starts_with(b"TAPE") || head.starts_with(MAGIC)
    }

    fn describe(&self, families: Vec<ForeignFamily>) -> Result<ForeignDescription> {
        let (mut found, mut errors) = (Vec::new(), Vec::new());
        for family in families {
            match media::look(family) {
                Ok(family) => found.push(family),
                Err(error) => errors.push(error),
            }
        }
        if found.is_empty()
            && let Some(first) = errors.pop()
        {
            return Err(first);
        }
        let mut warnings: Vec<String> = errors.iter().map(|error| error.one_line()).collect();
        warnings.extend(found.iter().flat_map(warnings_about));
        let groups = media::group(found);
        let media_sets = groups.iter().map(described).collect();
        Ok(ForeignDescription { media_sets, restorable: points::restorable(&groups), warnings })
    }

    fn verify(&self, families: Vec<ForeignFamily>, file: Option<u16>) -> Result<ForeignVerification> {
        verify::verify(families, file)
    }

    fn survey(&self, families: Vec<ForeignFamily>, to: &Inlet) -> Result<Surveyed> {
        survey::survey(families, to)
    }

    fn restore(
        &self,
        devices: &[String],
        open: &dyn Fn(&str) -> Result<ForeignFamily>,
        wanted: Option<&str>,
        into: &FilePlaces,
    ) -> Result<ForeignRestore> {
        restore::restore(devices, open, wanted, into)
    }

    fn needed(&self, stored: &[&Value], chosen: usize) -> Result<NeededMedia> {
        stored_chain::needed(stored, chosen)
    }

    fn tables(
        &self,
        devices: &[String],
        open: &dyn Fn(&str) -> Result<ForeignFamily>,
        wanted: Option<&str>,
        scratch: &Path,
    ) -> Result<Box<dyn ForeignTables>> {
        let groups = grouped(devices, open)?;
        let chosen = chain::choose(&groups, wanted)?;
        let layers = layers(&chosen);
        let newest = &chosen.differential.unwrap_or(chosen.full).set.configuration;
        must_fit(&layers, newest, Some(scratch))?;
        let mut files = DatabaseFiles::create_data(newest, scratch)?;
        write(&mut files, &layers, open)?;
        let damage = files.damage()?;
        let mut data = DataFiles::default();
        for (id, name, file) in files.into_open() {
            data.add(id, name, file)?;
        }
        let mut about = About { database: newest.database.database.clone(), sets: titles(&layers), ..About::default() };
        about.warnings = chosen.warnings;
        // A table whose pages are right is right. The reader of each page checks it again.
        about.warnings.extend(damage.iter().map(Error::one_line));
        about.warnings.extend(groups.iter().flat_map(warnings_about_copies));
        about.notes.push(
            "the log in the backup is not applied: rows that changed while the backup ran may be older or newer than \
             its end"
                .to_owned(),
        );
        Ok(Box::new(DatabaseTables::open(data, newest.database.unicode.0, about)?))
    }
}

pub(super) fn described(group: &MediaSet) -> ForeignMediaSet {
    let sets = group.backup_sets().into_iter().map(|set| {
        let database = &set.configuration.database;
        ForeignSet {
            position: set.header.position,
            header: tables::header(set),
            files: set.configuration.files.iter().map(|file| tables::file(set, file)).collect(),
            line: tables::line(set),
            id: guid(set.header.guid),
            base: (database.kind == BackupKind::Differential).then(|| guid(database.base)),
            database: position::database(database),
            kind: position::kind(database),
            is_full: database.kind == BackupKind::Full,
            summary: position::summary(database),
            writer: position::writer(database),
            order: format!(
                "{} {:0>25} {:0>25}",
                database.database,
                database.last.to_string(),
                database.first.to_string()
            ),
        }
    });
    let sets: Vec<ForeignSet> = sets.collect();
    ForeignMediaSet {
        id: guid(group.id),
        has_pages_by_place: sets.iter().any(|set| set.is_full) && group.families.iter().all(|family| !family.is_packed),
        devices: group.devices(),
        copies: group.copies.clone(),
        labels: group.families.iter().map(|family| tables::label(&family.label)).collect(),
        sets,
        incomplete: group.incomplete(),
    }
}

pub(super) fn warnings_about_copies(group: &MediaSet) -> impl Iterator<Item = String> {
    group.copies.iter().map(ForeignCopy::not_read)
}

fn warnings_about(family: &Family) -> Vec<String> {
    let device = &family.device;
    let mut found = Vec::new();
    if let Some(error) = &family.broken {
        found.push(error.one_line());
    }
    for set in family.sets.iter().filter(|set| !set.is_final) {
        let position = set.header.position;
        found.push(format!("`{device}`: file {position} has no final description: this is the one from its start"));
    }
    if family.label.tape.has_password {
        found.push(format!("`{device}`: the media have a password (MEDIAPASSWORD). It does not encrypt them"));
    }
    for set in family.sets.iter().filter(|set| set.header.has_password) {
        let position = set.header.position;
        found.push(format!("`{device}`: file {position} has a password (PASSWORD). It does not encrypt the set"));
    }
    found
}
