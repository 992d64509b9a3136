//! The streams of a clone: each file has one, independent of its name.

use std::collections::HashMap;

use fullbore_core::Result;

use super::LEAST_UNIT;
use crate::mysql::clone::files::{CloneFile, FileId};
use crate::mysql_family::Dialect;
use crate::mysql_family::innodb::suspects::Judge;
use crate::streams;

/// The numbers of the streams, and the facts from their first pages.
#[derive(Default)]
pub(super) struct StreamTable {
    pub streams: HashMap<FileId, u32>,
    /// The streams by their numbers, from 1 on.
    pub known: Vec<KnownStream>,
    /// Size in bytes by the first page.
    pub sizes: HashMap<FileId, u64>,
}

/// The identity of a stream, independent of its file name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KnownStream {
    pub unit: u32,
    pub identity: Option<String>,
    /// Of a tablespace.
    pub fsp_flags: Option<u32>,
    pub judge: Option<Judge>,
}

impl KnownStream {
    pub fn of(file: &CloneFile) -> Self {
        let pages = matches!(file.id, FileId::Data(_)) && file.fsp_flags != u32::MAX;
        // The system tablespace has several files, whose names do not change.
        let identity = || match file.space {
            0 => format!("space:0:{}", file.path),
            space => format!("space:{space}"),
        };
        let unit = if pages { file.page_size.max(LEAST_UNIT) } else { LEAST_UNIT };
        let identity = pages.then(identity).filter(|identity| identity.len() <= 256);
        let fsp_flags = pages.then_some(file.fsp_flags);
        let judge =
            fsp_flags.and_then(|flags| Judge::new(Dialect::MySql, flags, identity.as_deref().unwrap_or_default()));
        Self { unit, identity, fsp_flags, judge }
    }
}

impl StreamTable {
    /// The number of a file, which it gets when it is first asked for.
    pub fn number(&mut self, file: &CloneFile) -> Result<u32> {
        if let Some(&number) = self.streams.get(&file.id) {
            return Ok(number);
        }
        let number = self.add(KnownStream::of(file))?;
        self.streams.insert(file.id, number);
        Ok(number)
    }

    /// How a piece of a file is stored: its stream, its unit, and the check of its pages.
    pub fn place(&mut self, file: &CloneFile) -> Result<(u32, u32, Option<Judge>)> {
        let number = self.number(file)?;
        let known = &self.known[number as usize - 1];
        Ok((number, known.unit, known.judge))
    }

    pub fn add(&mut self, known: KnownStream) -> Result<u32> {
        let number = streams::number(self.known.len() as u64)?;
        self.known.push(known);
        Ok(number)
    }

    pub fn known(&self, number: u32) -> Option<&KnownStream> {
        self.known.get((number as usize).checked_sub(1)?)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn file(index: u32, space: u32, page_size: u32, path: &str) -> CloneFile {
        CloneFile {
            id: FileId::Data(index),
            space,
            path: path.into(),
            outside: None,
            size: 0,
            page_size,
            fsp_flags: 0,
            flags: 0,
            deleted: false,
        }
    }

    #[test]
    fn a_known_file_keeps_its_number_when_all_are_taken_and_one_more_is_an_error() {
        let mut table = StreamTable::default();
        let most = streams::FILES_MAX as u32;
        for index in 0..most {
            assert_eq!(table.number(&file(index, 100 + index, 16384, "a.ibd")).unwrap(), index + 1);
        }
        assert_eq!(table.number(&file(most - 1, most + 99, 16384, "b.ibd")).unwrap(), most);
        let error = table.number(&file(most, most + 100, 16384, "c.ibd")).unwrap_err().to_string();
        assert!(error.contains(&most.to_string()), "{error}");
        assert_eq!(table.known(1).unwrap().identity.as_deref(), Some("space:100"));
        assert!(table.known(0).is_none());
    }

    #[test]
    fn a_tablespace_is_known_by_its_id_and_files_without_pages_by_nothing() {
        assert_eq!(
            KnownStream::of(&file(1, 7, 8192, "shop/a.ibd")),
            KnownStream {
                unit: 8192,
                identity: Some("space:7".into()),
                fsp_flags: Some(0),
                judge: Judge::new(Dialect::MySql, 0, "space:7")
            }
        );
        assert_eq!(KnownStream::of(&file(1, 7, 1024, "shop/a.ibd")).unit, 4096);
        let (one, two) = (file(1, 0, 16384, "ibdata1"), file(2, 0, 16384, "ibdata2"));
        assert_ne!(KnownStream::of(&one).identity, KnownStream::of(&two).identity);
        let dump = CloneFile { fsp_flags: u32::MAX, ..file(0, u32::MAX, 16384, "ib_buffer_pool") };
        assert_eq!(KnownStream::of(&dump), KnownStream { unit: 4096, identity: None, fsp_flags: None, judge: None });
        let redo = CloneFile { id: FileId::Redo(3), ..file(0, 0xFFFF_FFF0, 512, "#innodb_redo/#ib_redo3") };
        assert_eq!(KnownStream::of(&redo).identity, None);
    }
}
