//! Stored generated columns whose values depend on settings of the session that wrote them, such as its time zone. A load
//! computes them again, with its own settings.

use std::collections::HashMap;

use fullbore_core::Result;
use fullbore_core::units::first_of;

use super::load::SETTINGS;
use super::selection::Selection;
use crate::mysql_family::Dialect;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::names::quoted;

/// How many columns a warning lists.
const NAMED_MAX: usize = 5;
/// A server with these settings writes the values that a load computes.
const DEFAULTS: [(Setting, &[&str]); 5] = [
    // London calls its winter GMT.
    (Setting::Zone, &["+00:00", "-00:00", "UTC", "Etc/UTC"]),
    (Setting::Names, &["en_US"]),
    (Setting::Division, &["4"]),
    (Setting::Weeks, &["0"]),
    (Setting::Padding, &["0"]),
];
const ASKED: &str = "SELECT IF(@@GLOBAL.time_zone = 'SYSTEM', @@GLOBAL.system_time_zone, @@GLOBAL.time_zone), \
                     @@GLOBAL.lc_time_names, @@GLOBAL.div_precision_increment, \
                     @@GLOBAL.default_week_format, FIND_IN_SET('PAD_CHAR_TO_FULL_LENGTH', @@GLOBAL.sql_mode) > 0";

/// A setting on which values depend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// `time_zone`: of TIMESTAMP columns, and of seconds since 1970.
    Zone,
    /// `lc_time_names`: names of months and days.
    Names,
    /// `div_precision_increment`: the digits of a quotient.
    Division,
    /// `default_week_format`: numbers of weeks.
    Weeks,
    /// `PAD_CHAR_TO_FULL_LENGTH` in `sql_mode`.
    Padding,
}

/// A table with stored generated columns.
#[derive(Default)]
struct Table {
    /// Its TIMESTAMP columns, in quotes.
    timestamps: Vec<String>,
    computed: Vec<Computed>,
}

/// A stored generated column.
#[derive(Default)]
struct Computed {
    name: String,
    expression: String,
    /// As `information_schema.columns.data_type` has it.
    data_type: String,
    /// With its length, such as `decimal(10,2) unsigned`.
    column_type: String,
}

/// The warning about columns whose values a load would change. A server with default settings is not asked for its columns.
///
/// # Errors
/// The server is lost.
pub fn warning(connection: &mut Connection, dialect: Dialect, selection: &Selection) -> Result<Option<String>> {
    let now = connection.query(ASKED)?;
    let other = DEFAULTS.iter().enumerate().filter(|(at, (_, known))| {
        now.value(0, *at).is_some_and(|value| !known.iter().any(|known| known.eq_ignore_ascii_case(value)))
    });
    let other: Vec<Setting> = other.map(|(_, (setting, _))| *setting).collect();
    if other.is_empty() {
        return Ok(None);
    }
    let mut changed = Vec::new();
    connection.query(&format!("SET SESSION {SETTINGS}"))?;
    for ((schema, name), table) in tables(connection, dialect, selection)? {
        for column in &table.computed {
            if other.iter().any(|setting| depends(&column.expression, *setting, &table.timestamps))
                && differs(connection, (&schema, &name), column)?
            {
                changed.push(format!("{schema}.{name}.{}", column.name));
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

fn tables(
    connection: &mut Connection,
    dialect: Dialect,
    selection: &Selection,
) -> Result<HashMap<(String, String), Table>> {
    let within = selection.databases_in("table_schema");
    let columns = connection.query(&format!(
        "SELECT table_schema, table_name, column_name, generation_expression, data_type, column_type FROM information_schema.columns \
         WHERE (extra LIKE '%STORED GENERATED%' OR data_type = 'timestamp') AND {within}"
    ))?;
    let mut tables: HashMap<_, Table> = HashMap::new();
    for row in columns.rows {
        let Ok([Some(schema), Some(name), Some(column), expression, Some(data_type), Some(column_type)]) =
            <[_; 6]>::try_from(row)
        else {
            continue;
        };
        if selection.takes_table(&schema, &name) {
            let table = tables.entry((schema, name)).or_default();
            match expression.filter(|text| !text.is_empty()) {
                Some(text) => {
                    let expression = if dialect == Dialect::MySql { unescaped(&text) } else { text };
                    table.computed.push(Computed { name: column, expression, data_type, column_type });
                }
                None => table.timestamps.push(quoted(&column)),
            }
        }
    }
    Ok(tables)
}

/// MySQL shows quotes, backslashes and line ends of an expression with a backslash.
fn unescaped(text: &str) -> String {
    let (mut plain, mut letters) = (String::with_capacity(text.len()), text.chars());
    while let Some(letter) = letters.next() {
        plain.push(match letter {
            '\\' => match letters.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some('0') => '\0',
                Some(other) => other,
                None => '\\',
            },
            letter => letter,
        });
    }
    plain
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
        Setting::Weeks => has(&["week"]),
        Setting::Padding => true,
    }
}

/// Whether a row has another value than this session computes. The session has the settings of a load.
fn differs(connection: &mut Connection, (schema, table): (&str, &str), column: &Computed) -> Result<bool> {
    let of = format!("{}.{}", quoted(schema), quoted(table));
    let asked = format!("SELECT 1 FROM {of} WHERE {} LIMIT 1", other_value(column));
    match connection.query(&asked) {
        Ok(answer) => Ok(!answer.rows.is_empty()),
        // An expression that is shown in another form than it is written.
        Err(Failure::Server(_)) => Ok(true),
        Err(Failure::Fault(error)) => Err(error),
    }
}

/// The condition for a value that is not the one of the expression, in the type of the column.
fn other_value(column: &Computed) -> String {
    let (name, expression) = (quoted(&column.name), format!("({})", column.expression));
    let length = column.column_type.split_once('(').and_then(|(_, rest)| Some(rest.split_once(')')?.0));
    let length = length.map_or_else(String::new, |length| format!("({length})"));
    let cast = |kind: &str| format!("NOT ({name} <=> CAST({expression} AS {kind}))");
    let bytes = |text: &str| format!("CAST(CONVERT({text} USING utf8mb4) AS BINARY)");
    match &column.data_type[..] {
        "date" => cast("DATE"),
        "datetime" | "timestamp" => cast(&format!("DATETIME{length}")),
        "time" => cast(&format!("TIME{length}")),
        "decimal" => cast(&format!("DECIMAL{length}")),
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" | "year" => {
            cast(if column.column_type.contains("unsigned") { "UNSIGNED" } else { "SIGNED" })
        }
        // A FLOAT has about seven digits.
        "float" => format!(
            "NOT ({name} <=> {expression}) AND NOT COALESCE(ABS({name} - {expression}) <= ABS({name}) * 1e-6, FALSE)"
        ),
        "char" => format!("NOT (RTRIM({}) <=> RTRIM({}))", bytes(&name), bytes(&expression)),
        "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => {
            format!("NOT ({} <=> {})", bytes(&name), bytes(&expression))
        }
        _ => format!("NOT ({name} <=> {expression})"),
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
            ("yearweek(`d`)", Setting::Weeks, true),
        ] {
            assert_eq!(depends(expression, setting, &timestamps), expected, "{expression}");
        }
    }

    #[test]
    fn an_expression_is_read_as_it_was_written() {
        assert_eq!(unescaped(r"concat(_utf8mb4\'it\\\'s\',`a`)"), r"concat(_utf8mb4'it\'s',`a`)");
    }

    #[test]
    fn a_value_is_compared_in_the_type_of_its_column() {
        let condition = |data_type: &str, column_type: &str| {
            let (data_type, column_type) = (data_type.to_owned(), column_type.to_owned());
            other_value(&Computed { name: "c".into(), expression: "`a`".into(), data_type, column_type })
        };
        for (data_type, column_type, expected) in [
            ("datetime", "datetime(6)", "NOT (`c` <=> CAST((`a`) AS DATETIME(6)))"),
            ("decimal", "decimal(10,2) unsigned", "NOT (`c` <=> CAST((`a`) AS DECIMAL(10,2)))"),
            ("int", "int(10) unsigned", "NOT (`c` <=> CAST((`a`) AS UNSIGNED))"),
            ("double", "double", "NOT (`c` <=> (`a`))"),
        ] {
            assert_eq!(condition(data_type, column_type), expected);
        }
    }
}
