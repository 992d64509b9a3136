//! The parts of a job's plan that its speed depends on.

use fullbore_core::plan::{Plan, UnpackPlan};

use crate::throughput::Buffers;

/// Threads, buffers and devices of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// As `--compression` spells it.
    pub codec: String,
    /// Transform threads.
    pub workers: u64,
    /// Operations in flight in each family, at most.
    pub queue_depth: u64,
    /// Operations in flight when one more was queued, on average over all families: 1 if a device takes one at a time.
    pub in_flight: f64,
    /// The pool, for the model.
    pub buffers: Buffers,
    /// BUFFERCOUNT.
    pub buffer_count: u64,
    /// The least BUFFERCOUNT with these threads and stripes.
    pub least_buffers: u64,
    /// MAXTRANSFERSIZE in bytes.
    pub transfer_bytes: u64,
    /// Bytes of an operation on the media: a buffer, or a part of an object.
    pub operation_bytes: u64,
    /// Contexts of the codec, bytes of all workers.
    pub codec_bytes: u64,
    /// Blocks are encrypted.
    pub encrypted: bool,
    /// For a copy: its work on each block.
    pub copying: Option<Copying>,
}

/// The work of a copy on each block between reading and writing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Copying {
    /// The set is made anew, in the requested number of families; else it is copied as it is.
    pub anew: bool,
    /// The codec that unpacks its blocks; `None` if they are not opened, because there is no key.
    pub unpacks: Option<String>,
    /// They are packed anew, by the codec of the setup.
    pub packs: bool,
    /// They are decrypted.
    pub decrypts: bool,
}

impl Setup {
    /// For a backup without encryption. The operations in flight are known at its end.
    pub fn of_backup(plan: &Plan, codec: &str, differential: bool) -> Self {
        let (input, output) = (plan.input_buffers as u64, plan.output_buffers as u64);
        Self {
            codec: codec.to_owned(),
            workers: plan.workers as u64,
            queue_depth: plan.queue_depth as u64,
            in_flight: 1.0,
            // Without a codec, an input buffer goes all the way; output buffers hold headers and data too short for a
            // write.
            buffers: if codec == "none" { Buffers::Through(input) } else { Buffers::Split { input, output } },
            buffer_count: plan.buffer_count() as u64,
            least_buffers: plan.least_buffers(differential) as u64,
            transfer_bytes: plan.transfer_size.into(),
            operation_bytes: plan.part_size.max(plan.transfer_size.into()),
            codec_bytes: plan.codec_bytes,
            encrypted: false,
            copying: None,
        }
    }

    /// For the unpacking of this many families; their codec and cipher are known when they are open.
    pub fn of_unpacking(plan: &UnpackPlan, families: usize) -> Self {
        let (input, output) = (plan.input_buffers as u64, plan.output_buffers as u64);
        Self {
            codec: String::new(),
            workers: plan.workers as u64,
            queue_depth: plan.queue_depth as u64,
            in_flight: 1.0,
            buffers: Buffers::Split { input, output },
            buffer_count: plan.buffer_count() as u64,
            least_buffers: plan.least_buffers(families) as u64,
            transfer_bytes: plan.transfer_size.into(),
            operation_bytes: plan.transfer_size.into(),
            codec_bytes: 0,
            encrypted: false,
            copying: None,
        }
    }

    /// For a copy of this many families. `reading` is its plan of reading. `writing` is the number of buffers for new
    /// blocks: 0 if the copy writes the bytes that it reads. Each family has `queue_depth` writes in flight.
    pub fn of_copy(reading: &UnpackPlan, families: usize, (writing, queue_depth): (usize, usize)) -> Self {
        let (input, output) = (reading.input_buffers as u64, writing as u64);
        Self {
            queue_depth: queue_depth as u64,
            buffers: if writing == 0 { Buffers::Through(input) } else { Buffers::Split { input, output } },
            buffer_count: (reading.buffer_count() + writing) as u64,
            copying: Some(Copying::default()),
            ..Self::of_unpacking(reading, families)
        }
    }
}
