//! Stored generated columns whose values depend on settings of the session that wrote them, such as its time zone. A load
//! computes them again, with its own settings.

use std::collections::HashMap;

use fullbore_core::Result;
use fullbore_core::units::first_of;

use super::selection::Selection;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::names::quoted;

/// How many columns a warning lists.
const NAMED_MAX: usize = 5;
/// A server with these settings writes the values that a load computes.
const DEFAULTS: [(Setting, &[&str]); 4] = [
    (Setting::Zone, &["+00:00", "-00:00", "UTC", "Etc/UTC", "GMT"]),
    (Setting::Names, &["en_US"]),
    (Setting::Division, &["4"]),
    (Setting::Padding, &["0"]),
];
const ASKED: &str = "SELECT IF(@@GLOBAL.time_zone = 'SYSTEM', @@GLOBAL.system_time_zone, @@GLOBAL.time_zone), \
                     @@GLOBAL.lc_time_names, @@GLOBAL.div_precision_increment, \
                     FIND_IN_SET('PAD_CHAR_TO_FULL_LENGTH', @@GLOBAL.sql_mode) > 0";

/// A setting on which values depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// `time_zone`: of TIMESTAMP columns, and of seconds since 1970.
    Zone,
    /// `lc_time_names`: names of months and days.
    Names,
    /// `div_precision_increment`: the digits of a quotient.
    Division,
    /// `PAD_CHAR_TO_FULL_LENGTH` in `sql_mode`.
    Padding,
}

/// A table with stored generated columns.
#[derive(Default)]
struct Table {
    /// Its TIMESTAMP columns, in quotes.
    timestamps: Vec<String>,
    /// Names and expressions.
    computed: Vec<(String, String)>,
}

/// The warning about columns whose values a load would change. A server with default settings is not asked for its columns.
///
/// # Errors
/// The server is lost.
pub fn warning(connection: &mut Connection, selection: &Selection) -> Result<Option<String>> {
    let now = connection.query(ASKED)?;
    let other = DEFAULTS.iter().enumerate().filter(|(at, (_, known))| {
        now.value(0, *at).is_some_and(|value| !known.iter().any(|known| known.eq_ignore_ascii_case(value)))
    });
    let other: Vec<Setting> = other.map(|(_, (setting, _))| *setting).collect();
    if other.is_empty() {
        return Ok(None);
    }
    let mut changed = Vec::new();
    for ((schema, name), table) in tables(connection, selection)? {
        for (column, expression) in &table.computed {
            if other.iter().any(|setting| depends(expression, *setting, &table.timestamps))
                && differs(connection, (&schema, &name), column, expression)?
            {
                changed.push(format!("{schema}.{name}.{column}"));
            }
        }
    }
    changed.sort();
    Ok((!changed.is_empty()).then(|| {
        format!(
            "stored generated columns have values that depend on settings of the session that wrote them (time_zone, lc_time_names and \
             others). A load computes them again in UTC, so they change: {}",
            first_of(changed, NAMED_MAX)
        )
    }))
}

fn tables(connection: &mut Connection, selection: &Selection) -> Result<HashMap<(String, String), Table>> {
    let within = selection.databases_in("table_schema");
    let columns = connection.query(&format!(
        "SELECT table_schema, table_name, column_name, generation_expression FROM information_schema.columns \
         WHERE (extra LIKE '%STORED GENERATED%' OR data_type = 'timestamp') AND {within}"
    ))?;
    let mut tables: HashMap<_, Table> = HashMap::new();
    for row in columns.rows {
        let Ok([Some(schema), Some(name), Some(column), expression]) = <[_; 4]>::try_from(row) else { continue };
        if selection.takes_table(&schema, &name) {
            let table = tables.entry((schema, name)).or_default();
            match expression.filter(|text| !text.is_empty()) {
                // MySQL shows quotes with a backslash.
                Some(text) => table.computed.push((column, text.replace("\\'", "'"))),
                None => table.timestamps.push(quoted(&column)),
            }
        }
    }
    Ok(tables)
}

/// Whether an expression may depend on a setting.
fn depends(expression: &str, setting: Setting, timestamps: &[String]) -> bool {
    let text = expression.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    match setting {
        Setting::Zone => {
            has(&["unix_timestamp", "from_unixtime"]) || timestamps.iter().any(|name| expression.contains(name))
        }
        Setting::Names => has(&["monthname", "dayname", "date_format"]),
        Setting::Division => has(&[" / ", "avg"]),
        Setting::Padding => true,
    }
}

/// Whether a row has another value than this session computes. The session has the settings of a load.
fn differs(connection: &mut Connection, (schema, table): (&str, &str), column: &str, expression: &str) -> Result<bool> {
    let of = format!("{}.{}", quoted(schema), quoted(table));
    let asked = format!("SELECT 1 FROM {of} WHERE NOT ({} <=> ({expression})) LIMIT 1", quoted(column));
    match connection.query(&asked) {
        Ok(answer) => Ok(!answer.rows.is_empty()),
        // An expression that is shown in another form than it is written.
        Err(Failure::Server(_)) => Ok(true),
        Err(Failure::Fault(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_may_depend_on_another_setting_is_looked_at() {
        let timestamps = ["`ts`".to_owned()];
        for (expression, setting, expected) in [
            ("cast(`ts` as char charset utf8mb4)", Setting::Zone, true),
            ("cast(`at` as char charset utf8mb4)", Setting::Zone, false),
            ("UNIX_TIMESTAMP(`at`)", Setting::Zone, true),
            ("monthname(`at`)", Setting::Names, true),
            ("(`a` / `b`)", Setting::Division, true),
            ("(`a` * `b`)", Setting::Division, false),
        ] {
            assert_eq!(depends(expression, setting, &timestamps), expected, "{expression}");
        }
    }
}
