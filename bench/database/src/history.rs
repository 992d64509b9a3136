//! The writer's history: what transaction number n does, and so what the database holds after it.

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use rusqlite::Connection;

use crate::schema::OPENING_BALANCE;
use crate::text::Vocabulary;

/// Every transaction adds one entry; every third takes the one away that is this many older.
const ENTRY_LIFE: i64 = 3_000;

/// Length of the running hash in bytes.
pub const CHAIN: usize = 16;

/// What one transaction does. A function of the database's seed and the transaction's number alone.
pub struct Transaction {
    pub sequence: i64,
    pub from: i64,
    pub to: i64,
    pub amount: i64,
    /// The text of the entry with the id `sequence`.
    pub entry: String,
    /// The entry that goes.
    pub removed: Option<i64>,
}

/// The source of transactions.
pub struct History {
    seed: u64,
    /// Accounts are numbered from 1.
    pub accounts: i64,
    vocabulary: Vocabulary,
}

impl History {
    /// Reads the seed and the number of accounts from the database itself.
    pub fn open(database: &Connection) -> anyhow::Result<Self> {
        let about = |name: &str| {
            let value =
                database.query_row("SELECT value FROM about WHERE name = ?1", [name], |row| row.get::<_, i64>(0));
            value.with_context(|| format!("this database was not made by `fullbore-testdata make` (no `{name}`)"))
        };
        let (seed, accounts) = (about("seed")? as u64, about("accounts")?);
        ensure!((2..=1 << 24).contains(&accounts), "{accounts} accounts are out of bounds");
        Ok(History { seed, accounts, vocabulary: Vocabulary::new(seed) })
    }

    /// Transaction number `sequence`, counted from 1.
    pub fn transaction(&self, sequence: i64) -> Transaction {
        let mut random = Rng::with_seed(self.seed ^ (sequence as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let from = random.i64(1..=self.accounts);
        let to = 1 + (from + random.i64(0..self.accounts - 1)) % self.accounts;
        let amount = random.i64(1..10_000);
        let mut entry = String::new();
        self.vocabulary.prose(&mut random, 120, &mut entry);
        let removed = (sequence % 3 == 0 && sequence > ENTRY_LIFE).then(|| sequence - ENTRY_LIFE);
        Transaction { sequence, from, to, amount, entry, removed }
    }

    /// Compares the tables of the writer with what its transactions 1 to the last must have made of them, row by row.
    /// Gives the last transaction's number and hash.
    pub fn prove(&self, database: &Connection) -> anyhow::Result<(i64, [u8; CHAIN])> {
        let mut balances = vec![OPENING_BALANCE; self.accounts as usize + 1];
        let mut changed_by = vec![0_i64; self.accounts as usize + 1];
        let (mut last, mut chain) = (0, [0; CHAIN]);
        let mut ledger =
            database.prepare("SELECT sequence, from_account, to_account, amount, chain FROM ledger ORDER BY 1")?;
        let mut rows = ledger.query([])?;
        while let Some(row) = rows.next()? {
            let told = self.transaction(last + 1);
            chain = told.chain(&chain);
            let found: (i64, i64, i64, i64, Vec<u8>) =
                (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
            ensure!(
                found == (told.sequence, told.from, told.to, told.amount, chain.to_vec()),
                "ledger: transaction {} is not what the writer wrote",
                told.sequence
            );
            balances[told.from as usize] -= told.amount;
            balances[told.to as usize] += told.amount;
            changed_by[told.from as usize] = told.sequence;
            changed_by[told.to as usize] = told.sequence;
            last = told.sequence;
        }
        let mut accounts = database.prepare("SELECT id, balance, changed_by FROM accounts ORDER BY id")?;
        let mut rows = accounts.query([])?;
        for id in 1..=self.accounts {
            let Some(row) = rows.next()? else { bail!("accounts: account {id} is missing") };
            let found: (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
            let told = (id, balances[id as usize], changed_by[id as usize]);
            ensure!(found == told, "accounts: {found:?} instead of {told:?} after transaction {last}");
        }
        ensure!(rows.next()?.is_none(), "accounts: more than {} accounts", self.accounts);
        self.prove_entries(database, last)?;
        Ok((last, chain))
    }

    fn prove_entries(&self, database: &Connection, last: i64) -> anyhow::Result<()> {
        let mut entries = database.prepare("SELECT id, entry FROM entries NOT INDEXED ORDER BY id")?;
        let mut rows = entries.query([])?;
        let lives = |id: i64| (id + ENTRY_LIFE) % 3 != 0 || id + ENTRY_LIFE > last;
        for id in (1..=last).filter(|id| lives(*id)) {
            let Some(row) = rows.next()? else { bail!("entries: entry {id} is missing after transaction {last}") };
            let found: (i64, String) = (row.get(0)?, row.get(1)?);
            ensure!(found == (id, self.transaction(id).entry), "entries: entry {id} is not what the writer wrote");
        }
        ensure!(rows.next()?.is_none(), "entries: there is one that transaction {last} does not know");
        Ok(())
    }
}

impl Transaction {
    /// The running hash after this transaction.
    pub fn chain(&self, before: &[u8; CHAIN]) -> [u8; CHAIN] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(before);
        for number in [self.sequence, self.from, self.to, self.amount] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(self.entry.as_bytes());
        let mut chain = [0; CHAIN];
        chain.copy_from_slice(&hasher.finalize().as_bytes()[..CHAIN]);
        chain
    }
}
