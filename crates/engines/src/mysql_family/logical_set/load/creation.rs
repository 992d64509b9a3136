//! Objects with a body, made with the settings of their creation: SQL mode, time zone, character set, collations.

use std::borrow::Cow;

use fullbore_core::units::{bytes_of_digits, first_of};

use crate::mysql_family::connection::{Connection, Failure, ServerError};
use crate::mysql_family::logical::names::{literal, quoted};
use crate::mysql_family::logical_set::catalog::Code;
use crate::mysql_family::logical_set::tables_out::Charset;
use crate::mysql_family::sql_text::find_outside;
use crate::mysql_family::system_zone::{SYSTEM, SystemZone, ZoneOfSource};

/// How many names a warning lists.
const NAMED_MAX: usize = 5;
/// ER_WRONG_VALUE_FOR_VAR.
const WRONG_VALUE: u32 = 1231;
/// Parts of an SQL mode that MySQL 8.0 and later refuse. The first one is in the default of MySQL 5.7 and of MariaDB, and is about
/// GRANT. The next three are about SHOW CREATE. The others stand for parts that the mode lists, too.
const ENDED: [&str; 10] = [
    "NO_AUTO_CREATE_USER",
    "NO_FIELD_OPTIONS",
    "NO_KEY_OPTIONS",
    "NO_TABLE_OPTIONS",
    "DB2",
    "MAXDB",
    "MSSQL",
    "MYSQL323",
    "MYSQL40",
    "POSTGRESQL",
];

/// Gives the session the present time again.
const PRESENT: &str = "SET SESSION timestamp = DEFAULT";

/// Runs the statement of an object, in its database and with the settings of its creation.
///
/// # Errors
/// The server refuses it.
pub fn run_code(connection: &mut Connection, code: &Code) -> Result<(), Failure> {
    connection.query(&format!("USE {}", quoted(&code.schema)))?;
    let text = match is_same_text(code) {
        true => Cow::Borrowed(code.create.as_bytes()),
        false => Cow::Owned(converted(connection, code)?),
    };
    // The name of the database is UTF-8: before the session has another character set, and behind it.
    let before = take_collation(connection, code)?;
    let made = run_in_its_session(connection, code, &text);
    for statement in super::prepare::session_names() {
        connection.query(&statement)?;
    }
    if let Some(before) = before {
        connection.query(&format!("ALTER DATABASE {} COLLATE {before}", quoted(&code.schema)))?;
    }
    made
}

fn run_in_its_session(connection: &mut Connection, code: &Code, text: &[u8]) -> Result<(), Failure> {
    if let Some(wanted) = settings(code, true) {
        match connection.query(&wanted) {
            Err(Failure::Server(error)) if error.code == WRONG_VALUE => {
                let code = Code { sql_mode: without_ended(&code.sql_mode), ..code.clone() };
                settings(&code, true).map_or(Ok(()), |settings| connection.query(&settings).map(drop))?;
            }
            answer => drop(answer?),
        }
    }
    let moment = moment(code);
    // Some accounts may not: then a server drops an event whose time has passed.
    moment.iter().try_for_each(|set| connection.query_if_allowed(set).map(drop))?;
    let made = connection.run_bytes(text);
    if moment.is_some() {
        connection.query_if_allowed(PRESENT)?;
    }
    made
}

/// Gives the database the collation that it had when the object was created, and gives the one that it has. None if they are equal.
fn take_collation(connection: &mut Connection, code: &Code) -> Result<Option<String>, Failure> {
    let wanted = &code.database_collation;
    if wanted.is_empty() || !is_word(wanted) {
        return Ok(None);
    }
    let now = connection.query("SELECT @@collation_database")?.single().unwrap_or_default().to_owned();
    if is_same_collation(&now, wanted) {
        return Ok(None);
    }
    connection.query(&format!("ALTER DATABASE {} COLLATE {wanted}", quoted(&code.schema)))?;
    Ok(Some(now))
}

/// Whether two names are those of one collation: `utf8_general_ci` is `utf8mb3_general_ci`.
pub fn is_same_collation(one: &str, other: &str) -> bool {
    let whole = |name: &str| name.strip_prefix("utf8_").map_or(name.to_owned(), |rest| format!("utf8mb3_{rest}"));
    whole(one) == whole(other)
}

/// An SQL mode without the parts that MySQL 8.0 and later do not have, and that say nothing about an object.
pub fn without_ended(mode: &str) -> String {
    mode.split(',').filter(|part| !ENDED.contains(part)).collect::<Vec<_>>().join(",")
}

/// Letters, digits and underscores.
fn is_word(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether the text of an object, which is UTF-8, has the same bytes in the character set of its creation.
fn is_same_text(code: &Code) -> bool {
    code.create.is_ascii() || code.is_utf8() || !is_word(&code.character_set)
}

/// The text of an object in the character set of its creation: a literal without a character set of its own has this one.
fn converted(connection: &mut Connection, code: &Code) -> Result<Vec<u8>, Failure> {
    let (text, set) = (literal(&code.create), &code.character_set);
    let asked =
        format!("SELECT HEX(t), CONVERT(t USING utf8mb4) FROM (SELECT CONVERT({text} USING {set}) AS t) AS converted");
    let answer = connection.query(&asked)?;
    let same = answer.value(0, 1) == Some(code.create.as_str());
    let bytes = answer.value(0, 0).filter(|_| same).and_then(bytes_of_digits);
    bytes.ok_or_else(|| {
        let why = format!("it cannot write the text in the character set of its creation, {set}");
        Failure::Server(ServerError::new(connection.name(), 0, "", why.as_bytes()))
    })
}

/// Gives events in the system time zone of the source the name that this zone has in the target. Gives a warning if it has none.
pub fn fit_zone(connection: &mut Connection, code: &mut [Code], zone: Option<&SystemZone>) -> Option<String> {
    let mut of_source = ZoneOfSource::default();
    of_source.become_that(zone);
    let mut events = code.iter_mut().filter(|code| code.kind == "EVENT" && code.time_zone == SYSTEM).peekable();
    events.peek()?;
    match of_source.name(connection) {
        Ok(name) => {
            let mut twice = Vec::new();
            for event in events {
                let head = find_outside(&event.create, " DO ").map_or(&event.create[..], |end| &event.create[..end]);
                let is_twice = name != SYSTEM && zone.is_some_and(|zone| zone.repeated_in(head.as_bytes()).is_some());
                twice.extend(is_twice.then(|| event.shown()));
                event.time_zone = name.to_owned();
            }
            let told = |named| {
                format!(
                    "these events have a time in the hour that their zone repeats, and may run one hour off: {named}"
                )
            };
            (!twice.is_empty()).then(|| told(first_of(twice, NAMED_MAX)))
        }
        Err(error) => {
            let named = first_of(events.map(|event| event.shown()), NAMED_MAX);
            Some(format!("these events run at other moments than at the source: {named}. {error}"))
        }
    }
}

/// The statement for the settings of an object's creation. `of_set`: its text is in the character set of its creation.
fn settings(code: &Code, of_set: bool) -> Option<String> {
    let mut settings = Vec::new();
    if code.kind != "VIEW" && code.sql_mode.split(',').all(is_word) {
        settings.push(format!("sql_mode = '{}'", code.sql_mode));
    }
    if !code.time_zone.is_empty() && code.time_zone.chars().all(|letter| !matches!(letter, '\'' | '\\')) {
        settings.push(format!("time_zone = '{}'", code.time_zone));
    }
    if of_set && !code.character_set.is_empty() && is_word(&code.character_set) && is_word(&code.collation) {
        settings.push(format!("character_set_client = {}", code.character_set));
        settings.push(format!("collation_connection = {}", code.collation));
    }
    (!settings.is_empty()).then(|| format!("SET SESSION {}", settings.join(", ")))
}

/// Gives the session the second before the event ends, if this is over: a server drops an event whose time has passed when it is created.
/// None for an event without an end, and for other objects.
fn moment(code: &Code) -> Option<String> {
    let head = code.create.get(..find_outside(&code.create, " ON COMPLETION ")?).filter(|_| code.kind == "EVENT")?;
    let end =
        [" SCHEDULE AT '", " ENDS '"].iter().find_map(|word| head.get(find_outside(head, word)? + word.len()..))?;
    let end = end.split('\'').next().filter(|end| end.bytes().all(|byte| b"0123456789-: .".contains(&byte)))?;
    // Zero: the time is beyond what the function takes.
    Some(format!(
        "SET SESSION timestamp = LEAST(UNIX_TIMESTAMP(), COALESCE(NULLIF(UNIX_TIMESTAMP('{end}'), 0), UNIX_TIMESTAMP() + 1) - 1)"
    ))
}

/// An object for the client of a server: its statement between delimiters, behind the settings of its creation. A session before it
/// is in UTF-8. A comment says if the text cannot be in the character set of its creation.
pub fn script(code: &Code) -> Vec<u8> {
    // The client looks for the end of a text byte by byte: a letter with several bytes may have a quote or a backslash in it.
    let of_set = match is_same_text(code) {
        true => Some(code.create.as_bytes().to_vec()),
        false => Charset::named(&code.character_set).and_then(|set| set.single_bytes(&code.create)),
    };
    let mut script = Vec::new();
    if of_set.is_none() {
        let (shown, set) = (code.shown().replace('\n', " "), &code.character_set);
        script.extend(format!("-- {shown} was created in {set}. Here its text is UTF-8.\n").into_bytes());
    }
    script.extend(
        settings(code, of_set.is_some()).map_or(String::new(), |settings| format!("{settings};\n")).into_bytes(),
    );
    let moment = moment(code);
    script.extend(moment.iter().flat_map(|set| format!("{set};\n").into_bytes()));
    // A body may have semicolons.
    let mut end = ";;".to_owned();
    while code.create.contains(&end) {
        end.push(';');
    }
    let create = of_set.unwrap_or_else(|| code.create.as_bytes().to_vec());
    script.extend(format!("DELIMITER {end}\n").into_bytes());
    script.extend(create);
    // On a line of its own: the body may end with a comment.
    script.extend(format!("\n{end}\nDELIMITER ;\n").into_bytes());
    script.extend(moment.iter().flat_map(|_| format!("{PRESENT};\n").into_bytes()));
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_sql_mode_loses_only_the_parts_that_say_nothing_about_an_object() {
        let of_mariadb = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION";
        let expected = "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION";
        assert_eq!(without_ended(of_mariadb), expected);
        // It changes the meaning of a body: the target refuses it.
        assert_eq!(without_ended("PIPES_AS_CONCAT,ORACLE,NO_KEY_OPTIONS"), "PIPES_AS_CONCAT,ORACLE");
        assert_eq!(without_ended("NO_AUTO_CREATE_USER"), "");
    }

    #[test]
    fn an_event_is_created_at_a_moment_before_its_end() {
        let moment =
            |kind: &str, create: &str| moment(&Code { kind: kind.into(), create: create.into(), ..Code::default() });
        let once = "CREATE EVENT `e AT '1'` ON SCHEDULE AT '2026-01-02 03:04:05' ON COMPLETION NOT PRESERVE ENABLE DO SELECT 1";
        assert!(moment("EVENT", once).unwrap_or_default().contains("UNIX_TIMESTAMP('2026-01-02 03:04:05')"));
        let until = once.replace("AT '2026", "EVERY 1 DAY STARTS '2025-01-01 00:00:00' ENDS '2027");
        assert!(moment("EVENT", &until).unwrap_or_default().contains("UNIX_TIMESTAMP('2027-01-02 03:04:05')"));
        let ever =
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY ON COMPLETION PRESERVE ENABLE COMMENT ' ENDS ' DO SELECT ' ENDS '";
        assert_eq!((moment("EVENT", ever), moment("VIEW", once)), (None, None));
    }

    #[test]
    fn a_script_has_the_text_in_the_character_set_of_its_creation() {
        let code = |set: &str, create: &str| Code {
            kind: "VIEW".into(),
            schema: "s".into(),
            name: "v".into(),
            character_set: set.into(),
            collation: format!("{set}_bin"),
            create: create.into(),
            ..Code::default()
        };
        let head = |set: &str| format!("SET SESSION character_set_client = {set}, collation_connection = {set}_bin;\n");
        let of = |set: &str, create: &[u8]| {
            [head(set).as_bytes(), b"DELIMITER ;;\n", create, b"\n;;\nDELIMITER ;\n"].concat()
        };
        assert_eq!(script(&code("utf8mb4", "'ä'")), of("utf8mb4", "'ä'".as_bytes()));
        assert_eq!(script(&code("latin1", "'ä'")), of("latin1", b"'\xE4'"));
        assert_eq!(script(&code("binary", "'ä'")), of("binary", "'ä'".as_bytes()));
        assert_eq!(script(&code("gbk", "'a'")), of("gbk", b"'a'"));
        let expected = "-- view s.v was created in gbk. Here its text is UTF-8.\nDELIMITER ;;\n'礬'\n;;\nDELIMITER ;\n";
        assert_eq!(script(&code("gbk", "'礬'")), expected.as_bytes());
    }
}
