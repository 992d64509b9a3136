//! What a logical backup refuses, and what it warns of.

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::listing::{Kind, Listed, Listing, Versioned};
use super::selection::Selection;
use super::server::{Facts as ServerFacts, Login};
use super::snapshot::{How, Snapshot};
use crate::mysql_family::Dialect;
use crate::mysql_family::logical::tables::is_elsewhere;

/// How many names a warning lists.
const NAMED_MAX: usize = 10;

/// Refuses servers that are too old.
///
/// # Errors
/// The server is.
pub fn demand_known(login: &Login, facts: &ServerFacts) -> Result<()> {
    let least = if facts.dialect == Dialect::MySql { (5, 7) } else { (10, 6) };
    if facts.series >= least {
        return Ok(());
    }
    let why = format!("it is a {}, which is too old for a logical backup", facts.named());
    Err(Error::refused(login.address.name(), why, "use the server's own dump program"))
}

/// Refuses names that the server does not have.
///
/// # Errors
/// It names the first.
pub fn demand_selected(login: &Login, selection: &Selection, listing: &Listing) -> Result<()> {
    let has = |schema: &str, table: Option<&str>| match table {
        None => listing.databases.iter().any(|name| name == schema),
        Some(table) => listing.tables.iter().any(|it| it.object.schema == schema && it.object.name == table),
    };
    match selection.missing(has) {
        None => Ok(()),
        Some(what) => {
            let why = format!("{what} does not exist, or the account may not see it");
            Err(Error::usage(login.address.name(), why, "check the name; the account needs SELECT on it"))
        }
    }
}

/// Refuses types that this version cannot store.
///
/// # Errors
/// It names the first table with one.
pub fn demand_types(listing: &Listing) -> Result<()> {
    let unknown = |table: &Listed| Some((table.object.shown(), table.unknown.clone()?));
    let tables = || listing.tables.iter().filter(|table| table.kind == Kind::Table);
    match tables().find_map(unknown) {
        None => Ok(()),
        Some((table, what)) => {
            let why = format!("{what}, which this version does not know");
            Err(Error::refused(format!("table {table}"), why, "leave it out with --exclude, or use a newer fullbore"))
        }
    }
}

/// Refuses an account that sees no database: an empty set would look like the backup of an empty server.
///
/// # Errors
/// The account sees none, and may not see all.
pub fn demand_sight(login: &Login, facts: &ServerFacts, listing: &Listing) -> Result<()> {
    if facts.sees_everything() || !listing.databases.is_empty() {
        return Ok(());
    }
    let why = "the account sees no database that this backup takes";
    Err(Error::refused(login.address.name(), why, "GRANT SELECT ON *.* shows all databases"))
}

/// The warning of an account that may see only a part: the server leaves out the rest of its lists, and says nothing.
pub fn unseen(login: &Login, facts: &ServerFacts, selection: &Selection, listing: &Listing) -> Option<String> {
    let of_server = login.address.database.is_none() && !selection.is_part(&login.address);
    if of_server && !facts.sees_everything() {
        return Some(
            "the account has SELECT on some databases only: this backup holds what it may see, counts as --copy-only, and \
             does not say what is missing. GRANT SELECT ON *.* shows all databases"
                .to_owned(),
        );
    }
    let in_part = listing.databases.iter().filter(|name| selection.takes_code(name) && !facts.allows(name, "SELECT"));
    let in_part: Vec<&String> = in_part.collect();
    (!in_part.is_empty()).then(|| {
        format!(
            "the account has SELECT on some tables only of {}: this backup holds what it may see, and counts as --copy-only",
            first_of(in_part, NAMED_MAX)
        )
    })
}

/// The warning of names in `--exclude` that leave nothing out: a wrong name would store what should not be stored.
fn without_effect(selection: &Selection, listing: &Listing) -> Option<String> {
    let shown = |(schema, table): (&str, Option<&str>)| match table {
        Some(table) => format!("{schema}.{table}"),
        None => format!("{schema}.*"),
    };
    let is_known = |(schema, table): (&str, Option<&str>)| {
        listing.left_out.contains(&(schema.to_owned(), table.map(str::to_owned)))
    };
    let names: Vec<String> = selection.exclusions().filter(|name| !is_known(*name)).map(shown).collect();
    (!names.is_empty()).then(|| {
        format!(
            "--exclude leaves nothing out with {}: among what this backup takes, the server shows nothing with this name",
            first_of(names, NAMED_MAX)
        )
    })
}

/// The error of a table that changed.
pub fn changed(login: &Login, what: &str) -> Error {
    let why = format!("{what} during the backup");
    Error::refused(
        login.address.name(),
        why,
        "run it again when no statement changes tables; a migration, with --resume",
    )
}

/// What the user should know.
pub fn warnings_of(facts: &ServerFacts, selection: &Selection, listing: &Listing, taken: &Snapshot) -> Vec<String> {
    let mut warnings: Vec<String> = without_effect(selection, listing).into_iter().collect();
    let tables = || listing.tables.iter().filter(|table| table.kind == Kind::Table);
    let named = |is_it: &dyn Fn(&Listed) -> bool| -> Vec<String> {
        let found = tables().filter(|table| is_it(table));
        found.map(|table| format!("{} ({})", table.object.shown(), table.object.engine)).collect()
    };
    let others = named(&|table| table.has_rows() && !table.object.engine.eq_ignore_ascii_case("InnoDB"));
    if !others.is_empty() {
        warnings.push(format!(
            "tables of engines without transactions are read at later moments than the others: {}",
            first_of(others, NAMED_MAX)
        ));
    }
    let elsewhere = named(&|table| is_elsewhere(&table.object.engine));
    if !elsewhere.is_empty() {
        warnings.push(format!(
            "the rows of these tables are on other servers or in other files, and are not stored: {}",
            first_of(elsewhere, NAMED_MAX)
        ));
    }
    let by_transaction = tables().filter(|table| table.versioned == Versioned::ByTransaction);
    let by_transaction: Vec<String> = by_transaction.map(|table| table.object.shown()).collect();
    if !by_transaction.is_empty() {
        warnings.push(format!(
            "the history of tables that are versioned by the numbers of transactions is not stored: {}",
            first_of(by_transaction, NAMED_MAX)
        ));
    }
    if taken.how == How::Alone && facts.binary_log {
        warnings.push(
            "the place in the binary log is unknown, and one connection reads everything: the account may neither \
             FLUSH TABLES WITH READ LOCK (RELOAD) nor LOCK TABLES. No log backup can continue this set"
                .into(),
        );
    } else if taken.place.is_null() && facts.binary_log {
        let privilege = if facts.dialect == Dialect::MySql { "REPLICATION CLIENT" } else { "BINLOG MONITOR" };
        warnings.push(format!(
            "the place in the binary log is unknown, because the account lacks {privilege}: no log backup can continue \
             this set"
        ));
    }
    warnings
}
