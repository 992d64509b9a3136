//! One core's speed of every codec, checksum and cipher on the bytes of a file, in independent blocks.
//!
//! `cargo run --release -p fullbore-core --example codec_speed [--features isal] -- FILE [BLOCK_BYTES]
//! [COMPRESSION...]`
//!
//! With `json FILE`: one object with what a backup's worker does to each byte (page hashes, digest, codec, CRC32C), in
//! plain bytes per second of one core while all cores work, as `bench/sqlite.py` reads it.
//!
//! With `memory` as the only argument: what contexts really take, against what `codec::memory` says.

use std::io::Write;
use std::time::UNIX_EPOCH;

use fullbore_core::checksum::{FamilyDigest, UnitHasher, crc32c, is_zero, unit_hash};
use fullbore_core::codec::{CodecId, Compression, Decoder, Encoder, memory};

/// Each figure is the best of this many passes.
const PASSES: usize = 3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let show = &mut std::io::stdout();
    let Some(file) = arguments.first() else { return Err("name a file, or write `memory`".into()) };
    if file == "json" {
        return measure_workers(show, arguments.get(1).ok_or("name a file behind `json`")?);
    }
    if file == "memory" {
        return measure_memory(show);
    }
    let bytes = std::fs::read(file)?;
    let block: usize = arguments.get(1).map_or(Ok(1 << 20), |text| text.parse())?;
    let mut compressions: Vec<Compression> =
        arguments.iter().skip(2).map(|text| text.parse()).collect::<Result<_, _>>()?;
    if compressions.is_empty() {
        let all = "none lz4 zstd:-3 zstd:-2 zstd:-1 zstd:1 zstd:3 zstd:6 gzip:1 gzip:2 gzip:3 gzip:4 gzip:6";
        compressions = all.split(' ').map(|text| text.parse()).collect::<Result<_, _>>()?;
    }
    writeln!(show, "| codec | MB/s in | MB/s out | ratio | memory KiB |\n|---|---|---|---|---|")?;
    for compression in compressions {
        measure_codec(show, compression, &bytes, block)?;
    }
    measure_checksums(show, &bytes, block)
}

/// MB/s (10^6) of `pass` over `bytes` bytes, by the CPU time of this thread: neighbours on the machine take less part.
fn speed(bytes: usize, mut pass: impl FnMut()) -> f64 {
    let times = (0..PASSES).map(|_| {
        let start = cpu_seconds();
        pass();
        cpu_seconds() - start
    });
    bytes as f64 / times.fold(f64::INFINITY, f64::min) / 1e6
}

/// CPU seconds of this thread; wall seconds where the kernel does not tell.
fn cpu_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = statistics.split(' ').next().and_then(|first| first.parse::<f64>().ok());
    nanoseconds.map_or_else(|| UNIX_EPOCH.elapsed().map_or(0.0, |time| time.as_secs_f64()), |time| time / 1e9)
}

fn measure_codec(
    show: &mut impl Write,
    compression: Compression,
    bytes: &[u8],
    block: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut encoder = Encoder::new(compression)?;
    let mut decoder = Decoder::new()?;
    let mut out = vec![0; block];
    let mut packed: Vec<(CodecId, Vec<u8>)> = Vec::new();
    for plain in bytes.chunks(block) {
        packed.push(match encoder.encode(plain, &mut out)? {
            Some(length) => (encoder.id(), out[..length].to_vec()),
            None => (CodecId::None, plain.to_vec()),
        });
    }
    let stored: usize = packed.iter().map(|(_, stored)| stored.len()).sum();
    let pack = speed(bytes.len(), || {
        for plain in bytes.chunks(block) {
            std::hint::black_box(encoder.encode(plain, &mut out).is_ok());
        }
    });
    let unpack = speed(bytes.len(), || {
        for ((codec, stored), plain) in packed.iter().zip(bytes.chunks(block)) {
            let out = &mut out[..plain.len()];
            assert!(decoder.decode(*codec, stored, out).is_ok());
            std::hint::black_box(out);
        }
    });
    let ratio = bytes.len() as f64 / stored as f64;
    let kib = memory(compression, block) >> 10;
    Ok(writeln!(show, "| {compression} | {pack:.0} | {unpack:.0} | {ratio:.2} | {kib} |")?)
}

/// Spread samples of the file, so that a large one need not be read whole.
fn samples(file: &str) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    use std::os::unix::fs::FileExt;
    const BLOCK: usize = 1020 << 10;
    const COUNT: u64 = 128;
    let opened = std::fs::File::open(file)?;
    let step = (opened.metadata()?.len() / COUNT).max(BLOCK as u64) & !4095;
    let mut blocks = Vec::new();
    for at in 0..COUNT {
        let mut block = vec![0; BLOCK];
        if opened.read_exact_at(&mut block, at * step).is_ok() {
            blocks.push(block);
        }
    }
    if blocks.is_empty() { Err("the file is shorter than one block".into()) } else { Ok(blocks) }
}

fn measure_workers(show: &mut impl Write, file: &str) -> Result<(), Box<dyn std::error::Error>> {
    let blocks = samples(file)?;
    let cores = std::thread::available_parallelism()?.get();
    let mut speeds = serde_json::Map::new();
    for text in ["none", "lz4", "zstd:1", "gzip:1"] {
        let compression: Compression = text.parse()?;
        let best = (0..PASSES).map(|_| work_on_all_cores(&blocks, cores, compression)).fold(0.0, f64::max);
        speeds.insert(text.to_owned(), best.into());
    }
    Ok(writeln!(show, "{}", serde_json::Value::Object(speeds))?)
}

/// Plain bytes per second of one core while `cores` do the same.
fn work_on_all_cores(blocks: &[Vec<u8>], cores: usize, compression: Compression) -> f64 {
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut encoder = Encoder::new(compression).expect("an encoder of a valid level");
                let hasher = UnitHasher::new(1);
                let mut out = vec![0; blocks[0].len()];
                for block in blocks {
                    block.chunks(4096).for_each(|page| keep((is_zero(page), hasher.hash(page))));
                    keep(fullbore_core::checksum::xxh3_128_le(0, block));
                    let packed = encoder.encode(block, &mut out).expect("encoding bytes in memory");
                    keep(crc32c(packed.map_or(&block[..], |length| &out[..length])));
                }
            });
        }
    });
    blocks.iter().map(Vec::len).sum::<usize>() as f64 / begun.elapsed().as_secs_f64()
}

/// Makes the compiler believe that the result is used.
fn keep<T>(result: T) {
    let _ = std::hint::black_box(result);
}

fn measure_checksums(show: &mut impl Write, bytes: &[u8], block: usize) -> Result<(), Box<dyn std::error::Error>> {
    let hasher = UnitHasher::new(77);
    let zeros = vec![0; bytes.len()];
    let mut line = |name: &str, data: &[u8], piece: usize, each: &mut dyn FnMut(&[u8])| {
        let found = speed(data.len(), || data.chunks(piece).for_each(&mut *each));
        writeln!(show, "{name}: {found:.0} MB/s")
    };
    line("crc32c", bytes, block, &mut |data| keep(crc32c(data)))?;
    line("unit_hash, 4 KiB", bytes, 4096, &mut |data| keep(unit_hash(77, data)))?;
    line("UnitHasher, 4 KiB", bytes, 4096, &mut |data| keep(hasher.hash(data)))?;
    line("UnitHasher, block", bytes, block, &mut |data| keep(hasher.hash(data)))?;
    line("is_zero on zeros", &zeros, block, &mut |data| keep(is_zero(data)))?;
    line("blake3", bytes, block, &mut |data| {
        let mut digest = FamilyDigest::new();
        digest.update(data);
        keep(digest.finish());
    })?;
    Ok(())
}

/// Resident KiB of this process.
fn resident_kib() -> Result<usize, Box<dyn std::error::Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").trim().parse()?)
}

fn measure_memory(show: &mut impl Write) -> Result<(), Box<dyn std::error::Error>> {
    const CONTEXTS: usize = 16;
    let size = 1 << 20;
    let mut random = fastrand::Rng::with_seed(1);
    let plain: Vec<u8> = (0..size).map(|_| random.u8(b'a'..b'm')).collect();
    let mut out = vec![1; size];
    writeln!(show, "| codec | measured KiB per encoder + decoder | memory() KiB |\n|---|---|---|")?;
    let levels = (1..=12).map(|level| format!("gzip:{level}"));
    let zstd = [-1, 1, 3, 6, 9, 12, 15, 19].map(|level| format!("zstd:{level}"));
    for text in levels.chain(zstd).chain(["lz4".to_owned()]) {
        let compression: Compression = text.parse()?;
        let mut kept = Vec::with_capacity(CONTEXTS);
        let mut warm = Encoder::new(compression)?;
        let stored = warm.encode(&plain, &mut out)?.map(|length| out[..length].to_vec());
        let before = resident_kib()?;
        for _ in 0..CONTEXTS {
            let (mut encoder, mut decoder) = (Encoder::new(compression)?, Decoder::new()?);
            encoder.encode(&plain, &mut out)?;
            if let Some(stored) = &stored {
                decoder.decode(compression.codec(), stored, &mut out)?;
            }
            kept.push((encoder, decoder));
        }
        let measured = (resident_kib()? - before) / CONTEXTS;
        writeln!(show, "| {compression} | {measured} | {} |", memory(compression, size) >> 10)?;
        drop(kept);
    }
    Ok(())
}
