//! Checks of a MySQL server before a clone: a clone that cannot work is refused before it begins.

use fullbore_core::error::counted;
use fullbore_core::{Error, Result};

use crate::mysql_family::account::{Channel, Grants};
use crate::mysql_family::clone_plugin::{ClonePlugin, LEAST_PACKET, TESTED, is_tested};
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::tables::OTHERS;
use crate::mysql_family::version::{is_at_least, series};

/// The least version that speaks the protocol.
const FIRST_VERSION: [u16; 3] = [8, 0, 17];
/// How many tables or tablespaces are named; the others are counted.
const NAMED_MAX: usize = 1000;

/// A table that is not in a clone.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OtherTable {
    /// `schema.table`
    pub name: String,
    /// Its storage engine.
    pub engine: String,
}

/// Up to [`NAMED_MAX`] names, and how many there are in all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named<T> {
    /// The first of them.
    pub first: Vec<T>,
    /// All.
    pub count: u64,
}

/// The facts about the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// As it names itself.
    pub version_text: String,
    /// Its series: (9, 7) is that of 9.7.4.
    pub series: (u16, u16),
    /// Which server: a new one for each data directory.
    pub server_uuid: String,
    /// Where it runs, for the manifest.
    pub hostname: String,
    /// Its data directory, on its own machine.
    pub datadir: String,
    /// Plugin `clone`.
    pub plugin: ClonePlugin,
    /// Whether the account has BACKUP_ADMIN, itself or by an active role.
    pub backup_admin: bool,
    /// The privileges of the account.
    pub grants: Grants,
    /// Bytes of InnoDB's pages.
    pub page_size: u32,
    /// Bytes.
    pub max_allowed_packet: u64,
    /// Names are compared without case: must be the same where the copy is started.
    pub lower_case_table_names: u8,
    /// Whether it writes a binary log.
    pub binary_log: bool,
    /// `ON`, `OFF` or in between.
    pub gtid_mode: String,
    /// Transactions so far; without a lock, so only a hint. See [`super::position::LogStatus`].
    pub gtid_executed: String,
    /// From where it replicates; empty also where the account may not see it.
    pub channels: Vec<Channel>,
    /// Whether InnoDB writes a redo log; a clone needs it.
    pub redo_enabled: bool,
    /// Tables of other engines than InnoDB, without the server's own: they are empty after a restore.
    pub other_tables: Named<OtherTable>,
    /// Encrypted tablespaces: their keys are sent, over TLS only.
    pub encrypted: Named<String>,
    /// Bytes of all tablespaces on the donor's disk.
    pub data_bytes: u64,
}

impl Facts {
    /// A table that keeps a server from starting on a clone: the first start empties MyISAM and CSV tables by
    /// statements in which it does not double the backtick (seen with 9.7.4).
    pub fn not_emptied(&self) -> Option<&OtherTable> {
        let emptied = |table: &&OtherTable| matches!(&table.engine[..], "MyISAM" | "CSV") && table.name.contains('`');
        self.other_tables.first.iter().find(emptied)
    }
}

/// The options that the user has agreed to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Consent {
    /// `--accept-unverified`: a series that is not among this program's tests.
    pub unverified: bool,
    /// `--install-clone-plugin`: `INSTALL PLUGIN`, which stays.
    pub install_plugin: bool,
    /// `--include-other-engines`: tables of other engines are stored too.
    pub other_engines: bool,
}

/// Asks everything. Changes nothing.
pub fn ask(connection: &mut Connection) -> Result<Facts> {
    let name = connection.name().to_owned();
    let version_text = connection.greeting().version.clone();
    if connection.greeting().is_mariadb() {
        let hint = "write mariadb://…?datadir=…: MariaDB has no CLONE, so fullbore copies its files on its host";
        return Err(Error::usage(name, format!("the server is a MariaDB server ({version_text})"), hint));
    }
    if !is_at_least(&version_text, FIRST_VERSION) {
        let why = format!("the server is MySQL {version_text}; CLONE came with 8.0.17");
        return Err(Error::refused(name, why, "use --method logical"));
    }
    let one = "SELECT @@server_uuid, @@hostname, @@datadir, @@innodb_page_size, @@max_allowed_packet, \
               @@lower_case_table_names, @@log_bin, @@gtid_mode, @@gtid_executed";
    let one = connection.query(one)?;
    let text = |column: usize| one.value(0, column).unwrap_or_default().to_owned();
    let number = |column: usize| one.value(0, column).and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let grants = Grants::ask(connection)?;
    let mut facts = Facts {
        series: series(&version_text),
        version_text,
        server_uuid: text(0),
        hostname: text(1),
        datadir: text(2),
        plugin: ClonePlugin::ask(connection)?,
        backup_admin: grants.globally("BACKUP_ADMIN"),
        grants,
        page_size: u32::try_from(number(3)).unwrap_or_default(),
        max_allowed_packet: number(4),
        lower_case_table_names: number(5).min(255) as u8,
        binary_log: number(6) == 1,
        gtid_mode: text(7),
        gtid_executed: text(8).chars().filter(|c| !c.is_whitespace()).collect(),
        channels: Channel::all_of_mysql(connection)?,
        redo_enabled: true,
        other_tables: Named::default(),
        encrypted: Named::default(),
        data_bytes: 0,
    };
    ask_about_tables(connection, &mut facts)?;
    Ok(facts)
}

fn ask_about_tables(connection: &mut Connection, facts: &mut Facts) -> Result<()> {
    // Reading it needs a privilege; without the privilege, the usual value is assumed.
    let redo =
        "SELECT VARIABLE_VALUE FROM performance_schema.global_status WHERE VARIABLE_NAME = 'Innodb_redo_log_enabled'";
    facts.redo_enabled = optional(connection, redo)?.is_none_or(|value| value != "OFF");
    // The number and the names in one query: DDL may change the engine of a table between two.
    let others =
        format!("SELECT table_schema, table_name, engine, COUNT(*) OVER () {OTHERS} ORDER BY 1, 2 LIMIT {NAMED_MAX}");
    for row in connection.query(&others)?.rows {
        if let [Some(schema), Some(table), Some(engine), Some(all)] = &row[..] {
            let name = format!("{schema}.{table}");
            facts.other_tables.first.push(OtherTable { name, engine: engine.clone() });
            facts.other_tables.count = all.parse().unwrap_or_default();
        }
    }
    // INNODB_TABLESPACES needs PROCESS. Without it, encryption and size are unknown until the clone tells them.
    let encrypted = "FROM information_schema.innodb_tablespaces WHERE encryption = 'Y'";
    if let Some(count) = optional(connection, &format!("SELECT COUNT(*) {encrypted}"))? {
        facts.encrypted.count = count.parse().unwrap_or_default();
        let names = connection.query(&format!("SELECT name {encrypted} ORDER BY 1 LIMIT {NAMED_MAX}"))?;
        facts.encrypted.first = names.rows.into_iter().flatten().flatten().collect();
        let size = "SELECT CAST(SUM(allocated_size) AS UNSIGNED) FROM information_schema.innodb_tablespaces";
        facts.data_bytes = count_of(optional(connection, size)?);
    }
    Ok(())
}

/// Refuses if the clone cannot begin; otherwise returns what the user should know.
pub fn judge(server: &str, facts: &Facts, consent: Consent) -> Result<Vec<String>> {
    let refused = |why: String, hint: &str| Err(Error::refused(server, why, hint));
    if !is_tested(facts.series) && !consent.unverified {
        let why =
            format!("MySQL {} is not in the series that this program is tested with ({TESTED})", facts.version_text);
        return refused(why, "add --accept-unverified to try it; prove such a backup by a restore");
    }
    if !facts.backup_admin {
        let hint = "GRANT BACKUP_ADMIN ON *.* TO this account, or make a role with it a default role. Where nobody can grant it, use \
                    --method logical";
        return refused("the account lacks the privilege BACKUP_ADMIN".into(), hint);
    }
    match facts.plugin {
        ClonePlugin::Absent if !consent.install_plugin => {
            let hint = "add --install-clone-plugin: fullbore loads the plugin, and it stays loaded; \
                        or run INSTALL PLUGIN clone SONAME 'mysql_clone.so'";
            return refused("the plugin `clone` is not loaded".into(), hint);
        }
        ClonePlugin::Inactive => {
            let hint = "start the server without clone=OFF";
            return refused("the plugin `clone` is switched off".into(), hint);
        }
        ClonePlugin::Active | ClonePlugin::Absent => {}
    }
    if facts.max_allowed_packet < LEAST_PACKET {
        let why = format!("its max_allowed_packet is {} bytes, and CLONE needs 2 MiB", facts.max_allowed_packet);
        return refused(why, "SET PERSIST max_allowed_packet = 64 * 1024 * 1024");
    }
    if !facts.redo_enabled {
        return refused("its redo log is switched off".into(), "ALTER INSTANCE ENABLE INNODB REDO_LOG");
    }
    Ok(warnings(facts, consent))
}

fn warnings(facts: &Facts, consent: Consent) -> Vec<String> {
    let mut warnings = Vec::new();
    if !is_tested(facts.series) {
        warnings.push(format!("MySQL {} is not verified: prove this backup by a restore", facts.version_text));
    }
    if facts.other_tables.count > 0 && !consent.other_engines {
        let names = facts.other_tables.first.iter().take(10).map(|table| format!("{} ({})", table.name, table.engine));
        let names = names.collect::<Vec<_>>().join(", ");
        let more = if facts.other_tables.count > 10 { ", …" } else { "" };
        let tables = counted(facts.other_tables.count, "table");
        warnings.push(format!(
            "empty after a restore: {tables} of other engines than InnoDB: {names}{more}; --include-other-engines \
             stores them too"
        ));
    }
    if let Some(table) = facts.not_emptied() {
        warnings.push(format!(
            "the name of `{}` ({}) contains a backtick: with such a table, a server cannot complete its first start on \
             a clone; a restore leaves out the step that fails, and says what to do instead",
            table.name, table.engine
        ));
    }
    if !facts.grants.globally("SELECT") {
        warnings
            .push("the account lacks SELECT on *.*: tables of other engines than InnoDB cannot be named here".into());
    }
    if let Some(channel) = facts.channels.first() {
        let stopped = if channel.applier == "ON" { "" } else { ", and its applier is stopped" };
        warnings.push(format!(
            "the server is a replica of {}{stopped}: the position is a place in its own binary log; the copy has its \
             channels without relay logs: start the restored server with skip_replica_start, and run RESET REPLICA \
             before START REPLICA",
            channel.source
        ));
    }
    if !facts.binary_log {
        warnings.push("the server writes no binary log: no changes after this backup can be replayed".into());
    }
    warnings
}

/// The value of a query that the account may not be allowed to ask: then nothing.
fn optional(connection: &mut Connection, query: &str) -> Result<Option<String>> {
    Ok(connection.query_if_allowed(query)?.and_then(|answer| answer.single().map(str::to_owned)))
}

fn count_of(text: Option<String>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            version_text: "9.7.4-2".into(),
            series: (9, 7),
            server_uuid: String::new(),
            hostname: String::new(),
            datadir: String::new(),
            plugin: ClonePlugin::Active,
            backup_admin: true,
            grants: Grants(vec!["GRANT SELECT ON *.* TO `b`@`%`".into()]),
            page_size: 16384,
            max_allowed_packet: 64 << 20,
            lower_case_table_names: 0,
            binary_log: true,
            gtid_mode: "ON".into(),
            gtid_executed: String::new(),
            channels: Vec::new(),
            redo_enabled: true,
            other_tables: Named::default(),
            encrypted: Named::default(),
            data_bytes: 0,
        }
    }

    #[test]
    fn an_obstacle_to_a_clone_is_named_with_the_next_step() {
        let none = Consent::default();
        assert_eq!(judge("db1", &facts(), none).unwrap(), Vec::<String>::new());
        let cases = [
            (Facts { series: (8, 3), ..facts() }, "--accept-unverified"),
            (Facts { backup_admin: false, ..facts() }, "BACKUP_ADMIN"),
            (Facts { plugin: ClonePlugin::Absent, ..facts() }, "--install-clone-plugin"),
            (Facts { plugin: ClonePlugin::Inactive, ..facts() }, "switched off"),
            (Facts { max_allowed_packet: 1 << 20, ..facts() }, "max_allowed_packet"),
            (Facts { redo_enabled: false, ..facts() }, "ENABLE INNODB REDO_LOG"),
        ];
        for (facts, named) in cases {
            let text = judge("db1", &facts, none).unwrap_err().to_string();
            assert!(text.contains(named) && text.contains("db1"), "{text}");
        }
        let all = Consent { unverified: true, install_plugin: true, other_engines: false };
        let warnings = judge("db1", &Facts { series: (8, 3), plugin: ClonePlugin::Absent, ..facts() }, all).unwrap();
        assert!(warnings[0].contains("not verified"));
    }

    #[test]
    fn a_name_that_no_server_starts_with_is_a_warning() {
        let table = |engine: &str| OtherTable { name: "shop.a`b".into(), engine: engine.into() };
        let consent = Consent { other_engines: true, ..Consent::default() };
        for (engine, count) in [("MyISAM", 1), ("ARCHIVE", 0)] {
            let facts = Facts { other_tables: Named { first: vec![table(engine)], count: 1 }, ..facts() };
            assert_eq!(judge("db1", &facts, consent).unwrap().len(), count);
        }
    }

    #[test]
    fn tables_that_will_be_empty_are_named() {
        let first = vec![OtherTable { name: "shop.log".into(), engine: "MyISAM".into() }];
        let facts = Facts { other_tables: Named { first, count: 1 }, ..facts() };
        let said = judge("db1", &facts, Consent::default()).unwrap();
        assert!(said[0].contains("shop.log (MyISAM)") && said[0].contains("--include-other-engines"), "{said:?}");
        let stored = Consent { other_engines: true, ..Consent::default() };
        assert_eq!(judge("db1", &facts, stored).unwrap(), Vec::<String>::new());
    }
}
