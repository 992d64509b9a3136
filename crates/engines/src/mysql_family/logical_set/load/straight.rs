//! Rows straight from a snapshot into a load, without media between them.
//!
//! Each connection of the snapshot is a lane of two threads. One reads rows into buffers of the pool, and the other loads
//! them. The channel between them holds as many buffers as the pool has.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use fullbore_core::meter::{Account, Clock, Spent, Stage};
use fullbore_core::pool::{Buffer, waited};
use fullbore_core::source::{Extent, Source};
use fullbore_core::threads::start_in;
use fullbore_core::{Error, Result};

use super::super::session::{LogicalSession, NewDetail};
use super::ServerLoad;
use super::streams::{Carry, Loaders, SmallTables};
use crate::engine::Flow;

/// A transaction of a load ends with the piece that makes it longer than this, in bytes.
const TRANSACTION: u64 = 16 << 20;

/// A stream whose bytes come in.
enum Content {
    /// Rows of the table at this place, and the row that has not come to its end.
    Chunk(usize, Carry),
    Small(SmallTables),
    /// It is in the target already.
    Catalog,
}

/// The loading half of a lane.
struct Lane<'a> {
    load: &'a ServerLoad,
    session: &'a LogicalSession,
    by: Loaders,
    open: HashMap<u32, Content>,
    /// Bytes of the transaction that is under way.
    pending: u64,
}

impl ServerLoad {
    /// Loads all rows of the snapshot. Gives bytes of text, and the accounts of both stages.
    ///
    /// # Errors
    /// A server refuses or is lost, or the job is stopped.
    pub fn take_snapshot(&self, session: &LogicalSession, flow: &Flow<'_>) -> Result<(u64, Vec<Stage>)> {
        let lanes = session.connections();
        flow.progress.enter(["source", "", "target"], &[flow.pool]);
        let pool = Arc::clone(flow.pool);
        flow.halt.on_stop(move || pool.close());
        let mut accounts: Vec<(Account, Account)> = Vec::new();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for at in 0..lanes {
                let (give, take) = channel();
                let reader = start_in(scope, &format!("reader {}", at + 1), move || {
                    flow.halt.watch(read(session, at, lanes, flow, &give)).unwrap_or_default()
                });
                let loader = start_in(scope, &format!("loader {}", at + 1), move || {
                    flow.halt.watch(self.load_lane(session, flow, &take)).unwrap_or_default()
                });
                threads.push((flow.halt.watch(reader), flow.halt.watch(loader)));
            }
            for (reader, loader) in threads {
                let join = |thread: Option<std::thread::ScopedJoinHandle<'_, Account>>| {
                    let ended =
                        thread.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
                    ended.unwrap_or_default()
                };
                accounts.push((join(reader), join(loader)));
            }
        });
        flow.halt.finish()?;
        for (name, tally) in session.chunks() {
            self.plan.places.get(&name).into_iter().for_each(|place| self.expect(*place, tally));
        }
        let (readers, loaders): (Vec<_>, Vec<_>) = accounts.into_iter().unzip();
        let stages = vec![Stage::of("source", readers), Stage::of("target", loaders)];
        Ok((stages.first().map_or(0, |stage| stage.account.bytes), stages))
    }

    fn load_lane(
        &self,
        session: &LogicalSession,
        flow: &Flow<'_>,
        take: &Receiver<(Extent, Buffer)>,
    ) -> Result<Account> {
        let mut lane = Lane { load: self, session, by: Loaders::default(), open: HashMap::new(), pending: 0 };
        let mut clock = Clock::shown_in(&flow.progress.stages[2]);
        while let Ok((extent, buffer)) = take.recv() {
            clock.lap(Spent::Starved);
            flow.halt.check()?;
            let bytes = buffer.get(..extent.length as usize).unwrap_or_default();
            lane.take(extent.stream, bytes)?;
            clock.lap(Spent::Busy);
            clock.pass(extent.length.into());
            flow.progress.advance(extent.length.into());
        }
        clock.lap(Spent::Starved);
        // After an error of the reader, its last rows are missing.
        flow.halt.check()?;
        lane.finish()?;
        clock.lap(Spent::Busy);
        Ok(clock.account())
    }
}

/// The reading half of a lane.
fn read(
    session: &LogicalSession,
    at: usize,
    lanes: usize,
    flow: &Flow<'_>,
    give: &Sender<(Extent, Buffer)>,
) -> Result<Account> {
    let mut reader = session.reader(at, lanes)?;
    let mut clock = Clock::shown_in(&flow.progress.stages[0]);
    loop {
        let mut buffer = flow.pool.take()?;
        clock.lap_busy_but(waited());
        flow.halt.check()?;
        let extent = reader.next(&mut buffer)?;
        clock.lap(Spent::Busy);
        let Some(extent) = extent else { return Ok(clock.account()) };
        clock.pass(extent.length.into());
        // Without a loader, the job ends.
        give.send((extent, buffer)).map_err(|_| Error::Halted)?;
    }
}

impl Lane<'_> {
    fn take(&mut self, stream: u32, bytes: &[u8]) -> Result<()> {
        let mut content = match self.open.remove(&stream) {
            Some(content) => content,
            None => self.content(stream)?,
        };
        if matches!(content, Content::Catalog) {
            return Ok(());
        }
        let is_complete = match &mut content {
            Content::Chunk(place, carry) => {
                self.load.take_rows(*place, carry, bytes, &mut self.by)?;
                carry.is_empty()
            }
            Content::Small(small) => {
                self.load.take_sections(small, bytes, &mut self.by)?;
                small.is_at_end()
            }
            Content::Catalog => true,
        };
        let row_is_open = matches!(&content, Content::Chunk(_, carry) if carry.is_open());
        if !is_complete {
            self.open.insert(stream, content);
        }
        self.pending += bytes.len() as u64;
        if self.pending >= TRANSACTION && !row_is_open {
            self.by.commit(self.load)?;
            self.pending = 0;
        }
        Ok(())
    }

    fn content(&self, stream: u32) -> Result<Content> {
        Ok(match self.session.content(stream) {
            Some(NewDetail::Chunk(schema, table)) => match self.load.plan.places.get(&(schema, table)) {
                Some(place) => Content::Chunk(*place, Carry::default()),
                None => Content::Catalog,
            },
            Some(NewDetail::Small) => Content::Small(SmallTables::default()),
            Some(NewDetail::Catalog(_) | NewDetail::Accounts) | None => Content::Catalog,
        })
    }

    /// Commits the rest.
    fn finish(mut self) -> Result<()> {
        if !self.open.is_empty() {
            let why = "a stream of rows ended inside a row";
            return Err(Error::refused("the migration", why, "this is a defect: please report it"));
        }
        self.by.commit(self.load)
    }
}

impl ServerLoad {
    /// Rows that are in the target so far.
    pub fn rows_so_far(&self) -> u64 {
        self.loaded_rows.load(Ordering::Relaxed)
    }
}
