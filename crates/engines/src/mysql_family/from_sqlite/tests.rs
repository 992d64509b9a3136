//! Types, lengths and statements of small databases, without a server.

use rusqlite::Connection;

use super::drafts::{Draft, Limits, Told};
use super::facts::TableFacts;
use super::statements;
use crate::Options;
use crate::sqlite::outgoing::Outgoing;
use crate::sqlite::outgoing::schema::{Column, Table};

fn limits() -> Limits {
    let [binary, nocase, rtrim] = ["b", "ci", "r"].map(str::to_owned);
    Limits { key: 3072, value: 1 << 20, binary, nocase, rtrim, expressions: true, checks: true }
}

/// The statements of a database in the target, and what a user is told.
fn mapped(made: &str) -> (Vec<String>, Told) {
    mapped_for(made, &limits())
}

fn mapped_for(made: &str, limits: &Limits) -> (Vec<String>, Told) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    Connection::open(&path).unwrap().execute_batch(made).unwrap();
    let source = Outgoing::open(&format!("sqlite:{}", path.display()), &Options::default(), false).unwrap();
    let mut told = Told::default();
    let drafts: Vec<Draft> = source
        .schema()
        .unwrap()
        .tables
        .into_iter()
        .map(|table| {
            let facts = TableFacts::read(&source, &table).unwrap();
            Draft::of(table, facts, limits, &mut told).unwrap()
        })
        .collect();
    let object = |at| statements::object(&source, &drafts, at, "shop", limits, &mut told).unwrap().create;
    ((0..drafts.len()).map(object).collect(), told)
}

/// The lines of the only table's statement, without the first and the last one.
fn lines(made: &str) -> Vec<String> {
    let (statements, _) = mapped(made);
    let lines: Vec<&str> = statements[0].lines().collect();
    lines[1..lines.len() - 1].iter().map(|line| line.trim().trim_end_matches(',').to_owned()).collect()
}

#[test]
fn types_come_from_the_declared_type_and_where_it_says_nothing_from_the_values() {
    let made = "CREATE TABLE t (a INT, b DOUBLE PRECISION, c DECIMAL (6, 2), d NUMERIC, e NUMERIC, f, g, h JSON, i VARCHAR(20000), j DATETIME, \
                k TIMESTAMP, l DATE, m DECIMAL, n NVARCHAR(7)); \
                INSERT INTO t VALUES (1, 2, 3, 4, 4.5, x'00', 'x', '{}', 'x', 1700000000, '2024-01-01 00:00:00', '2024-01-01', 5, NULL), \
                (NULL, 2, 3, 4, 5, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 5, 'x')";
    let types: Vec<String> = lines(made).iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let expected = "bigint|double|decimal(6,2)|bigint|double|longblob|longtext|longtext|longtext|bigint|datetime|date|bigint|varchar(7)";
    assert_eq!(types.join("|"), expected);
    // Without a value.
    let empty = lines("CREATE TABLE t (a, b NUMERIC, c DATETIME, d UUID)");
    assert_eq!(empty, ["`a` longblob", "`b` double", "`c` datetime(6)", "`d` longtext"]);
}

#[test]
fn texts_in_keys_get_a_length_that_holds_the_longest_value_and_fits_into_a_key() {
    let of = |made: &str| {
        lines(made).into_iter().filter(|line| line.contains("var") || line.contains("KEY")).collect::<Vec<_>>()
    };
    assert_eq!(of("CREATE TABLE t (a TEXT PRIMARY KEY)"), ["`a` varchar(255) NOT NULL", "PRIMARY KEY (`a`)"]);
    let long = "CREATE TABLE t (a TEXT UNIQUE, b BLOB, c TEXT, UNIQUE (b)); INSERT INTO t VALUES (printf('%.700c', 'x'), x'01', 'y')";
    assert_eq!(of(long), ["`a` varchar(700)", "`b` varbinary(255)", "UNIQUE KEY `a` (`a`)", "UNIQUE KEY `b` (`b`)"]);
    let several = "CREATE TABLE t (a TEXT, b TEXT, c TEXT, d TEXT, e VARCHAR(500), PRIMARY KEY (a, b, c, d)); CREATE INDEX i ON t (e, a DESC); \
                   INSERT INTO t VALUES (printf('%.300c', 'x'), '', '', '', '')";
    let keys = of(several);
    assert_eq!(keys[..2], ["`a` varchar(300) NOT NULL", "`b` varchar(117) NOT NULL"]);
    assert_eq!(keys.last().unwrap(), "KEY `i` (`e`(384),`a` DESC)".replace(',', ", ").as_str());
    assert_eq!(of("CREATE TABLE t (a TEXT); CREATE INDEX i ON t (a)"), ["KEY `i` (`a`(255))"]);
}

#[test]
fn only_checks_and_defaults_that_mean_the_same_are_moved() {
    let made = "CREATE TABLE t (n INT DEFAULT -5 CHECK (n == 5 OR n NOT IN (1, -2.5) AND NOT n IS NULL), s VARCHAR(9) DEFAULT 'it''s' CHECK (s >= 'a' AND s != 'x''\\'), \
                b TEXT DEFAULT x'00', d DATE DEFAULT CURRENT_DATE, m DATETIME DEFAULT (datetime('now')), f REAL DEFAULT '1.5', x TEXT DEFAULT 7, \
                CHECK (n < s), CHECK (n - 1 > 0), CHECK (n NOT NULL), CHECK (n IS 5), CHECK (abs(n) > 1), CHECK (n > 0x10), CHECK (s LIKE 'a'), CHECK (n > 'a'))";
    let (statements, told) = mapped(made);
    for part in [
        "`n` bigint DEFAULT -5",
        "CHECK (`n` = 5 OR `n` NOT IN ( 1 , - 2.5 ) AND NOT `n` IS NULL)",
        "`s` varchar(9) DEFAULT 'it''s'",
        "CHECK (`s` >= 'a' AND `s` <> 'x''\\\\')",
        "`d` date DEFAULT (UTC_DATE())",
        "`m` datetime(6) DEFAULT (UTC_TIMESTAMP())",
        "`f` double DEFAULT 1.5",
        "`x` longtext DEFAULT ('7')",
    ] {
        assert!(statements[0].contains(part), "{part}: {}", statements[0]);
    }
    assert_eq!(told.left_out.len(), 9, "{told:?}");
    // MySQL 5.7: three more defaults are named, and two CHECKs that it would ignore.
    let (statements, told) = mapped_for(made, &Limits { expressions: false, checks: false, ..limits() });
    assert!(
        statements[0].contains("DEFAULT 1.5")
            && !statements[0].contains("DEFAULT (")
            && !statements[0].contains("CHECK"),
        "{statements:?}"
    );
    assert_eq!(told.left_out.len(), 14, "{told:?}");
}

#[test]
fn foreign_keys_need_a_key_of_the_same_types() {
    let made = "CREATE TABLE c (a INT REFERENCES p ON UPDATE CASCADE, b TEXT REFERENCES p (t), n TEXT REFERENCES p (id), u INT REFERENCES p (v), s INT REFERENCES c (u)); \
                CREATE TABLE p (id INTEGER PRIMARY KEY, t TEXT UNIQUE, v INT)";
    let (statements, told) = mapped(made);
    assert!(statements[0].contains("FOREIGN KEY (`a`) REFERENCES `p` (`id`) ON UPDATE CASCADE"), "{}", statements[0]);
    assert!(
        statements[0].contains("`b` varchar(255)") && statements[0].contains("REFERENCES `p` (`t`)"),
        "{}",
        statements[0]
    );
    assert!(told.left_out.len() == 3 && statements[0].matches("FOREIGN").count() == 2, "{told:?}");
}

#[test]
fn a_table_with_more_columns_than_innodb_has_is_refused_before_anything_is_made() {
    let table = Table { name: "wide".into(), columns: vec![Column::default(); 1018], ..Table::default() };
    let error = Draft::of(table, TableFacts::default(), &limits(), &mut Told::default()).unwrap_err().to_string();
    assert!(error.contains("table wide") && error.contains("1018 columns"), "{error}");
}
