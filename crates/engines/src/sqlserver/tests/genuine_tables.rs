//! The tables of genuine backups: their known contents, and the counts that SQL Server has stored.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use super::super::foreign::SqlServerBackup;
use super::super::tables_out::collation::CodePages;
use super::super::tables_out::data_files::DataFiles;
use super::super::tables_out::definitions::of_objects;
use super::super::tables_out::rows::RowReader;
use super::super::tables_out::system_tables::Catalog;
use super::genuine_files::files;
use crate::InOrder;
use crate::engine::{Cell, FilePlaces, ForeignFamily, ForeignMedia, ForeignTables};

fn tables(directory: &Path, names: &[&str], wanted: Option<&str>) -> Box<dyn ForeignTables> {
    let devices: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let open = |name: &str| {
        let file = File::open(directory.join(name)).unwrap();
        Ok(ForeignFamily { device: name.to_owned(), bytes: Box::new(InOrder(file)) })
    };
    let scratch = tempfile::tempdir().unwrap();
    let tables = SqlServerBackup.tables(&devices, &open, wanted, scratch.path()).unwrap();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "the scratch files have no names");
    tables
}

fn rows(tables: &dyn ForeignTables, place: usize) -> Vec<Vec<Cell>> {
    let columns: Vec<usize> = (0..tables.tables()[place].columns.len()).collect();
    let mut rows = Vec::new();
    let warnings = tables.read(place, &columns, &mut |cells| {
        rows.push(cells.to_vec());
        Ok(())
    });
    assert_eq!(warnings.unwrap(), Vec::<String>::new());
    rows
}

fn place(tables: &dyn ForeignTables, title: &str) -> usize {
    tables.tables().iter().position(|table| table.title() == title).unwrap()
}

#[test]
fn every_table_of_every_genuine_backup_has_as_many_rows_as_sql_server_has_counted() {
    let Some(directory) = files() else { return };
    let mut found = BTreeMap::new();
    for names in [
        &["Northwind_xan.bak"][..],
        &["Northwind_khoi2008.bak"],
        &["Northwind_salih2019.bak"],
        &["pubs_dwip.bak"],
        &["ExpiredLink_compressed.bak"],
        &["RestoreTimeClean2016.bak"],
        &["RestoreTimeStripe_s1.bak", "RestoreTimeStripe_s2.bak"],
        &["dbareports_FULL.bak", "dbareports_DIFF.bak"],
        &["difftest-full.bak", "difftest-diff1.bak"],
        &["passwd.bak"],
    ] {
        let tables = tables(&directory, names, None);
        let mut all = 0;
        for (place, table) in tables.tables().iter().enumerate() {
            assert_eq!(table.refused, None, "{}", table.title());
            let count = rows(&*tables, place).len() as u64;
            assert_eq!(Some(count), table.stored_rows, "{names:?}: {}", table.title());
            all += count;
        }
        found.insert(names[0], (tables.tables().len(), all));
    }
    let expected = [
        ("ExpiredLink_compressed.bak", (1, 0)),
        ("Northwind_khoi2008.bak", (14, 3309)),
        ("Northwind_salih2019.bak", (4, 144)),
        ("Northwind_xan.bak", (16, 3308)),
        ("RestoreTimeClean2016.bak", (2, 0)),
        ("RestoreTimeStripe_s1.bak", (1, 0)),
        ("dbareports_FULL.bak", (14, 20)),
        ("difftest-full.bak", (0, 0)),
        ("passwd.bak", (1, 60)),
        ("pubs_dwip.bak", (18, 272)),
    ];
    assert_eq!(found.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn northwind_has_its_published_contents() {
    let Some(directory) = files() else { return };
    let tables = tables(&directory, &["Northwind_xan.bak"], None);
    for (title, count) in [
        ("dbo.Orders", 830),
        ("dbo.Customers", 91),
        ("dbo.Order Details", 2155),
        ("dbo.Products", 77),
        ("dbo.Employees", 9),
        ("dbo.Suppliers", 29),
        ("dbo.Categories", 8),
        ("dbo.Territories", 53),
    ] {
        assert_eq!(rows(&*tables, place(&*tables, title)).len(), count, "{title}");
    }
    let orders = rows(&*tables, place(&*tables, "dbo.Orders"));
    let first = orders.iter().find(|row| row[0] == Cell::Int(10248)).unwrap();
    assert_eq!(first[1], Cell::Text("VINET".into()));
    let Cell::Moment(day, time) = &first[3] else { panic!("{:?}", first[3]) };
    assert_eq!((day.date(), time.ticks()), ((1996, 7, 4), 0));
    assert_eq!(first[7], Cell::Decimal { digits: 323_800, scale: 4 });
    assert_eq!(first[11], Cell::Null, "ShipRegion");
    // The sum of price times quantity is published: 1,354,458.59.
    let details = rows(&*tables, place(&*tables, "dbo.Order Details"));
    let amount = |row: &Vec<Cell>| match (&row[2], &row[3]) {
        (Cell::Decimal { digits, scale: 4 }, Cell::Int(quantity)) => digits * i128::from(*quantity),
        other => panic!("{other:?}"),
    };
    assert_eq!(details.iter().map(amount).sum::<i128>(), 13_544_585_900);
    // Values outside of their row: each picture of a category is 10,746 bytes of OLE data, each description is text.
    let categories = rows(&*tables, place(&*tables, "dbo.Categories"));
    assert_eq!(categories[0][2], Cell::Text("Soft drinks, coffees, teas, beers, and ales".into()));
    assert!(categories.iter().all(|row| matches!(&row[3], Cell::Binary(bytes) if bytes.len() == 10_746)));
}

#[test]
fn a_column_that_was_dropped_is_gone_and_other_columns_keep_their_values() {
    let Some(directory) = files() else { return };
    // The column Picture was dropped from this copy, and others were renamed.
    let tables = tables(&directory, &["Northwind_salih2019.bak"], None);
    let place = place(&*tables, "dbo.Categories");
    let names: Vec<&str> = tables.tables()[place].columns.iter().map(|column| column.name.as_str()).collect();
    assert_eq!(names, ["Id", "Name", "Description"]);
    let rows = rows(&*tables, place);
    assert_eq!(rows[7][1], Cell::Text("Seafood".into()));
    assert_eq!(rows[7][2], Cell::Text("Seaweed and fish".into()));
}

#[test]
fn pubs_has_large_values_and_text_of_its_code_page() {
    let Some(directory) = files() else { return };
    let tables = tables(&directory, &["pubs_dwip.bak"], None);
    let titles = rows(&*tables, place(&*tables, "dbo.titles"));
    assert_eq!((titles.len(), &titles[0][0]), (18, &Cell::Text("BU1032".into())));
    let info = rows(&*tables, place(&*tables, "dbo.pub_info"));
    let logo = info.iter().map(|row| match &row[1] {
        Cell::Binary(bytes) => (bytes.starts_with(b"GIF89a"), bytes.len()),
        other => panic!("{other:?}"),
    });
    assert!(logo.clone().all(|(is_gif, _)| is_gif), "{:?}", logo.collect::<Vec<_>>());
    // One text has 64,123 bytes: its tree has a level of nodes.
    assert!(info.iter().any(|row| matches!(&row[2], Cell::Text(text) if text.len() > 60_000)));
}

/// The catalog of SQL Server is tables too: they have more types than the small databases of users.
#[test]
fn the_system_tables_of_every_genuine_backup_have_the_rows_that_sql_server_has_counted() {
    let Some(directory) = files() else { return };
    let (mut read, mut all) = (0, 0);
    for name in [
        "Northwind_xan.bak",
        "Northwind_khoi2008.bak",
        "Northwind_salih2019.bak",
        "pubs_dwip.bak",
        "ExpiredLink_compressed.bak",
        "RestoreTimeClean2016.bak",
        "dbareports_FULL.bak",
    ] {
        let folder = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let file = File::open(directory.join(name)).unwrap();
            Ok(ForeignFamily { device: name.to_owned(), bytes: Box::new(InOrder(file)) })
        };
        let restored =
            SqlServerBackup.restore(&[name.to_owned()], &open, None, &FilePlaces::in_directory(folder.path())).unwrap();
        let mut data = DataFiles::default();
        let file = &restored.files[0].path;
        data.add(1, file.display().to_string(), File::open(file).unwrap()).unwrap();
        let (catalog, pages) = (Catalog::read(&data).unwrap(), CodePages::new(0x3400_D008, 1033));
        let reader = RowReader { files: &data, pages: &pages };
        for found in of_objects(&catalog, |object| matches!(&object.kind, b"S " | b"IT" | b"U ")) {
            let title = format!("{name}: {}", found.table.title());
            if found.table.refused.is_some() || found.table.columns.iter().any(|column| column.refused.is_some()) {
                // Two tables of Extended Events have no pages.
                assert!(found.table.name.starts_with("trace_xe_"), "{title}");
                continue;
            }
            let mut count = 0;
            for partition in &found.partitions {
                let columns: Vec<_> = partition.columns.iter().flatten().collect();
                let done = reader.read(partition, &columns, &mut |_| {
                    count += 1;
                    Ok(())
                });
                if let Err(trouble) = done {
                    panic!("{title}: {trouble:?}");
                }
            }
            assert_eq!(Some(count), found.table.stored_rows, "{title}");
            (read, all) = (read + 1, all + count);
        }
    }
    assert_eq!((read, all), (562, 46_534), "tables and rows");
}
