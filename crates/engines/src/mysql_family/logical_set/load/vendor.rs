//! What differs between the server of a set and its target: names of collations that the target does not know.

use std::collections::{BTreeMap, HashSet};

use fullbore_core::Result;

use super::ddl::places;
use super::plan::Plan;
use crate::mysql_family::binlog::through::settings::names;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::catalog::Code;
use crate::mysql_family::sql_text::token_end;

/// Replaces collations that the target does not know by the nearest one that it knows, and names them in warnings. A
/// collation without a near one stays: the target refuses the table by name.
///
/// # Errors
/// The server does not say which collations it knows.
pub fn fit_collations(connection: &mut Connection, plan: &mut Plan) -> Result<()> {
    let known = known_by(connection)?;
    let mut replaced = BTreeMap::new();
    let databases = plan.databases.iter_mut().map(|database| &mut database.options);
    for definition in databases.chain(plan.tables.iter_mut().map(|table| &mut table.split.create)) {
        name_collations(definition, &|name| known.contains(name));
        *definition = fitted(definition, &known, &mut replaced);
    }
    plan.warnings.extend(fit_all(&mut plan.code, &known, replaced));
    Ok(())
}

/// The same for objects that come later. Gives the warnings.
///
/// # Errors
/// The server does not say which collations it knows.
pub fn fit_code(connection: &mut Connection, code: &mut [Code]) -> Result<Vec<String>> {
    Ok(fit_all(code, &known_by(connection)?, BTreeMap::new()))
}

fn fit_all(code: &mut [Code], known: &HashSet<String>, mut replaced: BTreeMap<String, String>) -> Vec<String> {
    for code in code {
        for text in [&mut code.create, &mut code.collation, &mut code.database_collation] {
            *text = fitted(text, known, &mut replaced);
        }
    }
    let warning = |(from, to)| format!("the target does not know the collation {from}: it has {to} instead");
    replaced.into_iter().map(warning).collect()
}

/// The collations that a server knows.
fn known_by(connection: &mut Connection) -> Result<HashSet<String>> {
    Ok(names(connection)?.into_values().map(|(_, collation)| collation).collect())
}

/// Names the collation behind each Unicode character set of a definition. MySQL and earlier versions of MariaDB leave it out if it is
/// their default. It was `general_ci` for all of them; MySQL 8.0 and MariaDB 11.5 have other defaults, and always name a
/// collation there.
fn name_collations(definition: &mut String, knows: &dyn Fn(&str) -> bool) {
    let words = places(definition);
    let word = |at: usize| words.get(at).and_then(|range| definition.get(range.clone())).unwrap_or_default();
    let mut missing = Vec::new();
    for at in 0..words.len() {
        // An expression has `charset` in lower case, and a cast takes no collation.
        let set = match (word(at), word(at + 1)) {
            ("CHARACTER", "SET") if word(at + 2) == "=" => at + 3,
            ("CHARACTER", "SET") | ("CHARSET", "=") => at + 2,
            _ => continue,
        };
        if let (Some(collation), Some(place)) = (general(word(set), knows), words.get(set))
            && word(set + 1) != "COLLATE"
        {
            missing.push((place.end, collation));
        }
    }
    for (place, collation) in missing.into_iter().rev() {
        definition.insert_str(place, &format!(" COLLATE {collation}"));
    }
}

/// The same for a text that any server may get.
pub fn with_collations(definition: &str) -> String {
    let mut text = definition.to_owned();
    name_collations(&mut text, &|_| true);
    text
}

/// The collation that a Unicode character set had by default, as this server calls it.
fn general(set: &str, knows: &dyn Fn(&str) -> bool) -> Option<String> {
    let other = match set {
        "utf8" => "utf8mb3",
        "utf8mb3" => "utf8",
        "utf8mb4" | "ucs2" | "utf16" | "utf32" => set,
        _ => return None,
    };
    [set, other].iter().map(|set| format!("{set}_general_ci")).find(|name| knows(name))
}

/// The text with the nearest collations in the place of unknown ones. Quoted names and texts stay.
pub fn with_nearest(text: &str, known: &HashSet<String>) -> String {
    fitted(text, known, &mut BTreeMap::new())
}

/// The same, and which ones were replaced.
fn fitted(text: &str, known: &HashSet<String>, replaced: &mut BTreeMap<String, String>) -> String {
    let bytes = text.as_bytes();
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let (mut out, mut place) = (String::with_capacity(text.len()), 0);
    while place < bytes.len() {
        let word = bytes.get(place..).unwrap_or_default().iter().take_while(|byte| is_word(byte)).count();
        let mut end = if word > 0 { place + word } else { token_end(bytes, place).min(bytes.len()) };
        while !text.is_char_boundary(end) {
            end += 1;
        }
        let token = text.get(place..end).unwrap_or_default();
        match nearest(token, known).filter(|_| word > 0) {
            Some(near) => {
                replaced.insert(token.to_owned(), near.clone());
                out.push_str(&near);
            }
            None => out.push_str(token),
        }
        place = end;
    }
    out
}

/// The collation in place of an unknown one.
pub fn nearest(name: &str, known: &HashSet<String>) -> Option<String> {
    // `utf8mb4_ja_0900_as_cs` has its language before the family.
    let set = name.split('_').next().filter(|_| ["_0900_", "_uca1400_"].iter().any(|family| name.contains(family)))?;
    if known.contains(name) {
        return None;
    }
    let ends: &[&str] = match name.ends_with("_as_cs") || name.ends_with("_bin") {
        true => &["0900_as_cs", "uca1400_as_cs", "bin"],
        false => &["0900_ai_ci", "uca1400_ai_ci", "unicode_520_ci", "unicode_ci", "general_ci"],
    };
    ends.iter().map(|end| format!("{set}_{end}")).find(|name| known.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_default_collation_that_the_source_has_left_out_is_named() {
        let known: HashSet<String> = ["utf8mb4_general_ci", "utf8mb3_general_ci"].map(str::to_owned).into();
        let named = |text: &str| {
            let mut text = text.to_owned();
            name_collations(&mut text, &|name| known.contains(name));
            text
        };
        assert_eq!(
            named(
                "(`CHARSET` varchar(9) CHARACTER SET utf8 COMMENT 'CHARSET=utf8mb4', `b` text CHARACTER SET latin1, `c` text \
                 CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, `d` char(1) AS (cast(`c` as char(1) charset utf8mb4))) ENGINE=InnoDB \
                 DEFAULT CHARSET=utf8mb4 COMMENT='x'"
            ),
            "(`CHARSET` varchar(9) CHARACTER SET utf8 COLLATE utf8mb3_general_ci COMMENT 'CHARSET=utf8mb4', `b` text CHARACTER SET \
             latin1, `c` text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, `d` char(1) AS (cast(`c` as char(1) charset utf8mb4))) \
             ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE utf8mb4_general_ci COMMENT='x'"
        );
        let database = " /*!40100 DEFAULT CHARACTER SET utf8mb4 */";
        assert_eq!(named(database), " /*!40100 DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci */");
    }

    #[test]
    fn only_an_unknown_collation_is_replaced_and_only_outside_of_quotes() {
        let known: HashSet<String> = ["utf8mb4_unicode_520_ci", "utf8mb4_bin"].map(str::to_owned).into();
        let mut replaced = BTreeMap::new();
        let text = "`utf8mb4_0900_ai_ci` text COLLATE utf8mb4_0900_ai_ci COMMENT 'é utf8mb4_0900_ai_ci', \
                    COLLATE utf8mb4_0900_as_cs, COLLATE=latin1_swedish_ci";
        let expected = "`utf8mb4_0900_ai_ci` text COLLATE utf8mb4_unicode_520_ci COMMENT 'é utf8mb4_0900_ai_ci', \
                        COLLATE utf8mb4_bin, COLLATE=latin1_swedish_ci";
        assert_eq!(fitted(text, &known, &mut replaced), expected);
        assert_eq!(replaced.len(), 2);
        let near = |name| nearest(name, &["utf16_unicode_520_ci".to_owned()].into());
        assert_eq!(near("utf16_uca1400_ai_ci").as_deref(), Some("utf16_unicode_520_ci"));
        assert_eq!(near("utf16_ja_0900_ai_ci").as_deref(), Some("utf16_unicode_520_ci"));
        assert_eq!(
            [near("utf16_unicode_520_ci"), near("gbk_chinese_ci"), near("ucs2_uca1400_ai_ci")],
            [None, None, None]
        );
    }
}
