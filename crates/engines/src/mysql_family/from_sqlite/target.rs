//! The server that takes the tables, and what it can hold.

use std::path::Path;

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::drafts::Limits;
use crate::engine::MigrationOrder;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::names::literal;
use crate::mysql_family::logical_set::load::control;
use crate::mysql_family::logical_set::selection::{MIGRATION, NOTES, OWN};
use crate::mysql_family::logical_set::server::{Facts, Login};

/// The most bytes of a key, with pages of 16 KiB and more.
const KEY_MAX: u32 = 3072;
/// How many names an error lists.
const NAMED_MAX: usize = 5;
/// The page size that a key of this length needs, in bytes.
const PAGE: u32 = 16 << 10;

/// The target.
pub struct Target {
    /// How it is reached.
    pub login: Login,
    /// The database that takes the tables.
    pub database: String,
    /// Changes it.
    pub control: Connection,
    /// Facts about it.
    pub facts: Facts,
    /// What it holds.
    pub limits: Limits,
}

impl Target {
    /// Connects.
    ///
    /// # Errors
    /// The URL names no database, or the server cannot be reached.
    pub fn connect(order: &MigrationOrder) -> Result<Self> {
        let options = &order.target_options;
        let login = Login::of(&order.target, &options.given, options.halt.clone())?;
        let Some(database) = login.address.database.clone() else {
            let path = order.source.strip_prefix("sqlite:").unwrap_or(&order.source);
            let stem = Path::new(path).file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let hint = format!("write {}://USER@HOST/{}", login.address.dialect.name(), stem.unwrap_or_default());
            return Err(Error::usage("--into", "it does not name the database that takes the tables", hint));
        };
        let reserved = OWN.iter().chain(&[NOTES, MIGRATION]).any(|own| own.eq_ignore_ascii_case(&database));
        if reserved {
            let why = format!("`{database}` is a database of the server itself, or of fullbore");
            return Err(Error::usage("--into", why, "name another database"));
        }
        let mut control = control(&login)?;
        let facts = Facts::ask(&mut control, login.address.dialect)?;
        let page = control.query("SELECT @@innodb_page_size")?;
        let page: u32 = page.single().and_then(|text| text.parse().ok()).unwrap_or(PAGE);
        let (binary, nocase) = match (facts.dialect, facts.series) {
            (Dialect::MySql, (8.., _)) => ("utf8mb4_0900_bin", "utf8mb4_0900_as_ci"),
            // Its collations ignore blanks at the end.
            (Dialect::MySql, _) => ("utf8mb4_bin", "utf8mb4_general_ci"),
            (Dialect::MariaDb, series) if series >= (10, 10) => ("utf8mb4_nopad_bin", "utf8mb4_uca1400_nopad_as_ci"),
            (Dialect::MariaDb, _) => ("utf8mb4_nopad_bin", "utf8mb4_general_nopad_ci"),
        };
        let limits = Limits {
            key: (u64::from(KEY_MAX) * u64::from(page.min(PAGE)) / u64::from(PAGE)) as u32,
            value: facts.max_allowed_packet,
            binary: binary.to_owned(),
            nocase: nocase.to_owned(),
            rtrim: "utf8mb4_bin".to_owned(),
            expressions: facts.dialect == Dialect::MariaDb || facts.is_at_least([8, 0, 13]),
            checks: facts.dialect == Dialect::MariaDb || facts.is_at_least([8, 0, 16]),
        };
        Ok(Self { login, database, control, facts, limits })
    }

    /// Refuses a database that has tables.
    ///
    /// # Errors
    /// It has some, or the server refuses.
    pub fn demand_empty(&mut self) -> Result<()> {
        let asked = "SELECT table_name FROM information_schema.tables WHERE table_schema =";
        let found = self.control.query(&format!("{asked} {}", literal(&self.database)))?;
        let found: Vec<String> = found.rows.into_iter().filter_map(|row| row.into_iter().next()?).collect();
        if found.is_empty() {
            return Ok(());
        }
        let why = format!("the target holds tables in `{}` already: {}", self.database, first_of(found, NAMED_MAX));
        let hint = "name another database in --into, or drop what is there with --replace";
        Err(Error::refused(self.login.address.name(), why, hint))
    }

    /// A new connection, also after an error or a signal.
    ///
    /// # Errors
    /// The target cannot be reached.
    pub fn control_now(&self) -> Result<Connection> {
        control(&Login { halt: None, ..self.login.clone() })
    }
}
