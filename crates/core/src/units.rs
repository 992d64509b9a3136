//! Quantities as people write them.

use std::fmt::Display;
use std::time::Duration;

pub use crate::error::counted;
use crate::{Error, Result};

/// Bytes in a MiB.
pub const MIB: f64 = 1_048_576.0;

/// The first names, with commas between them, and `…` if there are more than `most`.
pub fn first_of<T: Display>(names: impl IntoIterator<Item = T>, most: usize) -> String {
    let mut names = names.into_iter();
    let first: Vec<String> = names.by_ref().take(most).map(|name| name.to_string()).collect();
    first.join(", ") + if names.next().is_some() { ", …" } else { "" }
}

/// Bytes from `65536`, `64KiB`, `1MiB`, `4 GiB`, `1MB` (= 1,000,000) …
///
/// # Errors
/// A usage error that names `flag`.
pub fn bytes(flag: &str, text: &str) -> Result<u64> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let wrong = |why: &str| {
        Error::usage(flag, format!("`{text}` {why}"), "write a whole number of bytes, KiB, MiB, GiB or TiB: 1MiB")
    };
    let number: u64 = number.parse().map_err(|_| wrong("is not a size"))?;
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(wrong("has an unknown unit")),
    };
    number.checked_mul(factor).ok_or_else(|| wrong("is too large"))
}

/// Bytes per second from `200MiB/s`, or `200MiB`.
///
/// # Errors
/// A usage error that names `flag`.
pub fn bytes_per_second(flag: &str, text: &str) -> Result<u64> {
    let trimmed = text.trim();
    let rate = trimmed.strip_suffix("/s").unwrap_or(trimmed);
    if rate.len() == trimmed.len() && rate.bytes().all(|digit| digit.is_ascii_digit()) {
        // Five bytes per second are not meant.
        return Err(Error::usage(flag, format!("`{text}` has no unit"), "write bytes per second: 200MiB/s"));
    }
    match bytes(flag, rate)? {
        0 => Err(Error::usage(flag, "a bandwidth of 0 would never end", "leave the option out for no limit")),
        rate => Ok(rate),
    }
}

/// A time from `90s`, `5m`, `36h`, `14d` or `2w`.
///
/// # Errors
/// A usage error that names `flag`.
pub fn duration(flag: &str, text: &str) -> Result<Duration> {
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let wrong = |why: &str| {
        Error::usage(
            flag,
            format!("`{text}` {why}"),
            "write whole seconds, minutes, hours, days or weeks: 90s, 5m, 36h, 14d, 2w",
        )
    };
    let number: u64 = number.parse().map_err(|_| wrong("is not a time"))?;
    let seconds: u64 = match unit.trim() {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        "" => return Err(wrong("has no unit")),
        _ => return Err(wrong("has an unknown unit")),
    };
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(|| wrong("is too long"))
}

/// `14 days`, `36 hours`: the largest unit that leaves nothing over.
pub fn show_duration(time: Duration) -> String {
    let (number, unit) = match time.as_secs() {
        seconds if seconds % 86_400 == 0 => (seconds / 86_400, "day"),
        seconds if seconds % 3_600 == 0 => (seconds / 3_600, "hour"),
        seconds if seconds % 60 == 0 => (seconds / 60, "minute"),
        seconds => (seconds, "second"),
    };
    counted(number, unit)
}

/// The bytes of hexadecimal digits. `None` if they are no pairs of digits.
pub fn bytes_of_digits(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    pairs.iter().map(byte).collect::<Option<_>>().filter(|_| rest.is_empty())
}

/// Text that others may have written, as a part of a line. Control characters are shown as escapes: they cannot steer
/// the terminal or begin a forged line.
pub fn on_its_line(text: &str) -> String {
    harmless(text, |_| true)
}

/// The same, but only for the characters that `which` selects.
pub fn harmless(text: &str, which: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        // Also characters that change the direction of writing: they can disguise a name.
        let steers = letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if steers && which(letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// `12.3 MiB`.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} bytes") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// Exact bytes, as a flag takes them: `4MiB`, `64KiB`, `1000`.
pub fn bytes_of_flag(bytes: u64) -> String {
    match bytes {
        whole if whole > 0 && whole.is_multiple_of(1 << 20) => format!("{}MiB", whole >> 20),
        whole if whole > 0 && whole.is_multiple_of(1 << 10) => format!("{}KiB", whole >> 10),
        odd => odd.to_string(),
    }
}

/// MiB per second.
pub fn mib_per_s(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 / MIB / seconds } else { 0.0 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_most_become_an_ellipsis() {
        assert_eq!(first_of(["a", "b"], 2), "a, b");
        assert_eq!(first_of(["a", "b", "c"], 2), "a, b, …");
        assert_eq!(first_of(Vec::<String>::new(), 2), "");
    }

    #[test]
    fn sizes_are_understood_as_people_write_them() {
        for (text, value) in
            [("65536", 65536), ("64KiB", 65536), ("1 MiB", 1 << 20), ("2g", 2 << 30), ("1MB", 1_000_000)]
        {
            assert_eq!(bytes("--x", text).unwrap(), value, "{text}");
        }
        for text in ["200MiB/s", "200MiB", " 200 MiB/s"] {
            assert_eq!(bytes_per_second("--throttle", text).unwrap(), 200 << 20, "{text}");
        }
    }

    #[test]
    fn advised_flag_values_parse_to_the_same_bytes() {
        for (size, text) in [(3 << 20, "3MiB"), (192 << 10, "192KiB"), (1025, "1025"), (0, "0")] {
            assert_eq!(bytes_of_flag(size), text);
            assert_eq!(bytes("--x", text).unwrap(), size);
        }
    }

    #[test]
    fn times_are_understood_as_people_write_them_and_others_are_refused() {
        for (text, shown) in [
            ("90s", "90 seconds"),
            ("5m", "5 minutes"),
            ("14d", "14 days"),
            ("36h", "36 hours"),
            ("2 w", "14 days"),
            ("24h", "1 day"),
        ] {
            assert_eq!(show_duration(duration("--x", text).unwrap()), shown, "{text}");
        }
        for text in ["", "14", "d", "-1d", "1.5d", "3y", "99999999999999999999d", "9999999999999999d"] {
            assert!(duration("--lock-until", text).unwrap_err().to_string().contains("--lock-until"), "{text}");
        }
    }

    #[test]
    fn a_name_stays_on_its_line_and_steers_nothing() {
        assert_eq!(on_its_line("/a b/ü.db"), "/a b/ü.db");
        assert_eq!(on_its_line("a\nerror: b\u{1b}[2J\u{202e}c"), "a\\nerror: b\\u{1b}[2J\\u{202e}c");
    }

    #[test]
    fn a_size_that_is_none_is_refused_by_the_name_of_its_flag() {
        for text in ["", "x", "-1", "1.5MiB", "1 XiB", "99999999999TiB"] {
            assert!(bytes("--max-transfer-size", text).unwrap_err().to_string().contains("--max-transfer-size"));
        }
        for text in ["0", "5", "0/s", "/s", "200/m"] {
            assert!(bytes_per_second("--throttle", text).is_err(), "{text}");
        }
    }
}
