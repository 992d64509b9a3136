//! The tables of the source on their way to statements of the target: types, lengths of keys, and what is not moved.

use fullbore_core::units::{first_of, show_bytes};
use fullbore_core::{Error, Result};

use super::facts::TableFacts;
use super::kinds::{Kind, Misfit};
use crate::sqlite::outgoing::schema::{Column, ForeignKey, Index, Table};

/// The most characters of a name in the target.
const NAME_MAX: usize = 64;
/// The most columns of a table of InnoDB.
const COLUMNS_MAX: usize = 1017;
/// The most bytes of a row besides its LONGTEXT and LONGBLOB: 65,535, less what the server needs.
const ROW_MAX: u64 = 65_000;
/// How many names a note lists.
const NAMED_MAX: usize = 5;
/// Characters of a text in a key, if its longest value has not more.
const KEY_LENGTH: u32 = 255;

/// What the target is like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a key.
    pub key: u32,
    /// The most bytes of a value.
    pub value: u64,
    /// The collation that compares as BINARY does.
    pub binary: String,
    /// The nearest one to NOCASE.
    pub nocase: String,
    /// That of RTRIM.
    pub rtrim: String,
    /// A default may be an expression: MySQL knows that since 8.0.13.
    pub expressions: bool,
    /// CHECKs are checked: MySQL before 8.0.16 reads them, and ignores them.
    pub checks: bool,
}

/// What a user is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Told {
    /// What is not moved, one by one.
    pub left_out: Vec<String>,
    /// What is another in the target.
    pub notes: Vec<String>,
}

/// A table and its types.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Draft {
    /// Its definition.
    pub table: Table,
    /// Its values.
    pub facts: TableFacts,
    /// The types of its columns in the target.
    pub kinds: Vec<Kind>,
}

impl Draft {
    /// Chooses types.
    ///
    /// # Errors
    /// A value or a name that the target does not hold.
    pub fn of(table: Table, facts: TableFacts, limits: &Limits, told: &mut Told) -> Result<Self> {
        let mut draft = Self { table, facts, kinds: Vec::new() };
        draft.demand_names_and_columns()?;
        for (column, facts) in draft.table.columns.iter().zip(&draft.facts.columns) {
            let kind = Kind::choose(&column.declared, facts).map_err(|misfit| draft.misfit(column, &misfit))?;
            if facts.largest.0 >= limits.value {
                let what = format!(
                    "a value of {}, and max_allowed_packet of the target is {}",
                    show_bytes(facts.largest.0),
                    show_bytes(limits.value)
                );
                return Err(draft
                    .misfit(column, &Misfit { row: facts.largest.1, what })
                    .with_hint("raise max_allowed_packet on the target"));
            }
            let is_key = draft.table.primary.iter().any(|name| name.eq_ignore_ascii_case(&column.name));
            if let Some(row) = facts.nulls.filter(|_| is_key) {
                return Err(draft.misfit(column, &Misfit { row, what: "NULL in a primary key".into() }));
            }
            if facts.has_t && matches!(kind, Kind::Moment(_)) {
                told.notes.push(format!("the T in times of {} becomes a blank", draft.shown(column)));
            }
            draft.kinds.push(kind);
        }
        let keys = draft.keys();
        draft.fit_keys(&keys, limits, told)?;
        draft.fit_row(&keys, told);
        Ok(draft)
    }

    /// For messages: `orders.total`.
    pub fn shown(&self, column: &Column) -> String {
        format!("{}.{}", self.table.name, column.name)
    }

    fn misfit(&self, column: &Column, misfit: &Misfit) -> Error {
        let declared = if column.declared.is_empty() { "without a type" } else { &column.declared };
        let why = format!("its column {} ({declared}) has {} in {}", column.name, misfit.what, misfit.row);
        let hint = "change this value in the source (UPDATE), then migrate again; nothing is in the target";
        Error::refused(format!("table {}", self.table.name), why, hint)
    }

    fn demand_names_and_columns(&self) -> Result<()> {
        let count = self.table.columns.len();
        if count > COLUMNS_MAX {
            let why = format!("it has {count} columns, and a table of InnoDB has at most {COLUMNS_MAX}");
            let hint = "make two tables of it in the source, and migrate again";
            return Err(Error::refused(format!("table {}", self.table.name), why, hint));
        }
        let columns = self.table.columns.iter().map(|column| (&column.name, "column"));
        for (name, what) in columns.chain([(&self.table.name, "table")]) {
            let why = match () {
                () if name.chars().count() > NAME_MAX => "its name has more than 64 characters",
                () if name.is_empty() || name.ends_with(' ') => "its name is empty, or ends with a blank",
                () if name.chars().any(|letter| letter == '\0' || letter > '\u{FFFF}') => {
                    "its name has a character that names of the target cannot have"
                }
                () => continue,
            };
            let thing =
                if what == "table" { format!("table {name}") } else { format!("column {}.{name}", self.table.name) };
            return Err(Error::refused(thing, why, "rename it in the source (ALTER TABLE … RENAME)"));
        }
        Ok(())
    }

    /// The places of columns; none if one is not moved.
    pub fn places(&self, names: &[String]) -> Option<Vec<usize>> {
        names.iter().map(|name| self.table.place(name)).collect()
    }

    /// The columns of an index, if the target can have it. Otherwise the reason.
    ///
    /// # Errors
    /// The reason.
    pub fn index_places(&self, index: &Index) -> Result<Vec<usize>, &'static str> {
        if index.partial {
            return Err("it has a WHERE clause");
        }
        let place = |part: &crate::sqlite::outgoing::schema::Part| {
            let name = part.column.as_ref().ok_or("it has an expression")?;
            let place = self.table.place(name).ok_or("it has a generated column")?;
            let is_same = self.table.columns.get(place).is_some_and(|column| column.collation == part.collation);
            if is_same { Ok(place) } else { Err("it has another collation than its column") }
        };
        let places: Vec<usize> = index.parts.iter().map(place).collect::<Result<_, _>>()?;
        if places.len() > 16 { Err("it has more than 16 columns") } else { Ok(places) }
    }

    /// The keys that need whole columns: primary key, unique ones, and foreign ones.
    fn keys(&self) -> Vec<Vec<usize>> {
        let unique =
            self.table.indexes.iter().filter(|index| index.unique).filter_map(|index| self.index_places(index).ok());
        let foreign = self.table.foreign_keys.iter().filter_map(|key: &ForeignKey| self.places(&key.columns));
        let primary = self.places(&self.table.primary).into_iter();
        primary.chain(unique).chain(foreign).filter(|key| !key.is_empty()).collect()
    }

    /// Gives the texts and blobs of keys a length.
    fn fit_keys(&mut self, keys: &[Vec<usize>], limits: &Limits, told: &mut Told) -> Result<()> {
        let before = self.kinds.clone();
        for key in keys {
            let of = |place: &usize| Some((*before.get(*place)?, self.facts.columns.get(*place)?.longest));
            let parts: Vec<(Kind, u64)> = key.iter().filter_map(of).collect();
            let fixed: u64 = parts.iter().map(|(kind, _)| u64::from(kind.key_bytes())).sum();
            let needed: u64 = parts.iter().map(|(kind, longest)| u64::from(kind.unit()) * longest).sum();
            let count = parts.iter().filter(|(kind, _)| kind.unit() > 0).count() as u64;
            let Some(spare) = u64::from(limits.key).checked_sub(fixed + needed) else {
                let names: Vec<&str> =
                    key.iter().filter_map(|at| Some(self.table.columns.get(*at)?.name.as_str())).collect();
                let why = format!(
                    "the longest values of its key ({}) may need {} bytes, and a key of the target holds {}",
                    names.join(", "),
                    fixed + needed,
                    limits.key
                );
                let hint = "shorten these values in the source, or remove this key";
                return Err(Error::refused(format!("table {}", self.table.name), why, hint));
            };
            for (place, (kind, longest)) in key.iter().zip(&parts).filter(|(_, (kind, _))| kind.unit() > 0) {
                let wanted = kind.length().map_or_else(|| (*longest).max(KEY_LENGTH.into()), u64::from);
                let most = (longest + spare / count / u64::from(kind.unit())).min(wanted).max(1) as u32;
                if let Some(now) = self.kinds.get_mut(*place) {
                    // Of another key.
                    let most = if *now == *kind { most } else { most.min(now.length().unwrap_or(most)) };
                    *now = kind.with_length(Some(most));
                }
            }
        }
        for ((column, kind), before) in self.table.columns.iter().zip(&self.kinds).zip(before) {
            if *kind != before {
                told.notes.push(format!("{} is part of a key: it becomes {}", self.shown(column), kind.sql()));
            }
        }
        Ok(())
    }

    /// A row holds 64 KiB besides its long texts: the longest columns outside of keys become such.
    fn fit_row(&mut self, keys: &[Vec<usize>], told: &mut Told) {
        let bytes = |kind: &Kind| kind.length().map_or(12, |length| u64::from(length) * u64::from(kind.unit()) + 2);
        let mut changed = Vec::new();
        while self.kinds.iter().map(bytes).sum::<u64>() > ROW_MAX {
            let is_free =
                |(place, kind): &(usize, &Kind)| kind.length().is_some() && !keys.iter().any(|key| key.contains(place));
            let longest = self.kinds.iter().enumerate().filter(is_free).max_by_key(|(_, kind)| bytes(kind));
            let Some(place) = longest.map(|(place, _)| place) else { break };
            if let (Some(kind), Some(column)) = (self.kinds.get_mut(place), self.table.columns.get(place)) {
                *kind = kind.with_length(None);
                changed.push(column.name.as_str());
            }
        }
        if !changed.is_empty() {
            let named = first_of(changed, NAMED_MAX);
            let name = &self.table.name;
            told.notes.push(format!(
                "table {name}: its row would be longer than 64 KiB, so these get a type without a length: {named}"
            ));
        }
    }
}
