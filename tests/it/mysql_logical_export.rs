//! `fullbore export` of logical sets: rows of a real server in files, without a server, and in another server by its client.

use std::fs::File;
use std::process::Stdio;

use fullbore_test_servers::{Kind, Server};
use parquet::basic::LogicalType;
use parquet::file::reader::{FileReader, SerializedFileReader};
use rusqlite::Connection;

use crate::mysql_logical::{NAMES, SHOP, TYPES, assert_same, backup, everything, server};
use crate::world::World;

const DATABASES: [&str; 3] = ["shop", "types", "a.b `c/é"];

/// What only one of the vendors has.
fn further(kind: Kind) -> &'static str {
    match kind {
        Kind::Mysql9 => {
            "CREATE TABLE shop.more (k INT PRIMARY KEY, /*!90000 v VECTOR(3),*/ hidden INT /*!80023 INVISIBLE*/ DEFAULT 7, p POINT NOT NULL /*!80003 SRID 4326*/); \
             INSERT INTO shop.more (k, /*!90000 v,*/ hidden, p) \
             VALUES (1, /*!90000 TO_VECTOR('[1,-2.5,1e30]'),*/ 8, ST_GeomFromText('POINT(1 2)', 4326));"
        }
        _ => {
            "CREATE SEQUENCE shop.s START WITH 7 INCREMENT BY 3 NOCACHE; DO NEXTVAL(shop.s); \
             CREATE TABLE shop.more (k INT PRIMARY KEY, /*M!100700 u UUID,*/ /*M!101000 i4 INET4,*/ i6 INET6); \
             INSERT INTO shop.more VALUES (1, /*M!100700 '123e4567-e89b-12d3-a456-426655440000',*/ /*M!101000 '1.2.3.4',*/ '::ffff:1.2.3.4'), \
             (2, /*M!100700 NULL,*/ /*M!101000 '0.0.0.0',*/ '::');"
        }
    }
}

fn stored(kind: Kind, world: &World) -> Server {
    let source = server(kind, world, "source");
    let code = "CREATE DATABASE code; CREATE FUNCTION code.f () RETURNS INT DETERMINISTIC RETURN 1\r\n -- é;;\r\n + 1; \
                SET NAMES latin1; CREATE FUNCTION code.spelled () RETURNS VARCHAR(20) DETERMINISTIC RETURN HEX('ä'); SET NAMES utf8mb4";
    [SHOP, TYPES, NAMES, further(kind), code].iter().for_each(|statements| drop(source.sql(statements)));
    backup(world, &source, "--to a/ --to b/ --readers 2").done();
    source
}

/// The fields of a CSV text. `None` is a field without quotes and characters.
fn fields(text: &str) -> Vec<Vec<Option<String>>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), None::<String>, false);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                field.get_or_insert_default().push(letters.next().unwrap())
            }
            '"' => {
                quoted = !quoted;
                field.get_or_insert_default();
            }
            ',' if !quoted => row.push(field.take()),
            '\r' if !quoted => {
                assert_eq!(letters.next(), Some('\n'));
                row.push(field.take());
                rows.push(std::mem::take(&mut row));
            }
            letter => field.get_or_insert_default().push(letter),
        }
    }
    rows
}

/// The columns of a table and the text that the server has for each value, as an export writes it.
fn told(server: &Server, schema: &str, table: &str) -> (Vec<String>, Vec<String>, Vec<Vec<Option<String>>>) {
    let columns = server.sql(&format!(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = '{schema}' AND table_name = '{table}' \
         AND extra NOT LIKE '%GENERATED%' ORDER BY ordinal_position"
    ));
    let columns = columns.lines().map(|line| line.split_once('\t').unwrap());
    let (names, types): (Vec<_>, Vec<_>) = columns.map(|(name, of)| (name.to_owned(), of.to_owned())).unzip();
    let expressions = names.iter().zip(&types).map(|(name, data_type)| {
        let value = match &data_type[..] {
            "float" => format!("`{name}` * 1e0"),
            "bit" | "year" => format!("`{name}` + 0"),
            "uuid" => format!("UPPER(`{name}`)"),
            "binary" | "varbinary" | "longblob" | "blob" | "vector" | "geometry" | "point" => {
                format!("CONCAT('0x', HEX(`{name}`))")
            }
            _ => format!("`{name}`"),
        };
        format!("IFNULL(HEX(CONVERT({value} USING utf8mb4)), 'NULL')")
    });
    let asked = expressions.collect::<Vec<_>>().join(", ");
    let rows =
        server.sql(&format!("SET time_zone = '+00:00'; SELECT {asked} FROM `{schema}`.`{}`", table.replace('`', "``")));
    let value = |hex: &str| {
        let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
        (hex != "NULL").then(|| String::from_utf8((0..hex.len()).step_by(2).map(byte).collect()).unwrap())
    };
    (names, types, rows.lines().map(|line| line.split('\t').map(value).collect()).collect())
}

fn assert_csv(world: &World, server: &Server, file: &str, schema: &str, table: &str) {
    let (names, types, mut expected) = told(server, schema, table);
    let mut found = fields(&world.text(file));
    assert_eq!(found.remove(0).into_iter().flatten().collect::<Vec<_>>(), names, "{file}");
    for row in found.iter_mut().chain(&mut expected) {
        for (value, data_type) in row.iter_mut().zip(&types) {
            let Some(text) = value else { continue };
            match &data_type[..] {
                "float" => *text = (text.parse::<f64>().unwrap() as f32).to_bits().to_string(),
                "double" => *text = text.parse::<f64>().unwrap().to_bits().to_string(),
                _ => {}
            }
        }
    }
    found.sort();
    expected.sort();
    assert!(found == expected, "{table}: {found:#.3000?}\n{expected:#.3000?}");
}

fn files_have_the_rows_of_the_server(kind: Kind) {
    let world = World::new();
    let source = stored(kind, &world);
    let ended = world.run("export --from a --from b --format csv --into dir:csv").done();
    let ended = ended.says(&["shop.parts: its rows have no values of 1 computed column", "2 views left out"]);
    assert!(ended.text().contains("11 tables of "), "{ended}");
    for (schema, table) in [
        ("shop", "customer"),
        ("shop", "order`s"),
        ("shop", "nothing"),
        ("shop", "nokey"),
        ("shop", "parts"),
        ("shop", "more"),
        ("types", "numbers"),
        ("types", "moments"),
        ("types", "texts"),
        ("types", "others"),
    ] {
        assert_csv(&world, &source, &format!("csv/{schema}.{table}.csv"), schema, table);
    }
    let all = ["k ``,(", "v'"].map(|name| name.replace("``", "`"));
    assert_eq!(world.text("csv/a.b `c%2Fé.tä'b%22l,(e.csv"), format!("\"{}\",{}\r\n1,2\r\n", all[0], all[1]));

    // What is chosen.
    let chosen = ["--table", "types.numbers", "--columns", "d,k", "--where", "d > 5 AND k < 2", "--into", "dir:few"];
    let line = ["export", "--from", "a", "--from", "b", "--format", "csv"];
    world.run_with(&[&line[..], &chosen].concat()).done();
    assert_eq!(world.text("few/types.numbers.csv"), "d,k\r\n18446744073709551615,0\r\n");
    world.run("export --from a --from b --format csv --table shop.no --into dir:no").refused(
        2,
        "shop.no",
        "no such table",
    );

    // Types of Parquet, and values that they cannot hold.
    world.run("export --from a --from b --format parquet --table numbers --table moments --into dir:pq").done();
    let schema = |file: &str| {
        let reader = SerializedFileReader::new(File::open(world.at(file)).unwrap()).unwrap();
        let columns = reader.metadata().file_metadata().schema_descr().columns().to_vec();
        let found = columns.iter().map(|column| (column.name().to_owned(), column.logical_type_ref().cloned()));
        (found.collect::<Vec<_>>(), reader.metadata().file_metadata().num_rows())
    };
    let (numbers, rows) = schema("pq/types.numbers.parquet");
    assert_eq!((rows, &numbers[4].1), (3, &Some(LogicalType::integer(64, false))));
    assert_eq!((&numbers[5].1, &numbers[8].1), (&Some(LogicalType::String), &Some(LogicalType::integer(64, false))));
    let (moments, _) = schema("pq/types.moments.parquet");
    assert_eq!(moments[1].1, Some(LogicalType::String), "a zero date");
    assert!(matches!(moments[4].1, Some(LogicalType::Timestamp(_))), "{moments:?}");

    world.run("export --from a --from b --format sqlite --into dir:lite").done();
    let name = world.names("lite").remove(0);
    let database = Connection::open(world.at(&format!("lite/{name}"))).unwrap();
    let told = "SELECT group_concat(typeof(d)), max(typeof(c)), (SELECT length(l) FROM \"types.others\" WHERE k = 1) FROM \"types.numbers\"";
    let told: (String, String, i64) =
        database.query_row(told, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).unwrap();
    assert_eq!(told, ("text,integer,null".into(), "null".into(), 2_800_000));
    database.close().unwrap();
}

#[test]
fn files_of_a_mysql_dump_have_the_rows_of_the_server() {
    files_have_the_rows_of_the_server(Kind::Mysql9);
}

#[test]
fn files_of_a_mariadb_dump_have_the_rows_of_the_server() {
    files_have_the_rows_of_the_server(Kind::Mariadb11);
}

/// Runs a text with the client of a server.
fn run_text(world: &World, server: &Server, file: &str) {
    let text = File::open(world.at(file)).unwrap();
    let options = ["--binary-mode", "--comments", "--default-character-set=utf8mb4"];
    let ended = server.client().args(options).stdin(Stdio::from(text)).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn a_text_makes_the_server_again(kind: Kind) {
    let world = World::new();
    let (source, target) = (stored(kind, &world), server(kind, &world, "target"));
    world.run("export --from a --from b --format sql --into dir:out").done();
    let name = world.names("out").remove(0);
    run_text(&world, &target, &format!("out/{name}"));
    assert_same(&everything(&target, &DATABASES), &everything(&source, &DATABASES));
    let code = "SELECT HEX(routine_definition) FROM information_schema.routines WHERE routine_schema = 'code'";
    assert_eq!(target.sql(code), source.sql(code), "a body keeps the ends of its lines");
    assert_eq!(target.sql("SELECT code.spelled()"), "C3A4\n");

    // One table, and a part of its rows.
    let line = ["export", "--from", "a", "--from", "b", "--format", "sql", "--into", "dir:one"];
    world.run_with(&[&line[..], &["--table", "shop.customer", "--where", "id = 2"]].concat()).done();
    target.sql("DROP DATABASE shop");
    run_text(&world, &target, &format!("one/{}", world.names("one").remove(0)));
    assert_eq!(
        target.sql("SELECT HEX(name) FROM shop.customer"),
        source.sql("SELECT HEX(name) FROM shop.customer WHERE id = 2")
    );
    assert_eq!(
        target.sql("SELECT COUNT(*) FROM information_schema.triggers WHERE trigger_schema = 'shop'").trim(),
        "1"
    );
    assert_eq!(target.sql("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'shop'").trim(), "1");
    world.run("export --from a --from b --format sql --columns k --into dir:no").refused(2, "--columns", "whole rows");
}

#[test]
fn a_text_of_a_mysql_dump_makes_the_server_again() {
    a_text_makes_the_server_again(Kind::Mysql9);
}

#[test]
fn a_text_of_a_mariadb_dump_makes_the_server_again() {
    a_text_makes_the_server_again(Kind::Mariadb11);
}

#[test]
fn a_repository_exports_its_newest_dump_and_a_table_that_cannot_be_read_is_refused_by_name() {
    let world = World::new();
    let source = server(Kind::Mysql9, &world, "source");
    source.sql(
        "CREATE DATABASE shop; USE shop; CREATE TABLE good (a INT, big VARCHAR(2000)); INSERT INTO good VALUES (1, 'x'); \
         CREATE TABLE odd (k INT, a VARCHAR(9) CHARACTER SET swe7); INSERT INTO odd VALUES (1, 'x'); \
         CREATE TABLE computed (g INT AS (1 + 1)); INSERT INTO computed VALUES (), ()",
    );
    world.write("fullbore.toml", b"[repository.night]\nto = [\"a/\"]\n");
    backup(&world, &source, "--repo night").done();
    source.sql("INSERT INTO shop.good WITH RECURSIVE n AS (SELECT 2 a UNION ALL SELECT a + 1 FROM n WHERE a < 900) SELECT a, REPEAT('y', 2000) FROM n");
    backup(&world, &source, "--repo night").done();
    drop(source);
    let ended = world.run("export --repo night --format csv --into dir:csv").with_code(4);
    ended.says(&["shop.odd", "swe7", "column a", "shop.computed", "all its columns are computed"]);
    assert_eq!(world.names("csv"), ["shop.good.csv"]);
    assert_eq!(world.text("csv/shop.good.csv").lines().count(), 901);
    world.run("export --repo night --format csv --table odd --columns k --into dir:odd").done();
    assert_eq!(world.text("odd/shop.odd.csv"), "k\r\n1\r\n");
    world.run("export --repo night --format sql --table computed --into dir:text").done();
    assert!(world.text("text/shop.sql").contains("INSERT INTO `shop`.`computed` () VALUES (),\n();\n"));

    // Damage in the rows of the newest set, which is the larger one. Both may be of the same second.
    let families = world.names("a").into_iter().filter(|name| name.ends_with(".bore"));
    let family = families.max_by_key(|name| world.read(&format!("a/{name}")).len()).unwrap();
    let mut bytes = world.read(&format!("a/{family}"));
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    world.write(&format!("a/{family}"), &bytes);
    world.run("export --repo night --format sql --into dir:bad").with_code(3);
    assert!(!world.at("bad").exists());
}
