//! Follows a log with overlapping read transactions, so that no frame is lost between two sets, and with checkpoints
//! that keep the log short. See `docs/engines/sqlite-log.md`, "What holds the log".

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use fullbore_core::Result;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::super::connection::{Patience, QuietConnection, explain, read_index};
use super::super::engine::MAX_WAL_GROWTH;
use super::super::open_files::beside;
use super::super::position::LogPosition;
use super::super::source::Snapshot;
use super::super::wal::FRAME_HEADER_SIZE;
use super::super::wal_index::IndexHeader;
use super::end::{End, now};
use super::engine::{end_of, ends};
use super::join::{Joining, join_first};
use super::look::Lookout;
use super::session::{Content, Database, EXACT_ATTEMPTS, LogBackup};
use super::stretch::{Sighting, Stretch};
use crate::engine::{LogFollower, LogSession, SetEnd};
use crate::{Options, Session};

/// How long a follower tries to get the write lock when the log has to be restarted; longer for a longer log, up to
/// `LONGEST_WAIT`.
const WRITER_WAIT: Duration = Duration::from_millis(250);
/// See `WRITER_WAIT`.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// See `room_meanwhile`.
const MEANWHILE: u64 = 16 << 20;
/// See `room_meanwhile`.
const LONGEST_MEANWHILE: u64 = 256 << 20;
/// How often it tries.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// A follower of a database's log. Connections are dropped before the descriptors in `database`.
pub struct Follower {
    /// Takes the write lock for a moment; opened at the first use.
    writer: Option<Connection>,
    /// Always inside a read transaction.
    hold: QuietConnection,
    /// The connection for the next read transaction.
    spare: QuietConnection,
    lookout: Lookout,
    /// The end of the last set.
    shipped: End,
    /// Frames after `shipped` that were already read.
    pending: Vec<Stretch>,
    /// The end of `pending`; `hold` began here or before.
    position: End,
    /// The position of `spare`; the set up to there is being shipped.
    ahead: Option<End>,
    tried: Option<Instant>,
    options: Options,
    database: Database,
}

impl Follower {
    /// Opens the database at `path` and holds its log from now on.
    ///
    /// # Errors
    /// As for a backup; or the database is not in WAL mode.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        let patience = Patience::new(options.lock_timeout, options.halt.clone());
        let (hold, database) = Database::open(path, options, &patience)?;
        let mark = hold.begin_at_mark(&database.path, &database.index, EXACT_ATTEMPTS, &patience)?.header;
        let spare = QuietConnection::open(&database.path)?;
        if options.continue_after_error {
            spare.do_without_schema(&database.path)?;
        }
        let lookout = Lookout::start(std::sync::Arc::clone(&database.index))?;
        let position = end_at(&mark, mark.page_size, now());
        let options = options.clone();
        let (shipped, pending) = (position.clone(), Vec::new());
        Ok(Self {
            writer: None,
            hold,
            spare,
            lookout,
            shipped,
            pending,
            position,
            ahead: None,
            tried: None,
            options,
            database,
        })
    }

    /// Bytes of the log up to where it was shipped.
    fn log_bytes(&self) -> u64 {
        let frame = FRAME_HEADER_SIZE as u64 + u64::from(self.shipped.page_size);
        self.position.log.as_ref().map_or(0, |log| u64::from(log.max_frame) * frame)
    }

    /// Called while the write lock prevents commits.
    fn shorten_locked(&mut self) -> Result<bool> {
        let patience = Patience::new(WRITER_WAIT, self.options.halt.clone());
        let (path, index) = (&self.database.path, &self.database.index);
        let mark = self.spare.begin_at_mark(path, index, EXACT_ATTEMPTS, &patience)?.header;
        let same_log = self.position.log.as_ref().is_some_and(|log| log.salts() == mark.salts);
        let (stretches, seen) = self.join_held(&mark)?;
        let meanwhile: u64 = stretches.iter().map(Stretch::bytes).sum();
        if !same_log || meanwhile > room_meanwhile(self.log_bytes()) {
            self.end_spare()?;
            return Ok(false);
        }
        let copied = stretches.into_iter().map(|stretch| stretch.into_memory(u64::MAX));
        self.pending = copied.collect::<std::io::Result<_>>().map_err(|e| self.database.log.read_error(0, 0, e))?;
        // The spare holds everything from here on; the frames before are in memory.
        self.advance(end_at(&mark, self.shipped.page_size, seen))?;
        let all_copied = checkpoint(&self.spare, &self.database.path)?;
        // Every frame is in the database now. A new transaction reads from the database alone, and lets the log
        // restart.
        let again = self.spare.begin_at_mark(&self.database.path, &self.database.index, EXACT_ATTEMPTS, &patience)?;
        if (again.header.salts, again.header.max_frame) == (mark.salts, mark.max_frame) {
            let position = self.position.clone();
            self.advance(position)?;
        } else {
            self.end_spare()?;
        }
        Ok(all_copied)
    }

    /// Takes the write lock; false if a writer holds it for too long.
    fn lock_writers(&mut self, wait: Duration) -> Result<bool> {
        let path = &self.database.path;
        if self.writer.is_none() {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let open = || {
                let writer = Connection::open_with_flags(path, flags)?;
                writer.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
                // SQLite's own wait sleeps between its tries; a writer without pauses takes the lock again meanwhile.
                writer.busy_timeout(Duration::ZERO)?;
                Ok(writer)
            };
            self.writer = Some(open().map_err(|error| explain(path, error))?);
        }
        let Some(writer) = &self.writer else { return Ok(false) };
        let begun = Instant::now();
        while begun.elapsed() < wait {
            match writer.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([])) {
                Ok(_) => return Ok(true),
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => std::thread::yield_now(),
                Err(error) => return Err(explain(path, error)),
            }
        }
        Ok(false)
    }

    /// The frames between `position` and a mark, and the time of the look.
    fn join_held(&self, mark: &IndexHeader) -> Result<(Vec<Stretch>, i64)> {
        let last = self.pending.last().and_then(|stretch| stretch.groups.last()).map(|group| group.time);
        let floor = last.or(self.shipped.time()).unwrap_or(i64::MIN);
        let seen = now().max(floor);
        let at_least = |sighting: Sighting| Sighting { time: sighting.time.max(floor).min(seen), ..sighting };
        let sightings: Vec<Sighting> = self.lookout.seen().into_iter().map(at_least).collect();
        let joining = Joining {
            log: &self.database.log,
            raw: &self.database.raw,
            mark,
            base: &self.position,
            held: true,
            sightings: &sightings,
            now: seen,
        };
        match joining.stretches() {
            Ok(stretches) => Ok((stretches, seen)),
            Err(apart) => Err(apart.into_error(&self.database.log, &self.position, mark)),
        }
    }

    /// From now on the spare's transaction holds the log.
    fn advance(&mut self, position: End) -> Result<()> {
        self.hold.end().map_err(|error| explain(&self.database.path, error))?;
        std::mem::swap(&mut self.hold, &mut self.spare);
        self.position = position;
        Ok(())
    }

    fn end_spare(&self) -> Result<()> {
        self.spare.end().map_err(|error| explain(&self.database.path, error))
    }

    fn patience(&self) -> Patience {
        Patience::new(self.options.lock_timeout, self.options.halt.clone())
    }
}

impl LogFollower for Follower {
    fn join(&mut self, bases: &[SetEnd]) -> Result<usize> {
        let bases = ends(bases)?;
        let patience = self.patience();
        let joined = join_first(&bases, &self.spare, &self.database, &patience)?;
        let position = end_at(&joined.mark, joined.base.page_size, joined.time);
        (self.shipped, self.pending) = (joined.base, joined.stretches);
        self.advance(position)?;
        Ok(joined.at)
    }

    fn snapshot(&self) -> Result<Box<dyn Session>> {
        Ok(Box::new(Snapshot::open_beside(&self.database.path, &self.options, &self.database.claim)?))
    }

    fn join_own(&mut self, position: &serde_json::Value) -> Result<()> {
        let full = end_of(position)?;
        (self.shipped, self.position) = (full.clone(), full);
        self.pending.clear();
        Ok(())
    }

    fn has_news(&mut self) -> Result<bool> {
        self.database.check_files()?;
        let known = self.position.log.as_ref().map(|log| (log.salts(), log.max_frame));
        let now = read_index(&self.database.index)?.map(|now| (now.salts, now.max_frame));
        Ok(!self.pending.is_empty() || now.is_some_and(|now| now.1 > 0 && Some(now) != known))
    }

    fn next_set(&mut self) -> Result<Option<Box<dyn LogSession>>> {
        let until = now();
        let patience = self.patience();
        let mark = self.spare.begin_at_mark(&self.database.path, &self.database.index, EXACT_ATTEMPTS, &patience)?;
        let (fresh, seen) = self.join_held(&mark.header)?;
        let stretches: Vec<Stretch> = self.pending.iter().cloned().chain(fresh).collect();
        self.ahead = Some(end_at(&mark.header, self.shipped.page_size, seen));
        let content = Content { stretches, first: self.shipped.clone(), until };
        let set = LogBackup::new(content, None, self.database.clone())?;
        if set.is_none() {
            self.ahead = None;
            self.end_spare()?;
        }
        Ok(set.map(|set| Box::new(set) as Box<dyn LogSession>))
    }

    fn shipped(&mut self, end: &SetEnd) -> Result<()> {
        let end = end_of(&end.position)?;
        let Some(ahead) = self.ahead.take() else { return Ok(()) };
        if let Some(log) = &end.log {
            self.lookout.forget(log.salts(), log.max_frame);
        }
        self.shipped = end;
        self.pending.clear();
        self.advance(ahead)
    }

    fn shorten(&mut self, limit: u64) -> Result<bool> {
        let times = u32::try_from(self.log_bytes() / limit.max(1)).unwrap_or(u32::MAX);
        let waited = times > 4 || self.tried.is_none_or(|tried| tried.elapsed() >= BETWEEN_TRIES);
        if !waited || !self.pending.is_empty() || self.log_bytes() < limit {
            return Ok(false);
        }
        self.tried = Some(Instant::now());
        checkpoint(&self.spare, &self.database.path)?;
        if !self.lock_writers(WRITER_WAIT.saturating_mul(times).min(LONGEST_WAIT))? {
            return Ok(false);
        }
        let done = self.shorten_locked();
        let unlocked = self.writer.as_ref().map_or(Ok(()), |writer| writer.execute_batch("ROLLBACK"));
        unlocked.map_err(|error| explain(&self.database.path, error))?;
        done
    }

    fn may_grow(&self) -> bool {
        self.log_file_bytes() <= self.options.given.bytes(&MAX_WAL_GROWTH)
    }

    fn log_file_bytes(&self) -> u64 {
        fs::metadata(beside(&self.database.path, "-wal")).map_or(0, |metadata| metadata.len())
    }
}

/// Most bytes of commits that may arrive while a log of `log_bytes` is copied; they are in memory until they are
/// shipped. A quarter of a long log: on a slow disk more commits arrive, and with a fixed bound the log would grow
/// for ever.
fn room_meanwhile(log_bytes: u64) -> u64 {
    (log_bytes / 4).clamp(MEANWHILE, LONGEST_MEANWHILE)
}

/// The position of a mark.
fn end_at(mark: &IndexHeader, page_size: u32, seen: i64) -> End {
    End {
        page_size,
        pages: mark.pages,
        change_counter: None,
        file: None,
        log: Some(LogPosition::new(mark.salts, mark.max_frame, mark.last_sums(), 0)),
        at: super::end::show_time(seen),
    }
}

/// Copies all frames that it can into the database without waiting; true if these are all frames.
fn checkpoint(connection: &Connection, path: &Path) -> Result<bool> {
    let ask = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(1)?, row.get::<_, i64>(2)?));
    match connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], ask) {
        Ok((frames, copied)) => Ok(frames == copied),
        Err(error)
            if matches!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)) =>
        {
            Ok(false)
        }
        Err(error) => Err(explain(path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::room_meanwhile;

    #[test]
    fn the_longer_the_log_has_become_the_more_may_come_while_it_is_copied() {
        assert_eq!([4, 64, 400, 1 << 20].map(|mib| room_meanwhile(mib << 20) >> 20), [16, 16, 100, 256]);
    }
}
