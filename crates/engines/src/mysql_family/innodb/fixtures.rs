//! Pages of real servers, for tests: page 0 and a page with rows of one tablespace each. `fixtures/make` made them.

use super::page::{PageState, Why};
use crate::mysql_family::Dialect;

pub struct Fixture {
    pub name: &'static str,
    pub dialect: Dialect,
    /// Bytes of a page in the file.
    pub physical: u32,
    /// The number of the second page.
    pub number: u32,
    /// The result of checking the second page.
    pub rows: PageState,
    pub bytes: &'static [u8],
}

macro_rules! fixture {
    ($dialect:ident, $name:literal, $physical:literal, $number:literal, $rows:expr) => {
        Fixture {
            name: $name,
            dialect: Dialect::$dialect,
            physical: $physical,
            number: $number,
            rows: $rows,
            bytes: include_bytes!(concat!("fixtures/", $name, ".pages")),
        }
    };
}

pub const ALL: &[Fixture] = &[
    fixture!(MariaDb, "mariadb-full_crc32-plain", 4096, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-full_crc32-pagezip", 4096, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-full_crc32-crypt", 4096, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-full_crc32-pagezipcrypt", 4096, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-crc32-plain", 4096, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-crc32-zip", 2048, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-crc32-pagezip", 4096, 3, PageState::Unchecked(Why::Compressed)),
    fixture!(MariaDb, "mariadb-crc32-crypt", 4096, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-crc32-zipcrypt", 2048, 3, PageState::Valid),
    fixture!(MariaDb, "mariadb-crc32-pagezipcrypt", 4096, 3, PageState::Valid),
    fixture!(MySql, "mysql-crc32-plain", 4096, 4, PageState::Valid),
    fixture!(MySql, "mysql-crc32-zip", 2048, 4, PageState::Valid),
    fixture!(MySql, "mysql-crc32-crypt", 4096, 4, PageState::Unchecked(Why::Encrypted)),
    fixture!(MySql, "mysql-crc32-zipcrypt", 2048, 4, PageState::Unchecked(Why::Encrypted)),
    fixture!(MySql, "mysql-crc32-pagezip", 16384, 4, PageState::Unchecked(Why::Compressed)),
    fixture!(MySql, "mysql-crc32-pagezipcrypt", 16384, 4, PageState::Unchecked(Why::Encrypted)),
    fixture!(MySql, "mysql-innodb-plain", 4096, 4, PageState::Valid),
    fixture!(MySql, "mysql-innodb-zip", 2048, 4, PageState::Valid),
    fixture!(MySql, "mysql-none-plain", 4096, 4, PageState::Unchecked(Why::NoChecksum)),
    fixture!(MySql, "mysql-none-zip", 2048, 4, PageState::Unchecked(Why::NoChecksum)),
];
