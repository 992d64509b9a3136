//! SQL Server's BUFFERCOUNT ladder: one 240 GB database, one and two files, 12 and 1,024 buffers.

use fullbore_model::throughput::{
    Buffers, Ceiling, CodecCost, Configuration, Device, Direction, ExtraCost, Free, Path, Prediction, predict,
};

use super::table::Table;
use super::{Cell, Study};

/// The published table.
pub const TABLE: &str = include_str!("../../../bench/published/sqlserver-buffers.csv");

const MEGABYTE: f64 = 1e6;
const GIGABYTE: f64 = 1e9;
/// As the table's note says; the published MB/s are MiB of 8 KiB pages.
pub const PLAIN: f64 = 240.0 * GIGABYTE;
const STORED_SHARE: f64 = 47.0 / 240.0;
/// Processors: not published. More than the 12 buffers of the slow rows can keep busy is all that matters.
const CORES: f64 = 64.0;

/// One configuration of the table.
#[derive(Clone)]
struct Job {
    files: u64,
    codec: &'static str,
    transfer: f64,
    buffers: u64,
}

#[derive(Clone, Copy)]
enum Fitted {
    File,
    Pack,
    Volume,
    Last,
}

fn free() -> Vec<Free> {
    let rate = |name: &str, start: f64| Free::new(name, start * MEGABYTE).bounded(5.0 * MEGABYTE, 2000.0 * MEGABYTE);
    vec![
        rate("one file, stored bytes/s", 100.0),
        rate("compression of one buffer, bytes/s", 100.0),
        rate("volume read, bytes/s", 400.0),
    ]
}

fn foresee(values: &[f64], job: &Job) -> Option<Prediction> {
    let of = |which: Fitted| values[which as usize];
    let yes = CodecCost {
        name: "yes".into(),
        pack: 1.0 / of(Fitted::Pack),
        unpack: 0.0,
        stored_share: STORED_SHARE,
        context_bytes: 0.0,
    };
    let path = Path {
        database: Device { read: Ceiling::total(of(Fitted::Volume)), write: Ceiling::NONE },
        media: Device { read: Ceiling::NONE, write: Ceiling { stream_rate: of(Fitted::File), ..Ceiling::NONE } },
        codecs: vec![CodecCost { name: "no".into(), ..CodecCost::none() }, yes],
        ..Path::unlimited(CORES)
    };
    let configuration = Configuration {
        direction: Direction::Backup,
        plain_bytes: PLAIN,
        extra: ExtraCost::default(),
        stripes: job.files,
        database_streams: 1,
        queue_depth: 1,
        request_bytes: None,
        workers: CORES as u64,
        buffers: Buffers::Through(job.buffers),
        transfer_bytes: job.transfer,
        codec: job.codec.into(),
        encrypted: false,
        throttle: None,
    };
    predict(&path, &configuration).ok()
}

/// The whole table.
pub fn study() -> Study {
    let table = Table::read(TABLE);
    let (mut cells, mut all) = (Vec::new(), Vec::new());
    for row in table.rows() {
        let numbers = ["files", "max_transfer_size", "buffer_count", "seconds"].map(|column| row.number(column));
        let [Some(files), Some(transfer), Some(buffers), Some(seconds)] = numbers else { continue };
        let codec = row.text("compression");
        let compressed = if codec == "yes" { "compressed" } else { "plain" };
        let group = cells.len();
        let name = format!(
            "{files} {}, {compressed}, {} MiB, {buffers} buffers",
            if files == 1.0 { "file" } else { "files" },
            transfer / 1_048_576.0
        );
        cells.push(Cell { row: name, column: "backup", group, job: group, seconds });
        all.push(Job { files: files as u64, codec, transfer, buffers: buffers as u64 });
    }
    assert_eq!(free().len(), Fitted::Last as usize);
    let unit = (1.0, "s");
    Study {
        title: "SQL Server's buffers",
        source: table.source,
        unit,
        cells,
        free: free(),
        predict: Box::new(move |values, at| foresee(values, &all[at])),
    }
}
