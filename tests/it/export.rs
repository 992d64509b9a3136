//! `fullbore export`: tables of backup files of SQL Server, which the testkit of the engines writes.

use std::fs;

use fullbore_engines::compressed::Writer;
use fullbore_engines::sqlserver::configuration::BackupKind;
use fullbore_engines::sqlserver::page::EXTENT;
use fullbore_engines::sqlserver::tables_out::sample_database::{ORDERS, sample_database};
use fullbore_engines::sqlserver::tables_out::types::xtype;
use fullbore_engines::sqlserver::tables_out::writer::{DatabaseWriter, WrittenColumn, WrittenTable, record};
use fullbore_engines::sqlserver::writer::{FamilyWriter, sample_label, sample_set};
use rusqlite::Connection;

use crate::world::World;

/// A full with the sample database and these tables, plain.
fn backup(more: &[WrittenTable]) -> Vec<u8> {
    backup_of(sample_database(more))
}

fn backup_of(database: Vec<u8>) -> Vec<u8> {
    let mut set = sample_set(BackupKind::Full, 1);
    set.copies = vec![database];
    FamilyWriter::new(&sample_label(1, 1), 512).set(&set).finish()
}

fn world(more: &[WrittenTable]) -> World {
    let world = World::new();
    world.write("x.bak", &backup(more));
    world
}

fn one_row(name: &str) -> WrittenTable {
    WrittenTable::of(name, vec![WrittenColumn::new("id", xtype::INT, 4, 4)], vec![record(&[1, 0, 0, 0], 1, &[], &[])])
}

#[test]
fn csv_has_a_header_exact_values_and_tells_null_from_an_empty_text() {
    let world = world(&[]);
    let text = world.run("export --from x.bak --format csv --into dir:out").done().text();
    assert!(text.contains("EXPORT: 5 tables of shop with 508 rows to dir:out"), "{text}");
    let names = ["dbo.Documents.csv", "dbo.Heap.csv", "dbo.Orders.csv", "dbo.PagePacked.csv", "dbo.RowPacked.csv"];
    assert_eq!(world.names("out"), names);
    let orders = world.text("out/dbo.Orders.csv");
    let lines: Vec<&str> = orders.split("\r\n").collect();
    assert_eq!(lines[0], "OrderID,Freight,Placed,Name");
    assert_eq!(lines[1], "1,1.0001,1996-07-05 00:00:00.0000001,\"Order \"\"1\"\", ж\"");
    assert_eq!(lines[2], "2,2.0002,1996-07-06 00:00:00.0000002,\"\"");
    assert_eq!(lines[10], "10,10.0010,1996-07-14 00:00:00.0000010,");
    assert_eq!(lines.len(), ORDERS as usize + 2);
    let documents = world.text("out/dbo.Documents.csv");
    assert_eq!(documents, format!("id,body,note,any\r\n1,{}{},abc,7\r\n", "a".repeat(300), "b".repeat(200)));
    assert_eq!(world.text("out/dbo.PagePacked.csv"), "id,name,amount\r\n1,PALM,4.12\r\n2,PALM,4.12\r\n");
    assert_eq!(world.text("out/dbo.PagePacked.csv"), world.text("out/dbo.RowPacked.csv"));
}

#[test]
fn a_sqlite_database_and_parquet_files_have_all_rows_also_from_a_compressed_backup() {
    let world = World::new();
    world.write("x.bak", &Writer::of_stream(&backup(&[])).container);
    world.run("export --from x.bak --format sqlite --into dir:out").done();
    assert_eq!(world.names("out"), ["shop.db"]);
    let database = Connection::open(world.at("out/shop.db")).unwrap();
    let read = "SELECT count(*), min(Freight), typeof(Name) FROM \"dbo.Orders\" WHERE OrderID = 10";
    let found: (i64, String, String) =
        database.query_row(read, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert_eq!(found, (1, "10.0010".to_owned(), "null".to_owned()));
    let any: i64 = database.query_row("SELECT \"any\" FROM \"dbo.Documents\"", [], |row| row.get(0)).unwrap();
    assert_eq!(any, 7);
    world.run("export --from x.bak --format parquet --into dir:pq").done();
    let orders = world.read("pq/dbo.Orders.parquet");
    assert!(orders.starts_with(b"PAR1") && orders.ends_with(b"PAR1"));
}

#[test]
fn tables_columns_and_rows_are_chosen_and_wrong_names_are_usage() {
    let world = world(&[]);
    let chosen = "--table orders --columns Name,OrderID --into dir:out";
    world.run_with(&words(chosen, "Freight >= 3.0003 AND OrderID < 5")).done();
    assert_eq!(world.names("out"), ["dbo.Orders.csv"]);
    let rows = "Name,OrderID\r\n\"Order \"\"3\"\", ж\",3\r\n\"Order \"\"4\"\", ж\",4\r\n";
    assert_eq!(world.text("out/dbo.Orders.csv"), rows);
    for (flags, condition, named) in [
        ("--table nope --into dir:new", "OrderID = 1", "--table nope"),
        ("--table Orders --columns nope --into dir:new", "OrderID = 1", "--columns nope"),
        ("--table Orders --columns Name,[OrderID],name --into dir:new", "OrderID = 1", "is named twice"),
        ("--table Orders --into dir:new", "nope = 1", "has no column nope"),
        ("--table Orders --into dir:new", "OrderID = 1 OR 1 = 1", "is not understood here"),
        ("--table Orders --into dir:new", "Name < 'x'", "cannot be compared"),
        ("--table Orders --into /new", "OrderID = 1", "--into /new"),
        ("--table Orders --file 2 --into dir:new", "OrderID = 1", "--file 2"),
    ] {
        let ended = world.run_with(&words(flags, condition)).with_code(2);
        ended.says(&[named]);
        assert!(!world.at("new").exists(), "{flags}");
    }
}

#[test]
fn a_database_without_user_tables_is_refused_by_its_name_and_leaves_no_directory() {
    let world = World::new();
    world.write("x.bak", &backup_of(DatabaseWriter::default().finish()));
    for format in ["csv", "parquet", "sqlite"] {
        let line = format!("export --from x.bak --format {format} --into dir:out");
        world.run(&line).refused(1, "database `shop`", "has no user tables");
        assert!(!world.at("out").exists());
    }
}

#[test]
fn a_compressed_row_of_more_than_127_columns_and_a_smalldatetime_of_zero_are_exported() {
    let number = |at: u8| WrittenColumn::new(&format!("c{at}"), xtype::TINYINT, 1, 4 + i16::from(at));
    let columns: Vec<WrittenColumn> =
        (0..149).map(number).chain([WrittenColumn::new("day", xtype::SMALLDATETIME, 4, 153)]).collect();
    // The head, 150 columns, a code for each, the bytes of four groups, the values. The last one is zero.
    let codes = [vec![0x22; 74], vec![0x12]].concat();
    let values: Vec<u8> = (1..150).collect();
    let row = [&[1, 0x80, 150][..], &codes, &[30; 4], &values].concat();
    let mut table = WrittenTable::of("Wide", columns, vec![row]);
    table.partitions[0].compression = 1;
    let world = world(&[table]);
    world.run("export --from x.bak --format csv --table Wide --columns c0,c148,day --into dir:out").done();
    assert_eq!(world.text("out/dbo.Wide.csv"), "c0,c148,day\r\n1,149,1900-01-01 00:00:00\r\n");
}

fn words<'a>(flags: &'a str, condition: &'a str) -> Vec<&'a str> {
    let begin = ["export", "--from", "x.bak", "--format", "csv", "--where", condition];
    begin.into_iter().chain(flags.split(' ')).collect()
}

#[test]
fn a_table_that_cannot_be_decoded_is_refused_by_name_and_the_others_are_exported() {
    let mut columnstore = one_row("Facts");
    columnstore.partitions[0].compression = 3;
    let document = WrittenColumn::new("doc", xtype::XML, -1, -1);
    let bytes = record(&[7, 0, 0, 0], 2, &[], &[(false, &[0xDF, 0xFF, 1])]);
    let xml = WrittenTable::of("Letters", vec![WrittenColumn::new("id", xtype::INT, 4, 4), document], vec![bytes]);
    let world = world(&[columnstore, xml, one_row("Good")]);
    for format in ["csv", "sqlite", "parquet"] {
        let line = format!("export --from x.bak --format {format} --into dir:{format}");
        let ended = world.run(&line).with_code(4);
        let ended = ended.says(&["dbo.Facts", "columnstore", "dbo.Letters", "MS-BINXML"]);
        assert!(ended.text().contains("2 tables refused"), "{ended}");
        let names = world.names(format).join(" ");
        assert!(!names.contains("Facts") && !names.contains("Letters"), "{names}");
    }
    assert_eq!(world.text("csv/dbo.Good.csv"), "id\r\n1\r\n");
    let database = Connection::open(world.at("sqlite/shop.db")).unwrap();
    let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table'";
    assert_eq!(database.query_row(tables, [], |row| row.get::<_, i64>(0)).unwrap(), 6);
    // The columns that can be read are there with --columns.
    world.run("export --from x.bak --format csv --table Letters --columns id --into dir:ids").done();
    assert_eq!(world.text("ids/dbo.Letters.csv"), "id\r\n7\r\n");
    // Nothing at all is an error, not an empty directory.
    world.run("export --from x.bak --format csv --table Facts --into dir:none").with_code(1).says(&["columnstore"]);
    assert!(!world.at("none").exists());
}

#[test]
fn another_number_of_rows_than_the_database_has_counted_is_a_warning_with_both_numbers() {
    let mut table = one_row("Counted");
    table.partitions[0].stored_rows = 5;
    let world = world(&[table]);
    let ended = world.run("export --from x.bak --format csv --table Counted --into dir:out --json").with_code(4);
    let ended = ended.says(&["dbo.Counted: 1 row found, and the database has counted 5"]);
    let object = ended.object();
    let line = &object["exported"][0];
    assert_eq!((line["rows"].as_u64(), line["stored_rows"].as_u64()), (Some(1), Some(5)));
    assert_eq!(line["file"], "dbo.Counted.csv");
}

#[test]
fn names_of_tables_stay_in_the_directory() {
    let world = world(&[one_row("../../evil"), one_row("a\\b:c*"), one_row("GOOD"), one_row("good")]);
    world.run("export --from x.bak --format csv --into dir:out").done();
    let names = world.names("out");
    for name in ["dbo.%2E.%2F..%2Fevil.csv", "dbo.a%5Cb%3Ac%2A.csv", "dbo.GOOD.csv", "dbo.good~2.csv"] {
        assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
    }
    assert!(!world.at("evil.csv").exists() && !world.at("../evil.csv").exists());
}

#[test]
fn nothing_is_replaced_without_being_asked_and_an_export_that_fails_leaves_nothing() {
    let world = world(&[]);
    fs::create_dir(world.at("out")).unwrap();
    world.write("out/mine.txt", b"mine");
    world.run("export --from x.bak --format csv --into dir:out").refused(1, "out", "is not empty");
    world.run("export --from x.bak --format csv --into dir:out --replace").done();
    assert_eq!((world.text("out/mine.txt").as_str(), world.names("out").len()), ("mine", 6));
    // Damage in a page of a table.
    let mut bytes = backup(&[]);
    let name: Vec<u8> = "Order \"7".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let at = bytes.windows(name.len()).position(|window| window == name).unwrap();
    bytes[at] ^= 1;
    world.write("bad.bak", &bytes);
    for format in ["csv", "parquet", "sqlite"] {
        let ended = world.run(&format!("export --from bad.bak --format {format} --into dir:bad-{format}")).with_code(4);
        ended.says(&["dbo.Orders: `shop` is damaged", "is in use and is not right", "the table is not exported"]);
    }
    // The heap of the sample shares an extent with it.
    let names = ["dbo.Documents.csv", "dbo.PagePacked.csv", "dbo.RowPacked.csv"];
    assert_eq!(world.names("bad-csv"), names, "a damaged page ends its own tables");
    world.run("export --from bad.bak --table Orders --format csv --into dir:bad").with_code(3);
    assert!(!world.at("bad").exists());
    world.run("export --from x.bak --table Orders --columns [Name],OrderID --format csv --into dir:some").done();
    assert!(world.text("some/dbo.Orders.csv").starts_with("Name,OrderID\r\n"));
    world.run("export --from x.bak --columns [Name --format csv --into dir:bad").refused(
        2,
        "--columns [Name",
        "no end",
    );
    world.run("export --from x.bak --format csv --into dir:no/parent").with_code(2);
    world.write("not.bak", b"something else");
    world.run("export --from not.bak --format csv --into dir:bad").with_code(2).says(&["no backup file of SQL Server"]);
    assert!(!world.at("bad").exists());
}

#[test]
fn stripes_and_a_differential_give_the_rows_of_the_newest_state() {
    let world = World::new();
    let extents = |file: Vec<u8>| file.as_chunks::<EXTENT>().0.to_vec();
    let before = extents(sample_database(&[one_row("Changed")]));
    let mut changed = one_row("Changed");
    changed.partitions[0].pages[0].records = vec![record(&[42, 0, 0, 0], 1, &[], &[])];
    let after = extents(sample_database(&[changed]));
    // Two families with every second extent.
    for family in [1_u16, 2] {
        let mut set = sample_set(BackupKind::Full, 1);
        let own = before.iter().zip(0..).filter(|(_, number)| number % 2 == family - 1);
        set.copies = vec![own.flat_map(|(extent, _)| extent.to_vec()).collect()];
        world.write(&format!("{family}.bak"), &FamilyWriter::new(&sample_label(2, family), 512).set(&set).finish());
    }
    let mut differential = sample_set(BackupKind::Differential, 1);
    differential.header.guid = uuid::Uuid::from_u128(2000);
    differential.configuration.database.base = uuid::Uuid::from_u128(1001);
    differential.configuration.database.last.block += 900;
    let news = before.iter().zip(&after).filter(|(before, after)| before != after);
    differential.copies = vec![news.flat_map(|(_, after)| after.to_vec()).collect()];
    let mut label = sample_label(1, 1);
    label.stripe.media_set = uuid::Uuid::from_u128(78);
    world.write("d.dif", &FamilyWriter::new(&label, 512).set(&differential).finish());
    for (from, id) in [("--from 1.bak --from 2.bak", 1), ("--from 1.bak --from 2.bak --from d.dif", 42)] {
        let into = format!("dir:of-{id}");
        world.run(&format!("export {from} --format csv --table Changed --into {into}")).done();
        assert_eq!(world.text(&format!("of-{id}/dbo.Changed.csv")), format!("id\r\n{id}\r\n"));
    }
    let all = "export --from 1.bak --from 2.bak --from d.dif --format csv --table Changed";
    world.run(&format!("{all} --set 3E9 --into dir:full")).done();
    assert_eq!(world.text("full/dbo.Changed.csv"), "id\r\n1\r\n");
    world.run(&format!("{all} --set 00000000 --into dir:old")).with_code(2);
    world.run("export --from 1.bak --format csv --into dir:old").with_code(3).says(&["family 2 of 2"]);
    assert!(!world.at("old").exists());
}

#[test]
fn null_in_a_column_that_has_none_refuses_the_table_in_every_format() {
    let id = WrittenColumn { status: 1, stored_status: 0x80, ..WrittenColumn::new("id", xtype::INT, 4, 4) };
    let damaged = WrittenTable::of("Damaged", vec![id], vec![record(&[1, 0, 0, 0], 1, &[0], &[])]);
    let world = world(&[damaged]);
    for format in ["csv", "parquet", "sqlite"] {
        let line = format!("export --from x.bak --format {format} --into dir:{format}");
        world.run(&line).with_code(4).says(&["dbo.Damaged: row 1 has NULL in column id", "is not exported"]);
        assert!(!world.names(format).iter().any(|name| name.contains("Damaged")));
    }
}

#[test]
fn a_database_is_not_replaced_while_files_of_its_log_are_beside_it() {
    let world = world(&[]);
    let line = "export --from x.bak --format sqlite --into dir:out";
    world.run(line).done();
    world.write("out/shop.db-wal", b"");
    world.run(&format!("{line} --replace")).refused(1, "shop.db-wal", "a program may have it open");
    fs::remove_file(world.at("out/shop.db-wal")).unwrap();
    world.run(&format!("{line} --replace")).done();
}

#[test]
fn sets_of_sqlite_are_exported_from_files_and_from_a_repository() {
    let world = World::new();
    let database = Connection::open(world.at("app.db")).unwrap();
    let sql = "CREATE TABLE Orders (id INTEGER PRIMARY KEY, name TEXT, raw BLOB);
        INSERT INTO Orders VALUES (1, 'a,b', x'00FF'), (2, NULL, NULL);
        CREATE VIEW Seen AS SELECT 1; CREATE VIRTUAL TABLE words USING fts5(body);";
    database.execute_batch(sql).unwrap();
    fs::create_dir(world.at("r")).unwrap();
    world.write("fullbore.toml", b"[repository.night]\nto = [\"r/\"]\n");
    world.run("backup sqlite:app.db --to a/ --mkdir").done();
    world.run("backup sqlite:app.db --repo night").done();
    database.execute_batch("UPDATE Orders SET name = 'later' WHERE id = 2").unwrap();
    world.run("backup sqlite:app.db --repo night --kind differential").done();
    let ended = world.run("export --from a/ --format csv --into dir:out").with_code(4);
    ended.says(&["main.words", "virtual table", "1 view left out"]);
    assert_eq!(world.text("out/main.Orders.csv"), "id,name,raw\r\n1,\"a,b\",0x00FF\r\n2,,\r\n");
    let line = "export --repo night --database app.db --table Orders --columns id,name --format csv --into dir:new";
    world.run(line).done();
    assert_eq!(world.text("new/main.Orders.csv"), "id,name\r\n1,\"a,b\"\r\n2,later\r\n");
    assert_eq!(world.names("new"), ["main.Orders.csv"], "the restored database is gone");
    world.run("export --repo night --table Orders --format parquet --into dir:parquet").done();
    world.run("export --repo night --table Orders --format sqlite --into dir:sqlite").done();
    let copy = Connection::open(world.at("sqlite/app.db")).unwrap();
    let count = "SELECT count(*) FROM \"main.Orders\" WHERE name = 'later' AND typeof(id) = 'integer'";
    assert_eq!(copy.query_row(count, [], |row| row.get::<_, i64>(0)).unwrap(), 1);
    world.run("export --from a/ --file 2 --format csv --into dir:x").refused(2, "--file 2", "SQL Server");
    world.run("export --from missing --format csv --into dir:x").refused(2, "--from missing", "no backup set");
    assert!(!world.at("x").exists());
}
