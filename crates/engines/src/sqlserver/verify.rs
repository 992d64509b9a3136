//! Reads every byte of the families of one media set, several of them side by side, and checks every checksum: those of
//! headers, of streams (WITH CHECKSUM) and of pages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use fullbore_core::threads::in_turns;
use fullbore_core::units::counted;
use fullbore_core::{Error, Result};

use super::configuration::Configuration;
use super::coverage::{StreamBytes, Tally};
use super::opened;
use super::page::EXTENT;
use super::page_judge::PageJudge;
use super::set::SetHeader;
use super::tables::title;
use super::walk::{Checksum, Content, Depth, Event, walk};
use crate::engine::{ForeignFamily, ForeignVerification, families_at_once};
use crate::foreign_set::bytes::Watch;

/// So many damaged places are named; the others are counted.
const NAMED_MAX: usize = 100;

/// Verifies the families of one media set. With `file`, only damage in the set at this position counts.
///
/// # Errors
/// A device cannot be read, or the set at `file` is not there.
pub fn verify(families: Vec<ForeignFamily>, file: Option<u16>) -> Result<ForeignVerification> {
    let at_once = families_at_once(families.len());
    let read = Mutex::new(BTreeMap::new());
    in_turns("family", at_once, families.into_iter().zip(0_u16..), |(family, number)| {
        let part = Part::read(family, file, &mut |_| {})?;
        read.lock().unwrap_or_else(PoisonError::into_inner).insert(number, part);
        Ok(())
    })?;
    let read = read.into_inner().unwrap_or_else(PoisonError::into_inner);
    finish(read.into_values(), file)
}

/// The same, one family after the other. `seen` gets the number of each family, from 0, and what is on it; and nothing
/// when the family was read.
///
/// # Errors
/// As of [`verify`].
pub fn verify_seen(
    families: Vec<ForeignFamily>,
    file: Option<u16>,
    seen: &mut dyn FnMut(u16, Option<&Event<'_>>),
) -> Result<ForeignVerification> {
    let mut parts = Vec::new();
    for (family, number) in families.into_iter().zip(0..) {
        parts.push(Part::read(family, file, &mut |event| seen(number, Some(event)))?);
        seen(number, None);
    }
    finish(parts, file)
}

/// One family that was read.
struct Part {
    verifier: Verifier,
    /// False if there was damage in its structure, so that it was not read to its end.
    whole: bool,
    /// Ends the judgement too.
    watch: Watch,
}

impl Part {
    fn read(family: ForeignFamily, file: Option<u16>, seen: &mut dyn FnMut(&Event<'_>)) -> Result<Self> {
        let mut verifier = Verifier { file, ..Verifier::default() };
        let watch = family.bytes.watch();
        let mut input = opened::open(family)?;
        let device = input.device().to_owned();
        let walked = walk(&mut input, Depth::Everything, &mut |event| {
            seen(&event);
            verifier.event(&device, event);
            Ok(())
        });
        let whole = match walked {
            Ok(structure) => {
                verifier.tally.add_structure(structure);
                true
            }
            Err(error @ (Error::Damaged { .. } | Error::Incomplete { .. })) => {
                verifier.damage.push(error);
                false
            }
            Err(error) => return Err(error),
        };
        verifier.bytes = input.at();
        Ok(Self { verifier, whole, watch })
    }
}

/// The verdict on the families, which are in their order.
fn finish(parts: impl IntoIterator<Item = Part>, file: Option<u16>) -> Result<ForeignVerification> {
    let (mut verifier, mut all_whole) = (Verifier { file, ..Verifier::default() }, true);
    let mut watches = Vec::new();
    for Part { verifier: part, whole, watch } in parts {
        verifier.join(part);
        all_whole &= whole;
        watches.push(watch);
    }
    verifier.finish(all_whole, &|| watches.iter().try_for_each(|watch| watch()))
}

#[derive(Default)]
struct Verifier {
    /// The position of the set whose damage counts.
    file: Option<u16>,
    bytes: u64,
    tally: Tally,
    damage: Vec<Error>,
    /// The set that is being read.
    header: Option<SetHeader>,
    /// The pages of each set: those of all families are judged together.
    pages: BTreeMap<u16, PageJudge>,
    titles: BTreeMap<u16, String>,
    /// The stream that is being read, and where it begins.
    stream: StreamBytes,
    stream_begin: Option<u64>,
    checksums: u64,
    log_bytes: u64,
    /// How many families the media have, and those that were read.
    families: u16,
    read: BTreeSet<u16>,
}

impl Verifier {
    /// Adds another family.
    fn join(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.tally.join(&other.tally);
        self.damage.extend(other.damage);
        for (position, judge) in other.pages {
            self.pages.entry(position).or_default().join(judge);
        }
        self.titles.extend(other.titles);
        self.checksums += other.checksums;
        self.log_bytes += other.log_bytes;
        self.families = self.families.max(other.families);
        self.read.extend(other.read);
    }

    fn event(&mut self, device: &str, event: Event<'_>) {
        match event {
            Event::SetBegins(header) => {
                let judge = self.pages.entry(header.position).or_default();
                judge.begin_family(device.to_owned());
                self.header = Some(header);
            }
            Event::Configuration { configuration, .. } => {
                self.title(&configuration);
                if let Some(judge) = self.judge() {
                    judge.describe(&configuration);
                }
            }
            Event::ContentBegins(content) => {
                (self.stream, self.stream_begin) = (StreamBytes::default(), None);
                if let (Content::Pages, Some(judge)) = (content, self.judge()) {
                    judge.begin_copy();
                }
            }
            Event::Piece { content: Content::Log, offset, bytes } => {
                self.stream_begin.get_or_insert(offset);
                self.stream.log += bytes.len() as u64;
                self.log_bytes += bytes.len() as u64;
            }
            Event::Piece { content: Content::Pages, offset, bytes } => {
                self.stream_begin.get_or_insert(offset);
                let found = self.judge().map(|judge| judge.extent(offset, bytes)).unwrap_or_default();
                self.stream.with_checksum += found.with_checksum;
                self.stream.with_torn_bits += found.with_torn_bits;
                self.stream.other_pages += found.other_pages;
            }
            Event::ContentEnds { checksum, content } => {
                if let (Content::Pages, Some(judge)) = (content, self.judge()) {
                    judge.end_copy(checksum.is_some());
                }
                self.tally.add_stream(self.stream, checksum.is_some());
                if let Some(checksum) = checksum {
                    self.checksum(device, checksum);
                }
            }
            Event::Label(label) => {
                self.families = label.stripe.families;
                self.read.insert(label.stripe.family);
            }
            Event::Machine(_) | Event::LogRange(_) => {}
            Event::SetEnds => self.header = None,
        }
    }

    fn judge(&mut self) -> Option<&mut PageJudge> {
        self.pages.get_mut(&self.header.as_ref()?.position)
    }

    fn title(&mut self, configuration: &Configuration) {
        let Some(header) = &self.header else { return };
        self.titles.insert(header.position, title(header, configuration));
    }

    fn counts(&self, position: Option<u16>) -> bool {
        self.file.is_none() || self.file == position
    }

    fn checksum(&mut self, device: &str, checksum: Checksum) {
        self.checksums += 1;
        let Checksum { offset, stored, computed } = checksum;
        if stored == computed || !self.counts(self.header.as_ref().map(|header| header.position)) {
            return;
        }
        let begin = self.stream_begin.unwrap_or(offset);
        let what = format!(
            "the backup checksum of the bytes {begin} to {offset} does not match: {computed:08X} in place of {stored:08X}"
        );
        self.damage.push(Error::damaged(device, offset, what));
    }

    fn finish(mut self, whole: bool, watch: &dyn Fn() -> Result<()>) -> Result<ForeignVerification> {
        if let Some(file) = self.file.filter(|file| !self.pages.contains_key(file)) {
            let found: Vec<String> = self.titles.into_values().collect();
            let hint = format!("the media have: {}", found.join("; "));
            return Err(Error::usage(format!("--file {file}"), "the media have no such backup set", hint));
        }
        let (mut facts, mut warnings) = (Vec::new(), Vec::new());
        let has_all = whole && (1..=self.families).all(|family| self.read.contains(&family));
        for (position, judge) in std::mem::take(&mut self.pages) {
            let title = self.titles.get(&position).cloned().unwrap_or_else(|| format!("file {position}"));
            let judged = judge.finish(has_all, watch)?;
            self.tally.name_unprotected(judged.unprotected);
            // With one set, it is clear which one is meant.
            let of = if self.titles.len() > 1 { format!("file {position}: ") } else { String::new() };
            facts.extend(judged.facts.into_iter().map(|fact| format!("{of}{fact}")));
            if self.counts(Some(position)) {
                warnings.extend(judged.warnings.into_iter().map(|warning| format!("{title}: {warning}")));
                self.damage.extend(judged.damage);
            }
        }
        match self.checksums {
            0 => facts.push("the backup has no backup checksums: it was made without CHECKSUM".to_owned()),
            count => facts.push(format!("{} of data and log compared", counted(count, "backup checksum"))),
        }
        let more = self.damage.len().saturating_sub(NAMED_MAX);
        if more > 0 {
            self.damage.truncate(NAMED_MAX);
            warnings.push(format!("{} more are not named", counted(more as u64, "damaged place")));
        }
        Ok(ForeignVerification {
            bytes: self.bytes,
            sets: self.titles.into_values().collect(),
            // Behind damage in the structure, bytes were not read.
            coverage: if whole { self.tally.statement() } else { Vec::new() },
            facts,
            warnings,
            damage: self.damage,
        })
    }
}

/// A piece of a data stream is an extent.
const _: () = assert!(EXTENT == 65536);
