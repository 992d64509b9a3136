//! A server on a copy: started once, and everything in it checked.

use std::path::Path;

use fullbore_test_servers::{Options, Server};

use crate::workload::{AMOUNT, ROWS, TABLES};

/// Starts the same series of the server on `copy` and checks the invariant and every table; the server continues to
/// run.
pub fn check(source: &Server, copy: &Path, options: Options) -> Server {
    let options = options.datadir(copy).password_file(source.password_file().unwrap());
    let server = Server::start(source.kind(), &options);
    let accounts: Vec<String> = (0..TABLES).map(|table| format!("SELECT amount FROM shop.account{table}")).collect();
    let sum = server.sql(&format!("SELECT SUM(amount), COUNT(*) FROM ({}) AS a", accounts.join(" UNION ALL ")));
    assert_eq!(sum.trim(), format!("{}\t{}", TABLES * ROWS * AMOUNT, TABLES * ROWS), "money was made or lost");
    check_tables(&server);
    let log = server.error_log();
    let bad: Vec<&str> = log.lines().filter(|line| line.contains("[ERROR]") || line.contains("orrupt")).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    server
}

/// Every table is OK.
pub fn check_tables(server: &Server) {
    let tables = server.sql(
        "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables \
         WHERE table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND engine <> 'PERFORMANCE_SCHEMA' \
         AND table_schema NOT IN ('information_schema', 'performance_schema') AND engine <> 'CSV'",
    );
    let tables: Vec<&str> = tables.lines().collect();
    assert!(tables.len() > 30, "{tables:?}");
    let checked = server.sql(&format!("CHECK TABLE {} EXTENDED", tables.join(", ")));
    let bad: Vec<&str> = checked.lines().filter(|line| !line.ends_with("status\tOK")).collect();
    assert!(bad.is_empty() && checked.lines().count() >= tables.len(), "{bad:#?}");
}
