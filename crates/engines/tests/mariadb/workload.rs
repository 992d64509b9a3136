//! The load on a server during a copy: money that moves, tables that are created and dropped, and writers of other
//! engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use fullbore_test_servers::Server;

use crate::client::Client;

/// Accounts are in so many tables, with so many rows in each, and so much in each account.
pub const TABLES: u64 = 4;
pub const ROWS: u64 = 2000;
pub const AMOUNT: u64 = 1000;

/// The tables of all engines; `options` are those of the tables with accounts.
pub fn prepare(server: &Server, options: &str) {
    let mut client = Client::connect(server);
    client.run("CREATE DATABASE shop; USE shop");
    client.run(&format!(
        "CREATE TABLE empty (id INT PRIMARY KEY, amount BIGINT NOT NULL, pad VARCHAR(300), KEY (amount)) ENGINE=InnoDB \
         {options}"
    ));
    for table in 0..TABLES {
        client.run(&format!("CREATE TABLE account{table} LIKE empty"));
        client.run(&format!(
            "INSERT INTO account{table} SELECT seq, {AMOUNT}, REPEAT(CONCAT('row ', seq, ' '), 20) FROM seq_1_to_{ROWS}"
        ));
    }
    client.run("CREATE TABLE myisam (id INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(200)) ENGINE=MyISAM");
    client.run("CREATE TABLE aria (id INT AUTO_INCREMENT PRIMARY KEY, b VARCHAR(200)) ENGINE=Aria TRANSACTIONAL=1");
    client.run(
        "CREATE TABLE csv (id INT NOT NULL, b VARCHAR(20) NOT NULL) ENGINE=CSV; INSERT INTO csv VALUES (1, 'one')",
    );
    client.run("CREATE TABLE old (id INT PRIMARY KEY) ENGINE=MyISAM; INSERT INTO old VALUES (1), (2), (3)");
    client.run("CREATE SEQUENCE numbers; SELECT NEXT VALUE FOR numbers; CREATE VIEW seen AS SELECT * FROM account0");
    client.run(
        "CREATE TABLE texts (id INT PRIMARY KEY, b TEXT, FULLTEXT (b)) ENGINE=InnoDB; \
         INSERT INTO texts SELECT seq, CONCAT('word', seq, ' money') FROM seq_1_to_200",
    );
    client.run(
        "CREATE TABLE parts (id INT PRIMARY KEY, b INT) ENGINE=InnoDB PARTITION BY HASH (id) PARTITIONS 3; \
         INSERT INTO parts SELECT seq, seq FROM seq_1_to_500; \
         CREATE TABLE versions (id INT PRIMARY KEY, b INT) ENGINE=InnoDB WITH SYSTEM VERSIONING; \
         INSERT INTO versions SELECT seq, seq FROM seq_1_to_100; UPDATE versions SET b = b + 1",
    );
}

/// Writers in threads, until it is stopped or dropped.
pub struct Workload {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    transfers: Arc<AtomicU64>,
    definitions: Arc<AtomicU64>,
}

impl Workload {
    pub fn start(server: &Server, seed: u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (transfers, definitions) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let mut threads = Vec::new();
        let mut spawn = |mut step: Box<dyn FnMut(&mut Client) -> bool + Send>| {
            let (mut client, stop) = (Client::connect(server), Arc::clone(&stop));
            client.run("USE shop; SET SESSION lock_wait_timeout=120");
            threads.push(std::thread::spawn(move || while !stop.load(Ordering::Relaxed) && step(&mut client) {}));
        };
        for writer in 0..2 {
            let (mut random, transfers) = (fastrand::Rng::with_seed(seed * 10 + writer), Arc::clone(&transfers));
            spawn(Box::new(move |client| {
                transfers.fetch_add(1, Ordering::Relaxed);
                client.try_run(&transfer(&mut random)).map_or_else(|error| error.contains("1213"), |_| true)
            }));
        }
        let (mut round, counted) = (0, Arc::clone(&definitions));
        spawn(Box::new(move |client| {
            round += 1;
            counted.fetch_add(1, Ordering::Relaxed);
            let all_good = definitions_of(round).iter().try_for_each(|sql| client.try_run(sql).map(drop));
            all_good.map_err(|error| eprintln!("{error}")).is_ok()
        }));
        spawn(Box::new(|client| {
            let other = "INSERT INTO myisam (b) VALUES (REPEAT('m', 150)); INSERT INTO aria (b) VALUES (REPEAT('a', \
                         150)), ('b')";
            client.try_run(other).is_ok()
        }));
        Self { stop, threads, transfers, definitions }
    }

    /// Waits until every kind of writer has done something.
    pub fn warm_up(&self) {
        while self.transfers.load(Ordering::Relaxed) < 20 || self.definitions.load(Ordering::Relaxed) < 2 {
            assert!(self.threads.iter().all(|thread| !thread.is_finished()), "a writer has failed");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// How many transfers and rounds of definitions there were so far.
    pub fn done(&self) -> (u64, u64) {
        (self.transfers.load(Ordering::Relaxed), self.definitions.load(Ordering::Relaxed))
    }

    /// True while all writers work.
    pub fn is_well(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // It has already reported its errors.
        }
    }
}

/// One transfer between accounts of two tables. One statement: whatever ends it, money is neither made nor lost.
fn transfer(random: &mut fastrand::Rng) -> String {
    let from = random.u64(..TABLES);
    let to = (from + random.u64(1..TABLES)) % TABLES;
    let (debit, credit, amount) = (random.u64(1..=ROWS), random.u64(1..=ROWS), random.u64(1..50));
    format!(
        "UPDATE account{from} AS a JOIN account{to} AS b SET a.amount = a.amount - {amount}, \
         b.amount = b.amount + {amount}, b.pad = REVERSE(b.pad) WHERE a.id = {debit} AND b.id = {credit}"
    )
}

/// One round of everything that can happen to a table.
fn definitions_of(round: u64) -> Vec<String> {
    let (a, b) = (format!("made{}", round % 7), format!("made{}", (round + 3) % 7));
    vec![
        format!(
            "CREATE OR REPLACE TABLE {a} ENGINE=InnoDB AS SELECT seq AS id, REPEAT('x', 100) AS b FROM seq_1_to_300"
        ),
        format!("CREATE TABLE IF NOT EXISTS {b} (id INT, b VARCHAR(200)) ENGINE=InnoDB"),
        format!("RENAME TABLE {a} TO swap, {b} TO {a}, swap TO {b}"),
        format!("ALTER TABLE {b} ADD INDEX i{round} (id)"),
        format!("TRUNCATE TABLE {a}"),
        format!("INSERT INTO {a} (id, b) SELECT seq, 'y' FROM seq_1_to_50"),
        format!("ALTER TABLE {b} FORCE, ALGORITHM=INPLACE"),
        format!("ALTER TABLE {a} FORCE, ALGORITHM=COPY"),
        format!("DROP TABLE {}", if round.is_multiple_of(2) { &a } else { &b }),
        format!(
            "CREATE OR REPLACE TABLE files{} (id INT, b VARCHAR(50)) ENGINE=MyISAM AS SELECT seq AS id FROM \
             seq_1_to_20",
            round % 3
        ),
        format!("ALTER TABLE parts TRUNCATE PARTITION p{}", round % 3),
    ]
}
