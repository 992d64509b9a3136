//! The definitions of both servers, compared at the cut-over: tables, views, sequences, routines, triggers and events.

use std::collections::{BTreeMap, BTreeSet};

use fullbore_core::units::first_of;
use fullbore_core::{Error, Result};

use super::servers::Servers;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::catalog::{Code, Object};
use crate::mysql_family::logical_set::describe::describe;
use crate::mysql_family::logical_set::listing::Listing;
use crate::mysql_family::logical_set::load::creation::without_ended;
use crate::mysql_family::logical_set::selection::Selection;
use crate::mysql_family::logical_set::server::{Facts, Login, each_row};
use crate::mysql_family::sql_text::find_outside;
use crate::mysql_family::system_zone::{SYSTEM, SystemZone};

/// How many names an error lists.
const NAMED_MAX: usize = 5;
const HINT: &str = "another session may have changed the target; or the account does not see all routines (SHOW_ROUTINE of MySQL, \
                    SHOW CREATE ROUTINE of MariaDB); or the target has an index that a FOREIGN KEY needs no more, or DEFAULT NULL where the \
                    source has no default: see the limits of migrate. Begin again with --replace, or compare only rows with --check rows";

/// An object: what it is, its database, and its name, in lower case.
type Name = (String, String, String);
/// The default collations of character sets.
type DefaultCollations = BTreeMap<String, String>;
/// The objects of a server, each with what is compared of it.
type Objects = BTreeMap<Name, String>;

/// How much of a definition both servers write in the same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Depth {
    /// Names, columns and indexes: another vendor.
    Names,
    /// Also the bodies of routines: another series.
    Bodies,
    /// All: the same series.
    Texts,
}

/// Compares the definitions of the migrated databases. Events are created last, so they are compared only then.
///
/// # Errors
/// It names objects that differ, or that only one server has.
pub fn demand_equal(servers: &Servers, selection: &Selection, events_in: Option<&SystemZone>) -> Result<()> {
    let depth = match (&servers.facts, &servers.target_facts) {
        (source, target) if source.dialect != target.dialect => Depth::Names,
        (source, target) if source.series != target.series => Depth::Bodies,
        _ => Depth::Texts,
    };
    // Events in the system time zone have a named one in a target with another one.
    let zone = match events_in {
        Some(zone) => zone.name_for(&mut servers.target.ask()?).unwrap_or_else(|_| SYSTEM.to_owned()),
        None => SYSTEM.to_owned(),
    };
    let read = |login: &Login, facts: &Facts, zone: &str| objects(login, facts, selection, depth, zone);
    let (source, schemas) = read(&servers.source, &servers.facts, &zone)?;
    let (mut target, _) = read(&servers.target, &servers.target_facts, SYSTEM)?;
    // The target may have databases of its own.
    target.retain(|(_, schema, _), _| schemas.contains(schema));
    let compared = |name: &&Name| events_in.is_some() || name.0 != "event";
    let shown = |(kind, schema, name): &Name| match name.is_empty() {
        true => format!("{kind} {schema}"),
        false => format!("{kind} {schema}.{name}"),
    };
    let names = |found: &mut dyn Iterator<Item = &Name>| found.filter(compared).map(shown).collect::<Vec<_>>();
    for (found, why) in [
        (names(&mut source.keys().filter(|name| !target.contains_key(*name))), "the target does not have it"),
        (names(&mut target.keys().filter(|name| !source.contains_key(*name))), "only the target has it"),
        (
            names(&mut source.iter().filter(|(name, text)| target.get(*name) != Some(text)).map(|(name, _)| name)),
            "its definition is not that of the source",
        ),
    ] {
        if !found.is_empty() {
            return Err(Error::refused(first_of(found, NAMED_MAX), why, HINT));
        }
    }
    Ok(())
}

/// The objects of a server, and its databases. Events in SYSTEM count as those of `zone`.
fn objects(
    login: &Login,
    facts: &Facts,
    selection: &Selection,
    depth: Depth,
    zone: &str,
) -> Result<(Objects, BTreeSet<String>)> {
    let mut connection = login.ask()?;
    let listing = Listing::ask(&mut connection, &mut None, facts.dialect, selection)?;
    let mut described = describe(&mut connection, facts, selection, &listing)?;
    described.tables(&mut connection, &listing)?;
    let all = listing.databases.iter().flat_map(|schema| described.objects(&listing, schema, 0));
    let in_zone = |object| match object {
        Object::Code(code) if code.time_zone == SYSTEM => Object::Code(Code { time_zone: zone.to_owned(), ..code }),
        other => other,
    };
    let asked = "SELECT character_set_name, default_collate_name FROM information_schema.character_sets";
    let pair = |row: Vec<Option<String>>| <[_; 2]>::try_from(row).ok().and_then(|[set, name]| Some((set?, name?)));
    let defaults = connection.query(asked)?.rows.into_iter().filter_map(pair).collect();
    let mut found: Objects = all.map(in_zone).filter_map(|object| compared(object, depth, &defaults)).collect();
    if depth < Depth::Texts {
        shapes(&mut connection, selection, &mut found)?;
    }
    Ok((found, listing.databases.iter().map(|name| name.to_lowercase()).collect()))
}

fn name(kind: &str, schema: &str, name: &str) -> Name {
    (kind.to_lowercase(), schema.to_lowercase(), name.to_lowercase())
}

/// An object, and what is compared of it.
fn compared(object: Object, depth: Depth, defaults: &DefaultCollations) -> Option<(Name, String)> {
    let at = |least: Depth, text: String| if depth >= least { text } else { String::new() };
    Some(match object {
        Object::Database { name: database, create, .. } => (name("database", &database, ""), at(Depth::Texts, create)),
        Object::Table(table) => {
            (name("table", &table.schema, &table.name), at(Depth::Texts, without_counter(&table.create, defaults)))
        }
        Object::Sequence { schema, name: of, create, next } => {
            (name("sequence", &schema, &of), at(Depth::Bodies, format!("{create} {next}")))
        }
        Object::Code(code) => {
            let least = if code.kind == "VIEW" { Depth::Texts } else { Depth::Bodies };
            let of_name = name(&code.kind, &code.schema, &code.name);
            // Events get the present collation of their database.
            let has_another = code.kind != "EVENT";
            let of_database =
                if has_another { at(Depth::Texts, code.database_collation.clone()) } else { String::new() };
            let code = if depth == Depth::Bodies { Code { create: body_of(&code), ..code } } else { code };
            (of_name, at(least, text_of(&code) + &of_database))
        }
        _ => return None,
    })
}

/// What is the same in all series of a vendor. MySQL 5.7 shows INT(11) where later ones show INT, and the beginning of a trigger as
/// the user wrote it.
fn body_of(code: &Code) -> String {
    const BODY: &str = "FOR EACH ROW";
    let create = without_widths(&code.create);
    let at = (code.kind == "TRIGGER").then(|| find_outside(&create.to_ascii_uppercase(), BODY)).flatten();
    let Some((head, body)) = at.and_then(|at| create.split_at_checked(at)) else { return create };
    let head = head.to_ascii_uppercase();
    let words = head.split(|letter: char| !letter.is_ascii_alphanumeric());
    let when = words.filter(|word| ["BEFORE", "AFTER", "INSERT", "UPDATE", "DELETE"].contains(word));
    let body = body.get(BODY.len()..).unwrap_or_default().trim();
    format!("{} {body}", when.collect::<Vec<_>>().join(" "))
}

/// A text without the widths of integers: INT(11) is INT.
fn without_widths(text: &str) -> String {
    let mut kept = String::new();
    for part in text.split_inclusive('(') {
        let rest = kept.strip_suffix('(').filter(|before| is_integer(before));
        match rest.map(|before| (before.len(), part.trim_start_matches(|c: char| c.is_ascii_digit()))) {
            Some((length, rest)) if rest.len() < part.len() && rest.starts_with(')') => {
                kept.truncate(length);
                kept.push_str(rest.get(1..).unwrap_or_default());
            }
            _ => kept.push_str(part),
        }
    }
    kept
}

/// Whether a text ends with the name of an integer type, or of YEAR.
fn is_integer(text: &str) -> bool {
    let at = text.rfind(|letter: char| !letter.is_ascii_alphabetic()).map_or(0, |at| at + 1);
    let word = text.get(at..).unwrap_or_default().to_ascii_lowercase();
    ["tinyint", "smallint", "mediumint", "int", "bigint", "year"].contains(&&word[..])
}

/// The parts of an SQL mode that a later series no longer has are not compared.
fn text_of(code: &Code) -> String {
    [&code.create, &without_ended(&code.sql_mode), &code.character_set, &code.collation, &code.time_zone, &code.table]
        .map(String::as_str)
        .join("\n")
}

/// A table without its next number, which rows that were rolled back move. Indexes come in any order.
fn without_counter(create: &str, defaults: &DefaultCollations) -> String {
    const COUNTER: &str = " AUTO_INCREMENT=";
    let mut text = create.to_owned();
    if let Some(at) = find_outside(&text, COUNTER) {
        let digits = text.bytes().skip(at + COUNTER.len()).take_while(u8::is_ascii_digit).count();
        text.replace_range(at..at + COUNTER.len() + digits, "");
    }
    let text = without_sets(&text, defaults);
    let is_key = |line: &&str| {
        ["KEY ", "UNIQUE ", "FULLTEXT ", "SPATIAL ", "CONSTRAINT "]
            .iter()
            .any(|word| line.trim_start().starts_with(word))
    };
    let lines = text.lines().map(|line| line.trim_end_matches(','));
    let (mut keys, others): (Vec<&str>, Vec<&str>) = lines.partition(is_key);
    keys.sort_unstable();
    [others, keys].concat().join("\n")
}

/// With collations in the place of character sets: MySQL shows some sets that were left out before, and some defaults.
fn without_sets(mut text: &str, defaults: &DefaultCollations) -> String {
    const SET: &str = " CHARACTER SET ";
    let mut kept = String::new();
    while let Some(at) = find_outside(text, SET) {
        let (before, after) = text.split_at(at);
        let named = after.get(SET.len()..).unwrap_or_default();
        let rest = named.trim_start_matches(|c: char| c.is_ascii_alphanumeric());
        let default = named.get(..named.len() - rest.len()).and_then(|set| defaults.get(set));
        kept.push_str(before);
        match default {
            _ if rest.starts_with(" COLLATE ") => text = rest,
            Some(collation) => {
                kept.extend([" COLLATE ", collation]);
                text = rest;
            }
            None => {
                kept.push_str(SET);
                text = named;
            }
        }
    }
    kept + text
}

/// Adds columns, indexes and foreign keys, as every vendor lists them. A generated column of MariaDB has no NOT NULL.
fn shapes(connection: &mut Connection, selection: &Selection, found: &mut Objects) -> Result<()> {
    for (list, schema, what) in [
        (
            "columns",
            "table_schema",
            "LPAD(ordinal_position, 5, '0'), column_name, IF(COALESCE(generation_expression, '') = '', is_nullable, '')",
        ),
        ("statistics", "table_schema", "index_name, seq_in_index, column_name, non_unique"),
        ("referential_constraints", "constraint_schema", "constraint_name, referenced_table_name"),
    ] {
        let within = selection.databases_in(schema);
        let asked = format!(
            "SELECT {schema}, table_name, {what} FROM information_schema.{list} WHERE {within} ORDER BY 1, 2, 3, 4"
        );
        connection.send_ahead(&[asked])?;
        each_row(connection, |row| {
            let text =
                |at: usize| String::from_utf8_lossy(row.get(at).copied().flatten().unwrap_or_default()).to_lowercase();
            if let Some(shape) = found.get_mut(&name("table", &text(0), &text(1))) {
                (2..row.len()).for_each(|at| shape.extend([list, " ", &text(at), "\n"]));
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routine_and_a_trigger_are_the_same_in_mysql_5_7_and_in_a_later_series() {
        let body =
            |kind: &str, create: &str| body_of(&Code { kind: kind.into(), create: create.into(), ..Code::default() });
        let old = "CREATE DEFINER=`a`@`b` trigger n.tr before insert on `n`.t for each row SET NEW.v = 'INT(3)'";
        let new = "CREATE DEFINER=`a`@`b` TRIGGER `tr` BEFORE INSERT ON `t` FOR EACH ROW SET NEW.v = 'INT(3)'";
        assert_eq!(body("TRIGGER", old), body("TRIGGER", new));
        assert_ne!(body("TRIGGER", old), body("TRIGGER", &new.replace("BEFORE", "AFTER")));
        assert_ne!(body("TRIGGER", old), body("TRIGGER", &new.replace("NEW.v", "NEW.w")));
        let old = "CREATE FUNCTION `f`(a varchar(5)) RETURNS int(11) unsigned\nRETURN 1";
        assert_eq!(body("FUNCTION", old), "CREATE FUNCTION `f`(a varchar(5)) RETURNS int unsigned\nRETURN 1");
        assert_eq!(without_widths("bigint(20), point(1), (int(x)), int(4"), "bigint, point(1), (int(x)), int(4");
    }

    #[test]
    fn the_next_number_and_the_order_of_indexes_do_not_matter_and_a_comment_does() {
        let table = |keys: &str, end: &str| {
            without_counter(
                &format!("CREATE TABLE `t` (\n  `id` int NOT NULL AUTO_INCREMENT,\n{keys}\n) ENGINE=InnoDB{end}"),
                &DefaultCollations::new(),
            )
        };
        let one = table("  PRIMARY KEY (`id`),\n  KEY `a` (`a`),\n  KEY `b` (`b`)", " AUTO_INCREMENT=17 COMMENT='x'");
        assert_eq!(one, table("  PRIMARY KEY (`id`),\n  KEY `b` (`b`),\n  KEY `a` (`a`)", " COMMENT='x'"));
        let set = "a varchar(9) CHARACTER SET latin1 COLLATE latin1_bin COMMENT ' CHARACTER SET a COLLATE b', b CHARACTER SET latin1";
        let shown = set.replacen(" CHARACTER SET latin1", "", 1);
        assert_eq!(without_sets(set, &DefaultCollations::new()), shown);
        let defaults = DefaultCollations::from([("latin1".to_owned(), "latin1_swedish_ci".to_owned())]);
        let shown = shown.replacen("b CHARACTER SET latin1", "b COLLATE latin1_swedish_ci", 1);
        assert_eq!(without_sets(set, &defaults), shown);
        assert_ne!(one, table("  PRIMARY KEY (`id`),\n  KEY `b` (`b`)", " COMMENT='x'"));
        assert_ne!(
            one,
            table("  PRIMARY KEY (`id`),\n  KEY `a` (`a`),\n  KEY `b` (`b`)", " COMMENT=' AUTO_INCREMENT=17'")
        );
    }
}
