//! Examines the database: its size, and the ratios of codecs for some samples.

use std::path::PathBuf;

use fullbore_core::Result;
use fullbore_core::checksum::is_zero;
use fullbore_core::codec::Compression;
use fullbore_engines::{ExtraWork, Session};

use crate::job::samples;
use fullbore_model::statistics::standard_error;

/// The samples of all streams together, at least one. A database in one file gets all of them: pages of one table are
/// together, and 24 samples of 384 MiB missed the stored share by 2 to 7 %.
const PIECES: u64 = 96;
const OF_A_STREAM: u64 = 24;
/// Bytes of a block in addition to its payload: its header, and its entry in the index.
const OF_A_BLOCK: f64 = 4096.0 + 48.0;
/// Bytes of the page map per plain byte: 16 for each page of 4 KiB.
const PAGE_MAP: f64 = 16.0 / 4096.0;
/// The smallest error of a ratio, even if all samples are alike: the rest of the database may differ.
const LEAST_ERROR: f64 = 0.01;
/// The smallest written share, even if all samples are zero: the rest of the database may differ.
const LEAST_WRITTEN: f64 = 0.01;

/// The facts about the database.
#[derive(Clone)]
pub(super) struct Source {
    /// Bytes without free pages and without holes.
    pub plain_bytes: u64,
    /// Bytes without free pages, but with holes: a backup calls this "in use".
    pub used_bytes: u64,
    /// The share of plain bytes in the whole size.
    pub passing_share: f64,
    /// The share of plain bytes that is not zero, above 0: a restore writes no more.
    pub written_share: f64,
    /// The ratios of codecs.
    pub shares: Vec<Share>,
    /// The other costs of a job.
    pub extra: ExtraWork,
    /// Its path on this machine, or why that is not known.
    pub at: Result<PathBuf, String>,
}

/// The ratio of a codec for this database.
#[derive(Clone)]
pub(super) struct Share {
    /// As `--compression` spells it.
    pub codec: String,
    /// Stored bytes per plain byte.
    pub stored: f64,
    /// Its relative standard error.
    pub error: f64,
}

/// Examines the open database of `session`.
pub(super) fn look(session: &dyn Session, codecs: &[Compression], transfer_bytes: u32) -> Result<Source> {
    let (source, extra) = (session.source(), session.extra_work());
    let streams = source.streams();
    let whole: u64 = streams.iter().map(|stream| stream.size).sum();
    let used = whole.saturating_sub(session.facts().free_bytes);
    let plain_bytes = used.saturating_sub(extra.hole_bytes);
    let of_a_stream = (PIECES / streams.len().max(1) as u64).max(OF_A_STREAM);
    let looked = Looked {
        pieces: samples::pieces(source, of_a_stream)?,
        unit: streams.iter().map(|stream| stream.unit as usize).max().unwrap_or(1).max(1),
        plain: plain_bytes.max(1) as f64,
        // Samples are spread over all of them except free pages; samples of holes are zero.
        files: used.saturating_sub(extra.log_bytes) as f64,
        data: plain_bytes.saturating_sub(extra.log_bytes).max(1) as f64,
        log: extra.log_bytes as f64,
    };
    let written_share = looked.written_share();
    // Headers and page map also cover free pages and holes.
    let besides_of_blocks = (OF_A_BLOCK / f64::from(transfer_bytes) + PAGE_MAP) * whole as f64 / looked.plain;
    let mut shares: Vec<Share> = Vec::new();
    for &codec in codecs {
        // A profile has a codec several times, once for each number of threads.
        if (codec == Compression::None || !looked.pieces.is_empty())
            && shares.iter().all(|known| known.codec != codec.to_string())
        {
            shares.push(looked.share(codec, written_share, besides_of_blocks)?);
        }
    }
    let passing_share = plain_bytes as f64 / whole.max(1) as f64;
    Ok(Source { plain_bytes, used_bytes: used, passing_share, written_share, shares, extra, at: session.database_at() })
}

/// Samples of a database.
struct Looked {
    pieces: Vec<Vec<u8>>,
    /// Bytes that are left out together if they are zero.
    unit: usize,
    /// Bytes to move.
    plain: f64,
    /// Bytes of the files without free pages; `data` is without holes too.
    files: f64,
    data: f64,
    /// Bytes of a log, which is in no sample, and has no zeros.
    log: f64,
}

impl Looked {
    /// The share of plain bytes that is not zero.
    fn written_share(&self) -> f64 {
        let units = self.pieces.iter().flat_map(|piece| piece.chunks(self.unit));
        let (mut all, mut written) = (0, 0);
        for unit in units {
            all += unit.len();
            written += if is_zero(unit) { 0 } else { unit.len() };
        }
        if all == 0 {
            return 1.0;
        }
        let of_files = written as f64 / all as f64 * self.files;
        ((of_files + self.log) / self.plain).clamp(LEAST_WRITTEN, 1.0)
    }

    fn share(&self, codec: Compression, written_share: f64, extra: f64) -> Result<Share> {
        if codec == Compression::None {
            return Ok(Share { codec: codec.to_string(), stored: written_share + extra, error: 0.0 });
        }
        let of_pieces = samples::shares(&self.pieces, codec)?;
        let stored = samples::mean(&self.pieces, &of_pieces);
        // A database of one sample was examined as a whole.
        let few = self.pieces.len() < 2;
        let error = if few { LEAST_ERROR } else { standard_error(&of_pieces, stored).max(LEAST_ERROR) };
        Ok(Share { codec: codec.to_string(), stored: (stored * self.files / self.data).min(1.0) + extra, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Samples: each second one is zero.
    fn looked(plain: f64, data: f64) -> Looked {
        let mut random = fastrand::Rng::with_seed(3);
        let pieces = (0..8).map(|at| (0..MIB / 4).map(|_| if at % 2 == 0 { 0 } else { random.u8(1..) }).collect());
        Looked { pieces: pieces.collect(), unit: 16384, plain, files: 1.0, data, log: 0.0 }
    }

    #[test]
    fn zeros_that_were_written_pass_and_are_not_written_again() {
        let made = looked(1.0, 1.0);
        assert!((made.written_share() - 0.5).abs() < 1e-9);
        let stored = |codec| made.share(codec, made.written_share(), 0.0).map_or(f64::NAN, |share| share.stored);
        assert!((stored(Compression::None) - 0.5).abs() < 1e-9);
        assert!(
            (stored(Compression::Lz4) - 0.5).abs() < 0.01,
            "random bytes cannot be packed: {}",
            stored(Compression::Lz4)
        );
    }

    #[test]
    fn holes_and_free_pages_neither_pass_nor_count_twice() {
        // Half of it is holes: the samples that are zero.
        let made = looked(0.5, 0.5);
        assert_eq!(made.written_share(), 1.0);
        let stored = made.share(Compression::Lz4, 1.0, 0.0).map_or(f64::NAN, |share| share.stored);
        assert!((stored - 1.0).abs() < 0.02, "{stored}");
        let of_log = Looked { plain: 2.0, data: 1.0, log: 1.0, ..looked(1.0, 1.0) };
        assert!((of_log.written_share() - 0.75).abs() < 1e-9, "a log has no zeros");
        let nothing = Looked { pieces: Vec::new(), ..made };
        assert_eq!(nothing.written_share(), 1.0, "an engine that cannot be asked");
    }
}
