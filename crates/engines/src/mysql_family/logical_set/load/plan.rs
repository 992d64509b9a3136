//! What is loaded: the objects of the set that were chosen, under their names in the target.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use fullbore_core::{Error, Result};

use super::ddl::{CreateTable, Split, in_own_database, renamed};
use super::history::Dropped;
use crate::engine::LoadOrder;
use crate::mysql_family::logical::columns::Column;
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::catalog::{self, Account, Code, Object, StoredColumn, TableObject};
use crate::mysql_family::logical_set::selection::{NOTES, OWN};
use crate::mysql_family::logical_set::set::Detail;
use crate::mysql_family::logical_set::shapes::Shared;
use crate::mysql_family::single_table::TableName;
use crate::mysql_family::sql_text::find_outside;

/// A database to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedDatabase {
    /// Its name in the target.
    pub name: String,
    /// What follows the name in CREATE DATABASE.
    pub options: String,
    /// Whether all of it is stored in the set, and loaded: `--replace` drops the whole database only then.
    pub whole: bool,
}

impl PlannedDatabase {
    /// The word behind `word` in its options.
    fn option(&self, word: &str) -> Option<&str> {
        self.options.split_once(word)?.1.split_whitespace().next()
    }

    /// Its character set, if the options name it.
    pub fn character_set(&self) -> Option<&str> {
        self.option(" CHARACTER SET ")
    }

    /// Its collation, if the options name it.
    pub fn collation(&self) -> Option<&str> {
        self.option(" COLLATE ")
    }
}

/// A table to create and to fill.
#[derive(Debug, Clone)]
pub struct PlannedTable {
    /// As the set has it, without its statement.
    pub object: TableObject,
    /// Its database in the target.
    pub schema: String,
    /// Its statements.
    pub split: Split,
    /// How its columns are written.
    pub columns: Arc<[Column]>,
    /// Whether its rows can be part of a transaction in the target, beside others.
    pub transactional: bool,
    /// It was emptied, and all of its rows are loaded again.
    pub again: bool,
    /// Its history stays away: the target does not take it.
    pub dropped: Option<Dropped>,
}

impl PlannedTable {
    /// For statements in the target.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.object.name))
    }

    /// For messages.
    pub fn shown(&self) -> String {
        format!("{}.{}", self.schema, self.object.name)
    }

    /// Whether MariaDB locks what is between its keys (WITHOUT OVERLAPS): two transactions that load it wait for each other.
    pub fn takes_one_at_a_time(&self) -> bool {
        let texts = self.split.indexes.iter().chain([&self.split.create]);
        texts.into_iter().any(|text| find_outside(text, " WITHOUT OVERLAPS").is_some())
    }
}

/// A sequence of MariaDB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedSequence {
    /// Its database in the target.
    pub schema: String,
    /// Its name.
    pub name: String,
    /// What follows the name in CREATE SEQUENCE.
    pub options: String,
    /// Its next value.
    pub next: String,
}

impl PlannedSequence {
    /// For statements in the target.
    pub fn quoted(&self) -> String {
        format!("{}.{}", quoted(&self.schema), quoted(&self.name))
    }
}

/// Everything to load.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    /// The databases.
    pub databases: Vec<PlannedDatabase>,
    /// The tables.
    pub tables: Vec<PlannedTable>,
    /// The place of a table, by its names in the set.
    pub places: HashMap<(String, String), usize>,
    /// The sequences.
    pub sequences: Vec<PlannedSequence>,
    /// Views, routines, triggers and events, with their database in the target.
    pub code: Vec<Code>,
    /// The accounts of the set.
    pub accounts: Vec<Account>,
    /// What the user should know.
    pub warnings: Vec<String>,
}

/// How tables are created, and what many of them have in common.
#[derive(Default)]
struct LoadedShapes {
    /// The tables with chunks of their own.
    large: HashSet<(String, String)>,
    other_vendor: bool,
    columns: Shared<Column>,
    stored: Shared<StoredColumn>,
    keys: Shared<String>,
}

impl LoadedShapes {
    /// The statements of a table, and the table without them.
    fn planned(&mut self, object: TableObject) -> (Split, TableObject) {
        let key = (object.schema.clone(), object.name.clone());
        let is_large = |name: &(String, String)| self.large.contains(name);
        let split = split(&object, !self.other_vendor && is_large(&key), &is_large);
        let (columns, primary) = (self.stored.one(object.columns), self.keys.one(object.primary));
        (split, TableObject { columns, primary, create: String::new(), ..object })
    }
}

/// `--table` and `--map`.
struct Chosen {
    databases: Vec<String>,
    tables: Vec<TableName>,
    maps: BTreeMap<String, String>,
}

impl Chosen {
    fn of(order: &LoadOrder) -> Result<Self> {
        let (mut databases, mut tables) = (Vec::new(), Vec::new());
        for name in &order.tables {
            match name.strip_suffix(".*") {
                Some(database) => databases.push(database.to_owned()),
                None => tables.push(TableName::parse(name)?),
            }
        }
        demand_maps(&order.maps)?;
        Ok(Self { databases, tables, maps: order.maps.iter().cloned().collect() })
    }

    fn whole(&self, schema: &str) -> bool {
        self.databases.is_empty() && self.tables.is_empty() || self.databases.iter().any(|name| name == schema)
    }

    fn takes(&self, schema: &str, table: &str) -> bool {
        self.whole(schema) || self.tables.iter().any(|it| it.schema == schema && it.table == table)
    }

    fn takes_any(&self, schema: &str) -> bool {
        self.whole(schema) || self.tables.iter().any(|it| it.schema == schema)
    }

    fn name<'n>(&'n self, schema: &'n str) -> &'n str {
        self.maps.get(schema).map_or(schema, String::as_str)
    }
}

/// Whether a name is of the server itself, or of the notes of a load. No load may drop or fill such a database.
fn is_reserved(name: &str) -> bool {
    OWN.iter().chain([&NOTES]).any(|reserved| reserved.eq_ignore_ascii_case(name))
}

/// Refuses maps that would destroy a database, or join two into one.
fn demand_maps(maps: &[(String, String)]) -> Result<()> {
    for (place, (from, to)) in maps.iter().enumerate() {
        let others = || maps.iter().enumerate().filter(|(other, _)| *other != place).map(|(_, map)| map);
        let why = match () {
            () if is_reserved(to) => format!("`{to}` is a database of the server itself, or the notes of a load"),
            () if others().any(|(other, _)| other == from) => format!("`{from}` gets two names"),
            () if others().any(|(_, other)| other == to) => format!("two databases get the name `{to}`"),
            // Names are replaced one map after another.
            () if others().any(|(other, _)| other == to) => format!("`{to}` itself gets another name"),
            () => continue,
        };
        return Err(Error::usage(format!("--map {from}={to}"), why, "choose another name"));
    }
    Ok(())
}

/// What follows the quoted name in a CREATE statement.
fn after_name<'t>(create: &'t str, name: &str) -> &'t str {
    create.split_once(&quoted(name)).map_or("", |(_, rest)| rest)
}

impl Plan {
    /// From the order, whose catalogs are taken: the texts of 50,000 tables are long. `other_vendor`: nothing is made after the
    /// rows that can be made before, so that the target refuses it before the first row.
    ///
    /// # Errors
    /// A catalog cannot be read, or something that was asked for is not in the set.
    pub fn of(order: &mut LoadOrder, other_vendor: bool) -> Result<Self> {
        let chosen = Chosen::of(order)?;
        let mut plan = Self::default();
        let mut known = Vec::new();
        let mut shapes = LoadedShapes { large: large(order), other_vendor, ..LoadedShapes::default() };
        for (name, text) in std::mem::take(&mut order.catalogs) {
            for object in catalog::objects(&name, &text) {
                plan.add(object?, &chosen, &mut known, &mut shapes)?;
            }
        }
        plan.tables.shrink_to_fit();
        plan.demand(&chosen, &known)?;
        plan.demand_databases()?;
        let mapped: Vec<_> = chosen.maps.iter().filter(|(from, _)| known.contains(from)).collect();
        mapped.into_iter().for_each(|(from, to)| plan.rename(from, to));
        let key = |table: &PlannedTable| (table.object.schema.clone(), table.object.name.clone());
        plan.places = plan.tables.iter().enumerate().map(|(place, table)| (key(table), place)).collect();
        Ok(plan)
    }

    fn add(
        &mut self,
        object: Object,
        chosen: &Chosen,
        known: &mut Vec<String>,
        shapes: &mut LoadedShapes,
    ) -> Result<()> {
        match object {
            Object::Database { name, create, whole } => {
                if chosen.takes_any(&name) {
                    let options = after_name(&create, &name).to_owned();
                    let whole = whole && chosen.whole(&name);
                    self.databases.push(PlannedDatabase { name: chosen.name(&name).to_owned(), options, whole });
                }
                known.push(name);
            }
            Object::Sequence { schema, name, create, next } => {
                if chosen.takes(&schema, &name) {
                    let (schema, options) = (chosen.name(&schema).to_owned(), after_name(&create, &name).to_owned());
                    self.sequences.push(PlannedSequence { schema, name, options, next });
                }
            }
            Object::Table(object) => {
                if chosen.takes(&object.schema, &object.name) {
                    let columns = shapes.columns.one(object.forms()?);
                    let (split, object) = shapes.planned(object);
                    let schema = chosen.name(&object.schema).to_owned();
                    let (transactional, again, dropped) = (true, false, None);
                    self.tables.push(PlannedTable { object, schema, split, columns, transactional, again, dropped });
                }
            }
            Object::Account(account) => self.accounts.push(account),
            Object::Code(mut code) => {
                if code.kind == "TRIGGER" && chosen.name(&code.schema) != code.schema {
                    code.create = in_own_database(&code.create).into_owned();
                }
                let taken = match &code.kind[..] {
                    "VIEW" => chosen.takes(&code.schema, &code.name),
                    "TRIGGER" => chosen.takes(&code.schema, &code.table),
                    _ => chosen.whole(&code.schema),
                };
                if taken {
                    self.code.push(code);
                } else if code.kind == "TRIGGER" && code.table.is_empty() && chosen.takes_any(&code.schema) {
                    let shown = code.shown();
                    self.warnings.push(format!("{shown} is not loaded: the set does not say which table it is of"));
                }
            }
        }
        Ok(())
    }

    /// Whether it has an object of this name in a database of the target. A trigger goes with its table.
    pub fn holds(&self, schema: &str, name: &str) -> bool {
        let is = |its_schema: &str, its_name: &str| its_schema == schema && its_name.eq_ignore_ascii_case(name);
        self.tables.iter().any(|table| is(&table.schema, &table.object.name))
            || self.sequences.iter().any(|sequence| is(&sequence.schema, &sequence.name))
            || self.code.iter().any(|code| code.kind != "TRIGGER" && is(&code.schema, &code.name))
    }

    fn demand(&self, chosen: &Chosen, known: &[String]) -> Result<()> {
        let has = |wanted: &TableName| {
            self.tables.iter().any(|table| table.object.schema == wanted.schema && table.object.name == wanted.table)
                || self.code.iter().any(|code| code.schema == wanted.schema && code.name == wanted.table)
        };
        let missing = chosen.tables.iter().find(|table| !has(table)).map(|table| format!("--table {table}"));
        let databases = chosen.databases.iter().map(|name| (format!("--table {name}.*"), name));
        let mapped = chosen.maps.keys().map(|name| (format!("--map {name}"), name));
        let missing = missing
            .or_else(|| databases.chain(mapped).find(|(_, name)| !known.contains(name)).map(|(option, _)| option));
        match missing {
            None => Ok(()),
            Some(option) => {
                Err(Error::usage(option, "the set does not hold it", "`fullbore inspect files` shows its names"))
            }
        }
    }

    /// Each database of the target is one of the set, and none is the server's own.
    fn demand_databases(&self) -> Result<()> {
        let names = || self.databases.iter().map(|database| &database.name);
        if let Some(name) = names().find(|name| is_reserved(name)) {
            let why = format!("it has a database `{name}`, which is the server's own or the notes of a load");
            return Err(Error::usage("media set", why, "give it another name with --map OLD=NEW"));
        }
        let mut seen = HashSet::new();
        match names().find(|name| !seen.insert(*name)) {
            None => Ok(()),
            Some(name) => {
                let why = format!("two databases of the set would have the name `{name}`");
                Err(Error::usage("--map", why, "choose another name"))
            }
        }
    }

    /// Gives a database another name in views and foreign keys. Bodies of routines are not understood.
    fn rename(&mut self, from: &str, to: &str) {
        let (old, new) = (quoted(from), quoted(to));
        for table in &mut self.tables {
            table.split.foreign_keys = table.split.foreign_keys.take().map(|text| renamed(&text, &old, &new));
            table.split.create = renamed(&table.split.create, &old, &new);
        }
        for code in &mut self.code {
            let mentions = code.create.contains(from);
            if code.kind == "VIEW" {
                code.create = renamed(&code.create, &old, &new);
            } else if mentions && code.schema == from {
                self.warnings.push(format!("{} names the database `{from}` and stays as it is", code.shown()));
            }
            if code.schema == from {
                code.schema = to.to_owned();
            }
        }
    }
}

/// The tables with chunks of their own.
fn large(order: &LoadOrder) -> HashSet<(String, String)> {
    let chunk = |detail| match detail {
        Detail::Chunk { schema, table, .. } => Some((schema, table)),
        _ => None,
    };
    let known = order.large.iter().cloned();
    order.streams.iter().filter_map(Detail::of).filter_map(chunk).chain(known).collect()
}

/// How a table is created. Foreign keys to large tables come after the rows, because their indexes do.
fn split(object: &TableObject, large: bool, is_large: &dyn Fn(&(String, String)) -> bool) -> Split {
    let Some(parsed) = CreateTable::parse(&object.create) else {
        let create = after_name(&object.create, &object.name).to_owned();
        return Split { create, ..Split::default() };
    };
    if large && object.engine.eq_ignore_ascii_case("InnoDB") {
        return parsed.split();
    }
    let refers = |name: &String| {
        // A name with its database is compared as text: if it is not understood, the key comes later.
        let plain = name.strip_prefix('`').and_then(|rest| rest.strip_suffix('`')).filter(|rest| !rest.contains('`'));
        plain.is_none_or(|name| is_large(&(object.schema.clone(), name.to_owned())))
    };
    parsed.whole(parsed.referred().iter().any(refers))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// The database `shop` as a whole, with tables `a` and `log`, a trigger on each, and one of an earlier version; and
    /// the database `b`.
    fn order(tables: &[&str], maps: &[(&str, &str)]) -> LoadOrder {
        let database = |name: &str| Object::Database {
            name: name.into(),
            create: format!("CREATE DATABASE `{name}` /* x */"),
            whole: true,
        };
        let table = |name: &str| {
            Object::Table(TableObject {
                schema: "shop".into(),
                name: name.into(),
                create: format!("CREATE TABLE `{name}` (\n  `i` int\n) ENGINE=InnoDB"),
                ..TableObject::default()
            })
        };
        let trigger = |name: &str, table: &str| {
            let (schema, kind) = ("shop".into(), "TRIGGER".into());
            Object::Code(catalog::Code { schema, name: name.into(), kind, table: table.into(), ..Default::default() })
        };
        let triggers = [trigger("of_a", "a"), trigger("of_log", "log"), trigger("early", "")];
        let objects = [[database("shop"), table("a"), table("log"), database("b")].as_slice(), &triggers].concat();
        LoadOrder {
            engine: "mysql".into(),
            catalogs: vec![("shop/catalog.jsonl".into(), catalog::written(&objects))],
            tables: tables.iter().map(|&name| name.to_owned()).collect(),
            maps: maps.iter().map(|&(from, to)| (from.to_owned(), to.to_owned())).collect(),
            ..LoadOrder::default()
        }
    }

    #[test]
    fn a_map_never_leads_to_a_database_of_the_server_or_joins_two() {
        let plan = |maps: &[(&str, &str)]| Plan::of(&mut order(&[], maps), false);
        assert_eq!(plan(&[("shop", "new")]).unwrap().databases[0].name, "new");
        for maps in [
            &[("shop", "fullbore_load")][..],
            &[("shop", "MySQL")],
            &[("shop", "sys")],
            &[("shop", "x"), ("b", "x")],
            &[("shop", "x"), ("shop", "y")],
            &[("shop", "b"), ("b", "c")],
            &[("shop", "b")],
        ] {
            assert_eq!(plan(maps).unwrap_err().exit_kind().exit_code(), 2, "{maps:?}");
        }
    }

    #[test]
    fn a_database_is_whole_only_if_everything_is_loaded() {
        let whole = |tables: &[&str]| Plan::of(&mut order(tables, &[]), false).unwrap().databases[0].whole;
        assert!(whole(&[]) && whole(&["shop.*"]) && !whole(&["shop.a"]));
    }

    #[test]
    fn the_triggers_of_a_chosen_table_come_with_it_and_others_are_named() {
        let plan = Plan::of(&mut order(&["shop.a"], &[]), false).unwrap();
        assert_eq!(plan.code.iter().map(|code| &code.name[..]).collect::<Vec<_>>(), ["of_a"]);
        assert!(plan.warnings.len() == 1 && plan.warnings[0].contains("shop.early"), "{:?}", plan.warnings);
        assert_eq!(Plan::of(&mut order(&[], &[]), false).unwrap().code.len(), 3);
    }
}
