//! A look at the database: how large it is, and what codecs make of some pieces of it.

use fullbore_core::Result;
use fullbore_core::codec::Compression;
use fullbore_core::source::Source as Streams;

use crate::job::samples;
use crate::tune::statistics::standard_error;

/// Pieces of all streams, and of one at least. Of a database in one file all are of that: pages of one table lie together, and 24 pieces of 384 MiB missed
/// the stored share by 2 to 7 %.
const PIECES: u64 = 96;
const OF_A_STREAM: u64 = 24;
/// Bytes of a block besides what it packs: its head, and its entry in the index.
const OF_A_BLOCK: f64 = 4096.0 + 48.0;
/// Bytes of the page map for a plain byte: 16 of each page of 4 KiB.
const PAGE_MAP: f64 = 16.0 / 4096.0;
/// A ratio of pieces that are all alike is still not known better than this: the rest of the database may differ.
const LEAST_ERROR: f64 = 0.01;

/// What is known of the database.
pub(super) struct Source {
    /// Without free pages.
    pub plain_bytes: u64,
    /// What codecs make of it.
    pub shares: Vec<Share>,
}

/// What a codec makes of this database.
pub(super) struct Share {
    /// As `--compression` spells it.
    pub codec: String,
    /// Stored bytes for a plain one.
    pub stored: f64,
    /// Standard error of that, as a share of it.
    pub error: f64,
}

/// Looks at `source`, of which so many bytes are free.
pub(super) fn look(
    source: &dyn Streams,
    free_bytes: u64,
    codecs: &[Compression],
    transfer_bytes: u32,
) -> Result<Source> {
    let whole: u64 = source.streams().iter().map(|stream| stream.size).sum();
    let of_a_stream = (PIECES / source.streams().len().max(1) as u64).max(OF_A_STREAM);
    let pieces = samples::pieces(source, of_a_stream)?;
    let plain_bytes = whole.saturating_sub(free_bytes);
    // Heads and page map are of free pages too.
    let besides = (OF_A_BLOCK / f64::from(transfer_bytes) + PAGE_MAP) * whole as f64 / plain_bytes.max(1) as f64;
    let mut shares: Vec<Share> = Vec::new();
    for &codec in codecs {
        // A profile has a codec once for each number of threads.
        if (codec == Compression::None || !pieces.is_empty())
            && shares.iter().all(|known| known.codec != codec.to_string())
        {
            shares.push(share(codec, &pieces, besides)?);
        }
    }
    Ok(Source { plain_bytes, shares })
}

fn share(codec: Compression, pieces: &[Vec<u8>], besides: f64) -> Result<Share> {
    if codec == Compression::None {
        return Ok(Share { codec: codec.to_string(), stored: 1.0 + besides, error: 0.0 });
    }
    let of_pieces = samples::shares(pieces, codec)?;
    let stored = samples::mean(pieces, &of_pieces);
    // A database of one piece was looked at as a whole.
    let error = if pieces.len() < 2 { LEAST_ERROR } else { standard_error(&of_pieces, stored).max(LEAST_ERROR) };
    Ok(Share { codec: codec.to_string(), stored: stored + besides, error })
}
