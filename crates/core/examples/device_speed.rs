//! Sinks and supplies of files against fio: `cargo run --release -p fullbore-core --example device_speed DIRECTORY`. It
//! moves 20 GiB there and needs fio; the mode is chosen by `FULLBORE_IO`.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::process::Command;
use std::time::Instant;

use fullbore_core::io::Mode;
use fullbore_core::pool::{Piece, Pool};
use fullbore_core::sink::{self, FileSink, Sink};
use fullbore_core::supply::{FileSupply, Supply};

const TRANSFER: usize = 1 << 20;
const TRANSFERS: u64 = 2048;
const DEPTH: usize = 4;

fn main() {
    let parent = std::env::args_os().nth(1).expect("name the directory to measure");
    let directory = tempfile::tempdir_in(parent).unwrap();
    let path = directory.path().join("ours.bore");
    let theirs = directory.path().join("theirs").display().to_string();
    let mode = Mode::from_environment().unwrap();
    let mut ratios = [Vec::new(), Vec::new()];
    for round in 0..6 {
        let wrote = (write(&path, mode), fio("write", &theirs));
        let read = (read(&path, mode), fio("read", &theirs));
        std::fs::remove_file(&path).unwrap();
        std::fs::remove_file(&theirs).unwrap();
        println!(
            "round {round}: write {:.0} against {:.0} MiB/s, read {:.0} against {:.0} MiB/s",
            wrote.0, wrote.1, read.0, read.1
        );
        if round > 0 {
            // The first is discarded: the host's caches are cold.
            ratios[0].push(wrote.0 / wrote.1);
            ratios[1].push(read.0 / read.1);
        }
    }
    for (name, ratios) in ["write", "read"].iter().zip(&mut ratios) {
        ratios.sort_by(f64::total_cmp);
        println!("{name}: median {:.3} of fio, {mode:?}", ratios[ratios.len() / 2]);
    }
}

/// MiB/s including fsync.
fn write(path: &std::path::Path, mode: Mode) -> f64 {
    let pool = Pool::new(DEPTH + 2, TRANSFER).unwrap();
    let started = Instant::now();
    let options = sink::Options {
        mode,
        queue_depth: DEPTH,
        expected_size: Some(TRANSFERS * TRANSFER as u64),
        ..sink::Options::new("0192f0c1-2b3a-7c4d-8e5f-001122334455")
    };
    let mut sink = FileSink::create("ours", path, options).unwrap();
    for index in 0..TRANSFERS {
        let mut buffer = pool.take().unwrap();
        buffer[..8].copy_from_slice(&index.to_le_bytes());
        sink.write(index * TRANSFER as u64, Piece::new(buffer, 0..TRANSFER)).unwrap();
    }
    sink.sync().unwrap();
    let speed = TRANSFERS as f64 / started.elapsed().as_secs_f64();
    sink.publish().unwrap();
    sink.retire().unwrap();
    println!("  {:?}", sink.account());
    speed
}

fn read(path: &std::path::Path, mode: Mode) -> f64 {
    let pool = Pool::new(DEPTH + 2, TRANSFER).unwrap();
    let started = Instant::now();
    let mut supply = FileSupply::open("ours", path, &pool, DEPTH, mode).unwrap();
    let mut index = 0_u64;
    while let Some(piece) = supply.next().unwrap() {
        assert_eq!(piece[..8], index.to_le_bytes());
        index += 1;
    }
    assert_eq!(index, TRANSFERS);
    let speed = TRANSFERS as f64 / started.elapsed().as_secs_f64();
    println!("  {:?}", supply.account());
    speed
}

fn fio(direction: &str, file: &str) -> f64 {
    let arguments = [
        "--name=t",
        "--bs=1M",
        "--size=2G",
        "--direct=1",
        "--ioengine=io_uring",
        "--iodepth=4",
        "--fallocate=keep",
        "--end_fsync=1",
        "--output-format=json",
        "--invalidate=1",
    ];
    let output = Command::new("fio")
        .args(arguments)
        .args([format!("--rw={direction}"), format!("--filename={file}")])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    report["jobs"][0][direction]["bw_bytes"].as_f64().unwrap() / (1 << 20) as f64
}
