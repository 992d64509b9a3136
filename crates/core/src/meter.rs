//! The account: where the time of each stage went. Every stage keeps the same four numbers, so that the
//! bottleneck is a sum and not an opinion.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::pool::Pool;

/// What one stage (all its threads together) did with its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Account {
    /// Bytes that passed.
    pub bytes: u64,
    /// Of these, what needed no reading: free pages of a database, which pass as zeros.
    pub unread: u64,
    /// Time spent working: on the device or in the processor.
    pub busy: Duration,
    /// Time spent waiting for input.
    pub starved: Duration,
    /// Time spent waiting for a buffer or for the next stage to take output.
    pub blocked: Duration,
}

impl Account {
    /// Adds what another thread of the same stage did.
    pub fn add(&mut self, other: Account) {
        self.bytes += other.bytes;
        self.unread += other.unread;
        self.busy += other.busy;
        self.starved += other.starved;
        self.blocked += other.blocked;
    }

    /// All of its time.
    pub fn time(&self) -> Duration {
        self.busy + self.starved + self.blocked
    }

    /// Share of its time that the stage was busy, 0…1; 0 when it never ran.
    pub fn busy_share(&self) -> f64 {
        let total = self.time().as_secs_f64();
        if total > 0.0 { self.busy.as_secs_f64() / total } else { 0.0 }
    }
}

/// What a span of time was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spent {
    /// Working.
    Busy,
    /// Waiting for input.
    Starved,
    /// Waiting for a buffer or for the next stage.
    Blocked,
}

/// What the threads of a stage have done so far, for a display while they run. Without bytes.
#[derive(Debug, Default)]
pub struct LiveAccount {
    busy_ns: AtomicU64,
    starved_ns: AtomicU64,
    blocked_ns: AtomicU64,
}

impl LiveAccount {
    fn book(&self, spent: Spent, time: Duration) {
        let counter = match spent {
            Spent::Busy => &self.busy_ns,
            Spent::Starved => &self.starved_ns,
            Spent::Blocked => &self.blocked_ns,
        };
        // 64 bits of nanoseconds are 584 years of threads.
        counter.fetch_add(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// The account so far; the current work of a thread is booked when the thread turns to something else.
    pub fn read(&self) -> Account {
        let time = |counter: &AtomicU64| Duration::from_nanos(counter.load(Ordering::Relaxed));
        Account {
            bytes: 0,
            unread: 0,
            busy: time(&self.busy_ns),
            starved: time(&self.starved_ns),
            blocked: time(&self.blocked_ns),
        }
    }
}

/// One thread's stopwatch: each `lap` books the time since the last one.
pub struct Clock {
    account: Account,
    last: Instant,
    live: Option<Arc<LiveAccount>>,
}

impl Clock {
    /// Starts now.
    #[expect(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Self {
        Self { account: Account::default(), last: Instant::now(), live: None }
    }

    /// Starts now, and books everything in `live` as well.
    pub fn shown_in(live: &Arc<LiveAccount>) -> Self {
        Self { live: Some(Arc::clone(live)), ..Self::new() }
    }

    /// Books the time since the last lap.
    pub fn lap(&mut self, spent: Spent) {
        let time = self.since_last();
        self.book(spent, time);
    }

    /// Books the time since the last lap as work, except for waits for buffers.
    pub fn lap_busy_but(&mut self, waited: Duration) {
        let time = self.since_last();
        let waited = waited.min(time);
        self.book(Spent::Busy, time - waited);
        self.book(Spent::Blocked, waited);
    }

    fn since_last(&mut self) -> Duration {
        let now = Instant::now();
        now - std::mem::replace(&mut self.last, now)
    }

    fn book(&mut self, spent: Spent, time: Duration) {
        match spent {
            Spent::Busy => self.account.busy += time,
            Spent::Starved => self.account.starved += time,
            Spent::Blocked => self.account.blocked += time,
        }
        if let Some(live) = &self.live {
            live.book(spent, time);
        }
    }

    /// Books bytes that passed.
    pub fn pass(&mut self, bytes: u64) {
        self.account.bytes += bytes;
    }

    /// Books how many of the bytes that passed needed no reading.
    pub fn pass_unread(&mut self, bytes: u64) {
        self.account.unread += bytes;
    }

    /// The account so far.
    pub fn account(&self) -> Account {
        self.account
    }
}

/// A named stage in a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// `source`, `transform`, `sink`, `media`, `target`.
    pub name: &'static str,
    /// Its account: the sum over its threads.
    pub account: Account,
    /// Those of its threads, in the order of their numbers: of a stage that writes or reads families, one for each
    /// family.
    pub threads: Vec<Account>,
}

impl Stage {
    /// A stage of these threads.
    pub fn of(name: &'static str, threads: Vec<Account>) -> Self {
        let mut account = Account::default();
        threads.iter().for_each(|thread| account.add(*thread));
        Self { name, account, threads }
    }

    /// The same time for the bytes that were read alone: what a device or a throttle has seen of the stage.
    pub fn of_what_was_read(&self) -> Self {
        let read = |account: &Account| Account { bytes: account.bytes - account.unread, unread: 0, ..*account };
        Self { account: read(&self.account), threads: self.threads.iter().map(read).collect(), ..*self }
    }

    /// Adds the account of the same stage for the next set: its threads one after the other.
    pub fn go_on(&mut self, next: &Self) {
        self.account.add(next.account);
        for (at, thread) in next.threads.iter().enumerate() {
            match self.threads.get_mut(at) {
                Some(known) => known.add(*thread),
                None => self.threads.push(*thread),
            }
        }
    }

    /// The time of the thread that lived longest: about the time from the first byte to the last.
    pub fn longest(&self) -> Duration {
        self.threads.iter().map(Account::time).max().unwrap_or_default()
    }
}

/// The accounts of threads that have ended, by stage and by the thread's number in it (a reader, a worker, a family).
pub(crate) struct Accounts {
    names: [&'static str; 3],
    threads: Mutex<[Vec<(usize, Account)>; 3]>,
    publishing: Mutex<Duration>,
}

impl Accounts {
    /// Of three stages.
    pub fn new(names: [&'static str; 3]) -> Self {
        Self { names, threads: Mutex::default(), publishing: Mutex::default() }
    }

    /// Books what thread `number` of a stage did.
    pub fn add(&self, stage: usize, number: usize, account: Account) {
        self.lock()[stage].push((number, account));
    }

    /// Books how long it took to give families their names, after the last thread had ended.
    pub fn add_publishing(&self, time: Duration) {
        *self.publishing.lock().unwrap_or_else(PoisonError::into_inner) += time;
    }

    /// The sum of that.
    pub fn publishing(&self) -> Duration {
        *self.publishing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that passed a stage so far.
    pub fn bytes(&self, stage: usize) -> u64 {
        self.lock()[stage].iter().map(|(_, account)| account.bytes).sum()
    }

    /// All three.
    pub fn stages(&self) -> Vec<Stage> {
        let threads = self.lock().clone();
        let stage = |(name, mut threads): (&'static str, Vec<(usize, Account)>)| {
            threads.sort_by_key(|(number, _)| *number);
            Stage::of(name, threads.into_iter().map(|(_, account)| account).collect())
        };
        self.names.into_iter().zip(threads).map(stage).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, [Vec<(usize, Account)>; 3]> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The stage that holds up the others, and the numbers that show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bottleneck {
    /// The stage's name.
    pub stage: &'static str,
    /// Why, in one line.
    pub why: String,
}

/// The stage that waits least, because all the others wait for it. `None` when nothing ran.
pub fn bottleneck(stages: &[Stage]) -> Option<Bottleneck> {
    let slowest = stages
        .iter()
        .filter(|stage| stage.account.bytes > 0)
        .max_by(|a, b| a.account.busy_share().total_cmp(&b.account.busy_share()))?;
    let shares: Vec<String> =
        stages.iter().map(|stage| format!("{} {:.0} %", stage.name, 100.0 * stage.account.busy_share())).collect();
    let how = if slowest.account.busy_share() >= 0.5 {
        "busy most of its time"
    } else {
        // Small buffers, a short job, or a machine whose processors had other work: woken threads wait for one of them.
        "the busiest, but no stage was busy most of its time: they waited for each other or for a processor"
    };
    Some(Bottleneck { stage: slowest.name, why: format!("{how} ({})", shares.join(", ")) })
}

/// Counters that a progress display reads while the job runs.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes that there are to do; 0 when unknown.
    pub total: AtomicU64,
    /// Bytes done.
    pub done: AtomicU64,
    /// Bytes written to or read from media.
    pub stored: AtomicU64,
    /// Of the three stages, in the order in which bytes pass them.
    pub stages: [Arc<LiveAccount>; 3],
    names: Mutex<[&'static str; 3]>,
    pools: Arc<Mutex<Vec<Weak<Pool>>>>,
}

/// Buffers of a job's pools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolUse {
    /// Buffers in use.
    pub in_use: usize,
    /// All of them.
    pub count: usize,
    /// Bytes of the buffers in use.
    pub bytes_in_use: u64,
}

impl Progress {
    /// For an unpacking that is the first part of this job: its first two stages and its pools are shown here; its
    /// bytes and the rest are not.
    pub fn of_first_part(&self) -> Self {
        let [media, transform, _] = &self.stages;
        let stages = [Arc::clone(media), Arc::clone(transform), Arc::default()];
        Self { stages, pools: Arc::clone(&self.pools), ..Self::default() }
    }

    /// Adds bytes done.
    pub fn advance(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Sets the names of the stages that begin now, and the pools that they use.
    pub fn enter(&self, names: [&'static str; 3], pools: &[&Arc<Pool>]) {
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = names;
        let mut known = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|pool| pool.strong_count() > 0);
        for pool in pools {
            let weak = Arc::downgrade(pool);
            if !known.iter().any(|known| known.ptr_eq(&weak)) {
                known.push(weak);
            }
        }
    }

    /// The stages' names and accounts so far; empty names before the first stage began.
    pub fn live(&self) -> [(&'static str, Account); 3] {
        let names = *self.names.lock().unwrap_or_else(PoisonError::into_inner);
        std::array::from_fn(|at| (names[at], self.stages[at].read()))
    }

    /// Of all pools that exist now.
    pub fn pool_use(&self) -> PoolUse {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).fold(PoolUse::default(), |sum, pool| {
            let in_use = pool.in_use();
            PoolUse {
                in_use: sum.in_use + in_use,
                count: sum.count + pool.count(),
                bytes_in_use: sum.bytes_in_use + in_use as u64 * pool.size() as u64,
            }
        })
    }

    /// (done, total, stored) in bytes. A total of 0 is not known. A total that is an estimate may be less than what is done.
    pub fn read(&self) -> (u64, u64, u64) {
        let [done, total, stored] = [&self.done, &self.total, &self.stored].map(|count| count.load(Ordering::Relaxed));
        (done, total, stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(name: &'static str, busy: u64, starved: u64, blocked: u64) -> Stage {
        let ms = Duration::from_millis;
        Stage::of(
            name,
            vec![Account { bytes: 1, unread: 0, busy: ms(busy), starved: ms(starved), blocked: ms(blocked) }],
        )
    }

    #[test]
    fn the_stage_that_waits_least_is_the_bottleneck() {
        let stages = [stage("source", 30, 0, 70), stage("transform", 95, 3, 2), stage("sink", 20, 80, 0)];
        assert_eq!(bottleneck(&stages).unwrap().stage, "transform");
    }

    #[test]
    fn a_wait_for_buffers_is_no_work() {
        let mut clock = Clock::new();
        std::thread::sleep(Duration::from_millis(5));
        clock.lap_busy_but(Duration::from_millis(2));
        assert_eq!(clock.account().blocked, Duration::from_millis(2));
        assert!(clock.account().busy >= Duration::from_millis(3));
        clock.lap_busy_but(Duration::from_secs(9));
        assert!(clock.account().blocked < Duration::from_secs(1), "never more than the time there was");
    }

    #[test]
    fn the_account_of_a_clock_is_visible_while_it_runs() {
        let live = Arc::new(LiveAccount::default());
        let mut clock = Clock::shown_in(&live);
        std::thread::sleep(Duration::from_millis(3));
        clock.lap_busy_but(Duration::from_millis(1));
        clock.lap(Spent::Starved);
        assert_eq!(live.read(), clock.account());
    }

    #[test]
    fn threads_of_a_stage_stand_in_the_order_of_their_numbers_and_add_up() {
        let accounts = Accounts::new(["media", "transform", "target"]);
        let account = |bytes| Account { bytes, busy: Duration::from_secs(bytes), ..Account::default() };
        accounts.add(0, 2, account(20));
        accounts.add(0, 1, account(10));
        let stages = accounts.stages();
        assert_eq!(stages[0].threads, [account(10), account(20)]);
        assert_eq!((stages[0].account.bytes, stages[0].longest()), (30, Duration::from_secs(20)));
        assert_eq!((accounts.bytes(0), stages[1].longest()), (30, Duration::ZERO));
    }

    #[test]
    fn buffers_in_use_are_those_of_pools_that_are_there() {
        let progress = Progress::default();
        let pool = Pool::new(3, 4096).unwrap();
        progress.enter(["source", "transform", "sink"], &[&pool, &pool]);
        let buffer = pool.take().unwrap();
        assert_eq!(progress.pool_use(), PoolUse { in_use: 1, count: 3, bytes_in_use: 4096 });
        drop((buffer, pool));
        assert_eq!(progress.pool_use(), PoolUse::default());
        assert_eq!(progress.live().map(|(name, _)| name), ["source", "transform", "sink"]);
    }

    #[test]
    fn an_unpacking_that_is_part_of_a_copy_shows_its_work_and_its_buffers_there_and_not_its_bytes() {
        let (copy, pool) = (Progress::default(), Pool::new(2, 4096).unwrap());
        copy.enter(["media", "transform", "sink"], &[]);
        let part = copy.of_first_part();
        part.enter(["media", "transform", "target"], &[&pool]);
        part.advance(7);
        part.stages.iter().for_each(|stage| stage.book(Spent::Busy, Duration::from_secs(1)));
        assert_eq!(
            copy.live().map(|(name, account)| (name, account.busy.as_secs())),
            [("media", 1), ("transform", 1), ("sink", 0)]
        );
        assert_eq!((copy.read(), copy.pool_use().count), ((0, 0, 0), 2));
    }

    #[test]
    fn the_account_says_if_no_stage_was_busy() {
        let why = |busy| bottleneck(&[stage("media", 10, 0, 90), stage("transform", busy, 60, 0)]).unwrap().why;
        assert!(why(200).starts_with("busy most of its time"));
        assert!(why(30).contains("no stage was busy most of its time"));
    }

    #[test]
    fn a_job_that_moved_nothing_has_no_bottleneck() {
        assert_eq!(bottleneck(&[]), None);
    }
}
