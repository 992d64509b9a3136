//! One core's speed of unpacking a compressed backup of SQL Server, and three limits on the same bytes.
//!
//! `cargo run --release -p fullbore-engines --example unpack_speed -- FILE` prints one JSON object, in 10^6 plain bytes
//! per second of one core. `bench/bak/unpack.py` reads it.
//!
//! | figure | work |
//! |---|---|
//! | `unpack` | checksum and XPRESS Huffman of every record, as a worker does it |
//! | `lz4` | LZ4 of the same blocks: a fast codec without an entropy code |
//! | `gzip` | gzip of the same blocks by libdeflate: a fast codec with a Huffman code |
//! | `copy` | the plain bytes, copied in memory |

use std::io::Write;
use std::time::UNIX_EPOCH;

use fullbore_core::codec::{CodecId, Decoder as Codec, Encoder};
use fullbore_engines::compressed::xpress::Decoder;
use fullbore_engines::compressed::{Block, Container};

/// Each figure is the best of this many passes.
const PASSES: usize = 15;
/// A pass repeats its work until it has moved so many plain bytes: the clock of a thread ticks slowly.
const BYTES_OF_A_PASS: usize = 64 << 20;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let file = std::env::args().nth(1).ok_or("name a compressed backup")?;
    let container = std::fs::read(&file)?;
    let mut blocks = Vec::new();
    let mut reader = Container::open(&container[..], &file)?;
    let mut decoder = Decoder::default();
    loop {
        let mut block = Block::default();
        if !reader.next(&mut block)? {
            break;
        }
        if block.is_packed() {
            block.unpack(&mut decoder, &file)?;
            blocks.push(block);
        }
    }
    let plain: Vec<Vec<u8>> = blocks.iter().map(|block| block.plain().to_vec()).collect();
    let bytes: usize = plain.iter().map(Vec::len).sum();
    let unpack = speed(bytes, || {
        blocks.iter_mut().try_for_each(|block| block.unpack(&mut decoder, &file)).map_err(|error| error.to_string())
    })?;
    let lz4 = codec("lz4", CodecId::Lz4, &plain, bytes)?;
    let gzip = codec("gzip:6", CodecId::Gzip, &plain, bytes)?;
    let mut target = vec![0; 65_536];
    let copy = speed(bytes, || {
        for block in &plain {
            target[..block.len()].copy_from_slice(block);
            std::hint::black_box(&mut target);
        }
        Ok(())
    })?;
    let object = serde_json::json!({
        "file": file, "blocks": blocks.len(), "plain_bytes": bytes, "container_bytes": container.len(),
        "mb_per_s_of_one_core": { "unpack": unpack, "lz4": lz4, "gzip": gzip, "copy": copy },
    });
    writeln!(std::io::stdout(), "{object:#}")?;
    Ok(())
}

fn codec(name: &str, id: CodecId, plain: &[Vec<u8>], bytes: usize) -> Result<f64, Box<dyn std::error::Error>> {
    let mut encoder = Encoder::new(name.parse()?)?;
    let mut room = vec![0; 200_000];
    let mut packed = Vec::new();
    for block in plain {
        let length = encoder.encode(block, &mut room)?;
        packed.push((length.map(|length| room[..length].to_vec()), block.len()));
    }
    let (mut codec, mut target) = (Codec::new()?, vec![0; 65_536]);
    let pass = || {
        // A block that does not become smaller is stored: there is nothing to decode.
        for (block, length) in packed.iter().filter_map(|(block, length)| Some((block.as_ref()?, *length))) {
            codec.decode(id, block, &mut target[..length]).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    Ok(speed(bytes, pass)?)
}

/// 10^6 bytes per second of `pass`, which moves `bytes` bytes, by the CPU time of this thread: neighbours on the machine
/// take less part.
fn speed(bytes: usize, mut pass: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let repeats = BYTES_OF_A_PASS.div_ceil(bytes.max(1));
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let start = cpu_seconds();
        (0..repeats).try_for_each(|_| pass())?;
        best = best.min(cpu_seconds() - start);
    }
    Ok(((bytes * repeats) as f64 / best / 1e6).round())
}

/// CPU seconds of this thread; wall seconds where the kernel does not tell.
fn cpu_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = statistics.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map_or_else(|| UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64()), |time| time / 1e9)
}
