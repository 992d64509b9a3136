//! Checks of a MariaDB server before a hot copy: a copy that cannot work is refused before it begins.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use fullbore_core::{Error, Result};

use super::hot_copy::{Places, Row, Statements, variables};
use crate::mysql_family::account::{Channel, grants_globally};
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::version::series;

/// Most replication connections to read.
const CHANNELS_MAX: usize = 256;
/// The series that whole backups and restores are tested with.
const VERIFIED: [(u16, u16); 3] = [(10, 11), (11, 4), (11, 8)];
/// The first series with the current format of the redo log.
const FIRST: (u16, u16) = (10, 8);
/// The privileges that the account needs, each with its alternatives.
const PRIVILEGES: [&[&str]; 2] = [&["RELOAD"], &["BINLOG MONITOR", "REPLICATION CLIENT", "SUPER"]];

/// The facts about the server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    /// Its own version text, without the suffix of a distribution: `11.8.6-MariaDB`.
    pub version: String,
    /// Where it runs, for the manifest.
    pub hostname: String,
    /// Its number among replicas.
    pub server_id: u64,
    /// Bytes of InnoDB's pages: must be the same where the copy is started.
    pub page_size: u64,
    /// Names are compared without case: must be the same where the copy is started.
    pub lower_case_table_names: u64,
    /// The files of the system tablespace, as configured: must be the same where the copy is started.
    pub data_file_path: String,
    /// Whether it has keys, so that a table can be encrypted.
    pub has_keys: bool,
    /// Whether the redo log is encrypted.
    pub encrypts_log: bool,
    /// Whether it writes a binary log.
    pub binary_log: bool,
    /// Its replication sources; also empty if the account has no permission to see them.
    pub channels: Vec<Channel>,
    /// How many threads apply replicated changes at once; 0 if the server is not a replica.
    pub parallel_appliers: u64,
    /// What the user should know, although the copy can begin.
    pub warnings: Vec<String>,
}

impl Statements for Connection {
    fn execute(&mut self, sql: &str) -> Result<Vec<Row>> {
        let answer = self.query(sql)?;
        let bytes = |value: Option<String>| value.map(String::into_bytes);
        Ok(answer.rows.into_iter().map(|row| Row(row.into_iter().map(bytes).collect())).collect())
    }
}

/// Asks everything, and refuses a server that cannot be copied. Changes nothing.
///
/// # Errors
/// The server is of another kind or series, or the account lacks a privilege.
pub fn ask(connection: &mut Connection, accept_unverified: bool) -> Result<Facts> {
    let server = connection.name().to_owned();
    let greeting = connection.greeting();
    if !greeting.is_mariadb() {
        let why = format!("the server is a MySQL server ({})", greeting.version);
        return Err(Error::usage(server, why, "write mysql://…: fullbore backs up MySQL over its own CLONE protocol"));
    }
    let names = [
        "version",
        "hostname",
        "server_id",
        "innodb_page_size",
        "lower_case_table_names",
        "innodb_data_file_path",
        "innodb_encrypt_log",
        "log_bin",
        "slave_parallel_threads",
    ];
    let said = variables(connection, &names)?;
    let text = |name: &str| said.get(name).cloned().unwrap_or_default();
    let number = |name: &str| text(name).parse().unwrap_or_default();
    let is_on = |name: &str| matches!(text(name).to_ascii_uppercase().as_str(), "ON" | "1");
    let version = text("version");
    let mut facts = Facts {
        hostname: text("hostname"),
        server_id: number("server_id"),
        page_size: number("innodb_page_size"),
        lower_case_table_names: number("lower_case_table_names"),
        data_file_path: text("innodb_data_file_path"),
        has_keys: false,
        encrypts_log: is_on("innodb_encrypt_log"),
        binary_log: is_on("log_bin"),
        channels: Vec::new(),
        parallel_appliers: number("slave_parallel_threads"),
        warnings: judge_version(&server, &version, accept_unverified)?,
        version: String::new(),
    };
    facts.version = version.split_inclusive("MariaDB").next().unwrap_or_default().to_owned();
    let keys =
        "SELECT COUNT(*) FROM information_schema.plugins WHERE plugin_type = 'ENCRYPTION' AND plugin_status = 'ACTIVE'";
    facts.has_keys = connection.execute(keys)?.first().and_then(|row| row.number(0)).is_some_and(|count| count > 0);
    demand_privileges(&server, &connection.execute("SHOW GRANTS")?)?;
    ask_about_replication(connection, &mut facts)?;
    Ok(facts)
}

/// Asks for the replication sources, and warns of replicated state that a copy of the files cannot hold.
fn ask_about_replication(connection: &mut Connection, facts: &mut Facts) -> Result<()> {
    // Columns: name of the connection, …, host at 3, port at 5, the two threads at 12 and 13.
    match connection.query("SHOW ALL SLAVES STATUS") {
        Ok(answer) => {
            facts.channels = answer.rows.iter().take(CHANNELS_MAX).map(|row| channel(row)).collect();
            facts.parallel_appliers *= u64::from(!facts.channels.is_empty());
        }
        // SLAVE MONITOR is optional: without it, a server with parallel appliers counts as a replica.
        Err(Failure::Server(_)) => {}
        Err(failure) => return Err(failure.into()),
    }
    if let Some(channel) = facts.channels.iter().find(|channel| channel.applier != "Yes") {
        let source = &channel.source;
        facts.warnings.push(format!(
            "the server is a replica of {source}, and its applier is stopped: received changes that are not applied \
             are not in this backup"
        ));
    }
    if facts.parallel_appliers > 0 {
        facts.warnings.push(format!(
            "prepared transactions of the replica's {} parallel appliers may be in this backup: if the restored server \
             does not start because of prepared transactions, start it once with --tc-heuristic-recover=ROLLBACK \
             (--start-check does it): its source sends them again",
            facts.parallel_appliers
        ));
    }
    let temporary = "SHOW GLOBAL STATUS LIKE 'Slave_open_temp_tables'";
    let count = connection.execute(temporary)?.first().and_then(|row| row.number(1)).unwrap_or(0);
    if count > 0 {
        facts.warnings.push(format!(
            "its replication has {count} temporary tables open, which a backup cannot hold: a copy cannot continue \
             replication from this position; back it up while Slave_open_temp_tables is 0, or let the source write its \
             binary log with binlog_format=ROW"
        ));
    }
    Ok(())
}

fn channel(row: &[Option<String>]) -> Channel {
    let text = |column: usize| row.get(column).cloned().flatten().unwrap_or_default();
    Channel { name: text(0), source: format!("{}:{}", text(3), text(5)), applier: text(13) }
}

/// Refuses a series with an unknown redo log, and without consent a series that is not tested; with consent it warns.
fn judge_version(server: &str, version: &str, accept_unverified: bool) -> Result<Vec<String>> {
    let series = series(version);
    if series < FIRST {
        let why = format!("the server is MariaDB {version}; its redo log can be copied from 10.8 on");
        return Err(Error::refused(server, why, "use --method logical"));
    }
    if VERIFIED.contains(&series) {
        return Ok(Vec::new());
    }
    if !accept_unverified {
        let why =
            format!("MariaDB {version} is not in the series that this program is tested with (10.11, 11.4, 11.8)");
        let hint = "add --accept-unverified to try it; prove such a backup by a restore";
        return Err(Error::refused(server, why, hint));
    }
    Ok(vec![format!("MariaDB {version} is not verified: prove this backup by a restore")])
}

fn demand_privileges(server: &str, grants: &[Row]) -> Result<()> {
    let granted = |name: &str| {
        let has = |grant: &Row| grants_globally(&grant.text(0), name);
        grants.iter().any(|grant| has(grant) || grants_globally(&grant.text(0), "ALL PRIVILEGES"))
    };
    let missing: Vec<&str> = PRIVILEGES
        .iter()
        .filter(|names| !names.iter().any(|name| granted(name)))
        .filter_map(|names| names.first().copied())
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(", ");
    let why = format!("the account lacks the privilege {missing}");
    Err(Error::refused(
        server,
        why,
        format!(
            "GRANT {missing} ON *.* TO this account, or make a role with it its default role. Where nobody can grant it, use --method logical"
        ),
    ))
}

/// Refuses a data directory that cannot be read here.
///
/// # Errors
/// It is not there, or this user may not read it.
pub fn demand_readable(places: &Places) -> Result<()> {
    readable(&places.datadir, &fs::read_dir(&places.datadir).map(drop))?;
    // A directory may be readable and its files not.
    for path in places.system_files.iter().chain([&places.redo_log]) {
        readable(path, &File::open(path).map(drop))?;
    }
    Ok(())
}

fn readable(path: &Path, looked: &io::Result<()>) -> Result<()> {
    let Err(error) = looked else { return Ok(()) };
    let hint = match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "run the backup on the server's own host; if the data directory has another path there than for the server \
             (a container), add datadir=PATH to the URL"
        }
        io::ErrorKind::PermissionDenied => {
            "run the backup as the server's own user, or as root. Without access to the files, use --method logical"
        }
        _ => "look at the file system",
    };
    Err(Error::refused(path.display().to_string(), format!("the server's files cannot be read: {error}"), hint))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn grants(lines: &[&str]) -> Vec<Row> {
        lines.iter().map(|line| Row(vec![Some(line.as_bytes().to_vec())])).collect()
    }

    #[test]
    fn missing_rights_are_named_even_if_roles_give_others() {
        let all = ["GRANT ALL PRIVILEGES ON *.* TO `root`@`localhost` IDENTIFIED BY PASSWORD '*X' WITH GRANT OPTION"];
        demand_privileges("db1", &grants(&all)).unwrap();
        let role = ["GRANT `r` TO `b`@`%`", "GRANT RELOAD ON *.* TO `b`@`%`", "GRANT BINLOG MONITOR ON *.* TO `r`"];
        demand_privileges("db1", &grants(&role)).unwrap();
        let error = demand_privileges("db1", &grants(&role[..2])).unwrap_err().to_string();
        assert!(error.contains("lacks the privilege BINLOG MONITOR") && !error.contains("RELOAD"), "{error}");
        let elsewhere = ["GRANT RELOAD, BINLOG MONITOR ON `shop`.* TO `b`@`%`", "GRANT USAGE ON *.* TO `b`@`%`"];
        let error = demand_privileges("db1", &grants(&elsewhere)).unwrap_err().to_string();
        assert!(error.contains("RELOAD, BINLOG MONITOR"), "{error}");
    }

    #[test]
    fn a_series_that_is_not_tested_needs_consent_and_one_that_is_too_old_is_refused_all_the_same() {
        for version in ["10.11.18-MariaDB-0+deb12u1", "11.8.6-MariaDB-0+deb13u1 from Debian"] {
            assert!(judge_version("db1", version, false).unwrap().is_empty());
        }
        for version in ["11.7.2-MariaDB", "12.0.1-MariaDB-log"] {
            assert!(judge_version("db1", version, false).unwrap_err().to_string().contains("--accept-unverified"));
            assert!(judge_version("db1", version, true).unwrap()[0].contains("not verified"));
        }
        for version in ["10.6.18-MariaDB", "10.7.1-MariaDB", "", "MariaDB"] {
            assert!(judge_version("db1", version, true).unwrap_err().to_string().contains("from 10.8 on"), "{version}");
        }
    }
}
