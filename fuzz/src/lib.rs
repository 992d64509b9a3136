//! The fuzz targets, and what they share: valid sets to start from, and checksums put right, so that the code behind them is reached.

pub mod open_set;
pub mod s3;
pub mod targets;

use fullbore_core::checksum::{crc32c, xxh3_128_le};
use fullbore_core::media::{
    BLOCK_HEADER, BlockHeader, BlockKind, DIGEST, ENTRY, FOOTER, FamilyDigest, FamilyHeader, IndexEntry,
};
use fullbore_core::testkit::FaultPlan;
use fullbore_sim::database::{Database, Simulated};
use fullbore_sim::scenario::{Buffers, Scenario};
use fullbore_sim::shelf::{Media, name_of};
use fullbore_sim::write_set::SetWriter;

/// Where the checksum of a family's header stands.
const HEADER_CRC: std::ops::Range<usize> = 252..256;
/// Where the digests of a footer stand: its family's, then those of the set.
const FAMILY_DIGEST: usize = 96;
const SET_DIGESTS: usize = 128;

/// The family of a small full: four windows of a map, a few units that are zero, text or noise.
pub fn sample(compression: &str) -> Vec<u8> {
    let random = &mut fastrand::Rng::with_seed(7);
    let scenario = Scenario {
        unit: 4096,
        units_at_once: 4,
        families: 1,
        block_size: 512,
        transfer_size: 1 << 16,
        threads: (1, 1, 1),
        buffers: Buffers::Least(0),
        compression: compression.parse().expect("a codec"),
        encrypted: false,
        unmapped: false,
        ..Scenario::calm(7, random)
    };
    let database = Database::random(random, 4096, &[100_000, 9000]);
    let source = Simulated::new(&database, None, 4);
    let media = Media::memory();
    let writer = SetWriter { scenario: &scenario, families: 1, key: None, base: None, replaces: None, started_at: 1 };
    let written = writer.write(&source, &media, &FaultPlan::new()).expect("a set in memory");
    written.result.expect("nothing goes wrong");
    media.bytes(&name_of(1))
}

/// The header's checksum, put right.
pub fn with_header_crc(bytes: &mut [u8]) {
    if bytes.len() >= HEADER_CRC.end {
        bytes[HEADER_CRC].fill(0);
        let crc = crc32c(bytes);
        bytes[HEADER_CRC].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The checksum of everything before it in the last four bytes, put right.
pub fn with_crc_at_end(bytes: &mut [u8]) {
    if let Some(at) = bytes.len().checked_sub(4) {
        let crc = crc32c(&bytes[..at]);
        bytes[at..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// Where everything stands in a valid family.
pub struct Layout {
    header: usize,
    blocks: Vec<(usize, BlockHeader)>,
}

impl Layout {
    /// Of a family that is valid.
    pub fn of(family: &[u8]) -> Self {
        let header = FamilyHeader::length(family).expect("a valid family");
        let mut blocks: Vec<(usize, BlockHeader)> = Vec::new();
        let mut at = header;
        while blocks.last().is_none_or(|(_, block)| block.kind != BlockKind::Trailer) {
            let block = BlockHeader::decode(&family[at..], 1 << 16).expect("a valid family");
            blocks.push((at, block));
            at += block.block_length();
        }
        Self { header, blocks }
    }

    /// Makes the checksums fit what was changed, the more of them the higher the level: 1 headers, 2 bodies and
    /// digests of stored payloads, 3 index entries, the family's digest and the footer.
    pub fn put_right(&self, family: &mut [u8], level: u8) {
        if level == 0 || family.len() < self.header + FOOTER {
            return;
        }
        with_header_crc(&mut family[..self.header]);
        let mut digest = FamilyDigest::new(&family[..self.header]);
        let mut sums: Vec<[u8; 8]> = Vec::new();
        for (at, before) in &self.blocks {
            let Some(block) = family.get_mut(*at..at + before.block_length()) else { return };
            if level >= 3 && before.kind == BlockKind::Index {
                refer(&sums, &mut block[BLOCK_HEADER + before.prefix_length as usize..]);
                sums.clear();
            }
            if level >= 2 {
                let (header, body) = block.split_at_mut(BLOCK_HEADER);
                if before.codec == 0 {
                    let (prefix, payload) = body.split_at_mut(before.prefix_length as usize);
                    prefix[..DIGEST].copy_from_slice(&xxh3_128_le(0, payload));
                }
                header[56..60].copy_from_slice(&crc32c(body).to_le_bytes());
            }
            with_crc_at_end(&mut block[..BLOCK_HEADER]);
            let mut header_bytes = [0; BLOCK_HEADER];
            header_bytes.copy_from_slice(&block[..BLOCK_HEADER]);
            let Ok(now) = BlockHeader::decode(&header_bytes, 1 << 16) else { continue };
            digest.add(&IndexEntry::of(&now, &header_bytes, *at as u64, (0, 0)));
            let mut sum = [0; 8];
            sum[..4].copy_from_slice(&header_bytes[60..]);
            sum[4..].copy_from_slice(&header_bytes[56..60]);
            sums.push(sum);
        }
        let footer = family.len() - FOOTER;
        if level >= 3 {
            let digest = digest.value();
            family[footer + FAMILY_DIGEST..][..32].copy_from_slice(&digest);
            family[footer + SET_DIGESTS..][..32].copy_from_slice(&digest);
        }
        with_crc_at_end(&mut family[footer..]);
    }
}

/// Puts the checksums of blocks into their index entries.
fn refer(sums: &[[u8; 8]], payload: &mut [u8]) {
    for (entry, sum) in payload.chunks_exact_mut(ENTRY).zip(sums) {
        entry[ENTRY - 8..].copy_from_slice(sum);
    }
}
