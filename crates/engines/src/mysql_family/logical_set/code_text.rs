//! The text of code that SHOW CREATE changes.
//!
//! A server puts the text together. The body has the character set of the session that made the code; the comment, the type that a
//! function returns, and some names are UTF-8. The server converts the whole as if all of it had the set of the session: `ü` in a
//! comment becomes `Ã¼`. It also writes backslashes into comments, where a mode `NO_BACKSLASH_ESCAPES` takes each of them as it is.
//! MySQL 5.7 to 9.7 and MariaDB 10.6 to 11.8 do both.

use std::ops::Range;

use fullbore_core::Result;

use super::catalog::Code;
use super::describe::{PLAIN_NAMES, UTF8_NAMES};
use super::server::first_row;
use crate::mysql_family::connection::{Connection, Failure};
use crate::mysql_family::logical::names::{literal, quoted};

/// The default of events, which SHOW CREATE writes always. With the mode `HIGH_NOT_PRECEDENCE` no server takes it.
const NOT_PRESERVED: &str = " ON COMPLETION NOT PRESERVE";

/// What is between the parameters of a function and the type that it returns.
const RETURNS: &[u8] = b") RETURNS ";

/// Whether the text of an object may be another one than at its creation.
pub fn may_differ(code: &Code) -> bool {
    !code.is_utf8() && !code.create.is_ascii()
        || has_mode(code, "NO_BACKSLASH_ESCAPES") && code.create.contains('\\')
        || has_mode(code, "HIGH_NOT_PRECEDENCE") && code.kind == "EVENT"
}

fn has_mode(code: &Code, mode: &str) -> bool {
    code.sql_mode.split(',').any(|part| part == mode)
}

/// Gives an object the text of its creation. `show` asks for it, `column` is its place in the answer.
///
/// # Errors
/// The connection is lost.
pub fn mend(connection: &mut Connection, code: &mut Code, show: &str, column: usize) -> Result<()> {
    match mended(connection, code, show, column) {
        Ok(Some(create)) => code.create = create,
        // The object is gone, or the account may not see all of it: the text stays.
        Ok(None) | Err(Failure::Server(_)) => {}
        Err(Failure::Fault(error)) => return Err(error),
    }
    Ok(())
}

fn mended(connection: &mut Connection, code: &Code, show: &str, column: usize) -> Result<Option<String>, Failure> {
    let known = connection.query(&question(code))?;
    let text = |column| known.value(0, column).unwrap_or_default().to_owned();
    connection.query(PLAIN_NAMES)?;
    connection.send_ahead(&[show.to_owned()])?;
    let answer = first_row(connection);
    connection.query(UTF8_NAMES)?;
    let Some(raw) = answer?.and_then(|row| row.into_iter().nth(column)?) else { return Ok(None) };
    let parts = parts(code, &text(0), &text(1), returned(&raw).unwrap_or_default());
    let (mut whole, mut at) = (String::with_capacity(raw.len()), 0);
    for (place, part) in places(&raw, &parts) {
        let Some(before) = of_session(connection, code, raw.get(at..place.start).unwrap_or_default())? else {
            return Ok(None);
        };
        whole.extend([&before, part]);
        at = place.end;
    }
    let rest = of_session(connection, code, raw.get(at..).unwrap_or_default())?;
    Ok(rest.map(|rest| whole + &rest))
}

/// The type that a function returns, which is UTF-8: it may list the members of an ENUM.
fn returned(raw: &[u8]) -> Option<&str> {
    let begin = raw.windows(RETURNS.len()).position(|window| window == RETURNS)? + RETURNS.len();
    let length = raw.get(begin..)?.iter().position(|byte| *byte == b'\n')?;
    str::from_utf8(raw.get(begin..begin + length)?).ok()
}

/// Asks for what the text has in UTF-8: the definer and the comment.
fn question(code: &Code) -> String {
    let (schema, name, kind) = (literal(&code.schema), literal(&code.name), &code.kind);
    match kind.as_str() {
        "EVENT" => format!(
            "SELECT definer, event_comment FROM information_schema.events WHERE event_schema = {schema} AND event_name = {name}"
        ),
        "TRIGGER" => format!(
            "SELECT definer, '' FROM information_schema.triggers WHERE trigger_schema = {schema} AND trigger_name = {name}"
        ),
        _ => format!(
            "SELECT definer, routine_comment FROM information_schema.routines WHERE routine_schema = \
             {schema} AND routine_name = {name} AND routine_type = '{kind}'"
        ),
    }
}

/// A part of the text as the server writes it, and as it is.
type Part = (String, String);

/// The parts that may be in UTF-8 and have other letters than ASCII, and a comment with backslashes that are no escapes.
fn parts(code: &Code, definer: &str, comment: &str, returns: &str) -> Vec<Part> {
    let user = definer.rsplit_once('@').map_or(definer, |(user, _)| user);
    let names = [
        format!("DEFINER={}@", quoted(user)),
        format!(" {} {} ", code.kind, quoted(&code.name)),
        format!(" {} {}(", code.kind, quoted(&code.name)),
        format!(" ON {} ", quoted(&code.table)),
        format!(") RETURNS {returns}"),
    ];
    let mut parts: Vec<Part> =
        names.into_iter().filter(|name| !name.is_ascii()).map(|name| (name.clone(), name)).collect();
    let doubled = comment.replace('\'', "''");
    let written = [("\\", "\\\\"), ("\0", "\\0"), ("\n", "\\n"), ("\r", "\\r")]
        .iter()
        .fold(doubled.clone(), |text, (letter, escape)| text.replace(letter, escape));
    let meant = if has_mode(code, "NO_BACKSLASH_ESCAPES") { doubled } else { written.clone() };
    if !written.is_ascii() || written != meant {
        parts.push((format!("COMMENT '{written}'"), format!("COMMENT '{meant}'")));
    }
    if has_mode(code, "HIGH_NOT_PRECEDENCE") && code.kind == "EVENT" {
        parts.push((NOT_PRESERVED.to_owned(), String::new()));
    }
    parts
}

/// Where the parts are in a text, in their order. A part with other letters than ASCII that is not there has the set of the session.
fn places<'a>(raw: &[u8], parts: &'a [Part]) -> Vec<(Range<usize>, &'a str)> {
    let place = |(written, meant): &'a Part| {
        let begin = raw.windows(written.len()).position(|window| window == written.as_bytes())?;
        Some((begin..begin + written.len(), meant.as_str()))
    };
    let mut places: Vec<_> = parts.iter().filter_map(place).collect();
    places.sort_by_key(|(place, _)| place.start);
    let mut end = 0;
    places.retain(|(place, _)| {
        place.start >= end && {
            end = place.end;
            true
        }
    });
    places
}

/// A piece in the character set of the session, in UTF-8. None if the server cannot convert it.
fn of_session(connection: &mut Connection, code: &Code, piece: &[u8]) -> Result<Option<String>, Failure> {
    if let Some(text) = str::from_utf8(piece).ok().filter(|text| text.is_ascii() || code.is_utf8()) {
        return Ok(Some(text.to_owned()));
    }
    let digits: String = piece.iter().map(|byte| format!("{byte:02X}")).collect();
    let answer = connection.query(&format!("SELECT CONVERT(_{} 0x{digits} USING utf8mb4)", code.character_set))?;
    Ok(answer.single().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(kind: &str, character_set: &str, sql_mode: &str) -> Code {
        let (name, table, create) = ("pü".to_owned(), "tü".to_owned(), "ü\\".to_owned());
        let [kind, character_set, sql_mode] = [kind, character_set, sql_mode].map(str::to_owned);
        Code { kind, character_set, sql_mode, name, table, create, ..Code::default() }
    }

    #[test]
    fn only_code_of_a_session_in_another_character_set_or_without_escapes_may_differ() {
        assert!(may_differ(&code("PROCEDURE", "latin1", "")));
        assert!(may_differ(&code("PROCEDURE", "utf8mb4", "ANSI,NO_BACKSLASH_ESCAPES")));
        assert!(!may_differ(&code("PROCEDURE", "utf8mb4", "")));
        assert!(!may_differ(&Code { create: "x".to_owned(), ..code("PROCEDURE", "latin1", "") }));
    }

    #[test]
    fn names_and_comments_are_found_in_utf8_and_the_body_is_not() {
        let raw = [
            &b"CREATE DEFINER=`d\xfc`@`h` PROCEDURE `p"[..],
            "ü`()\n    COMMENT 'c''ü'\n".as_bytes(),
            b"SELECT 'b\xfc'",
        ]
        .concat();
        assert_eq!(returned("FUNCTION `f`(p TEXT) RETURNS enum('ü')\n    DETERMINISTIC".as_bytes()), Some("enum('ü')"));
        let parts = parts(&code("PROCEDURE", "latin1", ""), "dü@h", "c'ü", "");
        let found = places(&raw, &parts).into_iter().map(|(_, part)| part).collect::<Vec<_>>();
        assert_eq!(found, [" PROCEDURE `pü`(", "COMMENT 'c''ü'"]);
    }

    #[test]
    fn a_backslash_in_a_comment_is_single_where_it_escapes_nothing() {
        let parts = parts(&code("EVENT", "utf8mb4", "NO_BACKSLASH_ESCAPES"), "root@h", "a\\b\n", "");
        assert_eq!(parts.last(), Some(&("COMMENT 'a\\\\b\\n'".to_owned(), "COMMENT 'a\\b\n'".to_owned())));
    }
}
