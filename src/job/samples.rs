//! Pieces of a database that speak for all of it, before it is backed up.

use fullbore_core::Result;
use fullbore_core::codec::{Compression, Encoder};
use fullbore_core::source::Source;

/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// Pieces of all streams together.
const IN_ALL: usize = 96;

/// Pieces spread over the largest streams, at most so many and one more of each; none of an engine that cannot be asked for them.
///
/// # Errors
/// The source cannot be read.
pub(super) fn pieces(source: &dyn Source, of_a_stream: u64) -> Result<Vec<Vec<u8>>> {
    let mut streams: Vec<_> = source.streams().iter().collect();
    streams.sort_by_key(|stream| std::cmp::Reverse(stream.size));
    let mut pieces = Vec::new();
    for stream in streams {
        let unit = u64::from(stream.unit.max(1));
        let step = (stream.size / of_a_stream).max(PIECE as u64) / unit * unit;
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

/// Stored bytes for a plain one, of each piece.
///
/// # Errors
/// The codec fails.
pub(super) fn shares(pieces: &[Vec<u8>], codec: Compression) -> Result<Vec<f64>> {
    let (mut encoder, mut packed) = (Encoder::new(codec)?, vec![0; PIECE]);
    let mut share = |piece: &Vec<u8>| {
        let length = encoder.encode(piece, &mut packed[..piece.len()])?.unwrap_or(piece.len());
        Ok(length as f64 / piece.len() as f64)
    };
    pieces.iter().map(&mut share).collect()
}

/// What all pieces together are stored in, for a plain byte: 1 where there are none.
pub(super) fn mean(pieces: &[Vec<u8>], shares: &[f64]) -> f64 {
    let plain: usize = pieces.iter().map(Vec::len).sum();
    let stored: f64 = pieces.iter().zip(shares).map(|(piece, share)| piece.len() as f64 * share).sum();
    if plain == 0 { 1.0 } else { stored / plain as f64 }
}
