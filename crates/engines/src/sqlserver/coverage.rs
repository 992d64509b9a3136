//! The statement of coverage: which bytes of a backup a check protects, and which bytes no check protects.

use super::walk::Structure;
use crate::engine::Coverage;

/// The pages and the log of one stream, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct StreamBytes {
    /// Pages whose own checksum matches.
    pub with_checksum: u64,
    /// Pages whose torn-page bits match.
    pub with_torn_bits: u64,
    /// Other pages: not in use, or without a check.
    pub other_pages: u64,
    /// Log.
    pub log: u64,
}

/// All bytes of families, by their protection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tally {
    structure: Structure,
    /// Bytes of streams with a backup checksum.
    summed: StreamBytes,
    /// Bytes of streams without one.
    unsummed: StreamBytes,
    /// Of their other pages: those in use, in a database whose other pages have a check.
    unprotected: u64,
}

impl Tally {
    /// Adds a stream of pages or log.
    pub fn add_stream(&mut self, bytes: StreamBytes, has_backup_checksum: bool) {
        let into = if has_backup_checksum { &mut self.summed } else { &mut self.unsummed };
        into.with_checksum += bytes.with_checksum;
        into.with_torn_bits += bytes.with_torn_bits;
        into.other_pages += bytes.other_pages;
        into.log += bytes.log;
    }

    /// Adds the bytes of a family outside pages and log.
    pub fn add_structure(&mut self, bytes: Structure) {
        self.structure.headers += bytes.headers;
        self.structure.descriptions += bytes.descriptions;
        self.structure.padding += bytes.padding;
    }

    /// So many bytes of other pages, in streams without a backup checksum, are in use although other pages have a check.
    pub fn name_unprotected(&mut self, bytes: u64) {
        let bytes = bytes.min(self.unsummed.other_pages);
        self.unsummed.other_pages -= bytes;
        self.unprotected += bytes;
    }

    /// Adds the bytes of another family.
    pub fn join(&mut self, other: &Self) {
        self.add_structure(other.structure);
        self.add_stream(other.summed, true);
        self.add_stream(other.unsummed, false);
        self.unprotected += other.unprotected;
    }

    /// The statement. Each byte is in one line; lines without bytes are left out.
    pub fn statement(&self) -> Vec<Coverage> {
        let Self { structure, summed, unsummed, unprotected } = self;
        let backup_checksum_only = summed.with_torn_bits + summed.other_pages + summed.log;
        let lines = [
            ("page checksum and backup checksum", true, summed.with_checksum),
            ("backup checksum", true, backup_checksum_only),
            ("page checksum", true, unsummed.with_checksum),
            ("torn-page bits, which find half-written pages only", true, unsummed.with_torn_bits),
            ("checksums of MTF headers", true, structure.headers),
            ("nothing: log, in a backup without checksum", false, unsummed.log),
            ("nothing: pages in use without a check, where others have one", false, *unprotected),
            ("nothing: pages not in use, or without a check", false, unsummed.other_pages),
            ("nothing: names, LSNs and other descriptions", false, structure.descriptions),
            ("nothing: padding, which holds no data", false, structure.padding),
        ];
        let coverage = |(protection, protected, bytes)| Coverage { protection, protected, bytes };
        lines.into_iter().map(coverage).filter(|line| line.bytes > 0).collect()
    }
}
