//! The first reading of media that are stored: it verifies them, and finds the place of each extent. The places are only a
//! layout: whatever they are, the families come back byte for byte.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use fullbore_core::Result;

use super::compressed::MAGIC;
use super::configuration::Configuration;
use super::input::cannot_read;
use super::page::{EXTENT, PAGE, PAGES_PER_EXTENT, place};
use super::verify;
use super::walk::{Content, Event};
use crate::engine::{ForeignFamily, Surveyed};
use crate::foreign_set::delivered::PART;
use crate::foreign_set::layout::{CELL, FILES_MAX, LayoutWriter, RUNS_MAX, Run};
use crate::foreign_set::places::LaidOut;
use crate::foreign_set::source::{StoredFamily, StoredFile};
use crate::foreign_set::watched::{Seen, Watched};

const _: () = assert!(EXTENT as u64 == CELL);
/// Runs that may still come: two with an extent, and the last one of each family.
const SPARE: usize = 2048;

/// Reads all families of a media set.
///
/// # Errors
/// A device cannot be read. Damage is in the result.
pub fn survey(families: Vec<ForeignFamily>) -> Result<Surveyed> {
    let (mut watched, mut read) = (Vec::new(), Vec::new());
    let mut layouts = Layouts::default();
    for (ForeignFamily { device, bytes }, number) in families.into_iter().zip(0..) {
        let family = Watched::new(bytes, number);
        watched.push((device.clone(), family.clone()));
        read.push(ForeignFamily { device, bytes: Box::new(family) });
    }
    let mut is_plain: HashMap<u16, bool> = HashMap::new();
    let verification = verify::verify_seen(read, None, &mut |number, event| {
        let plain = *is_plain.entry(number).or_insert_with(|| {
            let head = watched.get(usize::from(number)).map(|(_, family)| family.head());
            head.is_some_and(|head| head != *MAGIC)
        });
        layouts.event(number, plain, event);
    })?;
    let mut surveyed = Surveyed { verification, ..Surveyed::default() };
    for ((device, family), number) in watched.into_iter().zip(0..) {
        let Seen { length, digest, delivered } = family.finish().map_err(|error| cannot_read(&device, error))?;
        surveyed.delivered.join(delivered);
        let laid = LaidOut { name: device, length, layout: layouts.finish(number, length) };
        surveyed.families.push(StoredFamily { laid, digest });
    }
    let file = |id: &u16| StoredFile { identity: format!("file:{id}"), unit: PAGE as u32 };
    surveyed.files = layouts.files.iter().map(file).collect();
    Ok(surveyed)
}

/// The layouts of all families while they are read.
#[derive(Default)]
struct Layouts {
    families: HashMap<u16, FamilyLayout>,
    /// The ids of the files that have extents, in the order of their numbers.
    files: Vec<u16>,
    taken: TakenExtents,
    /// Extents of each file of the database that is being read.
    sizes: HashMap<u16, u64>,
    runs: usize,
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
    fn event(&mut self, family: u16, is_plain: bool, event: &Event<'_>) {
        match event {
            Event::Configuration { configuration, .. } => self.sizes = sizes(configuration),
            Event::Piece { content: Content::Pages, offset, bytes } if is_plain => self.extent(family, *offset, bytes),
            _ => {}
        }
    }

    /// An extent gets its place if no other extent has it, and if the place is in a file of the database.
    fn extent(&mut self, family: u16, offset: u64, bytes: &[u8]) {
        let Some((file, cell)) = place_of(bytes) else { return };
        // Runs begin at multiples of a part.
        let fits = bytes.len() == EXTENT && offset.is_multiple_of(PART as u64) && self.runs + SPARE <= RUNS_MAX;
        let is_inside = self.sizes.get(&file).is_some_and(|size| cell < *size);
        let number = self.files.iter().position(|known| *known == file).unwrap_or(self.files.len());
        let Some(number) = u16::try_from(number).ok().filter(|number| *number < FILES_MAX) else { return };
        if !fits || !is_inside || !self.taken.take(file, cell) {
            return;
        }
        if usize::from(number) == self.files.len() {
            self.files.push(file);
        }
        let layout = self.families.entry(family).or_default();
        let before = layout.writer.runs();
        layout.keep_up_to(offset);
        layout.writer.push(Run::Placed { file: number, cell, count: 1 });
        layout.laid += CELL;
        self.runs += layout.writer.runs() - before;
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
        let named = Some((id.file, id.page / PAGES_PER_EXTENT));
        if let Some(vote) = votes.iter_mut().find(|(known, _)| *known == named || known.is_none()) {
            *vote = (named, vote.1 + 1);
        }
    }
    // Of equals, the first counts.
    let (named, _) = votes.into_iter().rev().max_by_key(|(_, votes)| *votes)?;
    named.map(|(file, extent)| (file, extent.into()))
}

/// The extents that have a place already.
#[derive(Default)]
struct TakenExtents(HashMap<(u16, u64), [u64; 64]>);

impl TakenExtents {
    /// Groups of 4,096 extents, at most: 16 TiB of data.
    const GROUPS_MAX: usize = 1 << 16;

    /// True if the place was free.
    fn take(&mut self, file: u16, cell: u64) -> bool {
        let groups = self.0.len();
        let group = match self.0.entry((file, cell / 4096)) {
            Entry::Occupied(group) => group.into_mut(),
            Entry::Vacant(_) if groups >= Self::GROUPS_MAX => return false,
            Entry::Vacant(group) => group.insert([0; 64]),
        };
        let bit = 1 << (cell % 64);
        let Some(word) = group.get_mut((cell % 4096 / 64) as usize) else { return false };
        let is_free = *word & bit == 0;
        *word |= bit;
        is_free
    }
}
