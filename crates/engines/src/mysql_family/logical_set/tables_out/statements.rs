//! A logical set as one text of SQL, which the client of a server runs: definitions, rows as INSERT, and everything with a
//! body.

use fullbore_core::{Error, Result};

use super::LogicalTables;
use crate::engine::{Cell, Statements, WriteText};
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::catalog::{Code, Object, TableObject};
use crate::mysql_family::logical_set::load::creation::script;
use crate::mysql_family::logical_set::load::{history, set_sequence, with_collations};
use crate::mysql_family::logical_set::{files, insert};

impl LogicalTables {
    /// The tables with their places.
    fn placed(&self) -> impl Iterator<Item = (usize, &TableObject)> {
        let tables = self.objects.iter().filter_map(|object| match object {
            Object::Table(table) => Some(table),
            _ => None,
        });
        tables.enumerate()
    }

    /// The chosen tables.
    fn chosen(&self, places: Option<&[usize]>) -> Vec<&TableObject> {
        let is_chosen = |place: &usize| places.is_none_or(|places| places.contains(place));
        self.placed().filter(|(place, _)| is_chosen(place)).map(|(_, table)| table).collect()
    }
}

impl Statements for LogicalTables {
    fn before(&self, tables: Option<&[usize]>, write: WriteText<'_>) -> Result<()> {
        write(files::head(&self.position).as_bytes())?;
        let chosen = self.chosen(tables);
        for object in &self.objects {
            if let Object::Database { name, create, .. } = object
                && (tables.is_none() || chosen.iter().any(|table| table.schema == *name))
            {
                write(format!("{};\n", with_collations(create)).as_bytes())?;
            }
        }
        for object in self.objects.iter().filter(|_| tables.is_none()) {
            if let Object::Sequence { schema, name, create, next } = object {
                let set = set_sequence(&quoted(name), create, next).unwrap_or_default();
                write(format!("USE {};\n{create};\n{set};\n", quoted(schema)).as_bytes())?;
            }
        }
        let mut schema = None;
        for table in &chosen {
            if schema.replace(&table.schema) != Some(&table.schema) {
                write(format!("USE {};\n", quoted(&table.schema)).as_bytes())?;
            }
            write(format!("{};\n", with_collations(&table.create)).as_bytes())?;
        }
        if chosen.iter().any(|table| table.row_end().is_some()) {
            write(format!("{};\n", history::INSERT).as_bytes())?;
        }
        write(b"SET NAMES binary;\n")
    }

    fn rows(
        &self,
        table: usize,
        columns: &[usize],
        takes: &mut dyn FnMut(&[Cell]) -> Result<bool>,
        write: WriteText<'_>,
    ) -> Result<()> {
        let (_, object) = self.placed().nth(table).ok_or(Error::Halted)?;
        if !object.has_rows() {
            return Ok(());
        }
        let forms = object.forms()?;
        let head = insert::head(&object.quoted(), &forms);
        let mut statement: Vec<u8> = Vec::new();
        self.raw_rows(table, columns, &mut |row, cells| {
            if !takes(cells)? {
                return Ok(());
            }
            match statement.is_empty() {
                true => statement.extend_from_slice(head.as_bytes()),
                false => statement.extend_from_slice(b",\n"),
            }
            insert::values(&forms, row, &mut statement).map_err(|what| {
                let why = format!("the set has {what} for it");
                Error::incomplete(format!("table {}", object.shown()), why, "use another set")
            })?;
            if statement.len() >= insert::INSERT {
                statement.extend_from_slice(b";\n");
                write(&statement)?;
                statement.clear();
            }
            Ok(())
        })?;
        if statement.is_empty() {
            return Ok(());
        }
        statement.extend_from_slice(b";\n");
        write(&statement)
    }

    fn behind(&self, tables: Option<&[usize]>, write: WriteText<'_>) -> Result<()> {
        let chosen = self.chosen(tables);
        let is_chosen = |code: &&Code| {
            let of_code = |table: &&TableObject| table.schema == code.schema && table.name == code.table;
            tables.is_none() || code.kind == "TRIGGER" && chosen.iter().any(of_code)
        };
        let all = self.objects.iter().filter_map(|object| match object {
            Object::Code(code) => Some(code),
            _ => None,
        });
        let head = files::head(&self.position);
        let session = files::session(&head);
        for code in in_order(all.filter(is_chosen).collect()) {
            write(session.as_bytes())?;
            write(format!("USE {};\n", quoted(&code.schema)).as_bytes())?;
            write(&script(code))?;
        }
        Ok(())
    }
}

/// Routines, then views behind those that they name, then triggers and events.
fn in_order(code: Vec<&Code>) -> Vec<&Code> {
    let rank = |code: &Code| match &code.kind[..] {
        "VIEW" => 1,
        "TRIGGER" => 2,
        "EVENT" => 3,
        _ => 0,
    };
    let (mut views, mut ordered): (Vec<&Code>, Vec<&Code>) = code.into_iter().partition(|code| rank(code) == 1);
    ordered.sort_by_key(|code| rank(code));
    let behind = ordered.split_off(ordered.partition_point(|code| rank(code) == 0));
    while !views.is_empty() {
        let names =
            |view: &Code, other: &Code| !std::ptr::eq(view, other) && view.create.contains(&quoted(&other.name)[..]);
        let free: Vec<bool> = views.iter().map(|view| !views.iter().any(|other| names(view, other))).collect();
        // Views that name each other keep their order: one of these names is not that of a view.
        let is_stuck = !free.contains(&true);
        let mut free = free.into_iter();
        views.retain(|view| {
            let goes = is_stuck || free.next() == Some(true);
            if goes {
                ordered.push(view);
            }
            !goes
        });
    }
    ordered.extend(behind);
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_comes_behind_the_views_that_it_names_and_triggers_come_last() {
        let code = |kind: &str, name: &str, create: &str| Code {
            kind: kind.into(),
            name: name.into(),
            create: create.into(),
            ..Code::default()
        };
        let all = [
            code("TRIGGER", "t", ""),
            code("VIEW", "a", "CREATE VIEW `a` AS SELECT `b`.`x` FROM `s`.`b`"),
            code("VIEW", "b", "CREATE VIEW `b` AS SELECT `c`.`x` FROM `s`.`c`"),
            code("VIEW", "c", "CREATE VIEW `c` AS SELECT 1 AS `x`"),
            code("FUNCTION", "f", ""),
        ];
        let names =
            |all: &[Code]| in_order(all.iter().collect()).iter().map(|code| code.name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&all), ["f", "c", "b", "a", "t"]);
        let round = [code("VIEW", "a", "`a` `b`"), code("VIEW", "b", "`b` `a`")];
        assert_eq!(names(&round), ["a", "b"]);
    }
}
