//! A look at one file: its header and footer, not the blocks between.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use fullbore_core::device::{Destination, Device};
use fullbore_core::io::Mode;
use fullbore_core::media::{FAMILY_MAGIC, FOOTER, FamilyHeader, Footer, HEADER_MIN, SetHeader};
use fullbore_core::pool::Pool;
use fullbore_core::store::Stores;
use fullbore_core::supply::{self, FileSupply};
use fullbore_core::unpack::{Family, MediaSet};
use fullbore_core::{Error, Result};
use uuid::Uuid;

use super::candidates::has_working_name;

/// The first request for an object reads so many bytes: the headers of sets with few streams fit.
const HEADER_GUESS: usize = 64 << 10;

/// True if the first bytes of the file are those of a family. False if it is missing, shorter, or may not be read.
///
/// # Errors
/// The file exists but reading fails.
pub fn begins_like_a_family(path: &Path) -> Result<bool> {
    let mut magic = [0; 8];
    match fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) => Ok(magic == FAMILY_MAGIC),
        Err(error) => match error.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied | ErrorKind::UnexpectedEof | ErrorKind::IsADirectory => {
                Ok(false)
            }
            _ => Err(Error::io("read", path.display().to_string(), error)),
        },
    }
}

/// The result of one look at a file.
pub struct FamilyLook {
    /// Its header, if it is readable.
    pub header: Option<FamilyHeader>,
    /// The family, if header and footer are valid.
    pub family: Option<Family>,
    /// True if it is readable, but has no footer: its writer never got that far.
    pub unfinished: bool,
}

impl FamilyLook {
    /// The media set of a family with header and footer.
    pub fn set(&self) -> Option<Uuid> {
        self.header.as_ref().filter(|_| !self.unfinished).map(|header| header.set.media_set_id)
    }

    /// When that set was begun.
    pub fn started_at(&self) -> Option<i64> {
        self.header.as_ref().filter(|_| !self.unfinished).map(|header| header.set.started_at)
    }

    /// True for a first family of the set `id` under its final name: a commit record.
    pub fn is_published_first(&self, path: &Path, id: Uuid) -> bool {
        self.set() == Some(id)
            && self.header.as_ref().is_some_and(|header| header.family == 1)
            && !has_working_name(path)
    }
}

/// Looks at a file once; `None` if it cannot be read, or is of a newer version of the program.
pub fn look(path: &Path) -> Option<FamilyLook> {
    let metadata = fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let nothing = Pool::new(0, 4096).ok()?;
    let supply = FileSupply::open(&path.display().to_string(), path, &nothing, 1, Mode::from_environment().ok()?);
    match supply.and_then(|supply| Family::open(Box::new(supply))) {
        Ok(family) => {
            Some(FamilyLook { header: Some(family.header().clone()), family: Some(family), unfinished: false })
        }
        Err(Error::Damaged { .. } | Error::Incomplete { .. }) => {
            let file = fs::File::open(path).ok()?;
            let mut end = vec![0; FOOTER];
            let footer = match metadata.len().checked_sub(FOOTER as u64) {
                Some(at) => file.read_exact_at(&mut end, at).map(|()| Footer::decode(&end).is_ok()).ok()?,
                None => false,
            };
            Some(FamilyLook { header: header_of(&file), family: None, unfinished: !footer })
        }
        Err(_) => None,
    }
}

/// Only the header, of a family whose end may be missing.
pub(super) fn header_of(file: &fs::File) -> Option<FamilyHeader> {
    let mut start = vec![0; HEADER_MIN];
    file.read_exact_at(&mut start, 0).ok()?;
    let length = FamilyHeader::length(&start).ok()?;
    start.resize(length, 0);
    file.read_exact_at(&mut start, 0).ok()?;
    FamilyHeader::decode(&start).ok()
}

/// True for a family, by its name, that this user may not read: it is reported, not skipped.
pub(super) fn is_hidden_family(path: &Path) -> bool {
    let denied = matches!(fs::File::open(path), Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied);
    denied && path.extension().is_some_and(|extension| extension == "bore")
}

/// The header on a device. Reads the first bytes of an object; `None` for a missing one.
///
/// # Errors
/// The store does not return them.
pub fn header_on(device: &Device, stores: &Stores) -> Result<Option<FamilyHeader>> {
    let (bucket, key) = match device.place() {
        Destination::Object { bucket, key } => (stores.bucket(bucket)?, key),
        _ => return Ok(device.path().and_then(|path| header_of(&fs::File::open(path).ok()?))),
    };
    // One request for most headers; a longer header needs a second one.
    let Some(mut bytes) = bucket.read_start(key, HEADER_GUESS)? else { return Ok(None) };
    let Some(Ok(length)) = bytes.get(..HEADER_MIN).map(FamilyHeader::length) else { return Ok(None) };
    if length > bytes.len() {
        let Some(whole) = bucket.read_start(key, length)? else { return Ok(None) };
        bytes = whole;
    }
    Ok(bytes.get(..length).and_then(|header| FamilyHeader::decode(header).ok()))
}

/// The family on a device, if it is finished.
///
/// # Errors
/// Its store does not answer.
pub fn family_at(device: &Device, stores: &Stores) -> Result<Option<Family>> {
    if header_on(device, stores)?.is_none() {
        return Ok(None);
    }
    match open(device, &Pool::new(0, 4096)?, 1, stores).and_then(Family::open) {
        Ok(family) => Ok(Some(family)),
        Err(Error::Damaged { .. } | Error::Incomplete { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads header and footer of each family of a whole set, and checks that all of them belong to the set.
///
/// # Errors
/// A family is damaged or missing, or they are not the families of one set; or a store does not answer.
pub fn whole_set_on(devices: &[Device], stores: &Stores) -> Result<SetHeader> {
    let open_one = |device: &Device| open(device, &Pool::new(0, 4096)?, 1, stores).and_then(Family::open);
    let mut families = devices.iter().map(open_one).collect::<Result<Vec<_>>>()?;
    families.sort_by_key(|family| family.header().family);
    MediaSet::check_whole(&families)?;
    Ok(families[0].header().set.clone())
}

/// Opens a family; its blocks are read through `pool`.
pub(super) fn open(
    device: &Device,
    pool: &Arc<Pool>,
    queue_depth: usize,
    stores: &Stores,
) -> Result<Box<dyn supply::Supply>> {
    supply::open(device, pool, queue_depth, Mode::from_environment()?, stores)
}
