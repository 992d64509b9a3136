//! Events at the cut-over. They run on one server only: they are created disabled, and enabled when all of them are there.

use std::collections::HashMap;

use fullbore_core::{Error, Result};

use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical::names::quoted;
use crate::mysql_family::logical_set::catalog::Code;
use crate::mysql_family::logical_set::load::creation::{fit_zone, is_same_collation, run_code};
use crate::mysql_family::logical_set::load::{fit_code, objects};
use crate::mysql_family::logical_set::selection::Selection;
use crate::mysql_family::sql_text::find_outside;
use crate::mysql_family::system_zone::SystemZone;

/// How SHOW CREATE EVENT says that an event runs.
const ENABLED: &str = " PRESERVE ENABLE";
const DISABLED: &str = " PRESERVE DISABLE";
const DEFINER: &str = "CREATE DEFINER=";

/// Drops the events that the migrated databases have in the target. Says whether one of them was enabled: it may have changed rows.
///
/// # Errors
/// The server refuses.
pub fn drop_all(target: &mut Connection, selection: &Selection) -> Result<bool> {
    let within = selection.databases_in("event_schema");
    let found = target
        .query(&format!("SELECT event_schema, event_name, status FROM information_schema.events WHERE {within}"))?;
    let mut was_enabled = false;
    for row in found.rows {
        if let Ok([Some(schema), Some(name), Some(status)]) = <[_; 3]>::try_from(row)
            && selection.takes_code(&schema)
        {
            target.query(&format!("DROP EVENT IF EXISTS {}.{}", quoted(&schema), quoted(&name)))?;
            was_enabled |= status == "ENABLED";
        }
    }
    Ok(was_enabled)
}

/// Creates events as they are at the source. None of them runs before all of them are there. Gives warnings about
/// collations that the target does not know, and about events whose database had another collation at their creation: a run that is
/// killed must not leave the database with another one.
///
/// # Errors
/// The server refuses one: the caller drops the others.
pub fn create(target: &mut Connection, mut events: Vec<Code>, zone: &SystemZone) -> Result<Vec<String>> {
    let mut warnings = fit_code(target, &mut events)?;
    warnings.extend(fit_zone(target, &mut events, Some(zone)));
    let asked = target.query("SELECT schema_name, default_collation_name FROM information_schema.schemata")?;
    let pair = |row: Vec<Option<String>>| <[_; 2]>::try_from(row).ok().and_then(|[name, now]| Some((name?, now?)));
    let collations: HashMap<String, String> = asked.rows.into_iter().filter_map(pair).collect();
    for event in &mut events {
        let wanted = std::mem::take(&mut event.database_collation);
        // Some servers keep all names in small letters.
        let now = collations.get(&event.schema).or_else(|| collations.get(&event.schema.to_lowercase()));
        if !wanted.is_empty() && now.is_some_and(|now| !is_same_collation(now, &wanted)) {
            warnings.push(format!("{} gets the present collation of its database, and not {wanted}", event.shown()));
        }
    }
    let asleep: Vec<Code> = events.iter().map(|event| disabled(event).unwrap_or_else(|| event.clone())).collect();
    objects::create_all(target, &asleep)?;
    for event in events.iter().filter(|event| disabled(event).is_some()) {
        let enabled = run_code(target, &Code { create: enabling(event), ..event.clone() });
        enabled.map_err(|failure| Error::from(failure).noting(&format!("{} was not enabled", event.shown())))?;
    }
    Ok(warnings)
}

/// The same event, disabled; None if it does not run.
fn disabled(event: &Code) -> Option<Code> {
    let at = find_outside(&event.create, ENABLED)?;
    let (before, after) = event.create.split_at(at);
    let create = format!("{before}{DISABLED}{}", after.get(ENABLED.len()..).unwrap_or_default());
    Some(Code { create, ..event.clone() })
}

/// The statement that enables it. Without the clause, the account of this session becomes its definer.
fn enabling(event: &Code) -> String {
    let definer = event.create.strip_prefix(DEFINER).and_then(|rest| rest.get(..find_outside(rest, " EVENT ")?));
    let definer = definer.map_or_else(String::new, |definer| format!("DEFINER={definer} "));
    format!("ALTER {definer}EVENT {} ENABLE", quoted(&event.name))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_created_disabled_and_enabled_with_its_definer() {
        let create = "CREATE DEFINER=`a EVENT b`@`%` EVENT `x PRESERVE ENABLE` ON SCHEDULE EVERY 1 DAY STARTS '2041-01-01' \
                      ON COMPLETION NOT PRESERVE ENABLE DO SET @a = ' PRESERVE ENABLE'";
        let event = Code { name: "x PRESERVE ENABLE".into(), create: create.into(), ..Code::default() };
        let asleep = disabled(&event).unwrap();
        assert_eq!(asleep.create, create.replace("NOT PRESERVE ENABLE", "NOT PRESERVE DISABLE"));
        assert_eq!(enabling(&event), "ALTER DEFINER=`a EVENT b`@`%` EVENT `x PRESERVE ENABLE` ENABLE");
        assert_eq!(disabled(&asleep), None);
    }
}
