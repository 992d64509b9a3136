//! A look at the database: how large it is, and what codecs make of some pieces of it.

use fullbore_core::Result;
use fullbore_core::codec::{Compression, Encoder};
use fullbore_core::source::Source as Streams;

/// Bytes of a piece, how many of a stream, and of all streams together.
const PIECE: usize = 256 << 10;
const OF_A_STREAM: u64 = 24;
const IN_ALL: usize = 96;
/// Heads, index and page map for a plain byte: 4 KiB, 48 bytes and 4 KiB for each MiB, rounded up.
const HEADS: f64 = 0.01;
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
pub(super) fn look(source: &dyn Streams, free_bytes: u64, codecs: &[Compression]) -> Result<Source> {
    let whole: u64 = source.streams().iter().map(|stream| stream.size).sum();
    let pieces = pieces(source)?;
    let mut shares: Vec<Share> = Vec::new();
    for &codec in codecs {
        // A profile has a codec once for each number of threads.
        if !pieces.is_empty() && shares.iter().all(|known| known.codec != codec.to_string()) {
            shares.push(share(codec, &pieces)?);
        }
    }
    Ok(Source { plain_bytes: whole.saturating_sub(free_bytes), shares })
}

/// Pieces spread over the largest streams; none of an engine that cannot be asked for them.
fn pieces(source: &dyn Streams) -> Result<Vec<Vec<u8>>> {
    let mut streams: Vec<_> = source.streams().iter().collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.size));
    let mut pieces = Vec::new();
    for stream in streams {
        let unit = u64::from(stream.unit.max(1));
        let step = (stream.size / OF_A_STREAM).max(PIECE as u64) / unit * unit;
        let mut offset = 0;
        while offset < stream.size && pieces.len() < IN_ALL {
            let mut piece = vec![0; PIECE];
            let length = source.sample(stream.id, offset, &mut piece)?;
            piece.truncate(length);
            if length > 0 {
                pieces.push(piece);
            }
            offset += step.max(unit);
        }
    }
    Ok(pieces)
}

fn share(codec: Compression, pieces: &[Vec<u8>]) -> Result<Share> {
    if codec == Compression::None {
        return Ok(Share { codec: codec.to_string(), stored: 1.0 + HEADS, error: 0.0 });
    }
    let (mut encoder, mut packed) = (Encoder::new(codec)?, vec![0; PIECE]);
    let (mut plain, mut stored, mut ratios) = (0, 0, Vec::new());
    for piece in pieces {
        let length = encoder.encode(piece, &mut packed[..piece.len()])?.unwrap_or(piece.len());
        (plain, stored) = (plain + piece.len(), stored + length);
        ratios.push(length as f64 / piece.len() as f64);
    }
    let (count, ratio) = (ratios.len() as f64, stored as f64 / plain as f64);
    let scatter = ratios.iter().map(|one| (one - ratio).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
    let error = (scatter / count).sqrt() / ratio;
    Ok(Share { codec: codec.to_string(), stored: ratio + HEADS, error: error.max(LEAST_ERROR) })
}
