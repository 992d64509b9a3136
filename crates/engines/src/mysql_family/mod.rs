//! What MySQL and MariaDB share: the connection to a server, InnoDB's pages and tablespaces, tables as SQL text, logical
//! sets, new data directories for them, migrations, single tables out of a copy, tablespaces outside of the data directory,
//! binary logs, and the start of a server on a restored directory.

pub mod account;
pub mod binlog;
pub mod clone_plugin;
pub mod connection;
pub mod credentials;
mod dialect;
pub mod emptied;
pub mod from_sqlite;
pub mod innodb;
pub mod logical;
pub mod logical_set;
pub mod migration;
pub mod new_directory;
pub mod outside;
pub mod server_defaults;
pub mod server_options;
pub mod single_table;
pub mod sql_text;
pub mod start_check;
pub mod system_zone;
pub mod url;
pub mod version;

pub use dialect::Dialect;
