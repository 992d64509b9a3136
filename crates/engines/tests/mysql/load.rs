//! Writers: money moves between tables, whose sum never changes, and tables are created, changed and dropped.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::{sync::Arc, thread};

use fullbore_engines::mysql_family::connection::{Connection, Failure};
use fullbore_test_servers::{Server, wait_until};

use super::{address, root};

pub const TABLES: usize = 8;
pub const ROWS: usize = 2000;
/// The sum of all accounts.
pub const TOTAL: &str = "16000000";

/// Makes the tables: accounts, a table of some size, partitions, compressed pages, and engines that are not cloned.
pub fn fill(server: &Server) {
    server.sql("CREATE DATABASE shop; CREATE DATABASE ddl; INSTALL PLUGIN clone SONAME 'mysql_clone.so'");
    let digits = "(SELECT 0 d UNION ALL SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3 UNION ALL SELECT 4 UNION ALL \
                  SELECT 5 UNION ALL SELECT 6 UNION ALL SELECT 7 UNION ALL SELECT 8 UNION ALL SELECT 9)";
    let numbers =
        format!("SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d n FROM {digits} a, {digits} b, {digits} c, {digits} e");
    for table in 0..TABLES {
        server.sql(&format!(
            "CREATE TABLE shop.account{table} (id INT PRIMARY KEY, amount BIGINT NOT NULL, note VARCHAR(200), KEY \
             (amount)); INSERT INTO shop.account{table} SELECT n, 1000, REPEAT('x', n % 200) FROM ({numbers}) t WHERE \
             n < {ROWS}"
        ));
    }
    server.sql(&format!(
        "CREATE TABLE shop.large (id INT AUTO_INCREMENT PRIMARY KEY, body VARBINARY(4000)); \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM ({numbers}) t; \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM shop.large; \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM shop.large; \
         INSERT INTO shop.large (body) SELECT RANDOM_BYTES(1000) FROM shop.large; \
         CREATE TABLE shop.parts (id INT PRIMARY KEY, v INT) PARTITION BY HASH (id) PARTITIONS 3; \
         INSERT INTO shop.parts SELECT n, n FROM ({numbers}) t; \
         CREATE TABLE shop.zipped (id INT PRIMARY KEY, v VARCHAR(100)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8; \
         INSERT INTO shop.zipped SELECT n, REPEAT('z', 90) FROM ({numbers}) t; \
         CREATE TABLESPACE general ADD DATAFILE 'general.ibd'; \
         CREATE TABLE shop.inside (id INT PRIMARY KEY) TABLESPACE general; \
         INSERT INTO shop.inside SELECT n FROM ({numbers}) t; \
         CREATE TABLE ddl.steady (id INT PRIMARY KEY, v INT); INSERT INTO ddl.steady SELECT n, n FROM ({numbers}) t;"
    ));
}

static LOADS: AtomicU64 = AtomicU64::new(0);

/// Writers at work until they are stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    pub transactions: Arc<AtomicU64>,
    pub ddl_rounds: Arc<AtomicU64>,
}

impl Load {
    pub fn start(server: &Server) -> Self {
        Self::start_with(server, true)
    }

    /// Without compressed tables, which cannot be encrypted where that is the default.
    pub fn start_with(server: &Server, compressed: bool) -> Self {
        let (stop, transactions, ddl_rounds) =
            (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
        let connect = || {
            Connection::open(&address(server, "ssl-mode=disabled&get-server-public-key=true"), &root(server), None)
                .unwrap()
        };
        let mut threads = Vec::new();
        for seed in 0..2 {
            let (mut connection, stop, count) = (connect(), stop.clone(), transactions.clone());
            threads.push(thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(seed);
                while !stop.load(Ordering::Relaxed) {
                    if move_money(&mut connection, &mut random) {
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }));
        }
        let (mut connection, stopped, count) = (connect(), stop.clone(), ddl_rounds.clone());
        threads.push(thread::spawn(move || {
            // A range of its own for each load: names are never used twice.
            let first = LOADS.fetch_add(1, Ordering::Relaxed) * 1_000_000;
            for round in first.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                ddl_round(&mut connection, round, compressed);
                count.fetch_add(1, Ordering::Relaxed);
            }
        }));
        Self { stop, threads, transactions, ddl_rounds }
    }

    /// Waits until so many more transactions and rounds of DDL are done.
    #[track_caller]
    pub fn wait_for_more(&self, transactions: u64, rounds: u64) {
        let now = || (self.transactions.load(Ordering::Relaxed), self.ddl_rounds.load(Ordering::Relaxed));
        let before = now();
        wait_until("the load has done more", || now().0 >= before.0 + transactions && now().1 >= before.1 + rounds);
    }

    pub fn stop(mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

fn move_money(connection: &mut Connection, random: &mut fastrand::Rng) -> bool {
    let (from, to) = (random.usize(..TABLES), random.usize(..TABLES));
    let (one, other, amount) = (random.usize(..ROWS), random.usize(..ROWS), random.u32(1..50));
    let statements = [
        "BEGIN".to_owned(),
        format!("UPDATE shop.account{from} SET amount = amount - {amount} WHERE id = {one}"),
        format!(
            "UPDATE shop.account{to} SET amount = amount + {amount}, note = REPEAT('y', {}) WHERE id = {other}",
            amount * 4
        ),
        "COMMIT".to_owned(),
    ];
    for statement in &statements {
        match connection.query(statement) {
            Ok(_) => {}
            // A deadlock between the writers: the transaction is rolled back.
            Err(Failure::Server(error)) if error.code == 1213 => return false,
            Err(failure) => panic!("{statement}: {failure:?}"),
        }
    }
    true
}

fn ddl_round(connection: &mut Connection, round: u64, compressed: bool) {
    let zipped = if compressed { "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8" } else { "" };
    let statements = [
        format!("CREATE TABLE ddl.new{round} (id INT PRIMARY KEY, v VARCHAR(200))"),
        format!("INSERT INTO ddl.new{round} SELECT id, REPEAT('n', 150) FROM ddl.steady WHERE id < 1500"),
        format!("ALTER TABLE ddl.new{round} ADD COLUMN extra INT, ALGORITHM=INPLACE"),
        format!("RENAME TABLE ddl.new{round} TO ddl.renamed{round}"),
        format!("CREATE TABLE ddl.zip{round} (id INT PRIMARY KEY, v INT) {zipped}"),
        format!("INSERT INTO ddl.zip{round} SELECT id, v FROM ddl.steady WHERE id < 300"),
        "ALTER TABLE ddl.steady ENGINE=InnoDB".to_owned(),
        format!("CREATE TABLE ddl.cut{round} LIKE ddl.steady"),
        format!("INSERT INTO ddl.cut{round} SELECT * FROM ddl.steady WHERE id < 700"),
        format!("TRUNCATE TABLE ddl.cut{round}"),
        format!("INSERT INTO ddl.cut{round} SELECT * FROM ddl.steady WHERE id < 5"),
        "RENAME TABLE shop.parts TO shop.swap, shop.inside TO shop.parts, shop.swap TO shop.inside".to_owned(),
    ];
    let old = round.saturating_sub(2);
    let drop = (round % 1_000_000 >= 2).then(|| format!("DROP TABLE ddl.renamed{old}, ddl.zip{old}, ddl.cut{old}"));
    for statement in statements.iter().chain(&drop) {
        connection.query(statement).unwrap_or_else(|failure| panic!("{statement}: {failure:?}"));
    }
}

/// The checksum of each table, except those of the server itself.
pub fn checksums(server: &Server) -> String {
    let tables = server.sql(
        "SELECT CONCAT('`', table_schema, '`.`', table_name, '`') FROM information_schema.tables \
         WHERE table_type = 'BASE TABLE' AND engine = 'InnoDB' AND table_schema IN ('shop', 'ddl') ORDER BY 1",
    );
    let tables: Vec<&str> = tables.lines().collect();
    assert!(tables.len() > TABLES, "{tables:?}");
    server.sql(&format!("CHECKSUM TABLE {}", tables.join(", ")))
}

/// Runs `CHECK TABLE` for each table; returns the tables that are not OK.
pub fn broken_tables(server: &Server) -> String {
    let list = checksums(server);
    let tables: Vec<&str> = list.lines().filter_map(|line| line.split('\t').next()).collect();
    let checked = server.sql(&format!("CHECK TABLE {}", tables.join(", ")));
    checked.lines().filter(|line| !line.ends_with("\tOK")).collect::<Vec<_>>().join("\n")
}

/// The sum over all accounts.
pub fn total(server: &Server) -> String {
    let sums = (0..TABLES).map(|table| format!("(SELECT SUM(amount) FROM shop.account{table})"));
    server.sql(&format!("SELECT {}", sums.collect::<Vec<_>>().join(" + "))).trim().to_owned()
}
