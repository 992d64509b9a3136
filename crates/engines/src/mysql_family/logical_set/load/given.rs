//! Rows that this process makes itself, into a load: one reader, and several connections that load.
//!
//! The reader fills buffers of the pool with whole rows. A row that is longer than a buffer is a piece for itself. Each
//! piece goes to the next connection that is free.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use fullbore_core::meter::{Account, Clock, Spent, Stage};
use fullbore_core::pool::{Buffer, waited};
use fullbore_core::threads::start_in;
use fullbore_core::{Error, Result};

use super::super::lock;
use super::ServerLoad;
use super::streams::{Carry, Loaders};
use crate::engine::Flow;

/// A transaction of a load ends with the piece that makes it longer than this, in bytes.
const TRANSACTION: u64 = 16 << 20;

/// Whole rows of a table.
enum Piece {
    /// In a buffer of the pool, with their length.
    Rows(usize, Buffer, usize),
    /// One that no buffer holds.
    Long(usize, Vec<u8>),
}

/// Takes the rows of all tables, one table after another.
pub struct Feed<'f> {
    flow: &'f Flow<'f>,
    give: Sender<Piece>,
    /// The place of the table, the buffer, and the bytes in it.
    open: Option<(usize, Buffer, usize)>,
    clock: Clock,
    bytes: u64,
}

impl Feed<'_> {
    /// Takes a row, with its line end, of the table at this place in the order of the catalog.
    ///
    /// # Errors
    /// The job is stopped.
    pub fn row(&mut self, table: usize, row: &[u8]) -> Result<()> {
        self.bytes += row.len() as u64;
        let is_same = |open: &(usize, Buffer, usize)| open.0 == table && row.len() <= open.1.len() - open.2;
        if !self.open.as_ref().is_some_and(is_same) {
            self.flush()?;
        }
        if row.len() > self.flow.pool.size() {
            return self.send(Piece::Long(table, row.to_vec()), row.len() as u64);
        }
        if self.open.is_none() {
            let buffer = self.flow.pool.take()?;
            self.clock.lap_busy_but(waited());
            self.open = Some((table, buffer, 0));
        }
        if let Some((_, buffer, length)) = &mut self.open {
            let end = *length + row.len();
            buffer.get_mut(*length..end).ok_or(Error::Halted)?.copy_from_slice(row);
            *length = end;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match self.open.take() {
            None => Ok(()),
            Some((table, buffer, length)) => self.send(Piece::Rows(table, buffer, length), length as u64),
        }
    }

    fn send(&mut self, piece: Piece, bytes: u64) -> Result<()> {
        self.flow.halt.check()?;
        self.clock.lap(Spent::Busy);
        self.clock.pass(bytes);
        // Without a loader, the job ends.
        self.give.send(piece).map_err(|_| Error::Halted)
    }
}

impl ServerLoad {
    /// Loads all rows that `read` gives. Gives their bytes, and the accounts of both stages.
    ///
    /// # Errors
    /// The error of `read`, the server refuses or is lost, or the job is stopped.
    pub fn take_given(
        &self,
        lanes: usize,
        flow: &Flow<'_>,
        read: impl FnOnce(&mut Feed<'_>) -> Result<()>,
    ) -> Result<(u64, Vec<Stage>)> {
        flow.progress.enter(["source", "", "target"], &[flow.pool]);
        let pool = Arc::clone(flow.pool);
        flow.halt.on_stop(move || pool.close());
        let (give, take) = channel();
        let take = Mutex::new(take);
        let (mut loaders, mut reader, mut bytes) = (Vec::new(), Account::default(), 0);
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for at in 0..lanes.max(1) {
                let (load, take) = (self, &take);
                let thread = start_in(scope, &format!("loader {}", at + 1), move || {
                    flow.halt.watch(load.load_pieces(flow, take)).unwrap_or_default()
                });
                threads.extend(flow.halt.watch(thread));
            }
            let clock = Clock::shown_in(&flow.progress.stages[0]);
            let mut feed = Feed { flow, give, open: None, clock, bytes: 0 };
            flow.halt.watch(read(&mut feed).and_then(|()| feed.flush()));
            (reader, bytes) = (feed.clock.account(), feed.bytes);
            drop(feed);
            for thread in threads {
                loaders.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
        });
        flow.halt.finish()?;
        Ok((bytes, vec![Stage::of("source", vec![reader]), Stage::of("target", loaders)]))
    }

    fn load_pieces(&self, flow: &Flow<'_>, take: &Mutex<Receiver<Piece>>) -> Result<Account> {
        let mut clock = Clock::shown_in(&flow.progress.stages[2]);
        let (mut by, mut pending, mut carry) = (Loaders::default(), 0, Carry::default());
        loop {
            let piece = lock(take).recv();
            clock.lap(Spent::Starved);
            flow.halt.check()?;
            let (table, bytes) = match &piece {
                Err(_) => break,
                Ok(Piece::Rows(table, buffer, length)) => (*table, buffer.get(..*length).unwrap_or_default()),
                Ok(Piece::Long(table, row)) => (*table, &row[..]),
            };
            self.take_rows(table, &mut carry, bytes, &mut by)?;
            pending += bytes.len() as u64;
            if pending >= TRANSACTION {
                by.commit(self)?;
                pending = 0;
            }
            clock.lap(Spent::Busy);
            clock.pass(bytes.len() as u64);
            flow.progress.advance(bytes.len() as u64);
        }
        by.commit(self)?;
        clock.lap(Spent::Busy);
        Ok(clock.account())
    }
}
