//! A family in two places at once (MIRROR TO): every piece goes to both, and an error of one fails both.

use std::time::Duration;

use super::{DeviceAccount, Sink};
use crate::error::Result;
use crate::pool::Piece;

/// A sink of two sinks; the first may be such a sink, too. Pieces are shared, not copied: a buffer returns to its pool
/// when both have written it.
pub struct MirrorSink {
    first: Box<dyn Sink>,
    second: Box<dyn Sink>,
}

impl MirrorSink {
    /// One family, named in messages as `first` is.
    pub fn new(first: Box<dyn Sink>, second: Box<dyn Sink>) -> Self {
        Self { first, second }
    }

    fn sides(&self) -> [&dyn Sink; 2] {
        [&*self.first, &*self.second]
    }
}

impl Sink for MirrorSink {
    fn device(&self) -> &str {
        self.first.device()
    }

    fn write(&mut self, offset: u64, piece: Piece) -> Result<()> {
        self.first.write(offset, piece.clone())?;
        self.second.write(offset, piece)
    }

    fn settle(&mut self, in_flight: usize) -> Result<()> {
        self.first.settle(in_flight)?;
        self.second.settle(in_flight)
    }

    /// The larger of both numbers: when both are settled to a smaller one, at least one of them returns a buffer.
    fn in_flight(&self) -> usize {
        self.first.in_flight().max(self.second.in_flight())
    }

    /// The number of the side that returns its buffers when it is settled, while it has any: files before objects.
    fn leisure(&self) -> Duration {
        let busy = self.sides().into_iter().filter(|side| side.in_flight() > 0);
        busy.map(|side| side.leisure()).min().unwrap_or_default()
    }

    fn in_a_row(&self) -> u64 {
        self.first.in_a_row().max(self.second.in_a_row())
    }

    fn ease(&mut self) -> Result<()> {
        let leisure = self.leisure();
        for side in [&mut self.first, &mut self.second] {
            if side.in_flight() > 0 && side.leisure() <= leisure {
                side.ease()?;
            }
        }
        Ok(())
    }

    fn secure(&mut self) -> Result<()> {
        self.first.secure()?;
        self.second.secure()
    }

    fn sync(&mut self) -> Result<()> {
        self.first.sync()?;
        self.second.sync()
    }

    /// The second first: after a kill in between, the first place has nothing that the second lacks.
    fn publish(&mut self) -> Result<()> {
        self.second.publish()?;
        self.first.publish()
    }

    fn retire(&mut self) -> Result<()> {
        self.second.retire()?;
        self.first.retire()
    }

    fn abandon(&mut self) {
        self.first.abandon();
        self.second.abandon();
    }

    fn account(&self) -> DeviceAccount {
        self.first.account()
    }

    fn mirrors(&self) -> Vec<(&str, DeviceAccount)> {
        let mut mirrors = self.first.mirrors();
        mirrors.push((self.second.device(), self.second.account()));
        mirrors
    }

    #[cfg(any(test, feature = "testkit"))]
    fn die(&mut self) {
        self.first.die();
        self.second.die();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::super::{FileSink, NullSink, Options, Step};
    use super::*;
    use crate::pool::Pool;
    use crate::testkit::{Fault, FaultPlan, FaultSink, sink_conforms};

    const SET: &str = "0192f0c1-2b3a-7c4d-8e5f-001122334455";

    fn file(folder: &Path, name: &str, plan: &FaultPlan, family: usize) -> Result<Box<dyn Sink>> {
        let path = folder.join(name);
        let options = Options { hook: Some(plan.hook(family)), ..Options::new(SET) };
        let inner = FileSink::create(&path.display().to_string(), &path, options)?;
        Ok(Box::new(FaultSink::new(Box::new(inner), plan, family)))
    }

    /// The names in both folders.
    fn names(folders: [&Path; 2]) -> [Vec<String>; 2] {
        folders.map(|folder| {
            let entries = std::fs::read_dir(folder).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        })
    }

    fn commit(sink: &mut dyn Sink) -> Result<()> {
        let pool = Pool::new(2, 4096)?;
        for index in 0..20 {
            while sink.in_flight() > 0 {
                sink.ease()?;
            }
            let mut buffer = pool.take()?;
            buffer.fill(index);
            sink.write(u64::from(index) * 4096, Piece::new(buffer, 0..4096))?;
        }
        sink.sync()?;
        assert_eq!(pool.free(), 2, "every buffer is home");
        sink.publish()?;
        sink.retire()
    }

    #[test]
    fn a_mirror_conforms_and_both_of_its_places_hold_the_same() {
        let (a, b) = (crate::io::directory_on_disk(), crate::io::directory_on_disk());
        let none = FaultPlan::new();
        let make = |name: &str| -> Result<Box<dyn Sink>> {
            Ok(Box::new(MirrorSink::new(file(a.path(), name, &none, 0)?, file(b.path(), name, &none, 1)?)))
        };
        let read = |name: &str| {
            let [one, other] = [a.path(), b.path()].map(|folder| std::fs::read(folder.join(name)).unwrap_or_default());
            assert!(one == other, "{name} is not the same in both");
            one
        };
        sink_conforms(make, Some(read));
        let three = |name: &str| -> Result<Box<dyn Sink>> {
            let name = format!("three-{name}");
            let two = MirrorSink::new(file(a.path(), &name, &none, 0)?, file(b.path(), &name, &none, 1)?);
            let sink = MirrorSink::new(Box::new(two), Box::new(NullSink::new()));
            assert_eq!(sink.mirrors().len(), 2);
            Ok(Box::new(sink))
        };
        sink_conforms(three, Some(|name: &str| read(&format!("three-{name}"))));
        let beside = |_: &str| -> Result<Box<dyn Sink>> {
            Ok(Box::new(MirrorSink::new(Box::new(NullSink::new()), Box::new(NullSink::new()))))
        };
        sink_conforms(beside, None::<fn(&str) -> Vec<u8>>);
    }

    #[test]
    fn an_error_at_any_step_on_either_side_leaves_nothing_on_both() {
        for side in [0, 1] {
            let at_steps = Step::ALL.map(|step| Fault::ErrorAtStep(step, 5)).to_vec();
            let in_bytes =
                vec![Fault::ErrorAtByte(50_000, 5), Fault::NoSpaceAfter(30_000), Fault::ErrorAtOperation(7, 5)];
            for fault in [at_steps, in_bytes].concat() {
                let (a, b) = (crate::io::directory_on_disk(), crate::io::directory_on_disk());
                let plan = FaultPlan::new().with(side, fault);
                let sinks = (file(a.path(), "x", &plan, 0).unwrap(), file(b.path(), "x", &plan, 1).unwrap());
                let mut sink = MirrorSink::new(sinks.0, sinks.1);
                let done = commit(&mut sink);
                let held = names([a.path(), b.path()]);
                if plan.fired().is_empty() || held == [["x"], ["x"]] {
                    // Steps that are for what is replaced, or that come when both have their names.
                    continue;
                }
                assert!(done.is_err(), "{side} {fault:?}");
                sink.abandon();
                drop(sink);
                assert_eq!(names([a.path(), b.path()]), [Vec::<String>::new(), Vec::new()], "{side} {fault:?}");
            }
        }
    }

    #[test]
    fn after_a_kill_at_any_step_what_the_first_place_holds_the_second_does_too() {
        for side in [0, 1] {
            for step in Step::ALL {
                let (a, b) = (crate::io::directory_on_disk(), crate::io::directory_on_disk());
                let plan = FaultPlan::new().with(side, Fault::KillAtStep(step));
                let sinks = (file(a.path(), "x", &plan, 0).unwrap(), file(b.path(), "x", &plan, 1).unwrap());
                let mut sink = MirrorSink::new(sinks.0, sinks.1);
                let done = commit(&mut sink);
                sink.abandon();
                drop(sink);
                let [first, second] = names([a.path(), b.path()]).map(|names| names.contains(&"x".to_owned()));
                assert!(second || !first, "{side} {step:?}");
                assert!(done.is_err() || first && second, "{side} {step:?}");
            }
        }
    }
}
