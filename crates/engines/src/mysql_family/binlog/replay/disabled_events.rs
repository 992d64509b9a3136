//! Events that an applier creates disabled.

use std::collections::BTreeSet;

use fullbore_core::Result;

use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::names::quoted;

const DISABLED: &str = "SELECT event_schema, event_name, definer FROM information_schema.events \
                        WHERE status IN ('SLAVESIDE_DISABLED', 'REPLICA_SIDE_DISABLED')";

/// Database, name and definer of an event.
type Event = [String; 3];

/// The events that are disabled now.
///
/// # Errors
/// The server refuses.
pub fn disabled_events(connection: &mut Connection) -> Result<BTreeSet<Event>> {
    let answer = connection.query(DISABLED)?;
    let name = |row: &Vec<Option<String>>| match &row[..] {
        [Some(schema), Some(event), Some(definer)] => Some([schema.clone(), event.clone(), definer.clone()]),
        _ => None,
    };
    Ok(answer.rows.iter().filter_map(name).collect())
}

/// Those that were not so before are enabled, as at the source. Without its definer, an event would get that of this
/// session.
///
/// # Errors
/// The server refuses.
pub fn enable_events(connection: &mut Connection, before: &BTreeSet<Event>) -> Result<()> {
    for [schema, event, definer] in disabled_events(connection)?.difference(before) {
        let definer = definer
            .rsplit_once('@')
            .map_or_else(String::new, |(user, host)| format!("DEFINER={}@{} ", quoted(user), quoted(host)));
        connection.query(&format!("ALTER {definer}EVENT {}.{} ENABLE", quoted(schema), quoted(event)))?;
    }
    Ok(())
}
