//! The verdict in a report: `fullbore_model::verdict` judges the numbers that the job has booked.

use fullbore_core::meter::Stage;
use serde::Serialize;

use super::Report;
use fullbore_core::units::MIB;
use fullbore_model::throughput::Direction;
use fullbore_model::verdict::{self, Evidence};

/// The limit of the job, and why.
#[derive(Debug, Clone, Serialize)]
pub struct VerdictReport {
    /// A stage's name, `one stripe`, `processor`, `throttle`, `pool`, `shallow queue`, `fixed costs`, `none`.
    pub limit: String,
    /// The device, if the limit is one stripe.
    pub device: Option<String>,
    /// The numbers that say so.
    pub why: String,
    /// How much of the time each stage worked, the processors, and the throttle.
    pub uses: Vec<UseReport>,
    /// Share of the job before the first and after the last byte.
    pub fixed_share: f64,
    /// The known steps of that time, in their order.
    pub fixed_costs: Vec<CostReport>,
    /// The job's speed in percent of the limit that was measured, or else of the calibrated one.
    pub percent_of_limit: Option<f64>,
    /// The limit that no configuration exceeds on these places, from a profile of this machine.
    pub calibrated: Option<CalibratedReport>,
    /// True if the bytes that are read and those that are written are on one device, as far as their paths tell.
    pub one_device: bool,
    /// What another configuration would have changed.
    pub what_if: Vec<WhatIfReport>,
}

/// The limit of the path of a job, from a profile of this machine.
#[derive(Debug, Clone, Serialize)]
pub struct CalibratedReport {
    /// The profile's name.
    pub profile: String,
    /// What sets the limit: `database volume`, `media together`, `shared device`, `transform`, `processor`. For a copy,
    /// the first two are `source media` and `target media`.
    pub limit: String,
    /// The limit, in source MiB/s; of a copy in MiB/s of the media that it reads.
    pub mib_per_s: f64,
    /// The job's speed in percent of it.
    pub percent: f64,
}

/// Something that took time beside the moving of bytes.
#[derive(Debug, Clone, Serialize)]
pub struct CostReport {
    /// The step and its time, as it is printed.
    pub text: String,
    /// How long it took.
    pub seconds: f64,
}

/// How much of the time something worked.
#[derive(Debug, Clone, Serialize)]
pub struct UseReport {
    /// A stage, `processors`, `throttle`.
    pub name: String,
    /// Share of the time between first and last byte, 0…1.
    pub share: f64,
    /// Speed of the path if only this limited it; `None` if it did not work at all.
    pub ceiling_mib_per_s: Option<f64>,
}

/// One change of the configuration, and its effect.
#[derive(Debug, Clone, Serialize)]
pub struct WhatIfReport {
    /// The change in words.
    pub change: String,
    /// How many times as fast.
    pub speed: f64,
    /// Stored bytes, as a factor of the present bytes.
    pub stored: f64,
    /// More bytes of memory; below 0: fewer.
    pub memory_bytes: i64,
    /// All of it in one line, as it is printed.
    pub text: String,
}

impl Report {
    /// The verdict on the booked numbers. Doubts about the profile become notes.
    pub(super) fn judged(&mut self) -> Option<VerdictReport> {
        if let Some(followed) = &self.followed {
            return followed.verdict(&self.accounts, self.moving.0).map(VerdictReport::from);
        }
        let (direction, copies) = match self.accounts.iter().map(|stage| stage.name).collect::<Vec<_>>()[..] {
            ["source", "transform", "sink"] => (Direction::Backup, false),
            ["media", "transform", "target"] => (Direction::Restore, false),
            ["media", "transform", "sink"] => (Direction::Backup, true),
            _ => return None,
        };
        let (moving_s, sets) = self.moving;
        // Free pages that were not read do not count: no device and no throttle has seen them. An estimate does not
        // count them either.
        let stages: Vec<Stage> = self.accounts.iter().map(Stage::of_what_was_read).collect();
        // Without the key, the database bytes of a copy are unknown: its bytes are those of the media.
        let plain_bytes =
            if copies { stages[0].account.bytes } else { self.source_bytes.saturating_sub(self.unread_bytes) } as f64;
        let data_bytes =
            if copies { self.allocated_bytes } else { self.source_bytes.saturating_sub(self.skipped_bytes) };
        // A restore's throttle counts bytes of the media.
        let of_media = match direction {
            Direction::Restore => plain_bytes / (self.stored_bytes as f64).max(1.0),
            Direction::Backup => 1.0,
        };
        let one_set = sets == 1;
        let setup =
            self.setup.clone().filter(|_| one_set).map(|setup| verdict::Setup { in_flight: self.in_flight(), ..setup });
        let known = setup.as_ref().and_then(|_| self.known(direction));
        let costs = self.costs();
        let evidence = Evidence {
            direction,
            read_from: copies.then(|| if one_set { self.read_from.clone() } else { Vec::new() }),
            stages: &stages,
            devices: if one_set {
                self.families.iter().map(|family| family.device.clone()).collect()
            } else {
                Vec::new()
            },
            moving_s,
            elapsed_s: self.elapsed_s,
            processor_s: (self.cpu_s - self.cpu_before_s).max(0.0),
            processors: processors(),
            plain_bytes,
            throttle: self.throttle.map(|rate| rate as f64 * of_media),
            setup,
            measured_limit: self.limit.as_ref().map(|limit| limit.mib_per_s * MIB),
            raw_media: self.limit.as_ref().and_then(|limit| {
                // On a disk that is read and written at once, reading and writing share the path.
                let stored_share = self.stored_bytes as f64 / plain_bytes.max(1.0);
                let both = limit.copy_mib_per_s.map_or(f64::INFINITY, |copy| copy * stored_share);
                let rate = limit.sink_mib_per_s?.min(both) * MIB;
                let (queue_depth, transfer_bytes) = (limit.sink_queue_depth, limit.sink_transfer_bytes);
                Some(verdict::RawMedia { rate, queue_depth, transfer_bytes })
            }),
            data_share: data_bytes as f64 / plain_bytes.max(1.0),
            one_device: self.one_device(),
            costs: &costs,
            profile: known.as_ref(),
        };
        let fixed_costs = costs.iter().map(|cost| CostReport { text: cost.text.clone(), seconds: cost.seconds });
        let fixed_costs = fixed_costs.collect();
        let verdict =
            verdict::verdict(&evidence).map(|verdict| VerdictReport { fixed_costs, ..VerdictReport::from(verdict) });
        let doubts = known.into_iter().flat_map(|known| known.doubts);
        let doubts: Vec<String> = doubts.filter(|doubt| !self.warnings.contains(doubt)).collect();
        self.notes.extend(doubts);
        verdict
    }

    /// Mean operations in flight on the devices of the families; of a copy, of the families that it writes.
    fn in_flight(&self) -> f64 {
        let devices = || self.io.iter().filter(|device| !self.read_from.contains(&device.device));
        let operations: u64 = devices().map(|device| device.ops).sum();
        let sum: f64 = devices().map(|device| device.mean_queue_depth * device.ops as f64).sum();
        if operations == 0 { 1.0 } else { sum / operations as f64 }
    }
}

/// Processors that the process may use.
pub(super) fn processors() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |count| count.get() as f64)
}

impl From<verdict::Verdict> for VerdictReport {
    fn from(verdict: verdict::Verdict) -> Self {
        let used = |one: &verdict::Use| UseReport {
            name: one.name.into(),
            share: one.share,
            ceiling_mib_per_s: Some(one.ceiling / MIB).filter(|ceiling| ceiling.is_finite()),
        };
        let changed = |one: &verdict::WhatIf| WhatIfReport {
            change: one.change.clone(),
            speed: one.speed,
            stored: one.stored,
            memory_bytes: one.memory_bytes as i64,
            text: one.line(),
        };
        Self {
            limit: verdict.name.into(),
            uses: verdict.uses.iter().map(used).collect(),
            what_if: verdict.what_if.iter().map(changed).collect(),
            fixed_costs: Vec::new(),
            device: verdict.device,
            why: verdict.why,
            fixed_share: verdict.fixed_share,
            percent_of_limit: verdict
                .of_limit
                .or(verdict.calibrated.as_ref().map(|limit| limit.share))
                .map(|share| 100.0 * share),
            calibrated: verdict.calibrated.map(|limit| CalibratedReport {
                profile: limit.profile,
                limit: limit.name.into(),
                mib_per_s: limit.rate / MIB,
                percent: 100.0 * limit.share,
            }),
            one_device: verdict.one_device,
        }
    }
}
