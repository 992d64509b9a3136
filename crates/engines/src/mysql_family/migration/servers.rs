//! The two servers of a migration: logins, facts, and what must be true before the first row.

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::freeze::Before;
use crate::GivenOptions;
use crate::engine::{GivenIn, MigrationOrder, OptionValue};
use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::through::apply::Applier;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::load::control;
use crate::mysql_family::logical_set::selection::Selection;
use crate::mysql_family::logical_set::server::{Facts, Login};
use crate::mysql_family::server_options::DATABASE;
use crate::mysql_family::version::ENDS_LATER;

/// How many names a warning lists.
const NAMED_MAX: usize = 10;

/// A log of MySQL into MariaDB.
pub const FROM_MYSQL: [Dialect; 2] = [Dialect::MySql, Dialect::MariaDb];

/// MariaDB takes no log of these tables or columns with JSON.
///
/// # Errors
/// There are some.
pub fn refuse_json(of: &str, with_json: Vec<String>) -> Result<()> {
    if with_json.is_empty() {
        return Ok(());
    }
    let why = format!("MariaDB does not take JSON out of a log of MySQL: {}", first_of(with_json, NAMED_MAX));
    let hint =
        "change these columns to LONGTEXT, or move the rows without the log: stop the writers and use --no-follow";
    Err(Error::refused(of, why, hint))
}

/// Both servers.
pub struct Servers {
    /// The source.
    pub source: Login,
    /// The target.
    pub target: Login,
    /// Asks the source.
    pub asking: Connection,
    /// Changes the target.
    pub control: Connection,
    /// Facts about the source.
    pub facts: Facts,
    /// Facts about the target.
    pub target_facts: Facts,
}

impl Servers {
    /// Connects to both.
    ///
    /// # Errors
    /// One of them cannot be reached, or both are the same server.
    pub fn connect(order: &MigrationOrder) -> Result<Self> {
        let (from, to) = (&order.source_options, &order.target_options);
        let source = Login::of(&order.source, &from.given, from.halt.clone())?;
        let target = Login::of(&order.target, &to.given, to.halt.clone())?;
        if target.address.database.is_some() {
            let why = "a migration goes into databases of the same names";
            return Err(Error::usage("--into", why, "leave the database out"));
        }
        let (mut asking, mut control) = (source.ask()?, control(&target)?);
        let facts = Facts::ask(&mut asking, source.address.dialect)?;
        let target_facts = Facts::ask(&mut control, target.address.dialect)?;
        let place = |connection: &mut Connection| -> Result<Vec<Option<String>>> {
            Ok(connection.query("SELECT @@hostname, @@port, @@datadir, @@socket")?.rows.concat())
        };
        if place(&mut asking)? == place(&mut control)? {
            let why = "source and target are the same server";
            return Err(Error::usage(format!("--into {}", target.address.name()), why, "name another server"));
        }
        Ok(Self { source, target, asking, control, facts, target_facts })
    }

    /// A warning about a target that applications cannot write to after the cut-over.
    pub fn warn_of_target(&self) -> Option<String> {
        let read_only = Before::ask(&self.target).is_ok_and(|target| target.is_read_only());
        read_only.then(|| {
            format!(
                "{} is read-only: applications cannot write to it after the cut-over, until SET GLOBAL read_only = OFF",
                self.target.address.name()
            )
        })
    }

    /// A warning if the log cannot change these system-versioned tables: the end of a current row is another time in each row of
    /// the log than in the target.
    pub fn warn_of_ends(&self, versioned: &[String]) -> Option<String> {
        let differ = self.facts.series < ENDS_LATER && self.target_facts.series >= ENDS_LATER;
        (differ && !versioned.is_empty()).then(|| {
            format!(
                "the log of a MariaDB before 11.5 cannot change system-versioned tables of a later one: a change of one of them ends \
                 the migration. Cut over before: {}",
                first_of(versioned, NAMED_MAX)
            )
        })
    }

    /// MariaDB does not take JSON in the form that a log of MySQL has.
    ///
    /// # Errors
    /// The source has such columns.
    pub fn demand_no_json(&mut self, selection: &Selection) -> Result<()> {
        if self.dialects() != FROM_MYSQL {
            return Ok(());
        }
        let within = selection.databases_in("table_schema");
        let found = self.asking.query(&format!(
            "SELECT table_schema, table_name, column_name FROM information_schema.columns WHERE data_type = 'json' AND {within}"
        ))?;
        let column = |row: Vec<Option<String>>| match <[_; 3]>::try_from(row) {
            Ok([Some(schema), Some(table), Some(column)]) if selection.takes_table(&schema, &table) => {
                Some(format!("{schema}.{table}.{column}"))
            }
            _ => None,
        };
        let columns: Vec<String> = found.rows.into_iter().filter_map(column).collect();
        refuse_json(&self.source.address.name(), columns)
    }

    /// The vendors of the source and of the target.
    fn dialects(&self) -> [Dialect; 2] {
        [self.source.address.dialect, self.target.address.dialect]
    }

    /// The options of the source, with the databases of the order.
    pub fn given(&self, order: &MigrationOrder) -> GivenOptions {
        let mut given = order.source_options.given.clone();
        for database in &order.databases {
            given.add(&DATABASE, OptionValue::Texts(vec![database.clone()]), GivenIn::Flag);
        }
        given
    }

    /// Both, for people.
    pub fn named(&self) -> [String; 2] {
        [&self.facts, &self.target_facts].map(Facts::named)
    }

    /// The log of the source must be one that can be applied through a connection.
    ///
    /// # Errors
    /// The first setting that is in the way.
    pub fn demand_log(&mut self) -> Result<()> {
        let dialect = self.source.address.dialect;
        let refused = |why: &str, hint: &str| Err(Error::refused(self.source.address.name(), why, hint));
        if !self.facts.binary_log {
            let hint = "start it with --log-bin, or stop the writers and use --no-follow";
            return refused("the server writes no binary log (log_bin = OFF), so it cannot be followed", hint);
        }
        let compress = if dialect == Dialect::MariaDb { "@@log_bin_compress" } else { "0" };
        let settings = self.asking.query(&format!("SELECT @@GLOBAL.binlog_format, {compress}"))?;
        if !settings.value(0, 0).is_some_and(|format| format.eq_ignore_ascii_case("ROW")) {
            let hint = "SET GLOBAL binlog_format = ROW, let all sessions connect again, and begin again";
            return refused("its log has statements in the place of rows (binlog_format is not ROW)", hint);
        }
        if settings.value(0, 1) == Some("1") {
            return refused(
                "its log is compressed (log_bin_compress)",
                "SET GLOBAL log_bin_compress = OFF, and begin again",
            );
        }
        Ok(())
    }

    /// The accounts must see the objects that the cut-over moves and compares: a server hides triggers, events, and routines of other
    /// definers.
    ///
    /// # Errors
    /// One of them does not.
    pub fn demand_objects_seen(&mut self, selection: &Selection) -> Result<()> {
        let within = selection.databases_in("schema_name");
        let asked = format!("SELECT schema_name FROM information_schema.schemata WHERE {within} ORDER BY 1");
        let databases: Vec<String> = self.asking.query(&asked)?.rows.into_iter().flatten().flatten().collect();
        for privilege in ["TRIGGER", "EVENT"] {
            let hidden: Vec<&String> = databases.iter().filter(|name| !self.facts.allows(name, privilege)).collect();
            if !hidden.is_empty() {
                let named = first_of(hidden, NAMED_MAX);
                let why = format!("the account lacks {privilege} on {named}, so what is there would stay behind");
                let hint = format!("GRANT {privilege} ON *.* TO …; or compare only rows with --check rows");
                return Err(Error::refused(self.source.address.name(), why, hint));
            }
        }
        let within = selection.databases_in("routine_schema");
        let asked = format!("SELECT 1 FROM information_schema.routines WHERE {within} LIMIT 1");
        if self.asking.query(&asked)?.rows.is_empty() {
            return Ok(());
        }
        for (login, facts) in [(&self.source, &self.facts), (&self.target, &self.target_facts)] {
            if let Some(privilege) = facts.lacks_for_routines() {
                let why =
                    format!("the account lacks {privilege}, and the cut-over compares the routines of all accounts");
                let hint = format!("GRANT {privilege} ON *.* TO …; or compare only rows with --check rows");
                return Err(Error::refused(login.address.name(), why, hint));
            }
        }
        Ok(())
    }

    /// The account of the target must be allowed to apply a log.
    ///
    /// # Errors
    /// It is not.
    pub fn demand_applier(&self) -> Result<()> {
        Applier::new(control(&self.target)?, self.dialects(), None, Box::new(|_, _| false)).map(drop)
    }

    /// A new connection to the target, also after an error or a signal.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn control_now(&self) -> Result<Connection> {
        control(&Login { halt: None, ..self.target.clone() })
    }
}
