//! The rows of both servers, read at the same time and compared by digests that are made here.

use std::sync::Mutex;

use fullbore_core::threads::in_turns;
use fullbore_core::{Error, Result};

use super::servers::Servers;
use crate::engine::Compared;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::listing::{Kind, Listed, Listing};
use crate::mysql_family::logical_set::load::check::tally;
use crate::mysql_family::logical_set::load::history;
use crate::mysql_family::logical_set::lock;
use crate::mysql_family::logical_set::selection::Selection;
use crate::mysql_family::logical_set::server::Login;
use crate::mysql_family::logical_set::tsv::Tally;

const HINT: &str = "another session may have written to the target; another version or vendor may write a value otherwise: \
                    begin again with --replace";

/// Compares all tables, `at_once` of them on each server at the same time.
///
/// # Errors
/// It names a table that differs.
pub fn all(servers: &Servers, selection: &Selection, at_once: usize) -> Result<Compared> {
    let list = |login: &Login| Listing::ask(&mut login.ask()?, &mut None, login.address.dialect, selection);
    let (source, target) = (list(&servers.source)?, list(&servers.target)?);
    let is_table = |table: &&Listed| table.kind == Kind::Table && table.object.has_rows();
    let mut tables: Vec<&Listed> = source.tables.iter().filter(is_table).collect();
    demand_same_names(&tables, &target)?;
    // The largest first, so that no server waits for the other at the end.
    tables.sort_by_key(|table| std::cmp::Reverse(table.bytes));
    // A target that has not got the history is compared without it.
    let has_history = tables.iter().any(|table| table.object.row_end().is_some());
    let drops_history = has_history && !history::takes(&mut servers.target.ask()?)?;
    let found: Vec<Mutex<[Option<Tally>; 2]>> = tables.iter().map(|_| Mutex::default()).collect();
    let spare: [Mutex<Vec<Connection>>; 2] = Default::default();
    let logins = [&servers.source, &servers.target];
    in_turns("compare", 2 * at_once.max(1), 0..2 * tables.len(), |number| {
        let (place, side) = (number / 2, number % 2);
        let (Some(table), Some(login), Some(spare)) = (tables.get(place), logins.get(side), spare.get(side)) else {
            return Ok(());
        };
        let kept = lock(spare).pop();
        let mut connection = kept.map_or_else(|| login.read(), Ok)?;
        let mut columns = table.object.forms()?;
        if drops_history {
            columns = history::without(&columns).to_vec();
        }
        let read = tally(&mut connection, &table.object.quoted(), &columns)?;
        lock(spare).push(connection);
        if let Some(found) = found.get(place)
            && let Some(slot) = lock(found).get_mut(side)
        {
            *slot = Some(read);
        }
        Ok(())
    })?;
    let mut compared = Compared::default();
    for (table, found) in tables.iter().zip(&found) {
        let [Some(source), Some(target)] = *lock(found) else { return Err(Error::Halted) };
        compared.tables += 1;
        compared.rows = compared.rows.saturating_add(source.rows);
        if source == target {
            continue;
        }
        let why = match source.rows == target.rows {
            false => format!("it has {} rows, and the source has {}", target.rows, source.rows),
            true => "the digest of its rows is not that of the source".to_owned(),
        };
        return Err(Error::refused(format!("table {} of the target", table.object.shown()), why, HINT));
    }
    Ok(compared)
}

fn demand_same_names(tables: &[&Listed], target: &Listing) -> Result<()> {
    let key = |table: &Listed| (table.object.schema.to_lowercase(), table.object.name.to_lowercase());
    let known: std::collections::HashSet<_> = target.tables.iter().map(key).collect();
    match tables.iter().find(|table| !known.contains(&key(table))) {
        None => Ok(()),
        Some(table) => {
            let why = "the target does not have it";
            Err(Error::refused(format!("table {}", table.object.shown()), why, HINT))
        }
    }
}
