//! What a store gives to the plainest client that sends and fetches parts in parallel: the ceiling that
//! `bench/object-store` judges fullbore by. No page maps, digests, claims or commit record: the crate's client, parts
//! of one size, so many of them in flight.
//!
//! ```text
//! store_ceiling put    bucket=B prefix=P objects=K part=BYTES flight=W bytes=N  out of memory: 256 MiB again and again
//! store_ceiling put    … from=FILE [lz4=INDEX]                                  out of a file; packed, places to INDEX
//! store_ceiling get    bucket=B prefix=P part=BYTES flight=W [into=FILE [buffered=yes] [reserved=yes]] [lz4=INDEX]
//! store_ceiling remove bucket=B prefix=P
//! ```
//! Endpoint and keys are those of the environment (`AWS_…`). It prints one JSON object: bytes in the store, and seconds
//! from the first request to the last answer, of `into=` to the end of its fsync. With `checksum=yes` parts carry a
//! CRC-64/NVME, as fullbore's do.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod aligned;
mod get;
mod put;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::StreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder, Checksum};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};

/// What every client does: it asks for nothing but speed.
struct Client {
    store: Arc<AmazonS3>,
    prefix: String,
    part: usize,
    flight: usize,
    /// Of the packed parts: object, offset and length there, offset and length in the file.
    index: Option<PathBuf>,
}

/// Plain bytes that are packed as one LZ4 block, as much as a block of fullbore holds by default.
const BLOCK: usize = 1 << 20;

fn main() {
    let mut words = std::env::args().skip(1);
    let verb = words.next().expect("put, get or remove");
    let options: HashMap<String, String> =
        words.map(|word| word.split_once('=').map(|(name, value)| (name.into(), value.into())).unwrap()).collect();
    let number = |name: &str, default: u64| options.get(name).map_or(default, |value| value.parse().unwrap());
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(&options["bucket"]).with_allow_http(true);
    builder = builder.with_unsigned_payload(true);
    if options.contains_key("checksum") {
        builder = builder.with_checksum_algorithm(Checksum::CRC64NVME);
    }
    let client = Client {
        store: Arc::new(builder.build().unwrap()),
        prefix: options["prefix"].clone(),
        part: number("part", 8 << 20) as usize,
        flight: number("flight", 4) as usize,
        index: options.get("lz4").map(PathBuf::from),
    };
    // The machine has two cores, and so has fullbore's own runtime two threads.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (bytes, seconds) = runtime.block_on(async {
        match verb.as_str() {
            "put" => match options.get("from") {
                Some(file) => put::out_of_a_file(&client, number("objects", 1), file.as_ref()).await,
                None => put::out_of_memory(&client, number("objects", 1), number("bytes", 1 << 30)).await,
            },
            "get" => match options.get("into") {
                Some(file) => {
                    let how = get::How {
                        buffered: options.contains_key("buffered"),
                        reserved: options.contains_key("reserved"),
                    };
                    get::into_a_file(&client, file.as_ref(), how).await
                }
                None => get::into_nothing(&client).await,
            },
            _ => (remove(&client).await, 0.0),
        }
    });
    println!("{{\"bytes\": {bytes}, \"seconds\": {seconds:.4}}}");
}

/// The objects under the prefix with their sizes, in order of their names.
async fn objects(client: &Client) -> Vec<(Path, u64)> {
    let listed = client.store.list(Some(&Path::from(client.prefix.as_str())));
    let mut found: Vec<_> = listed.map(|object| object.map(|it| (it.location, it.size)).unwrap()).collect().await;
    found.sort();
    found
}

async fn remove(client: &Client) -> u64 {
    let found = objects(client).await;
    for (path, _) in &found {
        client.store.delete(path).await.unwrap();
    }
    found.iter().map(|(_, size)| size).sum()
}
