//! Downloads: ranges of one size, so many in flight over all objects.

use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::Instant;

use fullbore_core::codec::{CodecId, Decoder};
use futures_util::{StreamExt, stream};
use object_store::path::Path;
use object_store::{GetOptions, ObjectStore};

use super::aligned::{DirectFile, Lent, Shelf};
use super::{BLOCK, Client, objects};

/// A range to fetch, and where it belongs.
#[derive(Clone)]
struct Job {
    path: Path,
    from: u64,
    length: usize,
    to: u64,
    /// Packed blocks in it: length there, length when unpacked.
    blocks: Vec<(usize, usize)>,
}

/// Ranges of one size, object after object in the file.
async fn plain_jobs(client: &Client) -> Vec<Job> {
    let (mut jobs, mut to) = (Vec::new(), 0);
    for (path, size) in objects(client).await {
        let mut from = 0;
        while from < size {
            let length = (client.part as u64).min(size - from) as usize;
            jobs.push(Job { path: path.clone(), from, length, to, blocks: Vec::new() });
            from += length as u64;
            to += length as u64;
        }
    }
    jobs
}

/// Ranges of whole packed blocks, of about one size, as the index tells.
fn packed_jobs(client: &Client, index: &FilePath) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    for line in std::fs::read_to_string(index).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (path, number) = (Path::from(words[0]), |at: usize| words[at].parse::<u64>().unwrap());
        let block = (number(2) as usize, number(4) as usize);
        match jobs.last_mut() {
            Some(job) if job.path == path && job.length + block.0 <= client.part => {
                job.length += block.0;
                job.blocks.push(block);
            }
            _ => jobs.push(Job { path, from: number(1), length: block.0, to: number(3), blocks: vec![block] }),
        }
    }
    jobs
}

async fn jobs(client: &Client) -> Vec<Job> {
    match &client.index {
        Some(index) => packed_jobs(client, index),
        None => plain_jobs(client).await,
    }
}

/// Fetches everything and forgets it.
pub async fn into_nothing(client: &Client) -> (u64, f64) {
    let jobs = jobs(client).await;
    let begun = Instant::now();
    let fetching = stream::iter(jobs.clone()).map(|job| {
        let store = Arc::clone(&client.store);
        tokio::spawn(async move { fetch(&store, &job, |_, _| ()).await })
    });
    fetching.buffer_unordered(client.flight).for_each(|done| async { done.unwrap() }).await;
    (jobs.iter().map(|job| job.length as u64).sum(), begun.elapsed().as_secs_f64())
}

/// How a file is written.
#[derive(Clone, Copy)]
pub struct How {
    /// Through the page cache.
    pub buffered: bool,
    /// All of its room is reserved first.
    pub reserved: bool,
}

/// Fetches everything into one file, unpacked where it was packed, and makes that durable.
pub async fn into_a_file(client: &Client, file: &FilePath, how: How) -> (u64, f64) {
    let jobs = jobs(client).await;
    let begun = Instant::now();
    let target = Arc::new(DirectFile::open(file, true));
    let plain =
        |job: &Job| if job.blocks.is_empty() { job.length } else { job.blocks.iter().map(|block| block.1).sum() };
    target.set_length_of_new(jobs.iter().map(|job| job.to + plain(job) as u64).max().unwrap_or(0), how.reserved);
    // A block that does not compress is longer than a range would be.
    let room = Shelf::new(client.part.max(BLOCK));
    let unpacked_room = Shelf::new(jobs.iter().map(plain).max().unwrap_or(0));
    let fetching = stream::iter(jobs.clone()).map(|job| {
        let (store, target, length) = (Arc::clone(&client.store), Arc::clone(&target), plain(&job));
        let (mut bytes, to) = (room.take(), unpacked_room.clone());
        tokio::spawn(async move {
            fetch(&store, &job, |at, piece| bytes[at..at + piece.len()].copy_from_slice(piece)).await;
            let write = move || match job.blocks.is_empty() {
                true => target.write(&bytes[..job.length], job.to, how.buffered),
                false => target.write(&unpacked(&bytes, &job.blocks, to.take())[..length], job.to, how.buffered),
            };
            tokio::task::spawn_blocking(write).await.unwrap();
        })
    });
    fetching.buffer_unordered(client.flight).for_each(|done| async { done.unwrap() }).await;
    target.sync();
    (jobs.iter().map(|job| job.length as u64).sum(), begun.elapsed().as_secs_f64())
}

/// Gives each piece of the range to `take` as it comes, with its place in the range.
async fn fetch(store: &impl ObjectStore, job: &Job, mut take: impl FnMut(usize, &[u8])) {
    let range = Some((job.from..job.from + job.length as u64).into());
    let got = store.get_opts(&job.path, GetOptions { range, ..GetOptions::default() }).await.unwrap();
    let (mut stream, mut at) = (got.into_stream(), 0);
    while let Some(piece) = stream.next().await {
        let piece = piece.unwrap();
        take(at, &piece);
        at += piece.len();
    }
    assert_eq!(at, job.length);
}

fn unpacked(bytes: &[u8], blocks: &[(usize, usize)], mut plain: Lent) -> Lent {
    let mut decoder = Decoder::new().unwrap();
    let (mut from, mut to) = (0, 0);
    for &(packed, unpacked) in blocks {
        let codec = if packed == unpacked { CodecId::None } else { CodecId::Lz4 };
        decoder.decode(codec, &bytes[from..from + packed], &mut plain[to..to + unpacked]).unwrap();
        from += packed;
        to += unpacked;
    }
    plain
}
