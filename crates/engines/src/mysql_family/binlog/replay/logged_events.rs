//! Events (statements that the server runs at a time) that the log makes or changes. An applier disables each of them, whatever
//! it was at the source, so the log itself has to say what it was.

use std::collections::BTreeMap;

use fullbore_core::Result;
use fullbore_core::units::first_of;

use crate::mysql_family::binlog::statement::{Kind, Statement};
use crate::mysql_family::binlog::through::settings;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::sql_text::{Token, TokenKind, tokens, unquoted};

const ALL: &str = "SELECT event_schema, event_name, definer, status, database_collation, default_collation_name FROM \
                   information_schema.events JOIN information_schema.schemata ON schema_name = event_schema";
/// How MariaDB and MySQL call an event that an applier has disabled.
const BY_AN_APPLIER: [&str; 2] = ["SLAVESIDE_DISABLED", "REPLICA_SIDE_DISABLED"];
/// How many names a warning lists.
const NAMED_MAX: usize = 10;

/// Database and name, in lower case.
type Key = (String, String);

/// What a statement does to events.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    /// CREATE; true: only if it is not there.
    Make(Key, State, bool),
    /// ALTER, perhaps with another name. Without a status, the event keeps the one that it has.
    Alter(Key, Option<Key>, State),
    Drop(Key),
    DropAll(String),
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct State {
    status: Option<Status>,
    /// The numbers of the character set and of the collation of the session that made it.
    names: Option<(u16, u16)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Enabled,
    Disabled,
    OnReplica,
}

/// An event of the server.
#[derive(Debug, Clone)]
pub struct Event {
    schema: String,
    name: String,
    definer: String,
    status: String,
    /// The collation of its database when it was made, and that of its database now.
    collations: [String; 2],
}

impl Event {
    fn key(&self) -> Key {
        key(&self.schema, &self.name)
    }

    fn is_by_an_applier(&self) -> bool {
        BY_AN_APPLIER.contains(&self.status.as_str())
    }

    fn state(&self) -> State {
        let status = match self.status.as_str() {
            "ENABLED" => Status::Enabled,
            "DISABLED" => Status::Disabled,
            _ => Status::OnReplica,
        };
        State { status: Some(status), names: None }
    }
}

/// The changes of events in a log, in their order.
#[derive(Debug, Default)]
pub struct LoggedEvents(Vec<Change>);

impl LoggedEvents {
    /// Takes a statement of the log.
    pub fn take(&mut self, statement: &Statement) {
        self.0.extend(change(statement));
    }

    /// What each event is behind the log. `before`: the events before it.
    fn states(&self, before: &[Event]) -> BTreeMap<Key, State> {
        let mut states: BTreeMap<Key, State> = before.iter().map(|event| (event.key(), event.state())).collect();
        for change in &self.0 {
            match change {
                Change::Make(key, _, true) if states.contains_key(key) => {}
                Change::Make(key, state, _) => drop(states.insert(key.clone(), state.clone())),
                Change::Alter(key, new, state) => {
                    let old = states.remove(key).unwrap_or_default();
                    let state = State { status: state.status.or(old.status), ..state.clone() };
                    states.insert(new.as_ref().unwrap_or(key).clone(), state);
                }
                Change::Drop(key) => drop(states.remove(key)),
                Change::DropAll(schema) => states.retain(|(known, _), _| known != schema),
            }
        }
        states
    }

    /// Gives each event that the applier has disabled what it had at the source. Gives what the user should know.
    ///
    /// # Errors
    /// The server refuses.
    pub fn give_back(&self, connection: &mut Connection, before: &[Event]) -> Result<Vec<String>> {
        let states = self.states(before);
        let untouched = |event: &Event| before.iter().any(|old| old.key() == event.key() && old.is_by_an_applier());
        let (mut unknown, known) = (Vec::new(), settings::names(connection)?);
        for event in all(connection)?.iter().filter(|event| event.is_by_an_applier()) {
            let state = states.get(&event.key()).cloned().unwrap_or_default();
            let word = match state.status {
                Some(Status::Enabled) => "ENABLE",
                Some(Status::Disabled) => "DISABLE",
                Some(Status::OnReplica) => continue,
                None if untouched(event) => continue,
                None => {
                    unknown.push(format!("{}.{}", event.schema, event.name));
                    continue;
                }
            };
            // The statement gives the event the names of this session and the collation of its database, too.
            let [made_with, now] = &event.collations;
            let collate = |collation: &str| format!("ALTER DATABASE {} COLLATE {collation}", quoted(&event.schema));
            if made_with != now {
                connection.query(&collate(made_with))?;
            }
            let of = |number: u16| known.get(&number);
            if let Some((client, connected)) = state.names
                && let (Some((set, _)), Some((_, collation))) = (of(client), of(connected))
            {
                // This text is in UTF-8.
                let is_ascii = event.schema.is_ascii() && event.name.is_ascii() && event.definer.is_ascii();
                let set = if is_ascii || set.starts_with("utf8") { set } else { "utf8mb4" };
                connection.query(&format!(
                    "SET SESSION character_set_client = {set}, SESSION collation_connection = {collation}"
                ))?;
            }
            // Without its definer, an event would get that of this session.
            let definer = event
                .definer
                .rsplit_once('@')
                .map_or_else(String::new, |(user, host)| format!("DEFINER={}@{} ", quoted(user), quoted(host)));
            let place = format!("{}.{}", quoted(&event.schema), quoted(&event.name));
            connection.query(&format!("ALTER {definer}EVENT {place} {word}"))?;
            connection.query("SET NAMES utf8mb4")?;
            if made_with != now {
                connection.query(&collate(now))?;
            }
        }
        if unknown.is_empty() {
            return Ok(Vec::new());
        }
        let named = first_of(&unknown, NAMED_MAX);
        Ok(vec![format!("the log does not say whether these events are enabled, so they are not: {named}")])
    }
}

/// The events of the server.
///
/// # Errors
/// The server refuses.
pub fn all(connection: &mut Connection) -> Result<Vec<Event>> {
    let answer = connection.query(ALL)?;
    let event = |row: Vec<Option<String>>| match <[_; 6]>::try_from(row) {
        Ok([Some(schema), Some(name), Some(definer), Some(status), Some(made_with), Some(now)]) => {
            Some(Event { schema, name, definer, status, collations: [made_with, now] })
        }
        _ => None,
    };
    Ok(answer.rows.into_iter().filter_map(event).collect())
}

fn key(schema: &str, name: &str) -> Key {
    (schema.to_lowercase(), name.to_lowercase())
}

/// What a statement does to events; None: nothing.
fn change(statement: &Statement) -> Option<Change> {
    let schema = String::from_utf8_lossy(&statement.schema);
    match Kind::of(&statement.text) {
        Kind::Event => {}
        Kind::Definition if statement.detached && statement.shown().starts_with("DROP") => {
            return Some(Change::DropAll(schema.to_lowercase()));
        }
        _ => return None,
    }
    let text = String::from_utf8_lossy(&statement.text);
    let tokens: Vec<Token> = tokens(text.as_bytes()).collect();
    let said = |at: usize, kinds: &[TokenKind]| {
        tokens.get(at).filter(|token| kinds.contains(&token.kind)).and_then(|token| text.get(token.place.clone()))
    };
    let is = |at: usize, word: &str| said(at, &[TokenKind::Word]).is_some_and(|said| said.eq_ignore_ascii_case(word));
    let named = |at: usize| said(at, &[TokenKind::Word, TokenKind::Quoted]).map(unquoted);
    let find = |word: &str, from: usize| (from..tokens.len()).find(|at| is(*at, word));
    // The definer comes before this word.
    let event = find("EVENT", 1)?;
    let missing = is(event + 1, "IF") && is(event + 2, "NOT");
    // Behind IF NOT EXISTS, or IF EXISTS.
    let words = if is(event + 1, "IF") { 2 + usize::from(missing) } else { 0 };
    let name = |at: usize| -> Option<(Key, usize)> {
        let first = named(at)?;
        match said(at + 1, &[TokenKind::Sign]) {
            Some(".") => Some((key(&first, &named(at + 2)?), at + 3)),
            _ => Some((key(&schema, &first), at + 1)),
        }
    };
    let (of, behind) = name(event + 1 + words)?;
    let body = find("DO", behind).unwrap_or(tokens.len());
    let last = (behind..body).rev().find(|at| is(*at, "ENABLE") || is(*at, "DISABLE"));
    let status = last.map(|at| match (is(at, "ENABLE"), is(at + 1, "ON")) {
        (true, _) => Status::Enabled,
        (false, true) => Status::OnReplica,
        (false, false) => Status::Disabled,
    });
    let number = |name: &str| {
        statement.settings.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.parse().ok())
    };
    let names = number("character_set_client").zip(number("collation_connection"));
    match &statement.shown()[..] {
        shown if shown.starts_with("DROP") => Some(Change::Drop(of)),
        shown if shown.starts_with("CREATE") => {
            Some(Change::Make(of, State { status: status.or(Some(Status::Enabled)), names }, missing))
        }
        _ => {
            let new = find("RENAME", behind).filter(|at| *at < body).and_then(|at| Some(name(at + 2)?.0));
            Some(Change::Alter(of, new, State { status, names }))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &str) -> Statement {
        let settings = vec![("character_set_client", "8".to_owned()), ("collation_connection", "31".to_owned())];
        let detached = text.contains("DATABASE");
        Statement {
            schema: b"shop".to_vec(),
            text: text.as_bytes().to_vec(),
            settings,
            detached,
            ..Statement::default()
        }
    }

    fn states(before: &[(&str, &str)], log: &[&str]) -> Vec<(String, Option<Status>)> {
        let event = |(name, status): &(&str, &str)| Event {
            schema: "shop".into(),
            name: (*name).to_owned(),
            definer: "a@b".into(),
            status: (*status).to_owned(),
            collations: Default::default(),
        };
        let before: Vec<Event> = before.iter().map(event).collect();
        let mut logged = LoggedEvents::default();
        log.iter().for_each(|text| logged.take(&statement(text)));
        logged.states(&before).into_iter().map(|((schema, name), it)| (format!("{schema}.{name}"), it.status)).collect()
    }

    #[test]
    fn the_log_says_what_each_event_was_at_the_source() {
        let of = |log: &[&str]| states(&[("off", "DISABLED"), ("far", "REPLICA_SIDE_DISABLED")], log);
        let kept = [("shop.far".to_owned(), Some(Status::OnReplica)), ("shop.off".to_owned(), Some(Status::Disabled))];
        let with = |name: &str, status| {
            let mut all = kept.to_vec();
            all.push((name.to_owned(), Some(status)));
            all.sort_by(|one, other| one.0.cmp(&other.0));
            all
        };
        let create = "CREATE DEFINER=`event`@`%` EVENT /* x */ `On` ON SCHEDULE EVERY 1 DAY";
        assert_eq!(of(&[&format!("{create} DO CALL disable()")]), with("shop.on", Status::Enabled));
        assert_eq!(of(&[&format!("{create} DISABLE COMMENT 'ENABLE' DO SELECT 1")]), with("shop.on", Status::Disabled));
        assert_eq!(of(&[&format!("{create} DISABLE ON SLAVE DO SELECT 1")]), with("shop.on", Status::OnReplica));
        let other = "create event if not exists other.`a``b` on schedule every 1 day do select 1";
        assert_eq!(of(&[other, other]), with("other.a`b", Status::Enabled));
        assert_eq!(of(&["CREATE EVENT IF NOT EXISTS off ON SCHEDULE EVERY 1 DAY DO SELECT 1"]), kept);
        assert_eq!(of(&["ALTER EVENT off COMMENT 'x'"]), kept);
        assert_eq!(
            of(&["DROP EVENT off", "ALTER EVENT far RENAME TO off ENABLE"]),
            [("shop.off".into(), Some(Status::Enabled))]
        );
        assert_eq!(of(&["DROP DATABASE shop"]), []);
        assert_eq!(of(&["INSERT INTO event VALUES ('CREATE EVENT x')"]), kept);
    }

    #[test]
    fn a_statement_that_is_cut_or_unknown_changes_nothing() {
        let whole = "ALTER DEFINER=`a`@`b` EVENT shop.`e` ON SCHEDULE AT '2030-01-01' RENAME TO x.y DISABLE ON REPLICA DO SELECT '";
        for end in 0..whole.len() {
            let _ = change(&statement(&whole[..end]));
        }
        let names = Some((8, 31));
        let state = State { status: Some(Status::OnReplica), names };
        let expected = Change::Alter(key("shop", "e"), Some(key("x", "y")), state);
        assert_eq!(change(&statement(whole)), Some(expected));
    }
}
