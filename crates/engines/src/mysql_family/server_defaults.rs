//! Global settings of a server that statements in its log depend on. The log does not have them: a replica needs the same ones.

use std::collections::BTreeMap;

use fullbore_core::Result;
use serde::{Deserialize, Serialize};

use super::Dialect;
use super::connection::Connection;

/// Settings that a session can have, too.
const OF_SESSIONS: [&str; 5] =
    ["default_storage_engine", "div_precision_increment", "default_week_format", "group_concat_max_len", "old_mode"];
/// Settings of the whole server.
const OF_SERVERS: [&str; 1] = ["innodb_default_row_format"];
/// Engines that each server of a vendor has.
const ENGINES: [&str; 3] = ["InnoDB", "MyISAM", "Aria"];
/// The longest value, in bytes.
const VALUE_MAX: usize = 200;

/// The settings by their names. Names and values that are not known are no part of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<String, String>")]
pub struct ServerDefaults(BTreeMap<&'static str, String>);

impl From<BTreeMap<String, String>> for ServerDefaults {
    fn from(read: BTreeMap<String, String>) -> Self {
        let known = |(name, value): (String, String)| {
            let name = OF_SESSIONS.into_iter().chain(OF_SERVERS).find(|known| *known == name)?;
            let is_plain =
                value.len() <= VALUE_MAX && value.bytes().all(|c| c.is_ascii_alphanumeric() || b"_,".contains(&c));
            let is_there = name != "default_storage_engine" || ENGINES.contains(&&value[..]);
            (is_plain && is_there).then_some((name, value))
        };
        Self(read.into_iter().filter_map(known).collect())
    }
}

impl ServerDefaults {
    /// Asks a server for its own.
    ///
    /// # Errors
    /// The server is lost.
    pub fn ask(connection: &mut Connection) -> Result<Self> {
        // Each vendor has some of them only.
        let names: Vec<String> = OF_SESSIONS.into_iter().chain(OF_SERVERS).map(|name| format!("'{name}'")).collect();
        let asked = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", "));
        let pair =
            |row: Vec<Option<String>>| <[_; 2]>::try_from(row).ok().and_then(|[name, value]| Some((name?, value?)));
        Ok(connection.query(&asked)?.rows.into_iter().filter_map(pair).collect::<BTreeMap<_, _>>().into())
    }

    /// Those of a session that runs the statements again, with their values for SET: for a server of the same vendor, or of the other one.
    pub fn of_session(&self, [source, target]: [Dialect; 2]) -> Vec<(&'static str, String)> {
        let is_of_vendor = |name: &str| ["default_storage_engine", "old_mode"].contains(&name);
        let of_session = self.0.iter().filter(|(name, _)| OF_SESSIONS.contains(name));
        let wanted = of_session.filter(|(name, _)| source == target || !is_of_vendor(name));
        let text = |value: &String| match !value.is_empty() && value.bytes().all(|c| c.is_ascii_digit()) {
            true => value.clone(),
            false => format!("'{value}'"),
        };
        wanted.map(|(name, value)| (*name, text(value))).collect()
    }

    /// The options of a server that applies the log.
    pub fn options(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(name, value)| format!("{}={value}", name.replace('_', "-")))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn known_settings_with_plain_values_are_read_and_given_to_sessions_and_servers() {
        let json = r#"{"old_mode": "", "div_precision_increment": "10", "innodb_default_row_format": "compact",
                       "default_storage_engine": "Unknown", "group_concat_max_len": "1'", "plugin_dir": "x"}"#;
        let defaults: ServerDefaults = serde_json::from_str(json).unwrap();
        let maria = [Dialect::MariaDb; 2];
        let expected = [("div_precision_increment", "10".to_owned()), ("old_mode", "''".to_owned())];
        assert_eq!(defaults.of_session(maria), expected);
        assert_eq!(defaults.of_session([Dialect::MariaDb, Dialect::MySql]), expected[..1]);
        let options: Vec<String> = defaults.options().collect();
        assert_eq!(options, ["div-precision-increment=10", "innodb-default-row-format=compact", "old-mode="]);
        assert_eq!(
            serde_json::from_str::<ServerDefaults>(&serde_json::to_string(&defaults).unwrap()).unwrap(),
            defaults
        );
    }
}
