//! The types of columns, out of the text of SHOW CREATE TABLE: a catalog has only the names of the types.

use std::collections::HashMap;

/// A column of a table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defined {
    /// Its type without what is in parentheses: `decimal`.
    pub data_type: String,
    /// What is in parentheses behind its type, each part for itself. Members of an ENUM or SET are without quotes.
    pub arguments: Vec<String>,
    /// A number without sign.
    pub unsigned: bool,
    /// It may have no value.
    pub nullable: bool,
    /// Its character set; `None` if the statement does not say it.
    pub charset: Option<String>,
}

impl Defined {
    /// The number in parentheses at this place.
    pub fn number(&self, place: usize) -> Option<u8> {
        self.arguments.get(place)?.parse().ok()
    }

    /// The type as people write it.
    pub fn declared(&self) -> String {
        let is_text = self.data_type.ends_with("char") || self.data_type.ends_with("text");
        let charset = self.charset.as_ref().filter(|name| is_text && *name != "utf8mb4");
        let charset = charset.map_or(String::new(), |name| format!(" CHARACTER SET {name}"));
        let sign = if self.unsigned { " unsigned" } else { &charset };
        match self.arguments[..] {
            [] => format!("{}{sign}", self.data_type),
            _ => format!("{}({}){sign}", self.data_type, self.arguments.join(",")),
        }
    }
}

/// The columns of a table by their names. `None` if the statement is not understood.
pub fn columns(create: &str) -> Option<HashMap<String, Defined>> {
    let (items, options) = items(create)?;
    let options = plain(options);
    let option = |name: &str| options.split_whitespace().find_map(|word| Some(word.strip_prefix(name)?.to_owned()));
    let charset = option("CHARSET=").or_else(|| Some(of_collation(&option("COLLATE=")?)));
    let columns = items.into_iter().map(str::trim).filter(|item| item.starts_with('`'));
    columns.map(|item| column(item, charset.as_deref())).collect()
}

/// The parts between the commas in the parentheses of the statement, and what follows.
fn items(create: &str) -> Option<(Vec<&str>, &str)> {
    let (mut items, mut depth, mut begin, mut at) = (Vec::new(), 0_usize, 0, 0);
    while let Some(byte) = create.as_bytes().get(at) {
        match byte {
            b'`' | b'\'' | b'"' => {
                at += quoted_length(create.get(at..)?)?;
                continue;
            }
            b'(' => {
                depth += 1;
                begin = if depth == 1 { at + 1 } else { begin };
            }
            b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    items.push(create.get(begin..at)?);
                    return Some((items, create.get(at + 1..)?));
                }
            }
            b',' if depth == 1 => {
                items.push(create.get(begin..at)?);
                begin = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The length of the text in quotes at the beginning, with its quotes.
fn quoted_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let (quote, mut at) = (*bytes.first()?, 1);
    loop {
        let byte = *bytes.get(at)?;
        at += match byte {
            b'\\' if quote != b'`' => 2,
            _ if byte == quote && bytes.get(at + 1) == Some(&quote) => 2,
            _ if byte == quote => return Some(at + 1),
            _ => 1,
        };
    }
}

/// A text without its quotes and escapes.
fn unquoted(text: &str) -> Option<String> {
    let quote = text.chars().next()?;
    let mut letters = text.get(1..text.len().checked_sub(1)?)?.chars();
    let mut out = String::new();
    while let Some(letter) = letters.next() {
        out.push(match letter {
            '\\' if quote != '`' => match letters.next()? {
                '0' => '\0',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'b' => '\u{8}',
                'Z' => '\u{1a}',
                other => other,
            },
            letter if letter == quote => letters.next()?,
            letter => letter,
        });
    }
    Some(out)
}

/// A text without what is in quotes or parentheses.
fn plain(text: &str) -> String {
    let (mut out, mut depth, mut rest) = (String::new(), 0_usize, text);
    while let Some(letter) = rest.chars().next() {
        let length = match letter {
            '`' | '\'' | '"' => quoted_length(rest).unwrap_or(rest.len()),
            _ => letter.len_utf8(),
        };
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '`' | '\'' | '"' => {}
            _ if depth == 0 => out.push(letter),
            _ => {}
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    out
}

fn column(item: &str, charset: Option<&str>) -> Option<(String, Defined)> {
    let (name, rest) = item.split_at_checked(quoted_length(item)?)?;
    let rest = rest.trim_start();
    let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(rest.len());
    let (data_type, mut rest) = rest.split_at(end);
    let mut arguments = Vec::new();
    if rest.starts_with('(') {
        let (parts, behind) = items(rest)?;
        for part in parts.into_iter().map(str::trim) {
            arguments.push(if part.starts_with('\'') { unquoted(part)? } else { part.to_owned() });
        }
        rest = behind;
    }
    let attributes = plain(rest);
    let words: Vec<&str> = attributes.split_whitespace().collect();
    let behind = |pair: [&str; 2]| {
        let at = words.windows(2).position(|two| two == pair)?;
        Some(words.get(at + 2).copied().unwrap_or_default())
    };
    let collation = || words.iter().position(|word| *word == "COLLATE").and_then(|at| words.get(at + 1));
    let own = behind(["CHARACTER", "SET"]).map(str::to_owned);
    let charset = own.or_else(|| Some(of_collation(collation()?))).or_else(|| charset.map(str::to_owned));
    let defined = Defined {
        data_type: data_type.to_ascii_lowercase(),
        arguments,
        unsigned: words.contains(&"unsigned"),
        nullable: behind(["NOT", "NULL"]).is_none(),
        charset,
    };
    Some((unquoted(name)?, defined))
}

/// The character set of a collation: its name begins with it.
fn of_collation(collation: &str) -> String {
    collation.split('_').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn types_come_out_of_the_statement_and_nothing_in_quotes_is_taken_for_them() {
        let create = "CREATE TABLE `t (``,` (\n  `k ``,(` bigint unsigned NOT NULL AUTO_INCREMENT COMMENT 'a, (b'' NOT NULL',\n  \
            `d` decimal(12,2) DEFAULT NULL,\n  `e` enum('2','1','','x,''y)','a\\nb\\\\') CHARACTER SET latin1 COLLATE latin1_bin DEFAULT ''' NOT NULL',\n  \
            `t` text COLLATE utf16_bin,\n  `g` int GENERATED ALWAYS AS ((`d` is not null)) VIRTUAL NOT NULL,\n  \
            `w` varchar(3) /*!80023 INVISIBLE */,\n  PRIMARY KEY (`k ``,(`),\n  CONSTRAINT `c` CHECK ((`d` > 0))\n) \
            ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin COMMENT=' CHARSET=x'";
        let found = columns(create).unwrap();
        assert_eq!(found.len(), 6);
        let key = &found["k `,("];
        assert_eq!((key.declared().as_str(), key.nullable), ("bigint unsigned", false));
        assert_eq!((found["d"].declared().as_str(), found["d"].number(1)), ("decimal(12,2)", Some(2)));
        assert_eq!(found["e"].arguments, ["2", "1", "", "x,'y)", "a\nb\\"]);
        assert!(found["e"].nullable && !found["g"].nullable);
        let charsets = ["e", "t", "w"].map(|name| found[name].charset.clone().unwrap());
        assert_eq!(charsets, ["latin1", "utf16", "utf8mb4"]);
    }

    #[test]
    fn a_statement_that_is_cut_off_is_not_understood() {
        for create in ["", "CREATE TABLE `a", "CREATE TABLE `a` (`b` enum('x", "CREATE TABLE `a` (`b` int", "a)"] {
            assert!(columns(create).is_none(), "{create}");
        }
        assert_eq!(columns("CREATE TABLE `a` (`b` int)").unwrap()["b"].charset, None);
    }
}
