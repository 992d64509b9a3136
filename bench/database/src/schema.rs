//! The tables: a shop with customers, orders, events and documents, and a bank in it whose money never changes.

/// Tables and their writer-free or writer-owned nature are in [`WRITTEN`].
pub const TABLES: &str = "
CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE customers (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, phone TEXT, city TEXT, created_at TEXT NOT NULL,
    credit REAL, preferences TEXT
);
CREATE TABLE orders (
    id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL REFERENCES customers (id), uuid TEXT NOT NULL,
    status TEXT NOT NULL, placed_at INTEGER NOT NULL, total_cents INTEGER NOT NULL, note TEXT
);
CREATE TABLE order_lines (
    order_id INTEGER NOT NULL, line INTEGER NOT NULL, sku TEXT NOT NULL, quantity INTEGER NOT NULL,
    price_cents INTEGER NOT NULL, PRIMARY KEY (order_id, line)
) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, at INTEGER NOT NULL, kind TEXT NOT NULL, customer_id INTEGER, payload TEXT NOT NULL
);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, created_at TEXT NOT NULL, title TEXT NOT NULL, body TEXT NOT NULL
);
CREATE TABLE attachments (id INTEGER PRIMARY KEY, media_type TEXT NOT NULL, content BLOB NOT NULL);
CREATE VIRTUAL TABLE search USING fts5 (title, body);

CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT NOT NULL, balance INTEGER NOT NULL, changed_by INTEGER NOT NULL);
CREATE TABLE ledger (
    sequence INTEGER PRIMARY KEY, from_account INTEGER NOT NULL, to_account INTEGER NOT NULL, amount INTEGER NOT NULL,
    chain BLOB NOT NULL
);
CREATE TABLE entries (id INTEGER PRIMARY KEY, entry TEXT NOT NULL);
CREATE INDEX entries_by_text ON entries (entry);
";

/// Made after the load, as a DBA would: sorting once is faster than keeping order row by row.
pub const INDEXES: [&str; 6] = [
    "CREATE INDEX customers_by_email ON customers (email)",
    "CREATE INDEX orders_by_customer ON orders (customer_id)",
    "CREATE INDEX orders_by_time ON orders (placed_at)",
    "CREATE UNIQUE INDEX orders_by_uuid ON orders (uuid)",
    "CREATE INDEX events_by_kind ON events (kind, at)",
    "CREATE INDEX documents_by_kind ON documents (kind, created_at)",
];

/// The tables that the writer changes; all others stay as they were made.
pub const WRITTEN: [&str; 3] = ["accounts", "ledger", "entries"];

/// What each account holds at first, in cents.
pub const OPENING_BALANCE: i64 = 100_000;
