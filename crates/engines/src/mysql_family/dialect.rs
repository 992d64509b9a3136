//! Which of the two a database is.

/// MySQL or MariaDB. Protocol, files and SQL are different since MySQL 5.7 and MariaDB 10.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// MariaDB 10.x and later.
    MariaDb,
    /// MySQL 5.7 and later.
    MySql,
}

impl Dialect {
    /// The dialect of an engine, if it is one of these two.
    pub fn named(engine: &str) -> Option<Self> {
        [Self::MariaDb, Self::MySql].into_iter().find(|dialect| dialect.name() == engine)
    }

    /// The name of its engine, which begins its URLs.
    pub fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// Its name as people write it.
    pub fn title(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }
}
