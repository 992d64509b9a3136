//! Alibaba Cloud DBS on MySQL: physical backups and restores with gzip and LZ4 by 4, 8 and 16 threads.
//!
//! Each thread takes a piece through all steps before it takes the next: as many buffers as threads.

use fullbore_model::throughput::{
    Buffers, Ceiling, CodecCost, Configuration, Device, Direction, ExtraCost, Free, Path, Prediction, predict,
};

use super::table::Table;
use super::{Cell, Study};

/// The published table.
pub const TABLE: &str = include_str!("../../../bench/published/dbs-mysql.csv");

const GIGABYTE: f64 = 1e9;
const MEGABYTE: f64 = 1e6;
/// Plain bytes of the physical tests, as the table's note says.
pub const PLAIN: f64 = 40.3 * GIGABYTE;
/// Size of a piece: nothing depends on it, for no operation has a latency.
const TRANSFER: f64 = 1_048_576.0;

/// One configuration of the table.
#[derive(Clone)]
struct Job {
    /// `gzip` or `lz4`.
    codec: &'static str,
    /// Threads, and cores of the class.
    threads: u64,
    /// Stored for plain bytes, as published.
    stored_share: f64,
    /// Backup or restore.
    direction: Direction,
}

/// The fitted parameters, by their place.
#[derive(Clone, Copy)]
pub enum Fitted {
    /// gzip on one thread.
    PackGzip,
    /// LZ4 on one thread.
    PackLz4,
    /// Reads of the volume.
    VolumeRead,
    /// Stored bytes read by one thread.
    ReadStored,
    /// Plain bytes written by one thread.
    WritePlain,
    /// How many there are.
    Last,
}

fn free() -> Vec<Free> {
    let rate = |name: &str, low: f64, start: f64, high: f64| {
        Free::new(name, start * MEGABYTE).bounded(low * MEGABYTE, high * MEGABYTE)
    };
    vec![
        rate("gzip on one thread, bytes/s", 5.0, 20.0, 200.0),
        rate("LZ4 on one thread, bytes/s", 5.0, 20.0, 200.0),
        rate("volume read by all threads, bytes/s", 100.0, 1000.0, 2000.0),
        rate("stored bytes read by one thread, bytes/s", 5.0, 40.0, 400.0),
        rate("plain bytes written by one thread, bytes/s", 5.0, 80.0, 800.0),
    ]
}

/// What the model says of a job.
fn foresee(values: &[f64], job: &Job) -> Option<Prediction> {
    let of = |which: Fitted| values[which as usize];
    let codec = |name: &str, rate: f64| CodecCost {
        name: name.into(),
        pack: 1.0 / rate,
        unpack: 0.0,
        stored_share: job.stored_share,
        context_bytes: 0.0,
    };
    let path = Path {
        database: Device {
            read: Ceiling::total(of(Fitted::VolumeRead)),
            write: Ceiling { stream_rate: of(Fitted::WritePlain), ..Ceiling::NONE },
        },
        media: Device { read: Ceiling { stream_rate: of(Fitted::ReadStored), ..Ceiling::NONE }, write: Ceiling::NONE },
        codecs: vec![codec("gzip", of(Fitted::PackGzip)), codec("lz4", of(Fitted::PackLz4))],
        ..Path::unlimited(job.threads as f64)
    };
    let configuration = Configuration {
        direction: job.direction,
        plain_bytes: PLAIN,
        extra: ExtraCost::default(),
        stripes: job.threads,
        database_streams: job.threads,
        queue_depth: 1,
        request_bytes: None,
        workers: job.threads,
        buffers: Buffers::Through(job.threads),
        transfer_bytes: TRANSFER,
        codec: job.codec.into(),
        encrypted: false,
        throttle: None,
    };
    predict(&path, &configuration).ok()
}

/// The physical rows.
pub fn study() -> Study {
    let table = Table::read(TABLE);
    let (mut cells, mut all) = (Vec::new(), Vec::new());
    for row in table.rows() {
        let (column, direction) = match row.text("test") {
            "physical_backup" => ("backup", Direction::Backup),
            "physical_restore" => ("restore", Direction::Restore),
            _ => continue,
        };
        let (Some(threads), Some(seconds), Some(stored)) =
            (row.number("threads"), row.number("seconds"), row.number("stored_gb"))
        else {
            continue;
        };
        let codec = row.text("codec");
        let (group, row) = (cells.len(), format!("{codec}, {threads} threads"));
        cells.push(Cell { row, column, group, job: group, seconds });
        all.push(Job { codec, threads: threads as u64, stored_share: stored * GIGABYTE / PLAIN, direction });
    }
    assert_eq!(free().len(), Fitted::Last as usize);
    let unit = (1.0, "s");
    Study {
        title: "DBS on MySQL, physical",
        source: table.source,
        unit,
        cells,
        free: free(),
        predict: Box::new(move |values, at| foresee(values, &all[at])),
    }
}
