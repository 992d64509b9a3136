//! What sinks promise: the suite for all of them, and the commit of files against kills, errors and bad names.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::io::Queue;
use crate::pool::Pool;
use crate::testkit::{Fault, FaultPlan, FaultSink, sink_conforms};

const NEW: &str = "0192f0c1-2b3a-7c4d-8e5f-001122334455";
const OLD: &str = "0192f0c1-0000-7000-8000-001122334455";

/// A family name in a directory on a disk.
struct Shelter {
    directory: tempfile::TempDir,
}

impl Shelter {
    fn new() -> Self {
        Self { directory: crate::io::directory_on_disk() }
    }

    fn name(&self) -> PathBuf {
        self.directory.path().join("a.bore")
    }

    /// File names and contents, in order.
    fn holds(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> = entries
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap_or_default()))
            .collect();
        files.sort();
        files
    }

    fn contents_of(&self, name: &str) -> Option<Vec<u8>> {
        self.holds().into_iter().find(|(found, _)| found == name).map(|(_, bytes)| bytes)
    }
}

fn options(init: bool) -> Options {
    Options { init, old_set_id: Some(OLD.into()), ..Options::new(NEW) }
}

fn create(path: &Path, options: Options) -> Result<FileSink> {
    FileSink::create(&path.display().to_string(), path, options)
}

fn refusal(path: &Path, options: Options) -> String {
    create(path, options).err().expect("refused").to_string()
}

fn write(sink: &mut dyn Sink, bytes: &[u8]) -> Result<()> {
    let pool = Pool::new(1, 65536)?;
    for (index, chunk) in bytes.chunks(65536).enumerate() {
        sink.settle(0)?;
        let mut buffer = pool.take()?;
        buffer[..chunk.len()].copy_from_slice(chunk);
        sink.write(index as u64 * 65536, Piece::new(buffer, 0..chunk.len()))?;
    }
    Ok(())
}

fn commit(sink: &mut dyn Sink, bytes: &[u8]) -> Result<()> {
    write(sink, bytes)?;
    sink.sync()?;
    sink.publish()?;
    sink.retire()
}

#[test]
fn every_sink_conforms() {
    for mode in [Mode::Auto, Mode::Uring, Mode::Blocking, Mode::Buffered] {
        if Queue::new(1, mode).is_err() {
            continue; // This machine has no io_uring.
        }
        for expected_size in [None, Some(4 << 20)] {
            let directory = crate::io::directory_on_disk();
            let path = |name: &str| directory.path().join(name);
            let next = std::cell::Cell::new(0);
            let make = |name: &str| -> Result<Box<dyn Sink>> {
                next.set(next.get() + 1);
                let set_id = format!("0192f0c1-2b3a-7c4d-8e5f-{:012}", next.get());
                let options = Options { mode, expected_size, ..Options::new(set_id) };
                Ok(Box::new(create(&path(name), options)?))
            };
            sink_conforms(make, Some(|name: &str| fs::read(path(name)).unwrap_or_default()));
            let left = fs::read_dir(directory.path()).unwrap().filter(|entry| {
                let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
                !name.starts_with("whole-") && name != "twice"
            });
            assert_eq!(left.count(), 0, "no working name is left");
        }
    }
    sink_conforms(|_| Ok(Box::new(NullSink::new())), None::<fn(&str) -> Vec<u8>>);
    let pipe =
        |name: &str| -> Result<Box<dyn Sink>> { Ok(Box::new(PipeSink::new(name, tempfile::tempfile().unwrap()))) };
    sink_conforms(pipe, None::<fn(&str) -> Vec<u8>>);
}

#[test]
fn every_device_opens_its_sink_and_a_directory_none() {
    let place = Shelter::new();
    let sink = open(&Device::file(place.name()), Options::new(NEW)).unwrap();
    assert_eq!(sink.device(), place.name().display().to_string());
    assert_eq!(open(&Device::parse("nul:").unwrap(), Options::new(NEW)).unwrap().device(), "nul:");
    let refused = open(&Device::parse(&format!("{}/", place.directory.path().display())).unwrap(), Options::new(NEW));
    assert_eq!(refused.err().unwrap().exit_kind().exit_code(), 2);
}

#[test]
fn a_kill_before_any_step_leaves_both_sets_whole_and_no_lock() {
    for (index, step) in Step::ALL.into_iter().enumerate() {
        let place = Shelter::new();
        fs::write(place.name(), "the old set").unwrap();
        let plan = FaultPlan::new().with(0, Fault::KillAtStep(step));
        let inner = create(&place.name(), Options { hook: Some(plan.hook(0)), ..options(true) }).unwrap();
        let mut sink = FaultSink::new(Box::new(inner), &plan, 0);
        assert!(commit(&mut sink, b"the new set").is_err(), "{step:?}");
        assert!(
            sink.write(0, Piece::new(Pool::new(1, 512).unwrap().take().unwrap(), 0..0)).is_err(),
            "the dead do nothing"
        );
        sink.abandon();
        drop(sink);
        assert!(plan.is_dead());
        let names: Vec<String> = place.holds().into_iter().map(|(name, _)| name).collect();
        let (new, old) = (format!("a.bore.new-{NEW}"), format!("a.bore.old-{OLD}"));
        let expected = match index {
            0..=3 => vec!["a.bore".to_owned(), new],
            4..=5 => vec![new, old],
            6..=7 => vec!["a.bore".to_owned(), old],
            _ => vec!["a.bore".to_owned()],
        };
        assert_eq!(names, expected, "killed before {step:?}");
        let contents: Vec<Vec<u8>> = place.holds().into_iter().map(|(_, bytes)| bytes).collect();
        assert!(contents.contains(&b"the new set".to_vec()), "{step:?}");
        assert_eq!(contents.contains(&b"the old set".to_vec()), index < 8, "{step:?}: kept until it is retired");
        let leftovers = leftovers(&place.name()).unwrap();
        assert!(leftovers.iter().all(|leftover| !leftover.running), "the locks of the dead are free");
        assert_eq!(leftovers.len(), names.iter().filter(|name| *name != "a.bore").count());
    }
}

#[test]
fn an_error_at_any_step_before_the_end_puts_the_old_set_back_and_leaves_nothing_else() {
    for step in &Step::ALL[..7] {
        for init in [true, false] {
            let place = Shelter::new();
            if init {
                fs::write(place.name(), "the old set").unwrap();
            }
            let plan = FaultPlan::new().with(0, Fault::ErrorAtStep(*step, 5));
            let mut sink = create(&place.name(), Options { hook: Some(plan.hook(0)), ..options(init) }).unwrap();
            let done = commit(&mut sink, b"the new set");
            if plan.fired().is_empty() {
                done.unwrap(); // There is nothing to move away without --init.
                continue;
            }
            assert!(done.unwrap_err().to_string().contains("Input/output error"), "{step:?}");
            assert!(commit(&mut sink, b"").is_err(), "a family that failed stays failed");
            drop(sink);
            let expected = if init { vec![("a.bore".to_owned(), b"the old set".to_vec())] } else { vec![] };
            assert_eq!(place.holds(), expected, "{step:?}");
        }
    }
}

#[test]
fn a_family_that_is_closed_can_be_replaced_at_once_while_other_threads_start_children() {
    let shelter = Shelter::new();
    crate::io::while_children_start(|| {
        for round in 0..200 {
            let mut sink = create(&shelter.name(), options(round > 0)).unwrap_or_else(|e| panic!("round {round}: {e}"));
            write(&mut sink, b"x").unwrap();
            sink.sync().unwrap();
            sink.publish().unwrap();
            sink.retire().unwrap();
        }
    });
}

#[test]
fn init_replaces_the_old_set_and_abandon_after_publish_brings_it_back() {
    let place = Shelter::new();
    fs::write(place.name(), "the old set").unwrap();
    let mut sink = create(&place.name(), options(true)).unwrap();
    write(&mut sink, b"the new set").unwrap();
    assert!(sink.publish().is_err(), "not before it is durable");
    sink.sync().unwrap();
    sink.publish().unwrap();
    assert_eq!(place.contents_of(&format!("a.bore.old-{OLD}")).unwrap(), b"the old set");
    assert_eq!(fs::read(place.name()).unwrap(), b"the new set");
    sink.abandon();
    assert_eq!(place.holds(), [("a.bore".to_owned(), b"the old set".to_vec())]);
}

#[test]
fn a_family_that_was_published_survives_the_drop_with_the_old_one_beside_it() {
    let place = Shelter::new();
    fs::write(place.name(), "the old set").unwrap();
    let mut sink = create(&place.name(), Options { old_set_id: None, ..options(true) }).unwrap();
    write(&mut sink, b"the new set").unwrap();
    sink.sync().unwrap();
    sink.publish().unwrap();
    drop(sink);
    assert_eq!(fs::read(place.name()).unwrap(), b"the new set");
    assert_eq!(leftovers(&place.name()).unwrap().len(), 1, "an old set without a readable id is kept under the nil id");
    assert!(refusal(&place.name(), Options { old_set_id: None, ..options(true) }).contains("in the way"));
}

#[test]
fn a_bad_name_is_refused_before_anything_is_written() {
    let place = Shelter::new();
    let root = place.directory.path();
    let missing = root.join("gone/deep/a.bore");
    assert!(refusal(&missing, options(false)).contains("--mkdir"));
    fs::create_dir(root.join("inner")).unwrap();
    assert!(refusal(&root.join("inner"), options(true)).contains("is a directory"));
    fs::write(place.name(), "x").unwrap();
    assert!(refusal(&place.name(), options(false)).contains("--init"));
    assert!(refusal(&place.name().join("b"), options(false)).contains("is not a directory"));
    assert!(refusal(Path::new("/dev/null"), options(true)).contains("nul:"));
    assert!(refusal(&root.join("n".repeat(230)), options(false)).contains("214 bytes"));
    assert!(refusal(&root.join("b"), Options::new("../../etc/passwd")).contains("UUID"));
    assert!(refusal(&root.join("b"), Options { queue_depth: 0, ..options(false) }).contains("--queue-depth"));
    symlink("nowhere", root.join("dangling")).unwrap();
    assert!(refusal(&root.join("dangling"), options(true)).contains("symbolic link"));
    let forbidden = Path::new("/sys/kernel/a.bore"); // Also root may not.
    assert!(refusal(forbidden, options(false)).contains("/sys/kernel/a.bore"));
    let names: Vec<_> = place.holds().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a.bore", "dangling", "inner"]);
}

#[test]
fn no_room_for_the_expected_size_is_an_error_at_the_start_and_leaves_nothing() {
    let place = Shelter::new();
    let error = refusal(&place.name(), Options { expected_size: Some(1 << 62), ..options(false) });
    assert!(error.contains("reserve"), "{error}");
    assert_eq!(place.holds(), []);
}

#[test]
fn mkdir_makes_directories_and_abandon_removes_them_again() {
    let place = Shelter::new();
    let path = place.directory.path().join("x/y/a.bore");
    let sink = create(&path, Options { mkdir: true, ..options(false) }).unwrap();
    assert!(path.parent().unwrap().is_dir());
    drop(sink);
    assert_eq!(place.holds(), []);
    commit(&mut create(&path, Options { mkdir: true, ..options(false) }).unwrap(), b"new").unwrap();
    assert_eq!(fs::read(path).unwrap(), b"new");
}

#[test]
fn a_running_backup_is_no_leftover_and_cannot_be_replaced() {
    let place = Shelter::new();
    fs::write(place.name(), "the old set").unwrap();
    let mut sink = create(&place.name(), options(true)).unwrap();
    write(&mut sink, b"new").unwrap();
    let found = leftovers(&place.name()).unwrap();
    assert!(found.len() == 1 && found[0].running && found[0].remove(|_| true).is_err());
    let other = Options { init: true, ..Options::new("0192f0c1-2b3a-7c4d-8e5f-999999999999") };
    assert!(refusal(&place.name(), other).contains("running"));
    sink.sync().unwrap();
    sink.publish().unwrap();
    assert!(
        leftovers(&place.name()).unwrap()[0].running,
        "the old set belongs to the running backup until it is retired"
    );
    sink.retire().unwrap();
    assert_eq!(place.holds(), [("a.bore".to_owned(), b"new".to_vec())]);
}

#[test]
fn a_name_that_changed_meanwhile_is_left_alone() {
    let place = Shelter::new();
    fs::write(place.name(), "the old set").unwrap();
    let mut sink = create(&place.name(), options(true)).unwrap();
    write(&mut sink, b"new").unwrap();
    sink.sync().unwrap();
    fs::remove_file(place.name()).unwrap();
    fs::write(place.name(), "a stranger's").unwrap();
    assert!(sink.publish().is_err());
    drop(sink);
    assert_eq!(place.holds(), [("a.bore".to_owned(), b"a stranger's".to_vec())]);
}

#[test]
fn a_link_is_followed_and_a_family_is_private_and_exactly_as_long_as_its_bytes() {
    let place = Shelter::new();
    fs::create_dir(place.directory.path().join("real")).unwrap();
    let real = place.directory.path().join("real/b.bore");
    fs::write(&real, "the old set").unwrap();
    symlink("real/b.bore", place.name()).unwrap();
    let bytes = vec![3; 100_000];
    let mut sink = create(&place.name(), Options { expected_size: Some(16 << 20), ..options(true) }).unwrap();
    commit(&mut sink, &bytes).unwrap();
    assert_eq!(fs::read(&real).unwrap(), bytes);
    assert!(fs::symlink_metadata(place.name()).unwrap().is_symlink());
    let metadata = File::open(&real).unwrap().metadata().unwrap();
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert!(metadata.blocks() * 512 < 1 << 20, "what was reserved and not used is given back");
}

#[test]
fn a_fault_in_the_middle_of_a_family_leaves_nothing_and_a_torn_write_leaves_its_beginning() {
    let bytes: Vec<u8> = (0..300_000_u32).map(|index| index as u8).collect();
    let faults = [
        Fault::ErrorAtOperation(2, 5),
        Fault::ErrorAtByte(200_000, 5),
        Fault::ShortWrite(200_000),
        Fault::NoSpaceAfter(200_000),
    ];
    for fault in faults {
        let place = Shelter::new();
        let plan = FaultPlan::new().with(0, fault);
        let mut sink = FaultSink::new(Box::new(create(&place.name(), options(false)).unwrap()), &plan, 0);
        assert!(commit(&mut sink, &bytes).is_err(), "{fault:?}");
        drop(sink);
        assert_eq!(place.holds(), [], "{fault:?}");
    }
    let place = Shelter::new();
    let plan = FaultPlan::new().with(0, Fault::TornWrite(200_000));
    let mut sink = FaultSink::new(Box::new(create(&place.name(), options(false)).unwrap()), &plan, 0);
    assert!(commit(&mut sink, &bytes).is_err());
    drop(sink);
    assert_eq!(place.holds(), [(format!("a.bore.new-{NEW}"), bytes[..200_000].to_vec())]);
}

#[test]
fn a_flipped_bit_changes_one_bit_of_the_device_and_nothing_in_memory() {
    let place = Shelter::new();
    let plan = FaultPlan::new().with(0, Fault::FlipBit(70_000, 3));
    let mut sink = FaultSink::new(Box::new(create(&place.name(), options(false)).unwrap()), &plan, 0);
    commit(&mut sink, &[0; 100_000]).unwrap();
    let mut expected = vec![0; 100_000];
    expected[70_000] = 8;
    assert_eq!(fs::read(place.name()).unwrap(), expected);
    assert_eq!(plan.fired(), [(0, Fault::FlipBit(70_000, 3))]);
}

#[test]
fn a_kill_stops_every_family_of_the_process() {
    let place = Shelter::new();
    let plan = FaultPlan::new().with(1, Fault::Kill(1));
    let mut sinks: Vec<FaultSink> = (0..2)
        .map(|family| {
            let path = place.directory.path().join(format!("{family}.bore"));
            FaultSink::new(Box::new(create(&path, options(false)).unwrap()), &plan, family)
        })
        .collect();
    write(&mut sinks[0], b"one").unwrap();
    assert!(commit(&mut sinks[1], b"two").is_err());
    assert!(sinks[0].sync().is_err(), "the whole process is dead");
    drop(sinks);
    assert_eq!(place.holds().len(), 2, "nobody cleaned up");
}

#[test]
fn buffers_are_free_for_others_as_soon_as_a_family_has_settled() {
    let place = Shelter::new();
    let pool: Arc<Pool> = Pool::new(2, 65536).unwrap();
    let mut sink = create(&place.name(), Options { queue_depth: 2, ..options(false) }).unwrap();
    for index in 0..2 {
        sink.write(index * 65536, Piece::new(pool.take().unwrap(), 0..65536)).unwrap();
    }
    sink.settle(0).unwrap();
    assert!(pool.try_take().is_some());
    let account = sink.account();
    assert_eq!((account.operations, account.bytes), (2, 131_072));
    assert!(account.p99_us > 0 && account.queue_depth_sum >= 2);
}

#[test]
fn one_complete_set_is_always_found() {
    let bytes: Vec<u8> = (0..300_000_u32).map(|index| (index >> 3) as u8).collect();
    for seed in 0..300 {
        let place = Shelter::new();
        fs::write(place.name(), "the old set").unwrap();
        let plan = FaultPlan::seeded(seed, 1, bytes.len() as u64, 8);
        let inner =
            create(&place.name(), Options { hook: Some(plan.hook(0)), mode: Mode::Blocking, ..options(true) }).unwrap();
        let mut sink = FaultSink::new(Box::new(inner), &plan, 0);
        let done = commit(&mut sink, &bytes);
        drop(sink);
        let fired = plan.fired();
        let flipped = fired.iter().any(|(_, fault)| matches!(fault, Fault::FlipBit(..)));
        let new = place.contents_of("a.bore").filter(|found| flipped && found.len() == bytes.len() || *found == bytes);
        let old = [format!("a.bore.old-{OLD}"), "a.bore".into()].iter().find_map(|name| place.contents_of(name));
        let old = old.filter(|found| found == b"the old set");
        assert!(new.is_some() || old.is_some(), "seed {seed}, {fired:?}: {:?}", place.holds().len());
        if done.is_ok() {
            assert!(
                new.is_some() && place.holds().len() == 1,
                "seed {seed}, {fired:?}: done, and nothing else is left"
            );
        } else if !plan.is_dead() && new.is_none() {
            assert_eq!(place.holds(), [("a.bore".to_owned(), b"the old set".to_vec())], "seed {seed}, {fired:?}");
        }
    }
}
