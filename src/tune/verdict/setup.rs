//! The plan of a job, as far as its speed depends on it.

use fullbore_core::plan::{Plan, UnpackPlan};

use crate::tune::model::Buffers;

/// Threads, buffers and devices of one job.
#[derive(Debug, Clone, PartialEq)]
pub struct Setup {
    /// As `--compression` spells it.
    pub codec: String,
    /// Transform threads.
    pub workers: u64,
    /// Operations in flight in each family, at most.
    pub queue_depth: u64,
    /// Operations in flight when one more was queued, on average over all families: 1 for a device that takes one at a time.
    pub in_flight: f64,
    /// The pool as the model sees it.
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
    /// Of a copy, what it does with each block.
    pub copying: Option<Copying>,
}

/// What a copy does with each block that it reads, before it is written.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Copying {
    /// The set is made anew, in as many families as was asked for; else it is copied as it is.
    pub anew: bool,
    /// What its blocks are unpacked with; `None` where they are not opened, for want of a key.
    pub unpacks: Option<String>,
    /// They are packed anew, by the codec of the setup.
    pub packs: bool,
    /// They are decrypted.
    pub decrypts: bool,
}

impl Setup {
    /// Of a backup that is not encrypted. What was in flight is known at its end.
    pub fn of_backup(plan: &Plan, codec: &str, differential: bool) -> Self {
        let (input, output) = (plan.input_buffers as u64, plan.output_buffers as u64);
        Self {
            codec: codec.to_owned(),
            workers: plan.workers as u64,
            queue_depth: plan.queue_depth as u64,
            in_flight: 1.0,
            // Without a codec a buffer goes all the way; the others hold headers and what is too short for a write.
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

    /// Of the unpacking of so many families; their codec and cipher are known when they are open.
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

    /// Of a copy of so many families, `reading` as it reads and `writing` buffers that new blocks are written from: none where the bytes that
    /// are read are those that are written. Each family has `queue_depth` writes in flight.
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
