//! Uploads: parts of one size, so many in flight over all objects.

use std::io::Write;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use fullbore_core::codec::{Compression, Encoder};
use futures_util::{StreamExt, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{MultipartId, PutPayload};

use super::aligned::{DirectFile, Lent, Shelf};
use super::{BLOCK, Client};

/// A part on its way: its object, its number there, the place of its bytes in what is uploaded.
#[derive(Clone, Copy)]
struct Job {
    object: usize,
    number: usize,
    offset: u64,
    length: usize,
}

/// What became of a part.
struct Sent {
    job: Job,
    part: PartId,
    /// How many bytes each block of it was packed into; none where nothing packs.
    packed: Vec<usize>,
    stored: usize,
}

/// The parts of `total` bytes that are shared out evenly, in the order in which they go out: all objects side by side.
fn jobs(client: &Client, objects: u64, total: u64) -> Vec<Job> {
    let share = total.div_ceil(objects).next_multiple_of(BLOCK as u64);
    let mut jobs = Vec::new();
    for number in 0..share.div_ceil(client.part as u64) as usize {
        for object in 0..objects as usize {
            let within = (number * client.part) as u64;
            let offset = object as u64 * share + within;
            let end = (offset + client.part as u64).min((object as u64 + 1) * share).min(total);
            if offset < end {
                jobs.push(Job { object, number, offset, length: (end - offset) as usize });
            }
        }
    }
    jobs
}

/// So much memory is sent again and again: more than fits into the processor's caches, because real data are not there
/// either.
const NOISE: usize = 256 << 20;

/// `total` bytes that do not compress, out of memory.
pub async fn out_of_memory(client: &Client, objects: u64, total: u64) -> (u64, f64) {
    let mut noise = fastrand::Rng::with_seed(7);
    let words = std::iter::repeat_with(|| noise.u64(..).to_le_bytes()).take(NOISE / 8);
    let buffer: Bytes = words.flatten().collect();
    let bytes = move |job: Job| {
        let at = job.offset as usize % (NOISE - job.length + 1);
        (buffer.slice(at..at + job.length), Vec::new())
    };
    upload(client, jobs(client, objects, total), objects, bytes).await
}

/// A file; packed by LZ4 on the way where an index is asked for.
pub async fn out_of_a_file(client: &Client, objects: u64, file: &FilePath) -> (u64, f64) {
    let total = std::fs::metadata(file).unwrap().len();
    let source = Arc::new(DirectFile::open(file, false));
    let (plain, room) = (Shelf::new(client.part), Shelf::new(client.part + BLOCK));
    let packs = client.index.is_some();
    let bytes = move |job: Job| {
        let mut plain = plain.take();
        assert_eq!(source.read(&mut plain[..job.length.next_multiple_of(4096)], job.offset), job.length);
        if packs {
            packed(&plain[..job.length], room.take())
        } else {
            (Bytes::from_owner(plain).slice(0..job.length), Vec::new())
        }
    };
    upload(client, jobs(client, objects, total), objects, bytes).await
}

/// Each block by itself, one after the other.
fn packed(plain: &[u8], mut out: Lent) -> (Bytes, Vec<usize>) {
    let mut encoder = Encoder::new(Compression::Lz4).unwrap();
    let (mut at, mut lengths) = (0, Vec::new());
    for block in plain.chunks(BLOCK) {
        let length = encoder.encode(block, &mut out[at..]).unwrap().unwrap_or_else(|| {
            out[at..at + block.len()].copy_from_slice(block);
            block.len()
        });
        lengths.push(length);
        at += length;
    }
    (Bytes::from_owner(out).slice(0..at), lengths)
}

async fn upload(
    client: &Client,
    jobs: Vec<Job>,
    objects: u64,
    bytes: impl Fn(Job) -> (Bytes, Vec<usize>) + Clone + Send + 'static,
) -> (u64, f64) {
    let begun = Instant::now();
    let mut uploads: Vec<(Path, MultipartId)> = Vec::new();
    for object in 0..objects {
        let path = Path::from(format!("{}/{object:02}", client.prefix));
        let id = client.store.create_multipart(&path).await.unwrap();
        uploads.push((path, id));
    }
    let sending = stream::iter(jobs).map(|job| {
        let (store, bytes, (path, id)) = (Arc::clone(&client.store), bytes.clone(), uploads[job.object].clone());
        tokio::spawn(async move {
            let (ready, packed) = tokio::task::spawn_blocking(move || bytes(job)).await.unwrap();
            let stored = ready.len();
            let part = store.put_part(&path, &id, job.number, PutPayload::from_bytes(ready)).await.unwrap();
            Sent { job, part, packed, stored }
        })
    });
    let mut sent: Vec<Sent> = sending.buffer_unordered(client.flight).map(Result::unwrap).collect().await;
    sent.sort_by_key(|sent| (sent.job.object, sent.job.number));
    let completing = uploads.iter().enumerate().map(|(object, (path, id))| {
        let parts = sent.iter().filter(|sent| sent.job.object == object).map(|sent| sent.part.clone()).collect();
        client.store.complete_multipart(path, id, parts)
    });
    futures_util::future::join_all(completing).await.into_iter().for_each(|done| drop(done.unwrap()));
    let seconds = begun.elapsed().as_secs_f64();
    write_index(client, &uploads, &sent);
    (sent.iter().map(|sent| sent.stored as u64).sum(), seconds)
}

/// One line for each block: its object, its place and length there, and the same in the file.
fn write_index(client: &Client, uploads: &[(Path, MultipartId)], sent: &[Sent]) {
    let Some(index) = &client.index else { return };
    let mut lines = std::io::BufWriter::new(std::fs::File::create(index).unwrap());
    let mut ends = vec![0; uploads.len()];
    for sent in sent {
        let (end, mut plain) = (&mut ends[sent.job.object], sent.job.offset);
        for &length in &sent.packed {
            let plain_length = (BLOCK as u64).min(sent.job.offset + sent.job.length as u64 - plain);
            writeln!(lines, "{} {end} {length} {plain} {plain_length}", uploads[sent.job.object].0).unwrap();
            *end += length as u64;
            plain += plain_length;
        }
    }
    lines.flush().unwrap();
}
