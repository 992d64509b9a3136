//! Jobs in a control group with little memory: a default plan becomes smaller, and what was asked for is refused where it does not fit.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::program::{self, Ended};
use crate::world::World;

/// A control group; removed when dropped.
struct Capped(PathBuf);

impl Capped {
    /// None where this machine gives none.
    fn at(mib: u64) -> Option<Self> {
        let name = format!("fullbore-test-{}-{mib}", std::process::id());
        for (root, limit) in [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")] {
            let group = PathBuf::from(root).join(&name);
            if fs::create_dir(&group).is_err() {
                continue;
            }
            let group = Self(group);
            if fs::write(group.0.join(limit), (mib << 20).to_string()).is_ok() {
                return Some(group);
            }
        }
        None
    }

    fn run(&self, world: &World, line: &str) -> Ended {
        let script =
            format!("echo $$ > {}/cgroup.procs && exec {} {line}", self.0.display(), env!("CARGO_BIN_EXE_fullbore"));
        let mut command = Command::new("sh");
        command.args(["-c", &script]);
        program::surroundings(&mut command, world.folder());
        program::run(command)
    }
}

impl Drop for Capped {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0); // The kernel may still count what has ended.
    }
}

#[test]
fn a_default_plan_becomes_smaller_in_a_container_and_what_was_asked_for_is_refused() {
    let test = "a_default_plan_becomes_smaller_in_a_container_and_what_was_asked_for_is_refused";
    // What the plans take besides 64 MiB: backups 34 buffers, or 16; restores 44, or 31. The program takes some itself.
    let [Some(small), Some(larger), Some(tiny), Some(as_it_is), Some(anew)] = [90, 104, 68, 110, 124].map(Capped::at)
    else {
        return program::skipped(test, "this machine caps no memory");
    };
    let world = World::with_database();
    for name in ["c", "d", "e"] {
        fs::create_dir(world.at(name)).unwrap();
    }
    let line = "backup sqlite:app.db --stripes 8 --workers 2 --readers 2 --compression lz4 --report json";
    let usual = world.run(&format!("{line} --to a/")).done().json();
    let smaller = "the plan is smaller than usual, because there is not more memory";
    let report = small.run(&world, &format!("{line} --to b/")).with_code(0).says(&[smaller]).json();
    let buffers = |report: &serde_json::Value| report["pool"]["buffer_count"].as_u64().unwrap();
    assert_eq!((buffers(&usual), buffers(&report)), (34, 16));
    let restored = larger.run(&world, "restore --from b --into sqlite:copy.db --workers 2");
    restored.with_code(0).says(&[smaller]);
    world.assert_copy();
    // A copy as it is takes 76 buffers, or 39. A copy that is made anew takes 88, or 51.
    for (group, way) in [(&as_it_is, "c/"), (&anew, "d/ --compression zstd:1 --stripes 8")] {
        let copied = group.run(&world, &format!("copy --from b --to {way} --workers 2"));
        copied.with_code(0).says(&[smaller]);
    }
    world.run("verify --from d").done();
    tiny.run(&world, "copy --from b --to e/").refused(2, "memory", "group").says(&["the smallest plan has "]);
    let asked = "backup sqlite:app.db --to b/ --buffer-count 500";
    small.run(&world, asked).refused(2, "memory", "limit of the control group").says(&["--buffer-count"]);
    let refused = tiny.run(&world, "backup sqlite:app.db --to b/ --stripes 8");
    refused.refused(2, "memory", "limit of the control group").says(&["the smallest plan for 8 families has "]);
}
