//! A look at the source before a migration: how fast its rows are read, and how fast its log grows.

use std::time::{Duration, Instant};

use fullbore_core::Result;
use fullbore_core::source::Source;
use fullbore_core::threads::side_by_side;

use super::onto::log_bytes;
use crate::engine::{Flow, Foreseen};
use crate::mysql_family::binlog::preflight::status;
use crate::mysql_family::connection::Connection;
use crate::mysql_family::logical_set::session::LogicalSession;

/// Reads rows for at most this time.
///
/// # Errors
/// The source refuses or is lost.
pub fn look(asking: &mut Connection, session: &LogicalSession, flow: &Flow<'_>, most: Duration) -> Result<Foreseen> {
    let before = status(asking)?;
    let (begun, lanes) = (Instant::now(), session.connections());
    let until = begun + most;
    let look = |lane| {
        let mut reader = session.reader(lane, lanes)?;
        let mut buffer = flow.pool.take()?;
        let mut bytes = 0_u64;
        while Instant::now() < until {
            flow.halt.check()?;
            match reader.next(&mut buffer)? {
                Some(extent) => bytes += u64::from(extent.length),
                None => return Ok((bytes, true)),
            }
        }
        Ok((bytes, false))
    };
    let read = side_by_side("reader", 0..lanes, |_, lane| {
        let read = look(lane);
        // Also after an error: another reader would wait for this one.
        session.leave(lane);
        read
    })?;
    let read_bytes = read.iter().map(|(bytes, _)| bytes).sum();
    let is_all = read.iter().all(|(_, at_end)| *at_end);
    let grown = match (before, status(asking)?) {
        (Some(before), Some(now)) => log_bytes(asking, &before.file, before.offset, &now),
        _ => 0,
    };
    Ok(Foreseen { read_bytes, read: begun.elapsed(), is_all, log_bytes: grown })
}
