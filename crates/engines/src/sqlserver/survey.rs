//! The reading of media that are stored: it verifies them, and finds the place of each extent. The places are only a layout:
//! whatever they are, the families come back byte for byte.

use std::collections::HashMap;

use fullbore_core::{Error, Result};

use super::compressed::MAGIC;
use super::configuration::Configuration;
use super::extent_set::ExtentSet;
use super::foreign::described;
use super::media::{self, Looked};
use super::page::{EXTENT, PAGE, PAGES_PER_EXTENT, place};
use super::verify;
use super::walk::{Content, Event};
use crate::engine::{ForeignFamily, Surveyed};
use crate::foreign_set::layout::{CELL, FILES_MAX, LayoutWriter, RUNS_MAX, Run};
use crate::foreign_set::source::StoredFile;
use crate::foreign_set::tap::{Inlet, Passed, Tap};

const _: () = assert!(EXTENT as u64 == CELL);
/// Extents begin at multiples of so many bytes of their family.
const PART: u64 = 512;
/// The files have so many bytes together, at most, and for each byte that was read so many more. What a set needs for a
/// file grows with its length: 2 MiB for each GiB. And a few bytes of media may name any page.
const FILES_LENGTH: u64 = 256 << 20;
const LENGTH_FOR_EACH_BYTE: u64 = 64;
/// Runs that may still come: two with an extent, and the last one of each family.
const SPARE: usize = 2048;

/// Reads all families of a media set, and passes them on.
///
/// # Errors
/// A device cannot be read, or nobody takes the bytes. Damage is in the result.
pub fn survey(families: Vec<ForeignFamily>, to: &Inlet) -> Result<Surveyed> {
    let (mut taps, mut read) = (Vec::new(), Vec::new());
    let mut layouts = Layouts::default();
    for (ForeignFamily { device, bytes }, number) in families.into_iter().zip(0..) {
        let family = Tap::new(bytes, number, to.clone());
        taps.push((device.clone(), family.clone(), Looked::default(), None));
        read.push(ForeignFamily { device, bytes: Box::new(family) });
    }
    let (mut is_plain, mut gone) = (HashMap::<u16, bool>::new(), None);
    let verification = verify::verify_seen(read, None, &mut |number, event| {
        let Some((_, tap, looked, read)) = taps.get_mut(usize::from(number)) else { return };
        let Some(event) = event else {
            // All bytes of a family are passed on before those of the next one.
            *read = Some(tap.finish());
            return;
        };
        looked.see(event);
        let plain = *is_plain.entry(number).or_insert_with(|| tap.head() != *MAGIC);
        if let Err(error) = layouts.event((number, tap), plain, event, to) {
            gone.get_or_insert(error);
        }
    })?;
    gone.map_or(Ok(()), Err)?;
    let mut surveyed = Surveyed { verification, ..Surveyed::default() };
    let mut found = Vec::new();
    for ((device, tap, looked, read), number) in taps.into_iter().zip(0..) {
        // Behind damage in the structure, bytes were not read.
        let length = match (read.unwrap_or_else(|| tap.finish()), surveyed.verification.damage.first()) {
            (Ok(length), _) => length,
            // A device that cannot be read any more says only that. What ended its reading is among the damage.
            (Err(_), Some(_)) => return Err(surveyed.verification.damage.swap_remove(0)),
            (Err(error), None) => return Err(Error::of_read(&device, error)),
        };
        surveyed.layouts.push(layouts.finish(number, length));
        found.extend(looked.family(device, length, is_plain.get(&number) == Some(&false)));
    }
    surveyed.media_sets = media::group(found).iter().map(described).collect();
    Ok(surveyed)
}

/// The layouts of all families while they are read.
#[derive(Default)]
struct Layouts {
    families: HashMap<u16, FamilyLayout>,
    /// The ids of the files that have extents, in the order of their numbers.
    files: Vec<u16>,
    /// The extents that have a place already.
    taken: ExtentSet,
    /// Extents of each file of the database that is being read.
    sizes: HashMap<u16, u64>,
    runs: usize,
    /// Bytes of each family up to its last extent so far.
    read: HashMap<u16, u64>,
    /// The length of each file up to its last cell, and of all of them.
    lengths: HashMap<u16, u64>,
    length: u64,
}

/// The layout of one family.
#[derive(Default)]
struct FamilyLayout {
    writer: LayoutWriter,
    /// Bytes of the family that are in it.
    laid: u64,
}

impl FamilyLayout {
    fn keep_up_to(&mut self, offset: u64) {
        self.writer.push(Run::Kept(offset.saturating_sub(self.laid)));
        self.laid = offset.max(self.laid);
    }
}

impl Layouts {
    fn event(&mut self, family: (u16, &Tap), is_plain: bool, event: &Event<'_>, to: &Inlet) -> Result<()> {
        match event {
            Event::Configuration { configuration, .. } => self.sizes = sizes(configuration),
            Event::Piece { content: Content::Pages, offset, bytes } if is_plain => {
                return self.extent(family, *offset, bytes, to);
            }
            _ => {}
        }
        Ok(())
    }

    /// An extent gets its place if no other extent has it, and if the place is in a file of the database and not too far.
    fn extent(&mut self, (family, tap): (u16, &Tap), offset: u64, bytes: &[u8], to: &Inlet) -> Result<()> {
        let Some((file, cell)) = place_of(bytes) else { return Ok(()) };
        let fits = bytes.len() == EXTENT && offset.is_multiple_of(PART) && self.runs + SPARE <= RUNS_MAX;
        self.read.insert(family, offset + bytes.len() as u64);
        let is_inside = self.sizes.get(&file).is_some_and(|size| cell < *size);
        let known = self.lengths.get(&file).copied().unwrap_or_default();
        let length = cell.saturating_add(1).saturating_mul(CELL).max(known);
        let all = self.length.saturating_add(length - known);
        let read: u64 = self.read.values().sum();
        let is_near = all <= read.saturating_mul(LENGTH_FOR_EACH_BYTE).saturating_add(FILES_LENGTH);
        let number = self.files.iter().position(|known| *known == file).unwrap_or(self.files.len());
        let Some(number) = u16::try_from(number).ok().filter(|number| *number < FILES_MAX) else {
            return Ok(());
        };
        if !fits || !is_inside || !is_near || !self.taken.insert(file, cell) {
            return Ok(());
        }
        self.lengths.insert(file, length);
        self.length = all;
        if usize::from(number) == self.files.len() {
            self.files.push(file);
            to.pass(Passed::File(StoredFile { identity: format!("file:{file}"), unit: PAGE as u32 }))?;
        }
        if !tap.place(offset, number, cell) {
            return Ok(());
        }
        let layout = self.families.entry(family).or_default();
        let before = layout.writer.runs();
        layout.keep_up_to(offset);
        layout.writer.push(Run::Placed { file: number, cell, count: 1 });
        layout.laid += CELL;
        self.runs += layout.writer.runs() - before;
        Ok(())
    }

    fn finish(&mut self, family: u16, length: u64) -> Vec<u8> {
        let mut layout = self.families.remove(&family).unwrap_or_default();
        layout.keep_up_to(length);
        layout.writer.finish()
    }
}

/// Extents of each file, by the description of the database.
fn sizes(configuration: &Configuration) -> HashMap<u16, u64> {
    let files = configuration.files.iter();
    files.filter_map(|file| Some((u16::try_from(file.id).ok()?, file.size.div_ceil(CELL)))).collect()
}

/// The file and the extent that most pages name. It need not be right: it must only be the same in the next full.
fn place_of(bytes: &[u8]) -> Option<(u16, u64)> {
    let mut votes: [(Option<(u16, u32)>, u32); PAGES_PER_EXTENT as usize] = Default::default();
    for (page, slot) in bytes.as_chunks::<PAGE>().0.iter().zip(0..PAGES_PER_EXTENT) {
        let Some(id) = place(page, slot) else { continue };
        let named = Some(id.extent());
        if let Some(vote) = votes.iter_mut().find(|(known, _)| *known == named || known.is_none()) {
            *vote = (named, vote.1 + 1);
        }
    }
    // Of equals, the first counts.
    let (named, _) = votes.into_iter().rev().max_by_key(|(_, votes)| *votes)?;
    named.map(|(file, extent)| (file, extent.into()))
}
