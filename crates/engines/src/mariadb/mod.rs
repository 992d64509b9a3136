//! MariaDB, 10.11 and 11.x: physically, from the files of a running server. `docs/engines/mariadb-hot-copy.md` has the formats
//! and the rules.

pub mod hot_copy;
pub mod redo;
