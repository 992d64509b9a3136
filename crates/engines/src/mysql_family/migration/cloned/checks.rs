//! What is asked of both servers before a clone.

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::scheduler::Scheduler;
use super::{Cloned, Donor, FLAG};
use crate::engine::MigrationPlan;
use crate::mysql_family::account::Channel;
use crate::mysql_family::clone_plugin::{ClonePlugin, LEAST_PACKET, TESTED, is_tested};
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::tables::OTHERS;
use crate::mysql_family::logical_set::selection::Selection;
use crate::mysql_family::migration::servers::Servers;
use crate::mysql_family::url::TlsMode;

/// How many names a message lists.
const NAMED_MAX: usize = 5;
/// The next step where only CLONE is impossible.
const OTHER_WAY: &str = "use --method logical";

/// Checks that a clone can begin. `replace`: what the target holds may go. Changes nothing. The plan gets what the user
/// should know.
///
/// # Errors
/// A server, or its account, cannot.
pub fn check(servers: &mut Servers, plan: &mut MigrationPlan, replace: bool) -> Result<Cloned> {
    let donor = Donor::of(&servers.source.address, &servers.target.address)?;
    demand_series(servers)?;
    let [source, target] = [&servers.source, &servers.target].map(|login| login.address.name());
    let refused = |server: &str, why: String, hint: &str| Err(Error::refused(server, why, hint));
    if !servers.facts.grants.globally("BACKUP_ADMIN") {
        let hint = "GRANT BACKUP_ADMIN ON *.* TO this account, or use --method logical";
        return refused(
            &source,
            "the account lacks the privilege BACKUP_ADMIN, which a source of CLONE needs".into(),
            hint,
        );
    }
    let has = |privilege| servers.target_facts.grants.globally(privilege);
    if !has("CLONE_ADMIN") {
        let hint = "GRANT CLONE_ADMIN ON *.* TO this account, or use --method logical";
        return refused(&target, "the account lacks the privilege CLONE_ADMIN".into(), hint);
    }
    if !has("SYSTEM_VARIABLES_ADMIN") && !has("SUPER") {
        let why =
            "the account lacks the privilege SYSTEM_VARIABLES_ADMIN: it names the source to CLONE and stops events";
        return refused(&target, why.into(), "GRANT SYSTEM_VARIABLES_ADMIN ON *.* TO this account");
    }
    for (name, packet) in
        [(&source, servers.facts.max_allowed_packet), (&target, servers.target_facts.max_allowed_packet)]
    {
        if packet < LEAST_PACKET {
            let why = format!("its max_allowed_packet is {packet} bytes, and CLONE needs 2 MiB");
            return refused(name, why, "SET PERSIST max_allowed_packet = 67108864");
        }
    }
    demand_plugin(&mut servers.asking)?;
    demand_plugin(&mut servers.control)?;
    plan.warnings.extend(judge_source(&mut servers.asking)?);
    if servers.source.address.tls.mode == TlsMode::VerifyCa
        && servers.control.query("SELECT @@GLOBAL.clone_ssl_ca")?.single().is_none_or(str::is_empty)
    {
        let why = "ssl-mode=verify-ca of the source: the target has no authority to check it with (clone_ssl_ca)";
        return refused(
            &target,
            why.into(),
            "SET GLOBAL clone_ssl_ca to the file of the authority on the target's host",
        );
    }
    let there = databases(&mut servers.control)?;
    if !there.is_empty() && !replace {
        let why =
            format!("CLONE drops all databases of the target, and it holds {}", first_of(there.clone(), NAMED_MAX));
        return refused(&target, why, "name an empty server, or add --replace, which drops all of them");
    }
    let scheduler = Scheduler::ask(&mut servers.control)?;
    plan.notes.push(format!("{FLAG} replaces everything on {target}: its databases, its accounts and their passwords"));
    Ok(Cloned { donor, scheduler, id: String::new(), there, made: Vec::new(), left: None })
}

fn demand_series(servers: &Servers) -> Result<()> {
    let [source, target] = [&servers.source, &servers.target].map(|login| login.address.name());
    if !is_tested(servers.facts.series) {
        let why = format!("{} is not in the series that this program clones ({TESTED})", servers.facts.named());
        return Err(Error::refused(source, why, OTHER_WAY));
    }
    if servers.facts.series != servers.target_facts.series {
        let why = format!(
            "it is {}, and CLONE copies only from the same series: the source is {}",
            servers.target_facts.named(),
            servers.facts.named()
        );
        return Err(Error::refused(target, why, OTHER_WAY));
    }
    if servers.facts.lower_case_table_names != servers.target_facts.lower_case_table_names {
        let why = "its lower_case_table_names is not that of the source, and files keep it";
        return Err(Error::refused(target, why, OTHER_WAY));
    }
    Ok(())
}

fn demand_plugin(connection: &mut Connection) -> Result<()> {
    let why = match ClonePlugin::ask(connection)? {
        ClonePlugin::Active => return Ok(()),
        ClonePlugin::Absent => "the plugin `clone` is not loaded",
        ClonePlugin::Inactive => "the plugin `clone` is switched off",
    };
    let hint = "run INSTALL PLUGIN clone SONAME 'mysql_clone.so' on it, or use --method logical";
    Err(Error::refused(connection.name(), why, hint))
}

/// What of the source would not be right in the target.
fn judge_source(asking: &mut Connection) -> Result<Option<String>> {
    if let Some(Channel { source, .. }) = Channel::all_of_mysql(asking)?.first() {
        let why = format!("it is a replica of {source}: a server with its files would replicate from there, too");
        return Err(Error::refused(asking.name(), why, OTHER_WAY));
    }
    let users = Selection::default().databases_in("event_schema");
    let events =
        format!("SELECT CONCAT(event_schema, '.', event_name) FROM information_schema.events WHERE NOT ({users})");
    if let Some(event) = asking.query(&events)?.rows.into_iter().flatten().flatten().next() {
        let why = format!("the event {event} of the server's own database would run on the target before the cut-over");
        return Err(Error::refused(asking.name(), why, "move it into another database, or use --method logical"));
    }
    let others = asking.query(&format!("SELECT table_schema, table_name, engine {OTHERS} ORDER BY 1, 2"))?;
    let mut empty = Vec::new();
    for row in others.rows {
        let Ok([Some(schema), Some(table), Some(engine)]) = <[_; 3]>::try_from(row) else { continue };
        let name = format!("{schema}.{table} ({engine})");
        // The first start empties such tables, and does not double the backtick (seen with 9.7.4).
        if matches!(&engine[..], "MyISAM" | "CSV") && (schema.contains('`') || table.contains('`')) {
            let why = format!("table {name} has a backtick in its name: a server does not start on a clone of it");
            return Err(Error::refused(asking.name(), why, "rename or convert this table, or use --method logical"));
        }
        empty.push(name);
    }
    if empty.is_empty() {
        return Ok(None);
    }
    Ok(Some(format!("empty in the target, because CLONE copies InnoDB only: {}", first_of(empty, NAMED_MAX))))
}

/// The GTIDs of a clone say what it holds, if commits reach InnoDB in the order of the log. The place that the clone knows is
/// before some of it (seen with 9.7.4, in 2 of 9 clones under load).
pub fn demand_ordered(asking: &mut Connection) -> Result<()> {
    let answer = asking.query("SELECT @@GLOBAL.binlog_order_commits, @@GLOBAL.gtid_mode")?;
    let why = match (answer.value(0, 0), answer.value(0, 1)) {
        (Some("1"), Some("ON")) => return Ok(()),
        (Some("1"), _) => "its files have no exact place in a log without GTIDs (gtid_mode is not ON)",
        _ => "its files have no exact place in its log (binlog_order_commits = OFF)",
    };
    let hint =
        "SET GLOBAL binlog_order_commits = ON, gtid_mode = ON by its steps; or use --method logical or --no-follow";
    Err(Error::refused(asking.name(), why, hint))
}

/// The databases that a server holds besides its own and ours.
pub fn databases(connection: &mut Connection) -> Result<Vec<String>> {
    let users = Selection::default().databases_in("schema_name");
    let asked = format!("SELECT schema_name FROM information_schema.schemata WHERE {users} ORDER BY 1");
    Ok(connection.query(&asked)?.rows.into_iter().flatten().flatten().collect())
}
