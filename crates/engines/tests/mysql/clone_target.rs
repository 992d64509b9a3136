//! The target of a clone, and how a clone is run: one thread for each connection.

use std::thread;

use fullbore_core::halt::Halt;
use fullbore_core::{Result, threads};

use fullbore_engines::mysql::clone::descriptor::{Stage, StateDescriptor};
use fullbore_engines::mysql::clone::donor::Donor;
use fullbore_engines::mysql::clone::files::{Change, CloneFile};
use fullbore_engines::mysql::clone::task::{DataExtent, Event, Task};

/// A target for a clone. One thread calls all methods but [`CloneTarget::data`]; all threads call `data` at once.
///
/// Bytes of a later [`Stage`] replace the bytes of an earlier stage. A target that writes in place may rely on this:
/// all calls of a stage return before `stage_ends`, and the calls of the next stage come after it has returned.
pub trait CloneTarget: Sync {
    /// A stage begins.
    fn stage_begins(&self, stage: &StateDescriptor) -> Result<()>;

    /// A file, or a change of it; before any data of it.
    fn file(&self, change: &Change) -> Result<()>;

    /// Bytes of a file, to read from `bytes`; unread bytes are skipped.
    fn data(&self, extent: &DataExtent, bytes: &mut Bytes<'_>) -> Result<()>;

    /// Everything of the stage was given.
    fn stage_ends(&self, stage: Stage) -> Result<()>;
}

/// The bytes of one extent, as they come from the server.
pub struct Bytes<'a>(&'a mut Task);

impl Bytes<'_> {
    /// Reads into the start of `buffer`, as much as fits or is left; 0 at the end.
    pub fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(buffer)
    }

    /// The number of the connection that they come over, from 0.
    pub fn task(&self) -> usize {
        self.0.number()
    }
}

/// Runs a clone into `target`, with a thread for each of its tasks; all files at the end. `halt` must be the one that
/// the donor was begun with: the first error stops it, and so all threads.
pub fn run(mut donor: Donor, target: &dyn CloneTarget, halt: &Halt) -> Result<Vec<CloneFile>> {
    let tasks = donor.take_tasks();
    thread::scope(|scope| {
        for mut task in tasks {
            let name = format!("connection {} of the clone", task.number());
            let work = move || {
                halt.watch(run_task(&mut task, target));
            };
            if halt.watch(threads::start_in(scope, &name, work)).is_none() {
                break;
            }
        }
    });
    halt.finish()?;
    Ok(donor.files())
}

fn run_task(task: &mut Task, target: &dyn CloneTarget) -> Result<()> {
    while let Some(event) = task.next_event()? {
        match event {
            Event::StageBegins(stage) => target.stage_begins(&stage)?,
            Event::File(change) => target.file(&change)?,
            Event::Data(extent) => target.data(&extent, &mut Bytes(task))?,
            Event::StageEnds(stage) => target.stage_ends(stage)?,
        }
    }
    Ok(())
}
