//! The first start of the target on the files of the source.

use std::time::{Duration, Instant};

use fullbore_core::{Error, Result};

use super::Donor;
use super::copy::Ended;
use crate::engine::Flow;
use crate::mysql_family::binlog::end::{End, Piece, Place};
use crate::mysql_family::clone_plugin::ClonePlugin;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::load::control;
use crate::mysql_family::logical_set::server::Login;
use crate::mysql_family::migration::servers::Servers;
use crate::mysql_family::migration::state::demand_alone;

/// How long the target may take to start, or somebody to start it.
const MINUTES_MAX: u64 = 10;
/// The time between two attempts to log in.
const RETRY: Duration = Duration::from_millis(500);
/// How often a server that greets may refuse both logins.
const REFUSALS_MAX: u32 = 4;

/// A clone on which the target has started.
pub struct Found {
    /// The place in the log of the source at which the files are.
    pub end: End,
    /// Bytes of the files.
    pub bytes: u64,
    /// The login of the target still works.
    pub own_login: bool,
}

/// What the user should know while the target starts.
pub fn wanted(servers: &Servers, ended: Ended) -> String {
    let name = servers.target.address.name();
    match ended {
        Ended::Restarts => format!("{name} has the files, and starts again"),
        Ended::ShutDown => format!(
            "{name} has the files and has shut down: start it now (such as systemctl start mysql). fullbore waits up to \
             {MINUTES_MAX} minutes"
        ),
    }
}

/// Waits until the target answers again. The source's accounts are the target's then: the login of the target is tried first, and that of the
/// source next. True: the first one works.
///
/// # Errors
/// The target does not start in time, takes neither login, or the user ends it.
pub fn wait(servers: &mut Servers, watching: &mut Connection, flow: &Flow<'_>) -> Result<bool> {
    let name = servers.target.address.name();
    let until = Instant::now() + Duration::from_secs(60 * MINUTES_MAX);
    let late = || {
        let why = format!("it has copied the files, and does not answer within {MINUTES_MAX} minutes");
        Error::refused(&name, why, "look into its error log, start it, and continue with --resume")
    };
    // The old process is gone when its connection is.
    while watching.query("DO 0").is_ok() {
        if Instant::now() >= until {
            return Err(late());
        }
        pause(flow)?;
    }
    let mut refusals = 0;
    loop {
        let mut refused = None;
        for own in [true, false] {
            let credentials = if own { &servers.target } else { &servers.source }.credentials.clone();
            let login = Login { credentials, ..servers.target.clone() };
            match control(&login) {
                Ok(mut connection) => {
                    // The lock of the run ended with the old process.
                    demand_alone(&mut connection)?;
                    servers.control = connection;
                    servers.target = login;
                    return Ok(own);
                }
                Err(error) => refused = Some(error),
            }
        }
        refusals += u32::from(Connection::greets(&servers.target.address));
        if refusals >= REFUSALS_MAX {
            let why = format!(
                "it has the accounts of the source now, and takes neither the login of --into nor that of the source: {}",
                refused.map_or_else(String::new, |error| error.without_hint())
            );
            let hint = "let an account of the source come from this host, then continue with --resume";
            return Err(Error::refused(&name, why, hint));
        }
        if Instant::now() >= until {
            return Err(late());
        }
        pause(flow)?;
    }
}

fn pause(flow: &Flow<'_>) -> Result<()> {
    flow.halt.check()?;
    std::thread::sleep(RETRY);
    Ok(())
}

/// When the last clone of the target began; None without one.
///
/// # Errors
/// The target is lost.
pub fn begun(control: &mut Connection) -> Result<Option<String>> {
    let asked = "SELECT CONCAT(id, ' ', begin_time) FROM performance_schema.clone_status";
    Ok(control.query(asked)?.single().map(str::to_owned))
}

/// What the target says of its clone. `earlier`: when the one before it began.
///
/// # Errors
/// The clone is not complete, or its place in the log is unknown.
pub fn found(servers: &mut Servers, own_login: bool, earlier: &Option<String>) -> Result<Found> {
    let control = &mut servers.control;
    // The list of plugins is that of the source.
    if ClonePlugin::ask(control)? == ClonePlugin::Absent {
        ClonePlugin::install(control)?;
    }
    if begun(control)? == *earlier {
        let why = "it was restarted before the clone began";
        return Err(Error::refused(control.name(), why, "look into its error log, and begin again with --replace"));
    }
    let status = control.query("SELECT state, error_no, error_message FROM performance_schema.clone_status")?;
    let text = |column| status.value(0, column).unwrap_or_default();
    if text(0) != "Completed" {
        let why = format!("its clone is not complete ({}): {} (error {})", text(0), text(2), text(1));
        return Err(Error::refused(control.name(), why, "begin again with --replace"));
    }
    of_complete(servers, own_login)
}

/// A complete clone of the source on which the target has started. None without one.
///
/// # Errors
/// Somebody has written to the target since.
pub fn complete(servers: &mut Servers, donor: &Donor) -> Result<Option<Found>> {
    let control = &mut servers.control;
    if ClonePlugin::ask(control)? != ClonePlugin::Active {
        return Ok(None);
    }
    // Without GTIDs, nothing shows whether somebody has written to it.
    let asked = "SELECT state, source, GTID_SUBSET(@@GLOBAL.gtid_executed, gtid_executed) FROM \
                 performance_schema.clone_status WHERE gtid_executed <> ''";
    let status = control.query(asked)?;
    if status.value(0, 0) != Some("Completed") || status.value(0, 1) != Some(&donor.place()) {
        return Ok(None);
    }
    if status.value(0, 2) != Some("1") {
        let why = format!("it has the files of {}, and somebody has written to it since", donor.place());
        return Err(Error::refused(control.name(), why, "begin again with --replace, without --resume"));
    }
    of_complete(servers, true).map(Some)
}

fn of_complete(servers: &mut Servers, own_login: bool) -> Result<Found> {
    let control = &mut servers.control;
    let asked = "SELECT binlog_file, binlog_position, gtid_executed FROM performance_schema.clone_status";
    let status = control.query(asked)?;
    let text = |column| status.value(0, column).unwrap_or_default();
    let file = text(0).rsplit('/').next().unwrap_or_default().to_owned();
    let gtid = text(2).chars().filter(|letter| !letter.is_whitespace()).collect();
    let begin = Piece { file, from: text(1).parse().unwrap_or(0), bytes: 0, head: 0 }.begin();
    let end = End {
        binlog: Place { gtid, ..begin },
        server: servers.facts.server_uuid.clone(),
        at: String::new(),
        taken: None,
        finished: Some(jiff::Timestamp::now().as_microsecond()),
    };
    let bytes = control.query("SELECT CAST(SUM(data) AS UNSIGNED) FROM performance_schema.clone_progress")?;
    let bytes = bytes.single().and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(Found { end, bytes, own_login })
}
