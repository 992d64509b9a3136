//! `log follow`: makes a log set whenever there are new commits, until a signal.

mod pace;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fullbore_core::device::Destination;
use fullbore_core::media::SetKind;
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use fullbore_engines::LogEngine;
use fullbore_engines::engine::{LogFollower, SetEnd};
use uuid::Uuid;

use super::backup::{self, Opened, Predecessor, Within, log_base, log_set};
use super::exclusive;
use crate::report::Report;
use fullbore_core::conduct::Conduct;
use fullbore_core::units::show_bytes;
use fullbore_repository::chain::moment;
use fullbore_repository::discovery;
use fullbore_repository::format::SetRecord;
use fullbore_repository::task::LeaseState;
use pace::{LogCheck, Pace};

/// The default names of families: sets of the same second must get different names, and there may be very many sets.
const TEMPLATE: &str = "{database}-{kind}-{time}-{set}-{family}of{families}.bore";
/// The time between two checks for a signal.
const LOOK: Duration = Duration::from_millis(20);
/// The longest pause before another try to store a set.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The name of the command in reports and tasks.
pub const COMMAND: &str = "log follow";

/// What the user asked for.
#[derive(Clone)]
pub struct Following {
    /// Source, devices, codec, keys; its `base` may be empty: then a full is taken first.
    pub backup: backup::Request,
    /// `--full-if-needed`: takes a full first if the log continues no base.
    pub full_if_needed: bool,
    /// `--interval`: at most one set in this time.
    pub interval: Duration,
    /// `--for`: ends by itself after this time.
    pub lasting: Option<Duration>,
    /// How long each set is locked in a store, if that is given as a time span.
    pub locked_for: Option<Duration>,
    /// `--checkpoint-after`: the bytes of the log after which it is copied into the database.
    pub checkpoint_after: u64,
}

/// The repository that the sets of a follower go to.
pub(super) trait Home {
    /// The repository and the task, for the backup of a set.
    fn within(&self) -> Within<'_>;

    /// The families of the sets that the log may continue, leased from now on; empty if the repository has no set of
    /// this database.
    ///
    /// # Errors
    /// Its chain is not whole, or prune is about to remove it; or the repository cannot be reached.
    fn bases(&mut self, request: &backup::Request, conduct: &Conduct, report: &mut Report) -> Result<Vec<String>>;

    /// If new sets are locked, locks the whole chain for as long as the sets that are written from now on.
    ///
    /// # Errors
    /// The store refuses the lock.
    fn renew_locks(&self, conduct: &Conduct, report: &mut Report) -> Result<()>;

    /// Whether the sets of the chain still exist, if the repository can tell.
    ///
    /// # Errors
    /// The repository cannot be reached.
    fn ground(&mut self) -> Result<LeaseState>;

    /// The next set depends on no existing set.
    fn forsake(&mut self);

    /// A set was committed, and the next one will continue it. A failure here is a warning, and the next reader of the
    /// repository finds the set by its media.
    fn committed(&mut self, record: Option<SetRecord>, report: &mut Report);
}

/// Why a follower cannot continue its own sets.
pub(super) fn without_ground(error: Error) -> Error {
    error.noting("newer commits are only in the database's own log; --full-if-needed takes a new full and continues")
}

/// What happened while a log was followed, for a display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A full was taken, because there was no base.
    Full(String),
    /// The log continues no base, and why; a full is taken.
    Apart(String),
    /// The set that the log continues.
    Joined(String),
    /// A set is durable.
    Shipped(Shipped),
    /// Commits before this time are durable.
    Durable(Instant),
    /// From now on, sets take longer than their commits: the numbers.
    Behind(String),
    /// A set could not be stored, and the time until the next try.
    Failed(String, Duration),
}

/// A set that is durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shipped {
    /// Its id.
    pub set: String,
    /// The time of its last commit, RFC 3339.
    pub last: String,
    /// The amount of committed changes, in the terms of the engine: `12 frames`.
    pub amount: String,
    /// Bytes of the log in it.
    pub log_bytes: u64,
    /// Bytes on media.
    pub stored_bytes: u64,
    /// The pace since the previous set, in words.
    pub pace: String,
    /// The limit of the follower since then: a stage (`source` is the database) or `fixed costs`; `None` for a backlog
    /// from before the start.
    pub limit: Option<&'static str>,
}

/// Ships log sets until a signal, or for the given time; then all commits have been shipped. Sets are stored through
/// `stores`, which ignores signals: the last set begins after a signal.
///
/// # Errors
/// The log continues no base, frames were lost, or sets cannot be stored and the log has become too long.
pub fn follow(
    request: &Following,
    conduct: &Conduct,
    stores: &Stores,
    told: &dyn Fn(Event),
    report: &mut Report,
) -> Result<()> {
    follow_into(request, None, conduct, stores, told, report)
}

/// The same into a repository, if one is given: it says which sets to continue, and gets a record of each new set.
pub(super) fn follow_into(
    request: &Following,
    home: Option<Box<dyn Home + '_>>,
    conduct: &Conduct,
    stores: &Stores,
    told: &dyn Fn(Event),
    report: &mut Report,
) -> Result<()> {
    let begun = Instant::now();
    report.kind = Some(SetKind::Log.to_string());
    report.engine = request.backup.source.engine().map(|engine| engine.name().to_owned());
    report.database = Some(request.backup.source.shown().to_owned());
    let engine = log_set::engine(&request.backup)?;
    refuse_single_places(request)?;
    let name = request.backup.source.shown();
    let identity = request.backup.source.name().to_owned();
    let _exclusive = exclusive::take(name, &format!("{identity}#log"), request.backup.wait, conduct)?;
    let halt = conduct.halt();
    let options = backup::engine_options(&request.backup, &halt, conduct, report)?;
    let follower = conduct.until_signalled(&halt, || engine.follow(request.backup.source.text(), &options))?;
    let storing = Conduct { stores: stores.clone(), ..Conduct::default() };
    let template = Some(request.backup.name_template.clone().unwrap_or_else(|| TEMPLATE.into()));
    let backup = backup::Request { kind: SetKind::Log, name_template: template, ..request.backup.clone() };
    let mut run = Run {
        request,
        backup,
        engine,
        follower,
        identity,
        base: Uuid::nil(),
        home,
        conduct,
        storing,
        told,
        report,
        shipped: 0,
        failures: 0,
        pace: Pace::new(request.interval),
        locks_due: None,
    };
    run.move_locks();
    run.begin()?;
    let followed = run.follow(begun);
    let shipped = run.shipped;
    let Run { pace, report, .. } = run;
    pace.book(report);
    followed?;
    report.set_speed(begun.elapsed().as_secs_f64());
    report.notes.push(match shipped {
        0 => "nothing was committed: no log set was written".into(),
        1 => "1 log set was written; it has all commits".into(),
        more => format!("{more} log sets were written; they have all commits"),
    });
    Ok(())
}

/// Refuses a file or a pipe: it takes one set only.
fn refuse_single_places(request: &Following) -> Result<()> {
    let many = |place: &Destination| matches!(place, Destination::Directory(_) | Destination::Prefix { .. });
    match request.backup.to.iter().find(|device| !many(device.place())) {
        None => Ok(()),
        Some(device) => Err(Error::usage(
            format!("--to {device}"),
            "takes one set, but `log follow` makes many",
            "name a directory or a prefix in a store, ending in /",
        )),
    }
}

/// A log that is being followed.
struct Run<'a> {
    request: &'a Following,
    /// The request for each log set.
    backup: backup::Request,
    engine: &'static dyn LogEngine,
    follower: Box<dyn LogFollower>,
    /// The name of the lock that a full of this database takes.
    identity: String,
    /// The set that the next one continues.
    base: Uuid,
    /// The repository that sets go to.
    home: Option<Box<dyn Home + 'a>>,
    conduct: &'a Conduct,
    /// The conduct for storing sets: it ignores signals.
    storing: Conduct,
    told: &'a dyn Fn(Event),
    report: &'a mut Report,
    shipped: u64,
    /// Failed tries in a row.
    failures: u32,
    /// The account of the follower.
    pace: Pace,
    /// When to extend the locks.
    locks_due: Option<Instant>,
}

/// Locks are extended when this fraction of their time is over, and are longer by this fraction. This is not done for
/// each set, because the whole chain has to be locked for as long as its newest set.
const LOCKS_MOVED: u32 = 30;

impl Run<'_> {
    /// Extends the locks: sets that begin before the next extension are locked for at least the given time.
    fn move_locks(&mut self) {
        let Some(time) = self.request.locked_for else { return };
        let until = jiff::Timestamp::now().checked_add(time + time / LOCKS_MOVED + Duration::from_secs(1));
        // Beyond the last possible time the lock stays as given.
        if let Ok(until) = until {
            // A full uses the stores that react to a signal.
            [&self.storing.stores, &self.conduct.stores].into_iter().for_each(|stores| stores.lock_until(until));
        }
        self.locks_due = Instant::now().checked_add(time / LOCKS_MOVED);
    }

    /// Extends the locks of the chain that the next set depends on, when it is time.
    fn renew_locks(&mut self) -> Result<()> {
        if self.locks_due.is_none_or(|due| Instant::now() < due) {
            return Ok(());
        }
        let before = self.locks_due;
        self.move_locks();
        let chain = self.home.as_ref().map_or(Ok(()), |home| home.renew_locks(&self.storing, self.report));
        if chain.is_err() {
            self.locks_due = before; // So it is tried again.
        }
        chain
    }

    /// Joins the log to the base, or takes a full.
    fn begin(&mut self) -> Result<()> {
        let bases = &self.backup.base;
        let none_yet = !bases.is_empty() && bases.iter().all(|text| discovery::is_pattern_without_match(text));
        if self.request.full_if_needed && none_yet {
            (self.told)(Event::Apart("no file matches --base yet".into()));
            return self.take_full();
        }
        match self.find_and_join() {
            Ok(true) => Ok(()),
            Ok(false) => self.take_full(),
            Err(error @ (Error::Refused { .. } | Error::Incomplete { .. })) if self.request.full_if_needed => {
                (self.told)(Event::Apart(error.one_line()));
                self.warn_of_gap(&error);
                self.take_full()
            }
            Err(error) => Err(error),
        }
    }

    /// A full takes the place of log sets. The other log sets are one chain over all fulls, and this gap stays in it.
    fn warn_of_gap(&mut self, why: &Error) {
        if self.engine.outlives_fulls() {
            let warning =
                format!("{}. A full was taken: no restore reaches a time between the two", why.without_hint());
            self.report.warnings.push(warning);
        }
    }

    /// False without a base.
    fn find_and_join(&mut self) -> Result<bool> {
        if let Some(home) = &mut self.home {
            let found = home.bases(&self.backup, self.conduct, self.report);
            self.backup.base = found.map_err(|error| self.conduct.why_halted(error))?;
        }
        if self.backup.base.is_empty() {
            return Ok(false);
        }
        self.join().map(|()| true)
    }

    fn join(&mut self) -> Result<()> {
        let tips = log_base::tips(&self.backup, self.engine, &self.conduct.stores)
            .map_err(|error| self.conduct.why_halted(error))?;
        let ends: Vec<SetEnd> = tips.iter().map(|tip| tip.end.clone()).collect();
        let at = self.follower.join(&ends)?;
        log_set::refuse_clear(&self.backup, &tips[at])?;
        self.base = tips[at].id;
        log_base::passed_over(self.engine, &tips, at, self.report);
        (self.told)(Event::Joined(tips[at].title.clone()));
        Ok(())
    }

    /// Takes a full. The follower holds the log since before its beginning, so no commit is lost between the full and
    /// the first log set.
    fn take_full(&mut self) -> Result<()> {
        let name = self.backup.source.shown().to_owned();
        let _exclusive = exclusive::take(&name, &self.identity, self.backup.wait, self.conduct)?;
        if let Some(home) = &mut self.home {
            home.forsake();
        }
        let halt = self.conduct.halt();
        self.pace.stands_on(Instant::now());
        let snapshot = self.follower.snapshot()?;
        let full = backup::Request { kind: SetKind::Full, ..self.backup.clone() };
        let mut report = Report::begin("backup");
        let within = self.home.as_ref().map(|home| home.within());
        let opened = Opened { request: &full, session: &*snapshot, base: Predecessor::None };
        let record = backup::store(opened, within, self.conduct, &halt, &mut report)
            .map_err(|error| self.conduct.why_halted(error))?;
        let position = snapshot.position()?;
        drop(snapshot);
        self.base = id_of(&report).ok_or_else(|| Error::refused(&name, "its full has no id", ""))?;
        self.follower.join_own(&position)?;
        self.stored(record, &mut report);
        // From now on there is no total.
        self.conduct.progress.total.store(0, Ordering::Relaxed);
        (self.told)(Event::Full(self.base.to_string()));
        (self.told)(Event::Durable(self.pace.durable_until()));
        Ok(())
    }

    fn follow(&mut self, begun: Instant) -> Result<()> {
        let deadline = self.request.lasting.and_then(|lasting| begun.checked_add(lasting));
        let mut due = Instant::now();
        loop {
            let ends = self.conduct.check().is_err() || deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if ends {
                return self.ship_the_rest();
            }
            if Instant::now() < due {
                std::thread::sleep(LOOK.min(due.saturating_duration_since(Instant::now())));
                continue;
            }
            let mut stored = self.ship()?;
            // Commits while the writers waited are only in memory.
            if stored.is_ok() && self.follower.shorten(self.request.checkpoint_after)? {
                stored = self.ship()?;
            }
            let pause = match stored {
                Ok(()) => self.request.interval,
                Err(error) => self.try_again(error)?,
            };
            due = Instant::now() + pause;
        }
    }

    /// The end: ships the remaining commits, so that nothing is left in memory.
    fn ship_the_rest(&mut self) -> Result<()> {
        let left = self.ship()?;
        let why = "the last commits are not in a log set, but in the database's own log; the next run continues there \
                   if that log is not reset before";
        left.map_err(|error| error.noting(why))
    }

    /// Makes a set of the commits since the last one, if there are any. The inner error is about storing it, which may
    /// be temporary; the outer error is about the log.
    fn ship(&mut self) -> Result<Result<()>> {
        let look = self.pace.look();
        let news = match self.follower.has_news() {
            Err(error) if self.follower.may_pass(&error) => return Ok(Err(error)),
            news => news?,
        };
        if !news {
            self.pace.nothing(&look);
            (self.told)(Event::Durable(self.pace.durable_until()));
            return Ok(Ok(()));
        }
        let look = self.pace.makes(look);
        let made = self.make_set(&look)?;
        match made {
            Ok(()) => (self.told)(Event::Durable(self.pace.durable_until())),
            Err(_) => self.pace.spent(&look),
        }
        Ok(made)
    }

    /// Makes the set for the commits that a look has found.
    fn make_set(&mut self, look: &LogCheck) -> Result<Result<()>> {
        if let Err(error) = self.renew_locks() {
            return Ok(Err(error));
        }
        match self.home.as_mut().map_or(Ok(LeaseState::Firm), |home| home.ground()) {
            Ok(LeaseState::Firm) => {}
            Ok(LeaseState::Going(why)) if !self.request.full_if_needed => return Ok(Err(why)),
            Ok(LeaseState::Going(why) | LeaseState::Gone(why)) => return self.begin_anew(why, look),
            Err(error) => return Ok(Err(error)),
        }
        let set = match self.follower.next_set() {
            Err(error) if self.follower.may_pass(&error) => return Ok(Err(error)),
            set => set?,
        };
        let Some(set) = set else { return Ok(Ok(())) };
        let mut report = Report::begin("backup");
        let halt = self.storing.halt();
        let within = self.home.as_ref().map(|home| home.within());
        let opened = Opened { request: &self.backup, session: &*set, base: Predecessor::Set(self.base) };
        let record = match backup::store(opened, within, &self.storing, &halt, &mut report) {
            Ok(record) => record,
            Err(error) => return Ok(Err(error)),
        };
        let (end, amount) = (set.end()?, set.amount());
        drop(set);
        self.base = id_of(&report).unwrap_or(self.base);
        self.follower.shipped(&end)?;
        (self.shipped, self.failures) = (self.shipped + 1, 0);
        self.stored(record, &mut report);
        let progress = &self.conduct.progress;
        progress.done.fetch_add(report.source_bytes, Ordering::Relaxed);
        progress.stored.fetch_add(report.stored_bytes, Ordering::Relaxed);
        let told = self.pace.shipped(look, &report);
        if self.pace.follows() {
            self.report.add_stages(report.accounts());
        }
        if let Some(why) = told.behind {
            (self.told)(Event::Behind(why));
        }
        (self.told)(Event::Shipped(Shipped {
            set: self.base.to_string(),
            last: end.time.map_or_else(String::new, moment::show),
            amount,
            log_bytes: report.source_bytes,
            stored_bytes: report.stored_bytes,
            pace: told.pace,
            limit: told.limit,
        }));
        Ok(Ok(()))
    }

    /// The set to continue was removed: takes a new full, with `--full-if-needed` and if the run does not end now.
    fn begin_anew(&mut self, why: Error, look: &LogCheck) -> Result<Result<()>> {
        if !self.request.full_if_needed || self.conduct.check().is_err() {
            return Err(without_ground(why));
        }
        (self.told)(Event::Apart(why.one_line()));
        self.warn_of_gap(&why);
        let full = self.take_full();
        if full.is_ok() {
            self.pace.spent(look); // The log waits for it as for a set.
        }
        Ok(full)
    }

    /// A device that fails for a while does not end the run: the log keeps all commits meanwhile, as long as it may
    /// grow.
    fn try_again(&mut self, error: Error) -> Result<Duration> {
        // After a set was stored, a directory that is missing is a disk that went away.
        let passing = (self.shipped > 0 || self.follower.may_pass(&error))
            && matches!(error, Error::Io { .. } | Error::Refused { .. } | Error::Usage { .. } | Error::Halted);
        let log = self.follower.log_file_bytes();
        if !passing || !self.follower.may_grow() {
            return Err(error);
        }
        let pause = self.request.interval.max(LOOK).saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures += 1;
        // The size of a server's log is not known.
        let size = if log > 0 { format!("; the log has {}", show_bytes(log)) } else { String::new() };
        (self.told)(Event::Failed(format!("{}{size}", error.one_line()), pause));
        Ok(pause)
    }

    /// Reports a durable set to the repository and the report.
    fn stored(&mut self, record: Option<SetRecord>, report: &mut Report) {
        if let Some(home) = &mut self.home {
            home.committed(record, report);
        }
        self.add(report);
    }

    /// Adds the report of a set to the report of the run.
    fn add(&mut self, set: &Report) {
        let report = &mut *self.report;
        report.source_bytes += set.source_bytes;
        report.stored_bytes += set.stored_bytes;
        report.allocated_bytes += set.allocated_bytes;
        report.skipped_bytes += set.skipped_bytes;
        report.backup_set_id.clone_from(&set.backup_set_id);
        report.media_set_id.clone_from(&set.media_set_id);
        report.families.clone_from(&set.families);
        report.point.clone_from(&set.point);
        if let Some(position) = &set.position {
            let first = report.position.take().map_or_else(|| position.first.clone(), |before| before.first);
            report.position = Some(crate::report::PositionReport { first, ..position.clone() });
        }
        for warning in &set.warnings {
            // A set each second must not make the report grow.
            if !report.warnings.contains(warning) && report.warnings.len() < 100 {
                report.warnings.push(warning.clone());
            }
        }
    }
}

fn id_of(report: &Report) -> Option<Uuid> {
    report.backup_set_id.as_deref()?.parse().ok()
}
