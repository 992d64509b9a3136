//! The redo log of MariaDB 10.8 and later: parsed, followed while a server writes it, and written for a restored
//! directory.
//!
//! | file | what |
//! |---|---|
//! | `ring` | the place of an LSN in the file |
//! | `header` | header and checkpoints |
//! | `record`, `framing` | records, and mini-transactions with their checksums |
//! | `lives` | which files were made and removed |
//! | `tail` | follows the log of a running server, and reads only final bytes |
//! | `touched` | the pages that the log initializes or frees |
//! | `write` | the log of the restored directory: linear, from the checkpoint on |
//!
//! All but `tail` are pure. `docs/engines/mariadb-hot-copy.md` specifies the format.

pub mod framing;
pub mod header;
pub mod lives;
pub mod record;
pub mod ring;
pub mod tail;
pub mod touched;
pub mod write;
