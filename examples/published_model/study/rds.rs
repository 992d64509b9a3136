//! RDS SQL Server: native backups to and restores from S3, two database sizes, gp2 and io1 volumes, 1, 4 and 8 files.

use fullbore_model::throughput::{
    Buffers, Ceiling, CodecCost, Configuration, Device, Direction, ExtraCost, Free, Path, Prediction, nominal, predict,
};

use super::table::{Row, Table};
use super::{Cell, Study};

/// The published table.
pub const TABLE: &str = include_str!("../../../bench/published/rds-sqlserver-native.csv");

/// A published terabyte, bytes.
pub const TERABYTE: f64 = 1e12;
const MEGABYTE: f64 = 1e6;
/// Seconds.
pub const MINUTE: f64 = 60.0;
/// SQL Server's default MAXTRANSFERSIZE to devices, bytes.
const TRANSFER: f64 = 1_048_576.0;
/// SQL Server's default BUFFERCOUNT: three in flight and one more for each device, two for each database volume ("Incorrect BufferCount
/// data transfer option can lead to OOM condition", Microsoft, SQL Server FAQ blog, 2010).
const BUFFERS_PER_DEVICE: u64 = 4;
const BUFFERS_PER_VOLUME: u64 = 2;
/// r5.8xlarge, the smaller of the two machines. Nothing in the table depends on it.
const CORES: f64 = 32.0;

/// The columns and what they are.
const COLUMNS: [(&str, Direction); 4] = [
    ("backup_8xl", Direction::Backup),
    ("backup_24xl", Direction::Backup),
    ("restore_8xl", Direction::Restore),
    ("restore_24xl", Direction::Restore),
];

/// One configuration of the table.
#[derive(Clone)]
struct Job {
    /// 1 or 4.
    terabytes: f64,
    /// The volume's nominal ceiling in bytes per second.
    volume: f64,
    /// Its name and IOPS.
    volume_name: String,
    /// `yes` or `no`.
    compressed: bool,
    /// Files.
    files: u64,
    /// Backup or restore.
    direction: Direction,
}

/// The fitted parameters, by their place.
#[derive(Clone, Copy)]
pub enum Fitted {
    /// One file to S3.
    StreamWrite,
    /// All files to S3.
    MediaWrite,
    /// One file from S3.
    StreamRead,
    /// Share of the nominal ceiling that the volume gives.
    VolumeShare,
    /// Stored share of the 1 TB database.
    StoredSmall,
    /// Stored share of the 4 TB database.
    StoredLarge,
    /// Used share of the 4 TB database.
    Used,
    /// Bytes that a restore writes for one of the nominal size.
    Written,
    /// How many there are.
    Last,
}

fn free() -> Vec<Free> {
    let rate = |name: &str, start: f64| Free::new(name, start * MEGABYTE).bounded(10.0 * MEGABYTE, 2000.0 * MEGABYTE);
    vec![
        rate("one file written to S3, bytes/s", 100.0),
        rate("all files written to S3, bytes/s", 1000.0),
        rate("one file read from S3, bytes/s", 100.0),
        Free::new("of the volume's nominal ceiling, 1", 1.0).bounded(0.5, 2.0),
        Free::new("stored share of the 1 TB database, 1", 0.5).bounded(0.1, 1.0),
        Free::new("stored share of the 4 TB database, 1", 0.5).bounded(0.1, 1.0),
        Free::new("used share of the 4 TB database, for 1 of the 1 TB one, 1", 1.0).bounded(0.3, 1.5),
        Free::new("bytes a restore writes for one of the nominal size, 1", 1.0).bounded(0.9, 1.5),
    ]
}

/// The jobs of the table, and their published seconds.
fn jobs(row: Row<'_>) -> Vec<(&'static str, Job, f64)> {
    let of_column = |(column, direction): (&'static str, Direction)| {
        let minutes = row.number(column)?;
        let terabytes = row.number("size_tb")?;
        let operations = row.number("iops");
        let ceiling = operations.map_or_else(|| nominal::gp2(gp2_gigabytes(terabytes)), nominal::io1);
        let job = Job {
            terabytes,
            volume: ceiling.total_rate,
            volume_name: format!(
                "{}{}",
                row.text("volume"),
                operations.map_or(String::new(), |iops| format!(" {iops}"))
            ),
            compressed: row.text("compression") == "yes",
            files: row.number("files")? as u64,
            direction,
        };
        Some((column, job, minutes * MINUTE))
    };
    COLUMNS.into_iter().filter_map(of_column).collect()
}

/// Size of the gp2 volumes in GiB: the table's note says 1.5 TB for 1 TB, 4.5 TB for 4 TB.
fn gp2_gigabytes(terabytes: f64) -> f64 {
    1000.0 * (terabytes + 0.5)
}

/// What the model says of a job.
fn foresee(values: &[f64], job: &Job) -> Option<Prediction> {
    let of = |which: Fitted| values[which as usize];
    let large = job.terabytes > 1.0;
    let volume = Ceiling::total(job.volume * of(Fitted::VolumeShare));
    let stored_share = of(if large { Fitted::StoredLarge } else { Fitted::StoredSmall });
    let compressed = CodecCost { name: "yes".into(), stored_share, ..CodecCost::none() };
    let path = Path {
        database: Device { read: volume, write: volume },
        media: Device {
            write: Ceiling {
                stream_rate: of(Fitted::StreamWrite),
                total_rate: of(Fitted::MediaWrite),
                ..Ceiling::NONE
            },
            read: Ceiling { stream_rate: of(Fitted::StreamRead), ..Ceiling::NONE },
        },
        codecs: vec![CodecCost::none(), compressed],
        ..Path::unlimited(CORES)
    };
    let nominal = job.terabytes * TERABYTE;
    let used = nominal * if large { of(Fitted::Used) } else { 1.0 };
    let extra = match job.direction {
        Direction::Backup => 0.0,
        Direction::Restore => (nominal * of(Fitted::Written) - used).max(0.0),
    };
    let configuration = Configuration {
        direction: job.direction,
        plain_bytes: used,
        extra: ExtraCost { bytes: extra, ..ExtraCost::default() },
        stripes: job.files,
        database_streams: 1,
        queue_depth: 1,
        request_bytes: None,
        workers: CORES as u64,
        buffers: Buffers::Through(BUFFERS_PER_DEVICE * job.files + BUFFERS_PER_VOLUME),
        transfer_bytes: TRANSFER,
        codec: if job.compressed { "yes" } else { "none" }.into(),
        encrypted: false,
        throttle: None,
    };
    predict(&path, &configuration).ok()
}

/// The whole table.
pub fn study() -> Study {
    let table = Table::read(TABLE);
    let (mut cells, mut all) = (Vec::new(), Vec::new());
    for (group, row) in table.rows().enumerate() {
        for (column, job, seconds) in jobs(row) {
            let compressed = if job.compressed { "compressed" } else { "plain" };
            let files = if job.files == 1 { "1 file".into() } else { format!("{} files", job.files) };
            let row = format!("{} TB, {}, {compressed}, {files}", job.terabytes, job.volume_name);
            // Backup and restore of a configuration are two predictions, its machines are none.
            let number = 2 * group + usize::from(job.direction == Direction::Restore);
            cells.push(Cell { row, column, group, job: number, seconds });
            all.push(job);
        }
    }
    assert_eq!(free().len(), Fitted::Last as usize);
    let unit = (MINUTE, "min");
    Study {
        title: "RDS SQL Server",
        source: table.source,
        unit,
        cells,
        free: free(),
        predict: Box::new(move |values, at| foresee(values, &all[at])),
    }
}
