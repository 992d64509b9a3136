//! Flags for buffers and threads, and the knobs that they set.

use clap::Args;
use fullbore::config::Config;
use fullbore::{Result, units};
use fullbore_core::plan::{BlockSize, Knobs, TransferSize};

/// Buffers and threads that backup, restore and verify share.
#[derive(Debug, Default, Args)]
pub struct Tuning {
    /// Buffers in the pool (BUFFERCOUNT). This number times the transfer size is all the data memory of the job
    /// [default: from stripes, threads and queue depth].
    #[arg(long, value_name = "N")]
    pub buffer_count: Option<usize>,
    /// Operations in flight per stripe [default: from the number of stripes].
    #[arg(long, value_name = "N")]
    pub queue_depth: Option<usize>,
    /// Threads that check, pack and encrypt [default: one per core].
    #[arg(long, value_name = "N")]
    pub workers: Option<usize>,
}

/// Buffers and threads of a job that reads media.
#[derive(Debug, Args)]
pub struct ReadTuning {
    /// Buffers and threads.
    #[command(flatten)]
    pub shared: Tuning,
    /// Read at most this much of the media per second: 200MiB/s. The configuration's throttle is for backups and
    /// copies only.
    #[arg(long, value_name = "RATE")]
    pub throttle: Option<String>,
}

/// Buffers and threads of the restore, in an estimate.
#[derive(Debug, Args)]
pub struct RestoreTuning {
    /// Buffers in the pool of the restore [default: as restore chooses].
    #[arg(long, value_name = "N")]
    pub restore_buffer_count: Option<usize>,
    /// Reads in flight per stripe of the restore [default: as restore chooses].
    #[arg(long, value_name = "N")]
    pub restore_queue_depth: Option<usize>,
    /// Threads of the restore that unpack and check [default: one per core].
    #[arg(long, value_name = "N")]
    pub restore_workers: Option<usize>,
}

/// Buffers and threads of a backup, with the settings that only a backup has.
#[derive(Debug, Default, Args)]
pub struct BackupTuning {
    /// Buffers and threads.
    #[command(flatten)]
    pub shared: Tuning,
    /// Parallel readers of the database. For a MySQL server: the number of connections [default: 4].
    #[arg(long, value_name = "N")]
    pub readers: Option<usize>,
    /// Size of one buffer and of one device write (MAXTRANSFERSIZE): 64KiB…64MiB in 64 KiB steps [default: 1MiB].
    #[arg(long, value_name = "BYTES")]
    pub max_transfer_size: Option<String>,
    /// Alignment unit of a stripe (BLOCKSIZE): 512…65536 [default: 4096].
    #[arg(long, value_name = "BYTES")]
    pub block_size: Option<String>,
    /// Read at most this much per second, e.g. 200MiB/s.
    #[arg(long, value_name = "RATE")]
    pub throttle: Option<String>,
}

impl Tuning {
    /// The knobs, with the configuration where a flag was left out.
    pub fn knobs(&self, config: &Config) -> Knobs {
        Knobs {
            buffer_count: self.buffer_count.or(config.buffer_count),
            queue_depth: self.queue_depth.or(config.queue_depth),
            workers: self.workers.or(config.workers),
            ..Knobs::default()
        }
    }
}

impl ReadTuning {
    /// The knobs, with the configuration where a flag was left out.
    ///
    /// # Errors
    /// The throttle is not a bandwidth.
    pub fn knobs(&self, config: &Config) -> Result<Knobs> {
        let throttle = self.throttle.as_ref().map(|text| units::bytes_per_second("--throttle", text)).transpose()?;
        Ok(Knobs { throttle, ..self.shared.knobs(config) })
    }
}

impl RestoreTuning {
    /// The knobs of the restore. Those of the configuration are for the backup here.
    pub fn knobs(&self) -> Knobs {
        Knobs {
            buffer_count: self.restore_buffer_count,
            queue_depth: self.restore_queue_depth,
            workers: self.restore_workers,
            ..Knobs::default()
        }
    }
}

impl BackupTuning {
    /// The knobs, with the configuration where a flag was left out.
    ///
    /// # Errors
    /// A text that is not a size or not a bandwidth.
    pub fn knobs(&self, config: &Config) -> Result<Knobs> {
        let mut knobs = self.shared.knobs(config);
        knobs.readers = self.readers.or(config.readers);
        if let Some(text) = self.max_transfer_size.as_ref().or(config.max_transfer_size.as_ref()) {
            knobs.transfer_size = TransferSize::new(units::bytes("--max-transfer-size", text)?)?;
        }
        if let Some(text) = self.block_size.as_ref().or(config.block_size.as_ref()) {
            knobs.block_size = BlockSize::new(units::bytes("--block-size", text)?)?;
        }
        let throttle = self.throttle.as_ref().or(config.throttle.as_ref());
        knobs.throttle = throttle.map(|text| units::bytes_per_second("--throttle", text)).transpose()?;
        Ok(knobs)
    }
}
