//! The fixed costs of a job: steps that take time beside the moving of bytes. Each is booked where it happens, so that
//! the verdict can name it.

use std::time::{Duration, Instant};

use super::Report;
use fullbore_core::units::counted;
use fullbore_model::verdict::Cost;

/// The sum of the times of one step.
#[derive(Debug, Clone)]
pub(super) struct Booked {
    what: What,
    time: Duration,
}

/// The kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A step by its name.
    Step(&'static str),
    /// Giving families their names. In a store, each object is completed for it.
    Publishing { families: u64, in_store: bool },
}

impl Report {
    /// Does `work` and books how long it took.
    pub fn timed<T>(&mut self, what: &'static str, work: impl FnOnce(&mut Self) -> T) -> T {
        let begun = Instant::now();
        let done = work(self);
        let time = begun.elapsed();
        match self.costs.iter_mut().find(|booked| booked.what == What::Step(what)) {
            Some(booked) => booked.time += time,
            None => self.costs.push(Booked { what: What::Step(what), time }),
        }
        done
    }

    /// Books how long it took to give `more` families their names, at the end of a set.
    pub fn published(&mut self, more: usize, in_store: bool, time: Duration) {
        let more = more as u64;
        for booked in &mut self.costs {
            match &mut booked.what {
                What::Publishing { families, in_store: place } if *place == in_store => {
                    *families += more;
                    booked.time += time;
                    return;
                }
                _ => {}
            }
        }
        self.costs.push(Booked { what: What::Publishing { families: more, in_store }, time });
    }

    /// All costs, for the verdict.
    pub(super) fn costs(&self) -> Vec<Cost> {
        self.costs.iter().map(|booked| Cost { text: booked.text(), seconds: booked.time.as_secs_f64() }).collect()
    }
}

impl Booked {
    fn text(&self) -> String {
        let seconds = self.time.as_secs_f64();
        let took = if seconds < 0.1 { format!("{seconds:.3} s") } else { format!("{seconds:.1} s") };
        match self.what {
            What::Step(what) => format!("{what} {took}"),
            What::Publishing { families, in_store: true } => {
                format!("the store took {took} to complete {}", counted(families, "object"))
            }
            What::Publishing { families, in_store: false } => format!("naming {} {took}", counted(families, "file")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_their_names_and_those_of_several_sets_add_up() {
        let mut report = Report::begin("restore");
        assert_eq!(report.timed("integrity check", |_| 7), 7);
        report.timed("integrity check", |_| ());
        report.published(1, true, Duration::from_millis(1640));
        report.published(2, false, Duration::from_millis(6));
        report.published(2, false, Duration::from_millis(6));
        let costs = report.costs();
        let said: Vec<&str> = costs.iter().map(|cost| cost.text.as_str()).collect();
        assert!(said[0].starts_with("integrity check 0.0"), "{said:?}");
        assert_eq!(said[1..], ["the store took 1.6 s to complete 1 object", "naming 4 files 0.012 s"]);
    }
}
