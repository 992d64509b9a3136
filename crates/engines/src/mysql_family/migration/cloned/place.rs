//! The exact place of a clone in the log of its source: behind the last transaction that its GTIDs have. The place that the
//! server itself gives is before some of these transactions at times (seen with 9.7.4, in 2 of 9 clones under load).

use fullbore_core::{Error, Result};

use crate::mysql_family::Dialect;
use crate::mysql_family::binlog::end::Place;
use crate::mysql_family::binlog::event::{MAGIC, is_file_name};
use crate::mysql_family::binlog::gtid::Gtids;
use crate::mysql_family::connection::Connection;

/// Events in one answer.
const EVENTS: usize = 500;
/// The most answers: the place is a few transactions too early at most.
const ANSWERS_MAX: usize = 1000;
const GTID_NEXT: &str = "SET @@SESSION.GTID_NEXT= '";

/// Moves a place behind the transactions that the GTIDs of the place have.
///
/// # Errors
/// The source refuses, or its log does not have the place.
pub fn exact(asking: &mut Connection, mut place: Place) -> Result<Place> {
    let unknown = |asking: &Connection| {
        Error::refused(asking.name(), "the place of the clone in its log is unknown", "begin again with --replace")
    };
    if !is_file_name(&place.file) {
        return Err(unknown(asking));
    }
    let known = Gtids::parse(Dialect::MySql, &place.gtid).ok_or_else(|| unknown(asking))?;
    // The place of the last commit: without one since, its file may be gone.
    let files = asking.query("SHOW BINARY LOGS")?.rows;
    let names: Vec<&str> = files.iter().filter_map(|row| row.first()?.as_deref()).collect();
    if let Some(first) = names.first().filter(|name| is_file_name(name) && !names.contains(&&place.file[..])) {
        (place.file, place.offset) = ((*first).to_owned(), MAGIC.len() as u64);
    }
    for _ in 0..ANSWERS_MAX {
        let asked = format!("SHOW BINLOG EVENTS IN '{}' FROM {} LIMIT {EVENTS}", place.file, place.offset);
        let events = asking.query(&asked)?.rows;
        let (count, mut rotates) = (events.len(), false);
        for event in events {
            let [_, Some(from), Some(kind), _, Some(to), Some(info)] = &event[..] else { return Err(unknown(asking)) };
            let single = info.strip_prefix(GTID_NEXT).and_then(|rest| rest.split('\'').next());
            if let Some(gtid) = single.and_then(|text| Gtids::parse(Dialect::MySql, text))
                && !known.may_follow(&gtid)
            {
                place.offset = from.parse().map_err(|_| unknown(asking))?;
                return Ok(place);
            }
            match info.split_once(";pos=").filter(|_| kind == "Rotate") {
                Some((file, _)) => {
                    (place.file, place.offset) = (file.to_owned(), MAGIC.len() as u64);
                    rotates = true;
                }
                None => place.offset = to.parse().map_err(|_| unknown(asking))?,
            }
        }
        if count < EVENTS && !rotates {
            return Ok(place);
        }
    }
    Err(unknown(asking))
}
