//! The families of foreign media, given back byte for byte: each gets its name when its digest is right.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use fullbore_core::io::{free_space, rename_together, sync_directory};
use fullbore_core::media::ManifestStream;
use fullbore_core::units::show_bytes;
use fullbore_core::unpack::Target;
use fullbore_core::{Error, Result};

use super::digest::FamilyDigest;
use super::layout::{self, FILES_MAX};
use super::places::{LaidOut, Piece, Places, within};
use super::source::StoredFamily;
use super::working_file::{WorkingFile, remove_leftovers};

/// Families of a set, at most.
const FAMILIES_MAX: usize = 1024;
/// Bytes of one read or write.
const BUFFER: usize = 1 << 20;

/// The media that a set holds, from its manifest.
#[derive(Debug, Default)]
pub struct StoredMedia {
    /// The families. Their layouts are in the streams `layouts`.
    pub families: Vec<StoredFamily>,
    /// The streams with their layouts.
    pub layouts: Vec<ManifestStream>,
    /// The streams of what is kept as it is, and of files.
    kept: Vec<u32>,
    files: Vec<u32>,
}

impl StoredMedia {
    /// From the streams of a set.
    ///
    /// # Errors
    /// They are not those of foreign media.
    pub fn of(streams: &[ManifestStream]) -> Result<Self> {
        let mut media = Self::default();
        for stream in streams {
            let (list, place) = match stream.name.split_once('/') {
                Some(("layout", number)) => {
                    media.layouts.push(stream.clone());
                    media.families.push(family_of(stream)?);
                    (media.layouts.len(), number)
                }
                Some(("kept", number)) => {
                    media.kept.push(stream.id);
                    (media.kept.len(), number)
                }
                Some(("file", number)) => {
                    media.files.push(stream.id);
                    (media.files.len(), number)
                }
                _ => return Err(wrong(&format!("it has a stream `{}`", stream.name))),
            };
            if place != list.to_string() {
                return Err(wrong(&format!("its stream `{}` is not in order", stream.name)));
            }
        }
        let families = media.families.len();
        let bytes = media.layouts.iter().fold(0, |sum: u64, stream| sum.saturating_add(stream.size));
        let fits = (1..=FAMILIES_MAX).contains(&families)
            && families == media.kept.len()
            && media.files.len() <= usize::from(FILES_MAX)
            && bytes <= layout::LAYOUTS_MAX;
        if fits { Ok(media) } else { Err(wrong("the numbers of its streams do not fit together")) }
    }

    /// How many files have bytes of the families.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The stream of the bytes of a family (from 0) that are kept as they are.
    pub fn kept_stream(&self, family: usize) -> Option<u32> {
        self.kept.get(family).copied()
    }

    /// The stream of a file, from 0.
    pub fn file_stream(&self, file: u16) -> Option<u32> {
        self.files.get(usize::from(file)).copied()
    }

    /// Bytes of all families.
    pub fn bytes(&self) -> u64 {
        self.families.iter().fold(0, |sum, family| sum.saturating_add(family.laid.length))
    }
}

fn family_of(stream: &ManifestStream) -> Result<StoredFamily> {
    let detail = stream.detail.as_ref().map(fullbore_core::media::EngineValue::value).unwrap_or_default();
    let digest = FamilyDigest::in_detail(&detail);
    let (name, length) = (detail["family"].as_str(), detail["length"].as_u64());
    let (Some(digest), Some(name), Some(length)) = (digest, name, length.filter(|length| *length < 1 << 62)) else {
        return Err(wrong("it does not tell the name, the length and the digest of a family"));
    };
    if !is_file_name(name) {
        return Err(wrong(&format!("`{}` cannot be the name of a file", name.escape_debug())));
    }
    let laid = LaidOut { name: name.to_owned(), length, layout: Vec::new() };
    Ok(StoredFamily { laid, digest })
}

/// True for a name that is a file in its directory on every system.
pub fn is_file_name(name: &str) -> bool {
    let is_one = !name.is_empty() && name != "." && name != ".." && name.len() <= 255;
    is_one && !name.contains(['/', '\\']) && !name.contains(char::is_control)
}

fn wrong(why: &str) -> Error {
    Error::incomplete("media set", format!("its manifest is not that of stored media: {why}"), "use another set")
}

/// Families that are being written.
pub struct FamilyFiles {
    directory: PathBuf,
    families: Vec<Growing>,
    places: Places,
    kept: Vec<u32>,
    files: Vec<u32>,
    /// True if a full is written below: zeros are then written, too.
    over_a_full: bool,
    replace: bool,
}

struct Growing {
    family: StoredFamily,
    /// Locked, so that other restores do not take it for the leftover of a killed one.
    file: WorkingFile,
}

impl FamilyFiles {
    /// Makes the families of `media`, with these layouts, under working names in a directory that exists.
    ///
    /// # Errors
    /// A layout is wrong, a family exists and `replace` is not given, there is too little space, or a file cannot be made.
    pub fn create(
        directory: &Path,
        mut media: StoredMedia,
        layouts: Vec<Vec<u8>>,
        over_a_full: bool,
        replace: bool,
    ) -> Result<Self> {
        for (family, layout) in media.families.iter_mut().zip(layouts) {
            family.laid.layout = layout;
        }
        let laid: Vec<LaidOut> = media.families.iter().map(|family| family.laid.clone()).collect();
        let places = Places::of(&laid, media.files())?;
        remove_leftovers(directory);
        must_have_room(directory, media.bytes())?;
        let StoredMedia { families, kept, files, .. } = media;
        let directory = directory.to_owned();
        let mut made = Self { directory, families: Vec::new(), places, kept, files, over_a_full, replace };
        for family in families {
            made.add(family)?;
        }
        Ok(made)
    }

    fn add(&mut self, family: StoredFamily) -> Result<()> {
        let name = &family.laid.name;
        if self.families.iter().any(|other| other.family.laid.name == *name) {
            return Err(wrong(&format!("it has two families `{name}`")));
        }
        let file = WorkingFile::create(&self.directory.join(name), family.laid.length, self.replace)?;
        self.families.push(Growing { family, file });
        Ok(())
    }

    /// The streams of a full, below those of this set, which names them as its bases.
    pub fn over(&self, streams: &[ManifestStream]) -> BelowFamilies<'_> {
        let bases = streams.iter().filter_map(|stream| Some((stream.base?, stream.id))).collect();
        BelowFamilies { above: self, bases }
    }

    fn pieces(&self, stream: u32) -> &[Piece] {
        let found = |ids: &[u32]| ids.iter().position(|id| *id == stream);
        let list = match (found(&self.kept), found(&self.files)) {
            (Some(family), _) => self.places.kept.get(family),
            (None, Some(file)) => self.places.files.get(file),
            // Layouts were read before.
            (None, None) => None,
        };
        list.map_or(&[], Vec::as_slice)
    }

    fn put(&self, piece: Piece, bytes: &[u8]) -> Result<()> {
        let Some(growing) = self.families.get(usize::from(piece.family)) else { return Ok(()) };
        let failed = |e| Error::io("write", growing.file.path().display().to_string(), e);
        growing.file.write_all_at(bytes, piece.offset).map_err(failed)
    }

    /// Checks the digest of each family, makes them durable, and gives them their names. Gives their paths.
    ///
    /// # Errors
    /// A family is not what was stored: then none gets its name. Or a file cannot be read, synced or renamed.
    pub fn publish(self) -> Result<Vec<PathBuf>> {
        for growing in &self.families {
            growing.check()?;
            growing.file.sync()?;
        }
        let renames = self
            .families
            .iter()
            .map(|growing| (growing.file.path().to_owned(), self.directory.join(&growing.family.laid.name)));
        let renames: Vec<(PathBuf, PathBuf)> = renames.collect();
        rename_together(&renames, self.replace)?;
        sync_directory(&self.directory)?;
        Ok(renames.into_iter().map(|(_, to)| to).collect())
    }
}

impl Growing {
    fn check(&self) -> Result<()> {
        let mut digest = self.family.digest.begin_again();
        let failed = |e| Error::io("read", self.file.path().display().to_string(), e);
        let mut file = File::open(self.file.path()).map_err(failed)?;
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = file.read(&mut buffer).map_err(failed)?;
            if count == 0 {
                break;
            }
            digest.update(buffer.get(..count).unwrap_or_default());
        }
        if digest.finish() == self.family.digest {
            return Ok(());
        }
        let why = "does not have the digest that it had when it was stored: the set or its layout is wrong";
        Err(Error::incomplete(format!("`{}`", self.family.laid.name), why, "use another copy of the set"))
    }
}

fn must_have_room(directory: &Path, bytes: u64) -> Result<()> {
    let free = free_space(directory)?;
    if free >= bytes {
        return Ok(());
    }
    let why = format!("the files need {} there, but {} are free", show_bytes(bytes), show_bytes(free));
    Err(Error::refused(directory.display().to_string(), why, "free space there, or name another directory"))
}

impl Target for FamilyFiles {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        for piece in within(self.pieces(stream), offset, bytes.len() as u64) {
            let from = usize::try_from(piece.at - offset).unwrap_or(usize::MAX);
            let part = bytes.get(from..).and_then(|rest| rest.get(..usize::try_from(piece.length).ok()?));
            self.put(piece, part.unwrap_or_default())?;
        }
        Ok(())
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        if !self.over_a_full {
            return Ok(()); // The files are new: they are zero.
        }
        let zeros = vec![0; BUFFER];
        for mut piece in within(self.pieces(stream), offset, length) {
            while piece.length > 0 {
                let part = usize::try_from(piece.length).map_or(BUFFER, |left| left.min(BUFFER));
                self.put(piece, zeros.get(..part).unwrap_or_default())?;
                (piece.offset, piece.length) = (piece.offset + part as u64, piece.length - part as u64);
            }
        }
        Ok(())
    }
}

/// A full, written below a differential: the streams that the differential begins with.
pub struct BelowFamilies<'a> {
    above: &'a FamilyFiles,
    /// The stream of the full, and that of the differential.
    bases: Vec<(u32, u32)>,
}

impl BelowFamilies<'_> {
    fn above(&self, stream: u32) -> Option<u32> {
        self.bases.iter().find(|(base, _)| *base == stream).map(|(_, above)| *above)
    }
}

impl Target for BelowFamilies<'_> {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.above(stream).map_or(Ok(()), |above| self.above.write(above, offset, bytes))
    }

    fn zero(&self, _stream: u32, _offset: u64, _length: u64) -> Result<()> {
        Ok(()) // Nothing is below a full.
    }
}
