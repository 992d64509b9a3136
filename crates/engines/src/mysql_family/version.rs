//! The version of a server: as it greets (`10.11.19-MariaDB-log`), as its program reports it (`9.7.4-2`), and as a set has it
//! (`MariaDB 10.11.18`).

/// The series of MariaDB from which on current rows of system-versioned tables end in 2106, and not in 2038.
pub const ENDS_LATER: (u16, u16) = (11, 5);

/// The series: the first two numbers of a version. (0, 0) for a text without numbers.
pub fn series(version: &str) -> (u16, u16) {
    let mut numbers = numbers(version);
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Whether a version is this one or a later one.
pub fn is_at_least(version: &str, least: [u16; 3]) -> bool {
    numbers(version).take(3).ge(least)
}

/// A name may stand before the numbers.
fn numbers(version: &str) -> impl Iterator<Item = u16> {
    let version = version.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    version.split(|letter: char| !letter.is_ascii_digit()).map(|number| number.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_the_first_two_numbers_whatever_stands_before_them() {
        assert_eq!([series("9.7.4-2"), series("10.11.19-MariaDB-log"), series("x")], [(9, 7), (10, 11), (0, 0)]);
        assert_eq!([series("MariaDB 10.11.18"), series("MySQL 8.4.13")], [(10, 11), (8, 4)]);
    }

    #[test]
    fn versions_are_compared_by_their_three_numbers() {
        assert!(is_at_least("8.0.17", [8, 0, 17]) && is_at_least("9.7.4-2", [8, 0, 17]));
        assert!(!is_at_least("8.0.16", [8, 0, 17]) && !is_at_least("garbage", [8, 0, 17]));
    }
}
