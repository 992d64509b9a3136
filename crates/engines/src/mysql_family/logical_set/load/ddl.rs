//! The text of CREATE TABLE, taken apart: indexes and foreign keys of a large table are made after its rows. And that of
//! CREATE TRIGGER, for a database of another name.

use std::borrow::Cow;
use std::ops::Range;

use crate::mysql_family::sql_text::{find_outside, token_end, tokens};

/// A CREATE TABLE statement in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateTable {
    /// From the parenthesis behind the name up to the first item.
    items: Vec<Item>,
    /// What follows the last item, with its parenthesis.
    options: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Item {
    text: String,
    kind: ItemKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ItemKind {
    Column,
    Primary,
    Unique,
    Index,
    /// Only one of these can be added by a statement.
    Alone,
    ForeignKey,
    Other,
}

/// A table as it is created before its rows, and what is added to it afterwards.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Split {
    /// CREATE TABLE, without the name: from the parenthesis on.
    pub create: String,
    /// Each is the rest of an ALTER TABLE statement.
    pub indexes: Vec<String>,
    /// The same, for foreign keys; they need the indexes of other tables.
    pub foreign_keys: Option<String>,
}

impl Split {
    /// Whether the server perhaps computes columns of the table. A text in quotes may say so, too.
    pub fn may_compute(&self) -> bool {
        self.create.contains(" GENERATED ALWAYS AS ")
    }

    /// Whether the table perhaps has CHECKs, or indexes of expressions. A text in quotes may say so, too.
    pub fn may_check(&self) -> bool {
        self.create.contains(" CHECK (") || self.create.contains(" ((")
    }

    /// Whether the table is created with foreign keys.
    pub fn makes_foreign_keys(&self) -> bool {
        self.create.contains(" FOREIGN KEY ")
    }

    /// Whether it has foreign keys in the end.
    pub fn has_foreign_keys(&self) -> bool {
        self.foreign_keys.is_some() || self.makes_foreign_keys()
    }
}

/// The statement that gives a new sequence its next value; `create` has its options. SETVAL never goes back, as a sequence does that has
/// begun again (`CYCLE`, `RESTART`). None if a value is no number.
pub fn set_sequence(place: &str, create: &str, next: &str) -> Option<String> {
    let option = |word: &str| {
        let value = create.get(find_outside(create, word)? + word.len()..)?.split_whitespace().next()?;
        value.parse::<i128>().ok()
    };
    let (next, start, step) = (next.parse::<i128>().ok()?, option(" start with ")?, option(" increment by ")?);
    let is_back = if step < 0 { next > start } else { next < start };
    Some(match is_back {
        true => format!("ALTER SEQUENCE {place} RESTART WITH {next}"),
        false => format!("SELECT SETVAL({place}, {next}, 0)"),
    })
}

/// The statement of a trigger without the database in front of its name and of its table. MariaDB and MySQL 5.7 keep it as
/// the user wrote it, and a load may give the database another name.
pub fn in_own_database(create: &str) -> Cow<'_, str> {
    let mut text = Cow::from(create);
    for qualifier in qualifiers(create).into_iter().flatten().rev() {
        text.to_mut().replace_range(qualifier, "");
    }
    text
}

/// The places of these databases, with their dots. None if the statement has another form.
fn qualifiers(create: &str) -> Option<Vec<Range<usize>>> {
    let words = places(create);
    let is = |at: usize, word: &str| {
        words.get(at).and_then(|place| create.get(place.clone())).is_some_and(|text| text.eq_ignore_ascii_case(word))
    };
    let find = |from: usize, word: &str| (from..words.len()).find(|at| is(*at, word)).map(|at| at + 1);
    let trigger = find(0, "TRIGGER")?;
    let name = if is(trigger, "IF") { trigger + 3 } else { trigger };
    let places = [name, find(name, "ON")?].into_iter().filter(|at| is(at + 1, "."));
    places.map(|at| Some(words.get(at)?.start..words.get(at + 2)?.start)).collect()
}

/// The places of the words, names, texts and signs of a statement.
pub fn places(text: &str) -> Vec<Range<usize>> {
    tokens(text.as_bytes()).map(|token| token.place).collect()
}

/// The quoted name of the first TIMESTAMP column that takes no NULL and has no default; of a definition from the parenthesis on.
pub fn bare_timestamp(create: &str) -> Option<String> {
    let items = CreateTable::parse(create)?.items;
    let column = items.iter().find(|item| {
        let words = places(&item.text);
        let is = |range: &Range<usize>, word| item.text.get(range.clone()) == Some(word);
        let has = |word| words.iter().any(|range| is(range, word));
        item.kind == ItemKind::Column
            && words.get(1).is_some_and(|kind| is(kind, "timestamp"))
            && has("NOT")
            && !has("DEFAULT")
            && !has("GENERATED")
    });
    column.and_then(Item::column)
}

impl CreateTable {
    /// Takes a statement of SHOW CREATE TABLE apart. None if it has another form: then it is used as it is.
    pub fn parse(create: &str) -> Option<Self> {
        let text = create.as_bytes();
        let mut place = 0;
        while *text.get(place)? != b'(' {
            place = token_end(text, place);
        }
        place += 1;
        let (mut depth, mut begun, mut items) = (0_usize, place, Vec::new());
        loop {
            match *text.get(place)? {
                b'(' => depth += 1,
                b')' if depth == 0 => break,
                b')' => depth -= 1,
                b',' if depth == 0 => {
                    items.push(Item::of(create.get(begun..place)?)?);
                    begun = place + 1;
                }
                _ => {}
            }
            place = token_end(text, place);
        }
        items.push(Item::of(create.get(begun..place)?)?);
        Some(Self { items, options: create.get(place..)?.to_owned() })
    }

    /// The statement with everything, except foreign keys if they are `later`.
    pub fn whole(&self, later: bool) -> Split {
        let (now, keys): (Vec<_>, Vec<_>) =
            self.items.iter().partition(|item| !later || item.kind != ItemKind::ForeignKey);
        Split { create: self.text(&now), indexes: Vec::new(), foreign_keys: added(&keys) }
    }

    /// The statement with the primary key only, and the rest as additions.
    pub fn split(&self) -> Split {
        let has_primary = self.items.iter().any(|item| item.kind == ItemKind::Primary);
        // Without a primary key, the rows are stored in the order of a unique one.
        let mut keeps_unique = !has_primary;
        let counter = self.items.iter().find(|item| item.counts()).and_then(Item::column);
        let mut now = Vec::new();
        let (mut plain, mut alone, mut keys) = (Vec::new(), Vec::new(), Vec::new());
        for item in &self.items {
            let of_counter = || counter.as_ref().is_some_and(|name| item.begins_with_column(name));
            match item.kind {
                ItemKind::Unique if std::mem::take(&mut keeps_unique) => now.push(item),
                // An AUTO_INCREMENT column needs an index at all times.
                ItemKind::Unique | ItemKind::Index if of_counter() => now.push(item),
                ItemKind::Unique | ItemKind::Index => plain.push(item),
                ItemKind::Alone => alone.push(item),
                ItemKind::ForeignKey => keys.push(item),
                ItemKind::Column | ItemKind::Primary | ItemKind::Other => now.push(item),
            }
        }
        let mut indexes: Vec<String> = added(&plain).into_iter().collect();
        indexes.extend(alone.into_iter().filter_map(|item| added(&[item])));
        Split { create: self.text(&now), indexes, foreign_keys: added(&keys) }
    }

    /// The definition without some items.
    pub fn without(&self, left_out: impl Fn(&str) -> bool) -> String {
        self.text(&self.items.iter().filter(|item| !left_out(&item.text)).collect::<Vec<_>>())
    }

    fn text(&self, items: &[&Item]) -> String {
        let items: Vec<&str> = items.iter().map(|item| item.text.as_str()).collect();
        format!("(\n  {}\n{}", items.join(",\n  "), self.options)
    }

    /// The names of the tables that foreign keys refer to, as the statement writes them.
    pub fn referred(&self) -> Vec<String> {
        let keys = self.items.iter().filter(|item| item.kind == ItemKind::ForeignKey);
        let name = |item: &Item| {
            let after = item.text.split_once(" REFERENCES ")?.1;
            Some(after.split(" (").next()?.to_owned())
        };
        keys.filter_map(name).collect()
    }
}

/// The items as additions of one ALTER TABLE.
fn added(items: &[&Item]) -> Option<String> {
    let items: Vec<String> = items.iter().map(|item| format!("ADD {}", item.text)).collect();
    (!items.is_empty()).then(|| items.join(", "))
}

impl Item {
    fn of(text: &str) -> Option<Self> {
        let text = text.trim();
        let is = |start: &str| text.get(..start.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(start));
        let constraint = is("CONSTRAINT ").then(|| text.get(11..).unwrap_or_default());
        // Behind the name of a constraint.
        let body = constraint.and_then(|rest| rest.get(token_end(rest.as_bytes(), 0)..)).map_or(text, str::trim);
        let kind = match body {
            _ if text.starts_with('`') => ItemKind::Column,
            _ if is("PRIMARY KEY") => ItemKind::Primary,
            _ if is("UNIQUE KEY") => ItemKind::Unique,
            _ if is("KEY ") => ItemKind::Index,
            _ if is("FULLTEXT KEY") || is("SPATIAL KEY") || is("VECTOR KEY") => ItemKind::Alone,
            body if body.starts_with("FOREIGN KEY") => ItemKind::ForeignKey,
            _ => ItemKind::Other,
        };
        (!text.is_empty()).then(|| Self { text: text.to_owned(), kind })
    }

    /// The quoted name of a column.
    fn column(&self) -> Option<String> {
        self.text.get(..token_end(self.text.as_bytes(), 0)).map(str::to_owned)
    }

    /// Whether it is an AUTO_INCREMENT column.
    fn counts(&self) -> bool {
        let text = self.text.as_bytes();
        let mut place = 0;
        while place < text.len() && self.kind == ItemKind::Column {
            if text.get(place..).is_some_and(|rest| rest.starts_with(b" AUTO_INCREMENT")) {
                return true;
            }
            place = token_end(text, place);
        }
        false
    }

    /// Whether it is an index that begins with this column.
    fn begins_with_column(&self, quoted: &str) -> bool {
        let text = self.text.as_bytes();
        let mut place = 0;
        while place < text.len() {
            if text.get(place) == Some(&b'(') {
                return self.text.get(place + 1..).is_some_and(|rest| rest.starts_with(quoted));
            }
            place = token_end(text, place);
        }
        false
    }
}

/// A statement in which a database has another name: each quoted name before a dot is compared. Texts and comments stay.
pub fn renamed(statement: &str, from: &str, to: &str) -> String {
    let text = statement.as_bytes();
    let (mut out, mut place) = (String::with_capacity(statement.len()), 0);
    while place < text.len() {
        let end = token_end(text, place).min(text.len());
        // A token begins and ends at a character.
        let mut end = end;
        while !statement.is_char_boundary(end) {
            end += 1;
        }
        let token = statement.get(place..end).unwrap_or_default();
        out.push_str(if token == from && text.get(end) == Some(&b'.') { to } else { token });
        place = end;
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_that_has_begun_again_goes_back() {
        let set = |options: &str, next: &str| set_sequence("`s`", options, next).unwrap_or_default();
        let up = "CREATE SEQUENCE `x start with 1` start with 79 minvalue -9 maxvalue 99 increment by 3 cache 10 cycle";
        assert_eq!(set(up, "82"), "SELECT SETVAL(`s`, 82, 0)");
        assert_eq!(set(up, "-9"), "ALTER SEQUENCE `s` RESTART WITH -9");
        let down = " start with -5 minvalue -1000 maxvalue 50 increment by -2 cache 10 nocycle ENGINE=InnoDB";
        assert_eq!(set(down, "-7"), "SELECT SETVAL(`s`, -7, 0)");
        assert_eq!(set(down, "20"), "ALTER SEQUENCE `s` RESTART WITH 20");
        assert_eq!(set(down, "DROP"), "");
    }

    #[test]
    fn a_trigger_is_made_in_its_own_database_whatever_the_user_wrote() {
        let made =
            "CREATE DEFINER=`trigger.a`@`%` TRIGGER `t``.x` BEFORE INSERT ON item FOR EACH ROW SET @a = shop.f()";
        for before in [
            made,
            "CREATE DEFINER=`trigger.a`@`%` TRIGGER shop.`t``.x` BEFORE INSERT ON `sh.op` . item FOR EACH ROW SET @a = shop.f()",
            "CREATE DEFINER=`trigger.a`@`%` TRIGGER `shop`.`t``.x` BEFORE INSERT ON item FOR EACH ROW SET @a = shop.f()",
        ] {
            assert_eq!(in_own_database(before), made);
        }
        let commented = "create definer=`a`@`b` trigger if not exists /* on a.b */ shop.t after update on shop.ä for each row begin end";
        let expected =
            "create definer=`a`@`b` trigger if not exists /* on a.b */ t after update on ä for each row begin end";
        assert_eq!(in_own_database(commented), expected);
        assert_eq!(in_own_database("CREATE"), "CREATE");
    }

    #[test]
    fn a_timestamp_without_a_default_is_found() {
        let bare = |columns: &str| bare_timestamp(&format!("(\n  `a` int NOT NULL,\n  {columns}\n) ENGINE=InnoDB"));
        assert_eq!(bare("`b` timestamp(6) NOT NULL COMMENT 'DEFAULT',\n  `c` int").as_deref(), Some("`b`"));
        for other in [
            "`b` timestamp NULL DEFAULT NULL",
            "`b` timestamp NOT NULL DEFAULT current_timestamp()",
            "`b` timestamp(6) GENERATED ALWAYS AS ROW START",
            "`timestamp` datetime NOT NULL",
        ] {
            assert_eq!(bare(other), None, "{other}");
        }
    }

    const TABLE: &str = "CREATE TABLE `t(,`` x` (\n  `id` int NOT NULL AUTO_INCREMENT COMMENT 'a, (b\\'',\n  \
        `n` decimal(10,2) DEFAULT '1,5',\n  `g` int GENERATED ALWAYS AS (concat(`n`,_utf8mb4')')) VIRTUAL,\n  \
        PRIMARY KEY (`n`,`id`),\n  UNIQUE KEY `u` (`id`),\n  KEY `k` (`n`),\n  FULLTEXT KEY `f` (`g`),\n  \
        CONSTRAINT `c ,` FOREIGN KEY (`n`) REFERENCES `other` (`n`),\n  CONSTRAINT `d` CHECK ((`n` > 0))\n) \
        ENGINE=InnoDB COMMENT='x)' /*!50100 PARTITION BY HASH (`id`) */";

    #[test]
    fn indexes_and_foreign_keys_are_added_later_and_the_counter_keeps_its_index() {
        let parsed = CreateTable::parse(TABLE).unwrap();
        let split = parsed.split();
        assert!(split.create.contains("UNIQUE KEY `u` (`id`)") && split.create.contains("CONSTRAINT `d` CHECK"));
        assert!(!split.create.contains("`k`") && !split.create.contains("FOREIGN"), "{}", split.create);
        assert!(split.create.ends_with(") ENGINE=InnoDB COMMENT='x)' /*!50100 PARTITION BY HASH (`id`) */"));
        assert_eq!(split.indexes, ["ADD KEY `k` (`n`)", "ADD FULLTEXT KEY `f` (`g`)"]);
        let key = "ADD CONSTRAINT `c ,` FOREIGN KEY (`n`) REFERENCES `other` (`n`)";
        assert_eq!(split.foreign_keys.as_deref(), Some(key));
        assert_eq!(parsed.referred(), ["`other`"]);
        let whole = parsed.whole(true);
        assert!(whole.create.contains("FULLTEXT") && whole.foreign_keys.is_some() && whole.indexes.is_empty());
        assert!(parsed.whole(false).create.contains("FOREIGN"));
    }

    #[test]
    fn a_table_without_a_primary_key_keeps_its_first_unique_one() {
        let parsed =
            CreateTable::parse("CREATE TABLE `t` (\n `a` int,\n UNIQUE KEY `u` (`a`),\n UNIQUE KEY `v` (`a`)\n)");
        let split = parsed.unwrap().split();
        assert!(split.create.contains("`u`") && split.indexes == ["ADD UNIQUE KEY `v` (`a`)"]);
        for bad in ["CREATE TABLE `t`", "CREATE TABLE `t` (`a` int", "", "CREATE TABLE t (`a` text COMMENT 'x"] {
            assert_eq!(CreateTable::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_database_is_renamed_in_names_only() {
        let view = "CREATE VIEW `v` AS select `shop`.`é`.`shop` AS `shop`,'`shop`.' AS `x` from `shop`.`é`";
        let renamed = renamed(view, "`shop`", "`new`");
        assert_eq!(renamed, "CREATE VIEW `v` AS select `new`.`é`.`shop` AS `shop`,'`shop`.' AS `x` from `new`.`é`");
    }
}
