//! The files that MySQL and MariaDB share: InnoDB's tablespaces and their pages.
//!
//! Pure: bytes in, checked values out. `docs/engines/mariadb-hot-copy.md` has the source of each fact.

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
