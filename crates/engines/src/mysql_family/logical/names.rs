//! Names of schemas, tables and columns: in statements, in comparisons, and as names of files.

use std::fmt::Write;

/// Most bytes in one part of a path, less the ending.
const PART_MAX: usize = 240;

/// As an identifier in a statement, in any `sql_mode`.
pub fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// As a literal in a comparison: without any character that could end it.
pub fn literal(name: &str) -> String {
    if name.is_empty() {
        return "''".to_owned(); // Without digits, `0x` is a name.
    }
    name.bytes().fold("_utf8mb4 0x".to_owned(), |text, byte| text + &format!("{byte:02X}"))
}

/// As one part of a path: letters, digits, `_` and `-` are unchanged, every other character is `@` and four hexadecimal
/// digits of UTF-16. Two names never give the same text. `number` must differ from table to table: it replaces a name
/// that is too long.
pub fn file_name(name: &str, number: usize) -> String {
    let mut encoded = String::with_capacity(name.len());
    for c in name.chars() {
        if c.is_alphanumeric() || c == '_' || c == '-' {
            encoded.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            let _ = write!(encoded, "@{unit:04x}"); // A string takes everything.
        }
    }
    // `@` is followed by a hexadecimal digit everywhere else.
    if encoded.len() > PART_MAX { format!("@long-{number}") } else { encoded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_quotes() {
        assert_eq!(quoted("a`b"), "`a``b`");
        assert_eq!(literal("a'\n"), "_utf8mb4 0x61270A");
        assert_eq!(literal(""), "''");
    }

    #[test]
    fn every_name_is_a_file_and_no_two_are_the_same() {
        let names =
            ["item", "Item", "a b", "a@0020b", "a/b", "..", ".", "é", "表", "a\nb", "a'b", "😀", "a.b", "-", "`"];
        let files: Vec<String> = names.iter().enumerate().map(|(at, name)| file_name(name, at)).collect();
        for (at, file) in files.iter().enumerate() {
            assert!(!file.contains(['/', '.', '\n', '\'', ' ']) && !files[..at].contains(file), "{file}");
        }
        assert_eq!(file_name("a b", 0), "a@0020b");
        assert_eq!(file_name("😀", 0), "@d83d@de00");
        assert_eq!(file_name(&"表".repeat(64), 0), "表".repeat(64));
        assert_eq!(file_name(&"!".repeat(64), 7), "@long-7");
    }
}
