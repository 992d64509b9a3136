//! Which share of flipped bits `verify` finds in backup files of SQL Server, for each kind of byte; and whether it notices
//! that a file ends early.
//!
//! `cargo run --release -p fullbore-engines --example bak_flips -- FLIPS FILE…` prints a table in Markdown. Each kind of
//! byte of each file gets so many flips, at places that a seed draws. A file is also cut at every 512 bytes, up to
//! [`CUT_MAX`] bytes of it. The parts of a stripe set are tried one by one.

use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::Path;

use fullbore_core::Error;
use fullbore_engines::compressed::MAGIC;
use fullbore_engines::sqlserver::block::{BLOCK_HEADER, BlockHeader, BlockKind};
use fullbore_engines::sqlserver::foreign::SqlServerBackup;
use fullbore_engines::sqlserver::opened;
use fullbore_engines::sqlserver::page::{PAGE, PageCheck, check};
use fullbore_engines::sqlserver::stream::{STREAM_HEADER, StreamHeader};
use fullbore_engines::sqlserver::walk::{Content, Depth, Event, walk};
use fullbore_engines::{ForeignFamily, ForeignMedia, InOrder};

type Failed = Box<dyn std::error::Error>;

/// A longer file is cut in its first and last bytes only.
const CUT_MAX: usize = 4 << 20;

/// What a byte is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    PageWithChecksum,
    PageWithTornBits,
    OtherPage,
    Log,
    Headers,
    DescriptionsPadding,
    Packed,
}

/// Flips that were found, and all of them.
#[derive(Default, Clone, Copy)]
struct Found {
    damage: u64,
    all: u64,
}

fn main() -> Result<(), Failed> {
    let mut words = std::env::args().skip(1);
    let flips: u64 = words.next().ok_or("name the number of flips")?.parse()?;
    let (mut sums, mut cuts) = (BTreeMap::<(Kind, bool), Found>::new(), Found::default());
    let mut out = std::io::stdout();
    writeln!(out, "| file | kind of byte | flips | found |\n|---|---|---:|---:|")?;
    for path in words {
        let bytes = std::fs::read(&path)?;
        let name = Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let good = findings(&bytes)?;
        let (kinds, has_checksum) = kinds_of(&bytes)?;
        let mut random = Random(bytes.len() as u64);
        for (kind, ranges) in kinds {
            let mut found = Found::default();
            for _ in 0..flips {
                let mut bad = bytes.clone();
                let at = random.within(&ranges);
                bad[at] ^= 1 << (random.next() % 8);
                found.all += 1;
                found.damage += u64::from(findings(&bad)? > good);
            }
            let sum = sums.entry((kind, has_checksum)).or_default();
            (sum.damage, sum.all) = (sum.damage + found.damage, sum.all + found.all);
            writeln!(out, "| {name} | {} | {} | {} |", shown(kind, has_checksum), found.all, found.damage)?;
        }
        let lengths = (0..bytes.len()).step_by(512);
        for length in lengths.filter(|length| *length < CUT_MAX || bytes.len() - length < 64 << 10) {
            cuts.all += 1;
            cuts.damage += u64::from(findings(bytes.get(..length).unwrap_or_default())? > good);
        }
    }
    writeln!(out, "\n| all files, kind of byte | flips | found |\n|---|---:|---:|")?;
    for ((kind, has_checksum), Found { damage, all }) in sums {
        let share = damage as f64 * 100.0 / all as f64;
        writeln!(out, "| {} | {all} | {share:.1} % |", shown(kind, has_checksum))?;
    }
    writeln!(out, "\nFiles that end early, at a multiple of 512 bytes: {} of {} noticed.", cuts.damage, cuts.all)?;
    Ok(())
}

fn shown(kind: Kind, has_checksum: bool) -> String {
    let name = match kind {
        Kind::PageWithChecksum => "pages with a checksum",
        Kind::PageWithTornBits => "pages with torn-page bits",
        Kind::OtherPage => "pages not in use or without a check",
        Kind::Log => "log",
        Kind::Headers => "headers of blocks and streams",
        Kind::DescriptionsPadding => "descriptions, padding",
        Kind::Packed => "a compressed file",
    };
    format!("{name}, {} CHECKSUM", if has_checksum { "WITH" } else { "without" })
}

fn family(bytes: &[u8]) -> ForeignFamily {
    ForeignFamily { device: "x.bak".into(), bytes: Box::new(InOrder(Cursor::new(bytes.to_vec()))) }
}

/// How much damage a verification finds. A file that is not a backup any more counts as damage, and a panic ends the run.
fn findings(bytes: &[u8]) -> Result<usize, Failed> {
    match SqlServerBackup.verify(vec![family(bytes)], None) {
        Ok(found) => Ok(found.damage.len()),
        Err(Error::Io { .. }) => Err("a file in memory cannot be read".into()),
        Err(_) => Ok(usize::MAX),
    }
}

type Ranges = Vec<std::ops::Range<usize>>;

/// The bytes of a good file, by their kind; and whether its streams have checksums.
fn kinds_of(bytes: &[u8]) -> Result<(BTreeMap<Kind, Ranges>, bool), Failed> {
    let (mut kinds, mut has_checksum, mut at) = (BTreeMap::<Kind, Ranges>::new(), false, 0);
    let (is_packed, bytes_of_file) = (bytes.starts_with(MAGIC), bytes);
    let mut input = opened::open(family(bytes))?;
    walk(&mut input, Depth::Everything, &mut |event| {
        match event {
            Event::ContentEnds { checksum, .. } => has_checksum |= checksum.is_some(),
            Event::Piece { content, offset, bytes } if !is_packed => {
                let begin = usize::try_from(offset).unwrap_or(usize::MAX);
                divide(bytes_of_file, at..begin, &mut kinds);
                at = begin + bytes.len();
                for (piece, number) in bytes.chunks(PAGE).zip(0..) {
                    let begin = begin + number * PAGE;
                    kinds.entry(kind_of(content, piece)).or_default().push(begin..begin + piece.len());
                }
            }
            _ => {}
        }
        Ok(())
    })?;
    if is_packed {
        kinds.entry(Kind::Packed).or_default().push(at..bytes.len());
    } else {
        divide(bytes, at..bytes.len(), &mut kinds);
    }
    kinds.values_mut().for_each(|ranges| ranges.retain(|range| !range.is_empty()));
    Ok((kinds, has_checksum))
}

/// The bytes between pages and log: headers, which have checksums, and the rest.
fn divide(bytes: &[u8], range: std::ops::Range<usize>, kinds: &mut BTreeMap<Kind, Ranges>) {
    let mut begin = range.start;
    // Headers begin at multiples of 4 bytes.
    let mut at = range.start.next_multiple_of(4);
    while at < range.end {
        let Some(length) = header_at(bytes, at) else {
            at += 4;
            continue;
        };
        kinds.entry(Kind::DescriptionsPadding).or_default().push(begin..at);
        begin = at + length;
        kinds.entry(Kind::Headers).or_default().push(at..begin);
        at = begin.next_multiple_of(4);
    }
    kinds.entry(Kind::DescriptionsPadding).or_default().push(begin.min(range.end)..range.end);
}

/// The length of the header that begins here, if one does.
fn header_at(bytes: &[u8], at: usize) -> Option<usize> {
    let name = bytes.get(at..at + 4)?;
    let block = bytes.get(at..)?.first_chunk::<BLOCK_HEADER>();
    let kind = block.and_then(|block| BlockHeader::decode(block).ok()).map(|header| header.kind);
    if at.is_multiple_of(512) && kind.is_some_and(|kind| kind != BlockKind::Other) {
        return Some(BLOCK_HEADER);
    }
    let stream = bytes.get(at..)?.first_chunk::<STREAM_HEADER>()?;
    let is_one = name.iter().all(u8::is_ascii_uppercase) && StreamHeader::decode(stream).is_ok();
    is_one.then_some(STREAM_HEADER)
}

fn kind_of(content: Content, piece: &[u8]) -> Kind {
    match (content, piece.first_chunk::<PAGE>().map(check)) {
        (Content::Log, _) => Kind::Log,
        (Content::Pages, Some(PageCheck::Checksum)) => Kind::PageWithChecksum,
        (Content::Pages, Some(PageCheck::TornBits)) => Kind::PageWithTornBits,
        (Content::Pages, _) => Kind::OtherPage,
    }
}

/// A small generator (SplitMix64): the same places each time.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ mixed >> 31
    }

    /// A place in one of the ranges.
    fn within(&mut self, ranges: &Ranges) -> usize {
        let all: usize = ranges.iter().map(ExactSizeIterator::len).sum();
        let mut place = (self.next() % all.max(1) as u64) as usize;
        for range in ranges {
            match place.checked_sub(range.len()) {
                Some(left) => place = left,
                None => return range.start + place,
            }
        }
        0
    }
}
