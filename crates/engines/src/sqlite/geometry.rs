//! The properties of a snapshot: size, header, free pages and position, each checked against the others.

use std::path::Path;

use fullbore_core::{Error, Result};
use rusqlite::Connection;

use super::btree::{self, SchemaError};
use super::connection::{explain, unsupported_format};
use super::freelist::{BITMAP_LIMIT, FreePages, WalkError};
use super::header::{DatabaseHeader, Malformed};
use super::image::Image;
use super::open_files::RawFile;
use super::overlay::Overlay;
use super::position::{LogPosition, Position};
use super::wal_index::IndexHeader;

/// The size of a snapshot, as its transaction sees it.
pub(super) struct Geometry {
    pub page_size: u32,
    pub pages: u32,
}

impl Geometry {
    /// Asks SQLite.
    pub fn ask(connection: &Connection, path: &Path) -> Result<Self> {
        let ask =
            |pragma: &str| connection.query_row(pragma, [], |row| row.get::<_, u32>(0)).map_err(|e| explain(path, e));
        Ok(Self { page_size: ask("PRAGMA page_size")?, pages: ask("PRAGMA page_count")? })
    }

    pub fn bytes(&self) -> u64 {
        u64::from(self.page_size) * u64::from(self.pages)
    }
}

/// The header in the snapshot, checked against SQLite and the log.
pub(super) fn read_header(
    image: &Image,
    geometry: &Geometry,
    mark: Option<&IndexHeader>,
    raw: &RawFile,
) -> Result<DatabaseHeader> {
    let differs = |what: &str, one: u32, other: u32| {
        Error::refused(
            raw.name(),
            format!("its {what} is {one} in one place and {other} in another"),
            "check the database with PRAGMA integrity_check",
        )
    };
    let in_log = mark.filter(|mark| mark.max_frame > 0);
    if let Some(mark) = in_log.filter(|mark| mark.page_size != geometry.page_size) {
        return Err(differs("page size", mark.page_size, geometry.page_size));
    }
    if let Some(mark) = in_log.filter(|mark| mark.pages != geometry.pages) {
        return Err(differs("page count", mark.pages, geometry.pages));
    }
    if geometry.pages == 0 || !geometry.page_size.is_power_of_two() || !(512..=65536).contains(&geometry.page_size) {
        return Err(Error::refused(raw.name(), "it has no pages yet", "create the first table before a backup"));
    }
    let mut page = vec![0; geometry.page_size as usize];
    image.read_page(1, &mut page)?;
    let header = DatabaseHeader::parse(&page).map_err(|bad| {
        Error::refused(raw.name(), format!("its header is malformed: {bad}"), "check it with PRAGMA integrity_check")
    })?;
    if header.schema_format > 4 {
        return Err(unsupported_format(&raw.name(), &format!("its schema format is {}", header.schema_format)));
    }
    if header.read_version > 2 {
        return Err(unsupported_format(&raw.name(), &format!("its read version is {}", header.read_version)));
    }
    if header.page_size != geometry.page_size {
        return Err(differs("page size", header.page_size, geometry.page_size));
    }
    if let Some(pages) = header.pages.filter(|&pages| pages != geometry.pages) {
        return Err(differs("page count", pages, geometry.pages));
    }
    Ok(header)
}

/// The free pages. If the free-list breaks its format or names pages that are in use, there is a warning, and no page
/// counts as free.
pub(super) fn find_free_pages(
    header: &DatabaseHeader,
    pages: u32,
    image: &Image,
    warnings: &mut Vec<String>,
) -> Result<FreePages> {
    if header.reserved != 0 {
        // Reserved bytes may hold a checksum of the page: even a free page has to be restored unchanged.
        return Ok(FreePages::none());
    }
    if pages as usize / 8 > BITMAP_LIMIT {
        warnings.push(format!("free pages beyond page {} are stored like any other", BITMAP_LIMIT * 8));
    }
    match free_pages(header, pages, image) {
        Ok(free) => Ok(free),
        Err(WalkError::Read(error)) => Err(error),
        Err(WalkError::Corrupt(why)) => {
            warnings
                .push(format!("the free-list is corrupt ({why}): every page is stored; run PRAGMA integrity_check"));
            Ok(FreePages::none())
        }
    }
}

fn free_pages(header: &DatabaseHeader, pages: u32, image: &Image) -> Result<FreePages, WalkError<Error>> {
    let read = |page: u32, buffer: &mut [u8]| image.read_page(page, buffer);
    let roots = if header.freelist_trunk == 0 { Ok(Vec::new()) } else { btree::roots(header, pages, read) };
    let roots = roots.map_err(|error| match error {
        SchemaError::Read(error) => WalkError::Read(error),
        SchemaError::Corrupt(why) => {
            WalkError::Corrupt(Malformed(format!("it cannot be compared with the schema: {why}")))
        }
    })?;
    FreePages::walk(header, pages, &roots, read)
}

/// The position for the manifest of the snapshot, which was taken `at` that time.
pub(super) fn position(
    header: &DatabaseHeader,
    geometry: &Geometry,
    mark: Option<&IndexHeader>,
    overlay: Option<&Overlay>,
    at: jiff::Timestamp,
) -> Position {
    let log = mark
        .map(|mark| LogPosition::new(mark.salts, mark.max_frame, mark.last_sums(), overlay.map_or(0, Overlay::pages)));
    Position::new(header, geometry.pages, log, at)
}
