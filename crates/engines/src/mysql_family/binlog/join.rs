//! Joins a server's log to the end of the predecessor, and proves that nothing is missing between the two.

use fullbore_core::{Error, Result};

use super::dump::Pull;
use super::end::{End, Place};
use super::event::MAGIC;
use super::gtid::Gtids;
use super::preflight::{Clock, Server};
use super::walk::{Tail, Walk};
use crate::engine::FAIL_OVER_FROM;

/// A place up to here is reached by reading the file from its start on.
const NEAR: u64 = 1 << 20;

/// A log behind the end of its predecessor.
pub struct Joined {
    /// The end of the predecessor, with its GTIDs.
    pub base: End,
    /// The server's clock before that.
    pub clock: Clock,
    /// The next event is the first one behind it, if there is one.
    pub pull: Pull,
    /// The first events of the file, for a piece that begins behind them.
    pub head: Vec<u8>,
    /// False if the log ends there.
    pub has_more: bool,
}

/// Joins the log to `base`.
///
/// # Errors
/// The log is of another server or was reset, or the file is not there any more.
pub fn join(server: &Server, base: &End, clock: Clock) -> Result<Joined> {
    let place = &base.binlog;
    if base.server != server.identity {
        let (theirs, ours) = (&base.server, &server.identity);
        let why = format!("the last set is of the log of another server ({theirs}; this server is {ours})");
        let hint = format!(
            "if this server is a promoted replica of the other one, add --{} with the name of the database in the \
             repository; else take a new full",
            FAIL_OVER_FROM.name
        );
        return Err(Error::refused(server.name(), why, hint));
    }
    let (mut pull, head) = read_head(server, place)?;
    refuse_later_file(server, base, &pull.walk, clock)?;
    let tail = place.tail.filter(|_| place.offset > pull.walk.offset.max(NEAR) && u32::try_from(place.offset).is_ok());
    match tail {
        Some(tail) => {
            let file_crc = pull.walk.file_crc;
            let gtids = Gtids::of_place(server.dialect, place);
            pull = Pull::begin(server, Walk { offset: tail.at, file_crc, ..Walk::new(&place.file, gtids) })?;
            one_event(&mut pull, server, place, tail)?;
        }
        None => up_to(&mut pull, server, place)?,
    }
    pull.restart();
    let mut base = base.clone();
    if let (true, Some(gtids)) = (base.binlog.gtid.is_empty(), &pull.walk.gtids) {
        base.binlog.gtid = gtids.to_string();
    }
    pull.believe(base.time(), clock);
    let has_more = pull.next()?;
    Ok(Joined { base, clock, pull, head, has_more })
}

/// Refuses a file that was begun after the place of the full was read: then the log was reset meanwhile, and its files have the same
/// names again. A log set knows its file by the checksum of the first event.
fn refuse_later_file(server: &Server, base: &End, walk: &Walk, clock: Clock) -> Result<()> {
    let Some((read, begun)) = base.taken.or(base.finished).zip(walk.file_begun) else { return Ok(()) };
    if base.binlog.file_crc.is_none() && i64::from(begun) * 1_000_000 > read.saturating_add(clock.ahead) {
        let why = format!(
            "{} was begun after the last set read its place, so it is another file than that set ends in",
            walk.file
        );
        return Err(refused(server, why));
    }
    Ok(())
}

/// The first events of the file: its format, and the GTIDs before it.
fn read_head(server: &Server, place: &Place) -> Result<(Pull, Vec<u8>)> {
    let mut pull = Pull::begin(server, Walk::new(&place.file, None))?;
    let mut head = Vec::new();
    while pull.walk.gtids.is_none() && pull.walk.offset < place.offset && pull.next()? {
        pull.whole(&mut head)?;
    }
    if place.file_crc.is_some_and(|known| pull.walk.file_crc.is_some_and(|crc| crc != known)) {
        return Err(refused(server, format!("{} is another file than the one that the last set ends in", place.file)));
    }
    Ok((pull, head))
}

/// Reads the last event before the place again: it must be the same.
fn one_event(pull: &mut Pull, server: &Server, place: &Place, tail: Tail) -> Result<()> {
    let is_there = pull.next()?;
    if is_there {
        pull.skip()?;
    }
    if !is_there || pull.walk.tail != Some(tail) || pull.walk.offset != place.offset {
        return Err(changed(server, place));
    }
    Ok(())
}

/// Reads the file up to the place. The GTIDs there must be those of the predecessor.
fn up_to(pull: &mut Pull, server: &Server, place: &Place) -> Result<()> {
    while pull.walk.offset < place.offset && pull.walk.file == place.file && pull.next()? {
        pull.skip()?;
    }
    let same_tail = place.tail.is_none_or(|tail| pull.walk.tail == Some(tail));
    if pull.walk.offset != place.offset || pull.walk.file != place.file || !same_tail {
        return Err(changed(server, place));
    }
    // A full of a server that is written to knows its place, but not the GTIDs there.
    if place.gtid.is_empty() && place.file_crc.is_none() {
        return Ok(());
    }
    let mut known = Gtids::of_place(server.dialect, place);
    let agrees = match (&pull.walk.gtids, &known) {
        (Some(found), Some(known)) => known.may_follow(found),
        // The list of GTIDs follows. Behind the first event, its checksum proves that this is the same file.
        (None, _) => place.offset == MAGIC.len() as u64 || place.tail.is_some(),
        _ => false,
    };
    if !agrees {
        let found = pull.walk.gtids.as_ref().map(ToString::to_string).unwrap_or_default();
        return Err(refused(
            server,
            format!("at {} its log has the GTIDs `{found}`, but the last set has `{}`", place.show(), place.gtid),
        ));
    }
    // The list at the start of the file has all servers.
    if let (Some(known), Some(found)) = (&mut known, &pull.walk.gtids) {
        known.learn(found);
    }
    pull.walk.gtids = known;
    Ok(())
}

fn changed(server: &Server, place: &Place) -> Error {
    refused(server, format!("its log has no event that ends at {}, or another one", place.show()))
}

fn refused(server: &Server, why: String) -> Error {
    let hint = "the log was reset (RESET), the server was restored or replaced, or it has lost the end of its log: take \
                a new full";
    Error::refused(server.name(), why, hint)
}
