//! Samples of a database that are representative for all of it, before it is backed up.

use fullbore_core::Result;
use fullbore_core::codec::{Compression, Encoder};
use fullbore_core::source::{Source, Stream};

/// Bytes of a piece.
const PIECE: usize = 256 << 10;
/// Pieces of all streams together.
const IN_ALL: usize = 96;

/// Samples spread over the largest streams, at most `of_a_stream` and one more of each; none if the engine cannot give
/// samples. They have no free units, because these are not stored.
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
            leave_out_free(source, stream, offset, &mut piece);
            if !piece.is_empty() {
                pieces.push(piece);
            }
            offset += step.max(unit);
        }
    }
    Ok(pieces)
}

/// Removes the free units from a sample that begins at `offset`.
fn leave_out_free(source: &dyn Source, stream: &Stream, offset: u64, piece: &mut Vec<u8>) {
    let (unit, mut kept) = (stream.unit.max(1) as usize, 0);
    for start in (0..piece.len()).step_by(unit) {
        if !source.is_free(stream.id, offset + start as u64) {
            let end = (start + unit).min(piece.len());
            piece.copy_within(start..end, kept);
            kept += end - start;
        }
    }
    piece.truncate(kept);
}

/// For each sample, the stored bytes per plain byte.
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

/// The stored bytes per plain byte of all samples together: 1 without samples.
pub(super) fn mean(pieces: &[Vec<u8>], shares: &[f64]) -> f64 {
    let plain: usize = pieces.iter().map(Vec::len).sum();
    let stored: f64 = pieces.iter().zip(shares).map(|(piece, share)| piece.len() as f64 * share).sum();
    if plain == 0 { 1.0 } else { stored / plain as f64 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use fullbore_core::source::Reader;

    use super::*;

    const UNIT: usize = 4096;

    /// One stream whose every third unit is free, and full of ones; the others hold zeros.
    struct Striped([Stream; 1]);

    impl Source for Striped {
        fn streams(&self) -> &[Stream] {
            &self.0
        }

        fn reader(&self, _: usize, _: usize) -> Result<Box<dyn Reader + '_>> {
            Err(fullbore_core::Error::Halted)
        }

        fn is_free(&self, _: u32, offset: u64) -> bool {
            offset / UNIT as u64 % 3 == 1
        }

        fn sample(&self, stream: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
            let length = buffer.len().min((self.0[0].size - offset) as usize);
            for (at, byte) in buffer[..length].iter_mut().enumerate() {
                *byte = u8::from(self.is_free(stream, offset + at as u64));
            }
            Ok(length)
        }

        fn check(&self) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn pages_that_are_free_are_not_in_the_sample() {
        // The last unit is short, and in use.
        let size = (101 * UNIT + 512) as u64;
        let source = Striped([Stream { id: 1, name: "app.db".into(), unit: UNIT as u32, size }]);
        let pieces = pieces(&source, 24).unwrap();
        let bytes: usize = pieces.iter().map(Vec::len).sum();
        assert_eq!(bytes, 67 * UNIT + 512, "34 of 101 whole units are free");
        assert!(pieces.iter().flatten().all(|byte| *byte == 0));
    }

    #[test]
    fn a_database_of_free_pages_only_has_no_sample() {
        let source = Striped([Stream { id: 1, name: "app.db".into(), unit: UNIT as u32, size: UNIT as u64 }]);
        let mut piece = vec![1; UNIT];
        leave_out_free(&source, &source.0[0], UNIT as u64, &mut piece);
        assert!(piece.is_empty());
    }
}
