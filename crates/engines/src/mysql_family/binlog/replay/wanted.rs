//! The GTIDs that prove the end of a replay.

use fullbore_core::{Error, Result};

use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::gtid::{GtidList, GtidSet, Gtids};
use crate::mysql_family::binlog::stage::Stage;
use crate::mysql_family::connection::Connection;

/// The GTIDs at the end.
pub enum Wanted {
    /// MySQL's `gtid_executed`; `None` for a log without GTIDs.
    Executed(Option<GtidSet>),
    /// MariaDB's `gtid_slave_pos`, of the domains that were written to.
    Applied(GtidList),
}

impl Wanted {
    /// What the server must have when it has applied everything.
    ///
    /// # Errors
    /// The server does not have what its backup says, or has more.
    pub fn of(dialect: Dialect, connection: &mut Connection, stage: &Stage) -> Result<Self> {
        match (dialect, &stage.groups) {
            (Dialect::MySql, Gtids::MySql(groups)) if stage.counts.0 > stage.counts.1 || stage.counts.0 == 0 => {
                let now = connection.query("SELECT @@GLOBAL.gtid_executed")?;
                let now = now.single().and_then(GtidSet::parse);
                let mut set = now.ok_or_else(|| connection.broken("its gtid_executed is not a set"))?;
                let base = GtidSet::parse(&stage.base.binlog.gtid).unwrap_or_default();
                if !base.is_within(&set) {
                    return Err(Error::refused(
                        "restored server",
                        format!("it has the GTIDs `{set}`, but its backup says `{base}`"),
                        "use another full",
                    ));
                }
                let mut reached = base;
                reached.join(groups);
                if !set.is_within(&reached) {
                    let why = format!(
                        "lies before the end of the full: the restored server has the GTIDs `{set}`, and up to the place \
                         to stop at the log has `{reached}`"
                    );
                    return Err(Error::refused(
                        "the place to stop at",
                        why,
                        "stop later, or choose an older full with --set",
                    ));
                }
                set.join(groups);
                Ok(Self::Executed(Some(set)))
            }
            (Dialect::MariaDb, Gtids::MariaDb(list)) => Ok(Self::Applied(list.clone())),
            _ => Ok(Self::Executed(None)),
        }
    }

    /// What the server has now.
    ///
    /// # Errors
    /// It refuses.
    pub fn now(&self, connection: &mut Connection) -> Result<String> {
        let variable = match self {
            Self::Executed(_) => "gtid_executed",
            Self::Applied(_) => "gtid_slave_pos",
        };
        let answer = connection.query(&format!("SELECT @@GLOBAL.{variable}"))?;
        let mut now = answer.single().unwrap_or_default().to_owned();
        now.retain(|c| !c.is_whitespace());
        Ok(now)
    }

    /// Whether this is the end.
    pub fn is_reached(&self, now: &str) -> bool {
        match self {
            Self::Executed(None) => true,
            Self::Executed(Some(wanted)) => GtidSet::parse(now).as_ref() == Some(wanted),
            Self::Applied(wanted) => {
                let now = GtidList::parse(now).unwrap_or_default();
                wanted.all().all(|gtid| now.of(gtid.domain) == Some(*gtid))
            }
        }
    }

    /// In the words of the server.
    pub fn shown(&self) -> String {
        match self {
            Self::Executed(set) => set.as_ref().map(ToString::to_string).unwrap_or_default(),
            Self::Applied(list) => list.to_string(),
        }
    }
}
