//! The stored sets that a restore of a stored backup of another program needs: its full is a set of its own.

use std::collections::BTreeSet;

use fullbore_core::Result;
use fullbore_engines::engine::CHAIN;
use fullbore_repository::Repository;
use fullbore_repository::inventory::StoredSet;
use serde_json::Value;
use uuid::Uuid;

use super::databases::to_choose_from;
use super::restore::ChosenChain;
use crate::job::reading::Reading;
use crate::job::restore::{Into, NeededSets, Request};
use crate::job::stored_tables::NO_LOGS;
use crate::report::Report;
use fullbore_repository::chain::Choice;

/// Adds what the chosen chain needs to the request; gives the sets that prune has to keep meanwhile. A chain of an engine,
/// and a restore that gives back single files, need nothing.
///
/// # Errors
/// A set that is needed is not stored, or cannot be restored.
pub(super) fn add_needed(
    request: &mut Request,
    chain: &ChosenChain<'_>,
    sets: &[StoredSet],
    repository: &Repository,
    report: &mut Report,
) -> Result<Vec<Uuid>> {
    let Some(last) = chain.sets.last() else { return Ok(Vec::new()) };
    let Some(media) = fullbore_engines::media_of(&last.record.engine) else { return Ok(Vec::new()) };
    let with_logs = match request.into {
        Into::Directory(_) => false,
        Into::Media { .. } if request.set_options.flags().has(&CHAIN) => true,
        _ => return Ok(Vec::new()),
    };
    let is_usable =
        |set: &&StoredSet| set.record.engine == last.record.engine && set.incomplete.is_none() && !set.tombstone;
    let stored: Vec<&StoredSet> = sets.iter().filter(is_usable).collect();
    let positions: Vec<Value> = stored.iter().map(|set| set.record.position.last.value()).collect();
    let Some(chosen) = stored.iter().position(|set| set.record.backup_set_id == last.record.backup_set_id) else {
        return Ok(Vec::new());
    };
    let needed = media.needed(&positions.iter().collect::<Vec<_>>(), chosen)?;
    if !with_logs && !needed.logs.is_empty() {
        report.warnings.push(NO_LOGS.to_owned());
    }
    let logs = if with_logs { needed.logs } else { Vec::new() };
    let others: BTreeSet<usize> = needed.pages.into_iter().chain(logs).filter(|at| *at != chosen).collect();
    let (mut readings, mut ids) = (Vec::new(), Vec::new());
    for set in others.into_iter().filter_map(|at| stored.get(at)) {
        let id = set.record.backup_set_id.to_string();
        let choice = Choice { set: Some(id.clone()), ..Choice::default() };
        let reading = Reading { choice, ..request.reading.clone() };
        let below =
            ChosenChain::among(to_choose_from(sets, None, Some(&id), &repository.name)?, &reading, repository, report)?;
        ids.extend(below.ids());
        readings.push(below.reading);
    }
    request.needed = NeededSets { readings, database_set: needed.database_set };
    Ok(ids)
}
