//! What MySQL and MariaDB have in common on disk: InnoDB's tablespaces and their pages.
//!
//! Pure: bytes in, checked values out. `docs/engines/mariadb-hot-copy.md` says where each fact comes from.

pub mod damage;
pub mod extents;
pub mod filter;
pub mod page;
pub mod suspects;
pub mod tablespace;
pub mod verify;
pub mod zeros;

mod bytes;
#[cfg(test)]
pub(crate) mod fixtures;
