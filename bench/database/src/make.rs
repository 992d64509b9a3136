//! Makes the database: rows in batches until the size is reached, then indexes, then deletions.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;
use fastrand::Rng;
use rusqlite::{CachedStatement, Connection, params};

use crate::schema::{INDEXES, OPENING_BALANCE, TABLES};
use crate::text::{CITIES, FIRST, Vocabulary, skewed, uuid};
use crate::{Journal, parse_size};

/// The share of the size that the rows take before the indexes are made; the rest is filled up afterwards.
const BEFORE_INDEXES: f64 = 0.86;

/// The share of pages that the deletions leave free.
const FREE: f64 = 0.04;

/// One account for so many bytes of database: their pages lie all over the file, and so do the writer's changes.
const BYTES_PER_ACCOUNT: u64 = 32 << 10;

#[derive(Args)]
pub struct Options {
    /// The file to make; it must not exist.
    path: PathBuf,
    /// Its size.
    #[arg(long, default_value = "64MiB", value_parser = parse_size)]
    size: u64,
    /// The same seed and size give the same rows.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bytes in one page: a power of two from 512 to 65536.
    #[arg(long, default_value_t = 4096)]
    page_size: u32,
    /// The journal mode that the file is left in.
    #[arg(long, default_value = "wal")]
    journal: Journal,
}

/// What was made.
pub struct Made {
    bytes: u64,
    pages: u64,
    free_pages: u64,
    accounts: u64,
    seconds: f64,
}

impl fmt::Display for Made {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.bytes as f64 / (1 << 20) as f64 / self.seconds;
        let Made { bytes, pages, free_pages, accounts, seconds } = self;
        write!(out, "bytes={bytes} pages={pages} free_pages={free_pages} ")?;
        write!(out, "accounts={accounts} seconds={seconds:.2} mib_per_s={rate:.0}")
    }
}

/// Makes the file; what is left after a failure is removed.
pub fn run(options: &Options) -> anyhow::Result<Made> {
    let path = &options.path;
    ensure!(!path.exists(), "`{}` exists; this program overwrites nothing", path.display());
    let page = options.page_size;
    ensure!((512..=65_536).contains(&page) && page.is_power_of_two(), "--page-size {page} is not one of SQLite's");
    let started = Instant::now();
    let made = fill(options);
    if made.is_err() {
        let _ = fs::remove_file(path); // The error says why; there may be no file.
    }
    let (pages, free_pages, accounts) = made?;
    let bytes = fs::metadata(path)?.len();
    Ok(Made { bytes, pages, free_pages, accounts, seconds: started.elapsed().as_secs_f64() })
}

fn open(path: &Path, page_size: u32) -> anyhow::Result<Connection> {
    let database = Connection::open(path).with_context(|| format!("cannot make `{}`", path.display()))?;
    // Nobody else sees the file yet, and a crash means starting again: no journal, no sync, much cache.
    database.execute_batch(&format!(
        "PRAGMA page_size = {page_size}; PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA threads = 2;
         PRAGMA locking_mode = EXCLUSIVE; PRAGMA cache_size = -262144; PRAGMA secure_delete = OFF;"
    ))?;
    database.set_prepared_statement_cache_capacity(32);
    Ok(database)
}

fn fill(options: &Options) -> anyhow::Result<(u64, u64, u64)> {
    let database = open(&options.path, options.page_size)?;
    let pages = options.size / u64::from(options.page_size);
    let accounts = (options.size / BYTES_PER_ACCOUNT).clamp(100, 1 << 20);
    database.execute_batch("BEGIN")?;
    database.execute_batch(TABLES)?;
    let about = "INSERT INTO about VALUES ('seed', ?1), ('accounts', ?2)";
    database.execute(about, params![options.seed as i64, accounts as i64])?;
    let mut rows = Rows::new(&database, options.seed)?;
    let first_goal = (pages as f64 * BEFORE_INDEXES) as u64;
    let mut opened = 0_i64;
    while page_count(&database)? < first_goal || rows.customers < 20 {
        rows.batch(8)?;
        // In step with the rest, so that the accounts lie all over the file.
        let share = page_count(&database)? as f64 / first_goal.max(1) as f64;
        let due = (accounts as f64 * share.min(1.0)) as i64;
        rows.accounts(opened, due)?;
        opened = opened.max(due);
    }
    rows.accounts(opened, accounts as i64)?;
    for index in INDEXES {
        database.execute_batch(index)?;
    }
    while page_count(&database)? < pages {
        rows.documents(2)?;
    }
    free_pages(&database)?;
    drop(rows);
    database.execute_batch("COMMIT; PRAGMA locking_mode = NORMAL;")?;
    database.execute_batch("PRAGMA optimize")?;
    let counts = (page_count(&database)?, pragma(&database, "freelist_count")?, accounts);
    let mode = if options.journal == Journal::Wal { "WAL" } else { "DELETE" };
    database.query_row(&format!("PRAGMA journal_mode = {mode}"), [], |row| row.get::<_, String>(0))?;
    database.close().map_err(|(_, error)| error)?;
    fs::File::open(&options.path)?.sync_all()?;
    Ok(counts)
}

/// Deletes runs of documents and attachments, as retention does, until the share of free pages is reached.
fn free_pages(database: &Connection) -> anyhow::Result<()> {
    let goal = (page_count(database)? as f64 * FREE) as u64;
    let mut lasts = Vec::new();
    for table in ["documents", "attachments"] {
        let last = database.query_row(&format!("SELECT coalesce(max(id), 0) FROM {table}"), [], |row| row.get(0))?;
        lasts.push((table, last));
    }
    // Steps of a prime share of each table: the holes lie all over the file.
    for step in 1..=200 {
        if pragma(database, "freelist_count")? >= goal {
            break;
        }
        for (table, last) in &lasts {
            let last: i64 = *last;
            let (first, run) = (last * (step * 37 % 101) / 101, (last / 400).max(1));
            let delete = format!("DELETE FROM {table} WHERE id BETWEEN ?1 AND ?2");
            database.execute(&delete, [first, first + run])?;
        }
    }
    Ok(())
}

fn page_count(database: &Connection) -> anyhow::Result<u64> {
    pragma(database, "page_count")
}

fn pragma(database: &Connection, name: &str) -> anyhow::Result<u64> {
    let number: i64 = database.prepare_cached(&format!("PRAGMA {name}"))?.query_row([], |row| row.get(0))?;
    Ok(number as u64)
}

/// The generator of rows: one statement for each table, and text buffers used again and again.
struct Rows<'a> {
    random: Rng,
    vocabulary: Vocabulary,
    /// Seconds since 1970 of the row made last; time goes on with the rows.
    now: i64,
    customers: i64,
    orders: i64,
    text: String,
    title: String,
    bytes: Vec<u8>,
    customer: CachedStatement<'a>,
    order: CachedStatement<'a>,
    line: CachedStatement<'a>,
    event: CachedStatement<'a>,
    document: CachedStatement<'a>,
    attachment: CachedStatement<'a>,
    search: CachedStatement<'a>,
    account: CachedStatement<'a>,
}

impl<'a> Rows<'a> {
    fn new(database: &'a Connection, seed: u64) -> anyhow::Result<Self> {
        let prepare = |sql: &str| database.prepare_cached(sql);
        Ok(Rows {
            random: Rng::with_seed(seed),
            vocabulary: Vocabulary::new(seed),
            now: 1_577_836_800,
            customers: 0,
            orders: 0,
            text: String::with_capacity(1 << 16),
            title: String::with_capacity(1 << 8),
            bytes: Vec::with_capacity(1 << 17),
            customer: prepare("INSERT INTO customers VALUES (NULL, ?1, ?2, ?3, ?4, ?5, ?6, ?7)")?,
            order: prepare("INSERT INTO orders VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?,
            line: prepare("INSERT INTO order_lines VALUES (?1, ?2, ?3, ?4, ?5)")?,
            event: prepare("INSERT INTO events VALUES (NULL, ?1, ?2, ?3, ?4)")?,
            document: prepare("INSERT INTO documents VALUES (NULL, ?1, ?2, ?3, ?4)")?,
            attachment: prepare("INSERT INTO attachments VALUES (NULL, ?1, ?2)")?,
            search: prepare("INSERT INTO search VALUES (?1, ?2)")?,
            account: prepare("INSERT INTO accounts VALUES (?1, ?2, ?3, 0)")?,
        })
    }

    /// So many customers, each with what a customer of a shop leaves behind in it: about 12 KiB.
    fn batch(&mut self, customers: u32) -> anyhow::Result<()> {
        for _ in 0..customers {
            self.customer()?;
            for _ in 0..3 {
                self.order()?;
            }
            for _ in 0..6 {
                self.event()?;
            }
            self.documents(2)?;
            if self.random.u8(..) < 25 {
                self.attachment(true)?;
            }
            if self.random.u8(..) < 9 {
                self.attachment(false)?;
            }
        }
        Ok(())
    }

    fn customer(&mut self) -> anyhow::Result<()> {
        self.customers += 1;
        let random = &mut self.random;
        let first = FIRST[skewed(random, FIRST.len() as u64) as usize];
        let last = self.vocabulary.word(random);
        let name = format!("{first} {last}");
        let email = format!("{}.{last}{}@example.com", first.to_lowercase(), self.customers);
        let phone = format!("+49 {} {}", random.u32(100..999), random.u32(1_000_000..9_999_999));
        let city = CITIES[skewed(random, CITIES.len() as u64) as usize];
        let created = time_stamp(self.now);
        self.text.clear();
        let language = ["en", "de", "pt", "fr"][skewed(random, 4) as usize];
        let (letter, theme, last_seen) = (random.bool(), skewed(random, 3), self.now - random.i64(0..900_000));
        write!(
            self.text,
            "{{\"language\":\"{language}\",\"newsletter\":{letter},\"theme\":{theme},\"last_seen\":{last_seen}}}"
        )?;
        let credit = (random.f64() * 1e5).round() / 100.0;
        self.customer.execute(params![name, email, phone, city, created, credit, self.text])?;
        Ok(())
    }

    fn order(&mut self) -> anyhow::Result<()> {
        self.orders += 1;
        let random = &mut self.random;
        self.now += random.i64(0..60);
        let customer = self.customers - skewed(random, self.customers as u64) as i64;
        self.title.clear();
        uuid(random, &mut self.title);
        let status = ["delivered", "shipped", "paid", "open", "returned", "cancelled"][skewed(random, 6) as usize];
        self.text.clear();
        if random.u8(..) < 80 {
            self.vocabulary.prose(random, 60, &mut self.text);
        }
        let lines = 1 + skewed(random, 8) as i64;
        let mut total = 0;
        for line in 1..=lines {
            let sku = format!("SKU-{:06}", skewed(random, 50_000));
            let (quantity, price) = (1 + skewed(random, 5) as i64, 99 + 100 * skewed(random, 300) as i64);
            total += quantity * price;
            self.line.execute(params![self.orders, line, sku, quantity, price])?;
        }
        let note = (!self.text.is_empty()).then_some(&self.text);
        self.order.execute(params![self.orders, customer, self.title, status, self.now, total, note])?;
        Ok(())
    }

    fn event(&mut self) -> anyhow::Result<()> {
        const KINDS: [&str; 6] = ["page.view", "cart.add", "search.query", "order.paid", "mail.opened", "login.failed"];
        let random = &mut self.random;
        self.now += random.i64(0..3);
        let kind = KINDS[skewed(random, 6) as usize];
        self.text.clear();
        write!(self.text, "{{\"session\":\"{:012x}\",\"path\":\"/", random.u64(..1 << 48))?;
        let customer = self.customers - skewed(random, self.customers as u64) as i64;
        let (milliseconds, status): (u64, i64) =
            (skewed(random, 3_000), [200, 200, 200, 304, 404][skewed(random, 5) as usize]);
        for _ in 0..3 {
            self.text.push_str(self.vocabulary.word(random));
            self.text.push('/');
        }
        write!(
            self.text,
            "\",\"agent\":\"Mozilla/5.0 (X11; Linux x86_64)\",\"status\":{status},\"ms\":{milliseconds},\"q\":\""
        )?;
        self.vocabulary.prose(random, 40, &mut self.text);
        self.text.retain(|c| c != '\n');
        self.text.push_str("\"}");
        self.event.execute(params![self.now, kind, customer, self.text])?;
        Ok(())
    }

    /// Documents of 300 bytes to 16 KiB, short ones far likelier; every 64th goes into the full-text search.
    fn documents(&mut self, count: u32) -> anyhow::Result<()> {
        for _ in 0..count {
            let random = &mut self.random;
            let (kind, length) = (skewed(random, 5) as usize, 300 + skewed(random, 11_000) as usize);
            self.title.clear();
            self.vocabulary.prose(random, 40, &mut self.title);
            self.text.clear();
            self.vocabulary.prose(random, length, &mut self.text);
            let kind = ["letter", "invoice", "ticket", "contract", "report"][kind];
            self.document.execute(params![kind, time_stamp(self.now), self.title, self.text])?;
            if random.u8(..64) == 0 {
                self.search.execute(params![self.title, self.text])?;
            }
        }
        Ok(())
    }

    /// A blob of 2 to 60 KiB: random bytes, as packed pictures are, or samples of a slow curve.
    fn attachment(&mut self, packed: bool) -> anyhow::Result<()> {
        let random = &mut self.random;
        let length = 2_048 + skewed(random, 90_000) as usize;
        self.bytes.resize(length, 0);
        if packed {
            random.fill(&mut self.bytes);
        } else {
            let mut level = 0_i16;
            for sample in self.bytes.chunks_mut(2) {
                level = level.wrapping_add(i16::from(random.u8(..5)) - 2);
                sample.copy_from_slice(&level.to_le_bytes()[..sample.len()]);
            }
        }
        let media_type = if packed { "image/jpeg" } else { "application/x-samples" };
        self.attachment.execute(params![media_type, self.bytes])?;
        Ok(())
    }

    /// Opens the accounts after `from`, up to `to`.
    fn accounts(&mut self, from: i64, to: i64) -> anyhow::Result<()> {
        for id in from + 1..=to {
            self.title.clear();
            self.vocabulary.prose(&mut self.random, 30, &mut self.title);
            self.account.execute(params![id, self.title, OPENING_BALANCE])?;
        }
        Ok(())
    }
}

/// `2026-11-21 10:00:00`, from seconds since 1970 (Howard Hinnant's civil-from-days method).
fn time_stamp(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400) + 719_468, seconds.rem_euclid(86_400));
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (year + era * 400 + i64::from(month >= 10), if month < 10 { month + 3 } else { month - 9 });
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", rest / 3_600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;
    use crate::digest::{self, Digest};
    use crate::write::{self, Rate};
    use clap::Parser;

    #[derive(Parser)]
    struct Line<T: Args> {
        #[command(flatten)]
        options: T,
    }

    fn made(path: &Path, page_size: u32, journal: Journal) -> Made {
        run(&Options { path: path.into(), size: 6 << 20, seed: 7, page_size, journal }).unwrap()
    }

    fn written(path: &Path, log: &Path) -> write::Written {
        write::run(&write::Options { path: path.into(), seconds: 0.4, rate: Rate::Full, log: Some(log.into()) })
            .unwrap()
    }

    fn checked(arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        check::run(&Line::<check::Options>::parse_from([&["check"], arguments].concat()).options)
    }

    #[test]
    fn a_time_stamp_is_the_calendars() {
        assert_eq!(time_stamp(0), "1970-01-01 00:00:00");
        assert_eq!(time_stamp(1_582_934_400 + 3_661), "2020-02-29 01:01:01");
        assert_eq!(time_stamp(1_798_761_599), "2026-12-31 23:59:59");
    }

    #[test]
    fn the_same_seed_gives_the_same_rows_with_free_pages_at_the_asked_size() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        let made_one = made(&one, 4096, Journal::Wal);
        made(&two, 16_384, Journal::Delete);
        assert!((6 << 20..7 << 20).contains(&made_one.bytes), "{made_one}");
        let free = made_one.free_pages as f64 / made_one.pages as f64;
        assert!((0.03..0.08).contains(&free), "{made_one}");
        let again = folder.path().join("again");
        made(&again, 4096, Journal::Wal);
        assert_eq!(digest::run(&one).unwrap(), digest::run(&again).unwrap());
        assert!(run(&Options { path: one, size: 1, seed: 1, page_size: 4096, journal: Journal::Wal }).is_err());
    }

    #[test]
    fn a_copy_taken_between_two_writers_is_proved_and_one_changed_cell_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        made(&path("db"), 4096, Journal::Wal);
        let before: Vec<String> = digest::run(&path("db")).unwrap().iter().map(Digest::to_string).collect();
        fs::write(path("before"), before.join("\n")).unwrap();
        let first = written(&path("db"), &path("log"));
        assert!(first.transactions > 10, "{first}");
        Connection::open(path("db")).unwrap().execute("VACUUM INTO ?1", [path("copy").to_str()]).unwrap();
        let second = written(&path("db"), &path("log"));
        assert!(second.last > first.last);

        let copy = path("copy").to_str().unwrap().to_owned();
        let (log, before) = (path("log").to_str().unwrap().to_owned(), path("before").to_str().unwrap().to_owned());
        let last = first.last.to_string();
        let all = [&copy, "--log", &log, "--digests", &before, "--at-least", &last, "--at-most", &last];
        assert_eq!(checked(&all).unwrap().len(), 7);
        let too_new = (first.last + 1).to_string();
        assert!(checked(&[&copy, "--at-least", &too_new]).unwrap_err().to_string().contains("not in the copy"));

        let damages = [
            ("UPDATE accounts SET balance = balance + 1 WHERE id = 3", "money"),
            ("UPDATE accounts SET balance = balance + (id = 3) - (id = 4)", "accounts"),
            ("DELETE FROM ledger WHERE sequence = 4", "ledger"),
            ("UPDATE entries SET entry = 'x' WHERE id = 2", "entries"),
            ("DELETE FROM entries WHERE id = (SELECT max(id) FROM entries)", "entries"),
            ("UPDATE customers SET credit = 0 WHERE id = 5", "customers"),
            ("DROP TABLE orders", "orders"),
        ];
        for (damage, found) in damages {
            fs::copy(path("copy"), path("damaged")).unwrap();
            Connection::open(path("damaged")).unwrap().execute_batch(damage).unwrap();
            let damaged = path("damaged").to_str().unwrap().to_owned();
            let error = checked(&[&damaged, "--digests", &before]).unwrap_err().to_string();
            assert!(error.contains(found), "{damage}: {error}");
        }
    }
}
