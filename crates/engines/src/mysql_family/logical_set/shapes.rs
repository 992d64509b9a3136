//! Lists that many tables have in common: 50,000 tables of one program have few shapes.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use super::catalog::StoredColumn;
use super::listing::{KeyColumn, Listed, Versioned};
use crate::mysql_family::logical::columns::{ROW_END, ROW_START};

/// Each list is in memory once.
pub struct Shared<T>(HashSet<Arc<[T]>>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: Eq + Hash> Shared<T> {
    /// The list that is equal to this one.
    pub fn one(&mut self, list: impl Borrow<[T]> + Into<Arc<[T]>>) -> Arc<[T]> {
        if let Some(known) = self.0.get(list.borrow()) {
            return known.clone();
        }
        let new: Arc<[T]> = list.into();
        self.0.insert(new.clone());
        new
    }
}

/// The columns of tables while they are listed.
#[derive(Default)]
pub struct Shapes {
    place: Option<usize>,
    /// The columns of the table that is listed now.
    pub columns: Vec<StoredColumn>,
    /// Those of its key, in the order of the columns.
    pub key: Vec<KeyColumn>,
    all_columns: Shared<StoredColumn>,
    all_keys: Shared<KeyColumn>,
}

impl Shapes {
    /// A column of the table at `place` comes. The columns of a table come together, but two names that differ only in
    /// case are one name for the order of the server.
    pub fn begin(&mut self, place: usize, tables: &mut [Listed]) {
        if self.place == Some(place) {
            return;
        }
        self.put(tables);
        self.place = Some(place);
        if let Some(table) = tables.get(place) {
            self.columns.extend_from_slice(&table.object.columns);
            self.key.extend_from_slice(&table.key);
        }
    }

    fn put(&mut self, tables: &mut [Listed]) {
        let (columns, key) = (std::mem::take(&mut self.columns), std::mem::take(&mut self.key));
        if let Some(table) = self.place.and_then(|place| tables.get_mut(place)) {
            table.object.columns = self.all_columns.one(columns);
            table.key = self.all_keys.one(key);
        }
    }

    /// All columns came: keys get their own order. A key with a generated column is of no use: its values are not stored. So
    /// is the key of a table with its history: many rows have the same.
    pub fn end(&mut self, tables: &mut [Listed]) {
        self.put(tables);
        for Listed { key, object, versioned, .. } in tables {
            let has_history = *versioned == Versioned::ByTime;
            if has_history && !object.columns.iter().any(|column| column.data_type == ROW_END) {
                // No list has the columns that the server itself has added.
                let hidden =
                    [ROW_START, ROW_END].map(|name| StoredColumn { name: name.into(), data_type: name.into() });
                object.columns = self.all_columns.one([&object.columns[..], &hidden[..]].concat());
            }
            if has_history || key.len() < object.primary.len() {
                *key = Arc::default();
            } else if key.iter().zip(&*object.primary).any(|(column, name)| column.name != *name) {
                let mut ordered = key.to_vec();
                ordered.sort_by_key(|column| object.primary.iter().position(|name| *name == column.name));
                *key = self.all_keys.one(ordered);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mysql_family::logical_set::catalog::TableObject;
    use crate::mysql_family::logical_set::listing::Kind;

    fn table(name: &str, primary: &[&str]) -> Listed {
        let primary = primary.iter().map(|name| (*name).to_owned()).collect();
        Listed {
            object: TableObject { name: name.into(), primary, ..TableObject::default() },
            kind: Kind::Table,
            key: Arc::default(),
            rows: 0,
            bytes: 0,
            versioned: Versioned::No,
            fingerprint: 0,
            unknown: None,
        }
    }

    #[test]
    fn tables_share_their_shape_also_if_their_columns_come_in_turn() {
        let mut tables = [table("T", &["b", "a"]), table("t", &["b", "a"]), table("u", &["a", "generated"])];
        let mut shapes = Shapes::default();
        for (place, name) in [(0, "a"), (1, "a"), (1, "b"), (0, "b"), (2, "a")] {
            shapes.begin(place, &mut tables);
            let (name, data_type, character_set) = (name.to_owned(), "int".to_owned(), String::new());
            shapes.key.push(KeyColumn { name: name.clone(), data_type: data_type.clone(), character_set });
            shapes.columns.push(StoredColumn { name, data_type });
        }
        shapes.end(&mut tables);
        let [upper, lower, generated] = tables;
        assert_eq!(upper.object.columns.iter().map(|column| &column.name[..]).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(upper.key.iter().map(|column| &column.name[..]).collect::<Vec<_>>(), ["b", "a"]);
        assert!(Arc::ptr_eq(&upper.object.columns, &lower.object.columns) && Arc::ptr_eq(&upper.key, &lower.key));
        assert!(generated.key.is_empty() && generated.object.columns.len() == 1);
    }
}
