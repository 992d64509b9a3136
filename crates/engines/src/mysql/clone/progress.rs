//! The shared progress of a clone's tasks: the running stage, the tasks that finished it, and the files. Here are the
//! two barriers that keep the order of bytes.
//!
//! - **A stage begins** for a worker only after the first task has processed its begin and all files before it.
//! - **A stage ends** only after every task has: until then no acknowledgement is sent, and the donor does not begin
//!   the
//!   next one, whose pages replace those of this one.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use fullbore_core::halt::Halt;
use fullbore_core::{Error, Result};

use super::descriptor::Stage;
use super::files::{Change, CloneFile, FileId, Files};
use super::page_zero::PageSize;

/// How long a wait lasts before it looks at the halt.
const SLICE: Duration = Duration::from_millis(50);

pub(super) struct Progress {
    state: Mutex<State>,
    changed: Condvar,
    halt: Halt,
}

struct State {
    /// The stage that the first task has begun, and taken in.
    stage: Stage,
    /// Whether the end of [`Stage::Init`] is acknowledged: workers can attach.
    attachable: bool,
    /// The stage whose end the first task has seen.
    ended: Option<Stage>,
    /// Workers that have asked for data, with the last stage that has ended for them.
    workers: BTreeMap<usize, Option<Stage>>,
    files: Files,
    /// A task ended early: no task waits any more.
    failed: bool,
}

/// The file of a piece, as a worker knows it.
pub(super) enum PieceOrigin {
    /// The current file.
    File(CloneFile),
    /// It was dropped: the bytes mean nothing.
    Gone,
    /// The donor never announced it.
    Never,
}

impl Progress {
    pub fn new(page: PageSize, server_uuid: &str, halt: Halt) -> Self {
        let state = State {
            stage: Stage::Init,
            attachable: false,
            ended: None,
            workers: BTreeMap::new(),
            files: Files::new(page, server_uuid),
            failed: false,
        };
        Self { state: Mutex::new(state), changed: Condvar::new(), halt }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// Waits until `ready` gives something, the job is stopped, or another task has failed.
    fn wait<T>(&self, mut ready: impl FnMut(&State) -> Option<T>) -> Result<T> {
        let mut state = self.lock();
        loop {
            if let Some(value) = ready(&state) {
                return Ok(value);
            }
            if state.failed || self.halt.is_stopped() {
                return Err(Error::Halted);
            }
            state = self.changed.wait_timeout(state, SLICE).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits for another task to fail, or for the job to be stopped; false if that does not happen in time.
    pub fn fails_within(&self, patience: Duration) -> bool {
        let since = Instant::now();
        self.wait(|state| (!state.failed && since.elapsed() >= patience).then_some(())).is_err()
    }

    /// A task ended before its time.
    pub fn fail(&self) {
        self.update(|state| state.failed = true);
    }

    pub fn stage(&self) -> Stage {
        self.lock().stage
    }

    /// The first task has taken in that `stage` began.
    pub fn begin(&self, stage: Stage) {
        self.update(|state| state.stage = stage);
    }

    pub fn allow_workers(&self) {
        self.update(|state| state.attachable = true);
    }

    pub fn wait_until_attachable(&self) -> Result<()> {
        self.wait(|state| state.attachable.then_some(()))
    }

    /// Worker `number` is about to attach and to ask for data: from now on the end of a stage waits for it. False if
    /// all data was sent.
    pub fn join(&self, number: usize) -> bool {
        let mut state = self.lock();
        let late = state.ended >= Some(Stage::RedoCopy);
        if !late {
            state.workers.insert(number, None);
        }
        !late
    }

    /// Worker `number` has everything of `stage`.
    pub fn worker_ends(&self, number: usize, stage: Stage) {
        self.update(|state| {
            state.workers.insert(number, Some(stage));
        });
    }

    /// Worker `number` gets nothing more. False if it joined and has not seen the end of the last stage with data.
    pub fn leave(&self, number: usize) -> bool {
        let mut whole = true;
        self.update(|state| whole = state.workers.remove(&number).is_none_or(|ended| ended >= Some(Stage::RedoCopy)));
        whole
    }

    /// Waits until every worker has taken its leave.
    pub fn wait_for_workers(&self) -> Result<()> {
        self.wait(|state| state.workers.is_empty().then_some(()))
    }

    /// The first task has everything of `stage`: waits until every worker has.
    pub fn end(&self, stage: Stage) -> Result<()> {
        self.update(|state| state.ended = Some(stage));
        self.wait(|state| state.workers.values().all(|ended| *ended >= Some(stage)).then_some(()))
    }

    pub fn wait_for_stage(&self, stage: Stage) -> Result<()> {
        self.wait(|state| (state.stage >= stage).then_some(()))
    }

    /// The file of a piece of `stage`. A worker can be faster than the first task, which learns of the files.
    pub fn file(&self, id: FileId, stage: Stage) -> Result<PieceOrigin> {
        self.wait(|state| match state.files.get(id) {
            Some(file) if file.deleted => Some(PieceOrigin::Gone),
            Some(file) => Some(PieceOrigin::File(file.clone())),
            None => (state.ended >= Some(stage)).then_some(PieceOrigin::Never),
        })
    }

    /// Looks at the files.
    pub fn with_files<T>(&self, look: impl FnOnce(&mut Files) -> T) -> T {
        look(&mut self.lock().files)
    }

    pub fn commit(&self, change: &Change) {
        self.update(|state| state.files.commit(change));
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    fn progress(halt: &Halt) -> Progress {
        Progress::new(PageSize::new(16384).unwrap(), "uuid", halt.clone())
    }

    #[test]
    fn a_stage_ends_only_after_every_worker_that_joined_has_ended_it() {
        let progress = progress(&Halt::new());
        assert!(progress.join(1) && progress.join(2));
        progress.worker_ends(1, Stage::FileCopy);
        let all = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                all.store(true, Ordering::SeqCst);
                progress.worker_ends(2, Stage::FileCopy);
            });
            progress.end(Stage::FileCopy).unwrap();
            assert!(all.load(Ordering::SeqCst), "it did not wait");
        });
    }

    #[test]
    fn a_worker_waits_for_the_beginning_and_for_the_file_until_the_stage_has_ended_without_it() {
        let progress = progress(&Halt::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                progress.begin(Stage::FileCopy);
                thread::sleep(Duration::from_millis(50));
                progress.end(Stage::FileCopy).unwrap();
            });
            progress.wait_for_stage(Stage::FileCopy).unwrap();
            assert!(matches!(progress.file(FileId::Data(0), Stage::FileCopy), Ok(PieceOrigin::Never)));
        });
    }

    #[test]
    fn every_wait_ends_when_a_task_has_failed_or_the_job_is_stopped() {
        let halt = Halt::new();
        assert!(!progress(&Halt::new()).fails_within(Duration::from_millis(20)));
        let failed = progress(&Halt::new());
        failed.fail();
        assert!(failed.fails_within(Duration::ZERO));
        let stopped = progress(&halt);
        halt.stop(Error::Halted);
        assert!(matches!(stopped.wait_until_attachable(), Err(Error::Halted)));
        let failed = progress(&Halt::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(50));
                failed.fail();
            });
            assert!(matches!(failed.wait_for_stage(Stage::Done), Err(Error::Halted)));
        });
    }

    #[test]
    fn late_threads_do_not_join_and_early_leavers_are_noticed() {
        let progress = progress(&Halt::new());
        assert!(progress.join(1) && progress.join(2));
        assert!(!progress.leave(1), "it has not seen the end");
        progress.worker_ends(2, Stage::RedoCopy);
        progress.end(Stage::RedoCopy).unwrap();
        assert!(progress.leave(2) && !progress.join(3) && progress.leave(3));
        progress.wait_for_workers().unwrap();
    }
}
