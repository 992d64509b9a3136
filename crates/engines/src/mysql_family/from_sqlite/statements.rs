//! CREATE TABLE for the target.

use std::collections::HashSet;

use rusqlite::types::Value;

use super::checks;
use super::drafts::{Draft, Limits, Told};
use super::kinds::Kind;
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::catalog::{StoredColumn, TableObject};
use crate::sqlite::outgoing::Outgoing;
use crate::sqlite::outgoing::schema::{Column, ForeignKey};
use crate::sqlite::outgoing::statement::Clauses;

/// The longest name of an index, in characters, with room for a number.
const INDEX_NAME: usize = 58;
/// The characters of a text in an index that is not unique.
const PREFIX: u32 = 255;

/// A text as a literal, for a session without NO_BACKSLASH_ESCAPES.
pub fn text_literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''").replace('\0', "\\0"))
}

/// The statement of the draft at `at`, and its columns.
pub fn object(
    source: &Outgoing,
    drafts: &[Draft],
    at: usize,
    schema: &str,
    limits: &Limits,
    told: &mut Told,
) -> Option<TableObject> {
    let draft = drafts.get(at)?;
    let (table, name) = (&draft.table, &draft.table.name);
    let clauses = Clauses::of(&table.statement);
    told.left_out.extend(table.generated.iter().map(|column| format!("generated column {name}.{column}")));
    told.left_out.extend(clauses.conflicts.iter().map(|clause| format!("{clause} of table {name}")));
    if clauses.deferred {
        told.left_out
            .push(format!("INITIALLY DEFERRED of foreign keys of table {name}: the target checks each statement"));
    }
    let mut items: Vec<String> = Vec::new();
    for (column, kind) in table.columns.iter().zip(&draft.kinds) {
        items.push(column_text(source, draft, column, *kind, limits, told));
    }
    if let Some(primary) = draft.places(&table.primary).filter(|places| !places.is_empty()) {
        items.push(format!("PRIMARY KEY ({})", names(draft, &primary)));
    } else if !table.primary.is_empty() {
        told.left_out.push(format!("primary key of table {name}: it has a generated column"));
    }
    items.extend(indexes(draft, limits, told));
    for key in &table.foreign_keys {
        match foreign_key(drafts, draft, key) {
            Ok(text) => items.push(text),
            Err(why) => told.left_out.push(format!("foreign key ({}) of table {name}: {why}", key.columns.join(", "))),
        }
    }
    for (text, tokens) in &clauses.checks {
        match checks::translated(draft, tokens).filter(|_| limits.checks) {
            Some(check) => items.push(format!("CHECK ({check})")),
            None => told.left_out.push(format!("CHECK ({text}) of table {name}")),
        }
    }
    let next = table.last.filter(|_| table.alias.is_some()).map(|last| last.saturating_add(1)).filter(|next| *next > 1);
    let next = next.map_or_else(String::new, |next| format!(" AUTO_INCREMENT={next}"));
    let create = format!(
        "CREATE TABLE {} (\n  {}\n) ENGINE=InnoDB{next} DEFAULT CHARSET=utf8mb4 COLLATE={} ROW_FORMAT=DYNAMIC",
        quoted(name),
        items.join(",\n  "),
        limits.binary
    );
    let columns = table.columns.iter().zip(&draft.kinds);
    let columns = columns.map(|(column, kind)| StoredColumn { name: column.name.clone(), data_type: kind.data_type() });
    Some(TableObject {
        schema: schema.to_owned(),
        name: name.clone(),
        engine: "InnoDB".to_owned(),
        create,
        columns: columns.collect(),
        primary: table.primary.as_slice().into(),
        condition: None,
    })
}

fn column_text(
    source: &Outgoing,
    draft: &Draft,
    column: &Column,
    kind: Kind,
    limits: &Limits,
    told: &mut Told,
) -> String {
    let mut text = format!("{} {}", quoted(&column.name), kind.sql());
    let is = |name: &String| name.eq_ignore_ascii_case(&column.name);
    if matches!(kind, Kind::Text(_)) {
        match column.collation.as_str() {
            "BINARY" => {}
            "NOCASE" => {
                text += &format!(" COLLATE {}", limits.nocase);
                let shown = draft.shown(column);
                told.notes.push(format!("{shown} is NOCASE: {} also joins letters beyond ASCII", limits.nocase));
            }
            "RTRIM" => text += &format!(" COLLATE {}", limits.rtrim),
            other => told.left_out.push(format!("collation {other} of {}: it compares bytes", draft.shown(column))),
        }
    }
    if column.not_null || draft.table.primary.iter().any(is) {
        text += " NOT NULL";
    }
    if draft.table.alias.as_ref().is_some_and(is) {
        return text + " AUTO_INCREMENT";
    }
    let is_possible = |default: &String| limits.expressions || !default.starts_with('(');
    match column.default.as_deref().map(|default| default_text(source, default, kind).filter(is_possible)) {
        None => {}
        Some(Some(default)) => text += &format!(" DEFAULT {default}"),
        Some(None) => {
            let default = column.default.as_deref().unwrap_or_default();
            told.left_out.push(format!("DEFAULT {default} of {}", draft.shown(column)));
        }
    }
    text
}

/// A default for the target. None if it may mean something else there.
fn default_text(source: &Outgoing, text: &str, kind: Kind) -> Option<String> {
    let plain: String = text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>().to_ascii_lowercase();
    let plain = plain.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(&plain);
    // SQLite's clock is UTC, and the session of an application may have another zone.
    let now = match plain {
        "current_timestamp" | "datetime('now')" => Some(("UTC_TIMESTAMP()", matches!(kind, Kind::Moment(_)))),
        "current_date" | "date('now')" => Some(("UTC_DATE()", kind == Kind::Date)),
        "current_time" | "time('now')" => Some(("UTC_TIME()", false)),
        _ => None,
    };
    if let Some((clock, is_own)) = now {
        return match kind {
            _ if is_own => Some(format!("({clock})")),
            Kind::Text(_) => Some(format!("(CAST({clock} AS CHAR))")),
            _ => None,
        };
    }
    let text = text.trim();
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(text);
    let value = source.literal(inner)?;
    // What SQLite does when it stores the value.
    let value = match (kind, value) {
        (Kind::Text(_), Value::Integer(number)) => Value::Text(number.to_string()),
        (Kind::Integer | Kind::Boolean, Value::Text(text)) => Value::Integer(text.trim().parse().ok()?),
        (Kind::Double, Value::Text(text)) => Value::Real(text.trim().parse().ok()?),
        (_, value) => value,
    };
    let reference = rusqlite::types::ValueRef::from(&value);
    if value == Value::Null {
        return Some("NULL".to_owned());
    }
    let mut written = Vec::new();
    kind.write(reference, &mut written).ok()?;
    let is_too_long = |length: u32| value_length(&value) > u64::from(length);
    if kind.length().is_some_and(is_too_long) {
        return None;
    }
    let literal = match kind {
        Kind::Blob(_) if written.is_empty() => "''".to_owned(),
        Kind::Blob(_) => written.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02X}")),
        Kind::Text(_) | Kind::Date | Kind::Moment(_) => text_literal(&String::from_utf8(written).ok()?),
        _ => String::from_utf8(written).ok()?,
    };
    // Long texts have expressions only.
    let is_long = matches!(kind, Kind::Text(None) | Kind::Blob(None));
    Some(if is_long { format!("({literal})") } else { literal })
}

fn value_length(value: &Value) -> u64 {
    match value {
        Value::Text(text) => text.chars().count() as u64,
        Value::Blob(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

fn names(draft: &Draft, places: &[usize]) -> String {
    let names = places.iter().filter_map(|place| draft.table.columns.get(*place)).map(|column| quoted(&column.name));
    names.collect::<Vec<_>>().join(", ")
}

fn indexes(draft: &Draft, limits: &Limits, told: &mut Told) -> Vec<String> {
    let (mut used, mut items) = (HashSet::from(["primary".to_owned()]), Vec::new());
    for index in &draft.table.indexes {
        let places = match draft.index_places(index) {
            Ok(places) => places,
            Err(why) => {
                let what = if index.unique { "unique index" } else { "index" };
                told.left_out.push(format!("{what} {} of table {}: {why}", index.name, draft.table.name));
                continue;
            }
        };
        let columns = || index.parts.iter().filter_map(|part| part.column.clone()).collect::<Vec<_>>().join("_");
        let wanted: String = if index.is_constraint { columns() } else { index.name.clone() };
        let wanted: String =
            wanted.trim_end().chars().filter(|letter| *letter <= '\u{FFFF}').take(INDEX_NAME).collect();
        let numbered = (1..).map(|number| if number == 1 { wanted.clone() } else { format!("{wanted}_{number}") });
        let name = numbered.into_iter().find(|name| used.insert(name.to_lowercase())).unwrap_or_default();
        let fixed: u32 = places.iter().filter_map(|at| draft.kinds.get(*at)).map(|kind| kind.key_bytes()).sum();
        let count = places.iter().filter(|at| draft.kinds.get(**at).is_some_and(|kind| kind.unit() > 0)).count() as u32;
        let each = limits.key.saturating_sub(fixed).checked_div(count).unwrap_or(0);
        let parts = places.iter().zip(&index.parts).filter_map(|(at, part)| {
            let (column, kind) = (draft.table.columns.get(*at)?, draft.kinds.get(*at)?);
            let most = each.checked_div(kind.unit()).unwrap_or(0);
            let prefix = match kind.length() {
                // Unique ones fit: their columns have got lengths.
                _ if index.unique || kind.unit() == 0 => String::new(),
                Some(length) if length <= most => String::new(),
                Some(_) => format!("({most})"),
                None => format!("({})", most.min(PREFIX)),
            };
            Some(format!("{}{prefix}{}", quoted(&column.name), if part.descending { " DESC" } else { "" }))
        });
        let parts = parts.collect::<Vec<_>>().join(", ");
        items.push(format!("{}KEY {} ({parts})", if index.unique { "UNIQUE " } else { "" }, quoted(&name)));
    }
    items
}

/// The text of a foreign key, or why the target cannot have it.
fn foreign_key(drafts: &[Draft], draft: &Draft, key: &ForeignKey) -> Result<String, &'static str> {
    let parent = drafts.iter().find(|other| other.table.name.eq_ignore_ascii_case(&key.parent));
    let parent = parent.ok_or("its table is not moved")?;
    let parents = if key.parents.is_empty() { &parent.table.primary } else { &key.parents };
    let from = draft.places(&key.columns).ok_or("it has a generated column")?;
    let to =
        parent.places(parents).filter(|to| to.len() == from.len()).ok_or("it refers to columns that are not there")?;
    let primary = parent.places(&parent.table.primary).into_iter();
    let unique =
        parent.table.indexes.iter().filter(|index| index.unique).filter_map(|index| parent.index_places(index).ok());
    if !primary.chain(unique).any(|places| places == to) {
        return Err("it refers to columns that are not a key in this order");
    }
    let is_same = |(from, to): (&usize, &usize)| {
        let kinds = (draft.kinds.get(*from), parent.kinds.get(*to));
        let collations = (draft.table.columns.get(*from), parent.table.columns.get(*to));
        let is_kind = matches!(kinds, (Some(from), Some(to)) if from.with_length(None) == to.with_length(None));
        let is_text = matches!(kinds.0, Some(Kind::Text(_)));
        is_kind && (!is_text || matches!(collations, (Some(from), Some(to)) if from.collation == to.collation))
    };
    if !from.iter().zip(&to).all(is_same) {
        return Err("its columns have other types than those that it refers to");
    }
    let mut text = format!(
        "FOREIGN KEY ({}) REFERENCES {} ({})",
        names(draft, &from),
        quoted(&parent.table.name),
        names(parent, &to)
    );
    for (when, action) in [("DELETE", &key.on_delete), ("UPDATE", &key.on_update)] {
        match action.as_str() {
            "NO ACTION" => {}
            "CASCADE" | "SET NULL" | "RESTRICT" => text += &format!(" ON {when} {action}"),
            _ => return Err("SET DEFAULT"),
        }
    }
    Ok(text)
}
