//! The data files of a database: pages by their place.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use fullbore_core::{Error, Result};

use super::super::page::{PAGE, PAGES_PER_EXTENT, PageId, check, place};
use super::Decoded;
use super::data_page::DataPage;

/// The data files of one database.
#[derive(Default)]
pub struct DataFiles {
    files: BTreeMap<u16, DataFile>,
}

struct DataFile {
    name: String,
    bytes: Bytes,
    pages: u64,
}

enum Bytes {
    File(File),
    #[cfg(any(test, feature = "testkit"))]
    Memory(Vec<u8>),
}

impl DataFiles {
    /// Adds the file with this id, which is open. `name` is for messages.
    ///
    /// # Errors
    /// Its length cannot be read.
    pub fn add(&mut self, id: u16, name: String, file: File) -> Result<()> {
        let length = file.metadata().map_err(|e| Error::io("look at", name.as_str(), e))?.len();
        self.files.insert(id, DataFile { name, bytes: Bytes::File(file), pages: length / PAGE as u64 });
        Ok(())
    }

    /// Adds a file that is in memory.
    #[cfg(any(test, feature = "testkit"))]
    pub fn add_bytes(&mut self, id: u16, bytes: Vec<u8>) {
        let pages = (bytes.len() / PAGE) as u64;
        self.files.insert(id, DataFile { name: format!("file {id}"), bytes: Bytes::Memory(bytes), pages });
    }

    /// Pages of all files: no chain of pages is longer.
    pub fn pages(&self) -> u64 {
        self.files.values().map(|file| file.pages).sum()
    }

    /// The page at this place, which is in use.
    ///
    /// # Errors
    /// The page does not match its check, or is not that of this place; the file cannot be read.
    pub fn page(&self, id: PageId) -> Decoded<DataPage> {
        let (name, bytes) = self.read(id)?;
        if !check(&bytes).is_good() || place(&bytes, id.page % PAGES_PER_EXTENT) != Some(id) {
            let what = format!("page {}:{} is in use and is not right", id.file, id.page);
            return Err(Error::damaged(name, u64::from(id.page) * PAGE as u64, what).into());
        }
        Ok(DataPage::new(id, bytes))
    }

    /// The bytes at this place, and the name of the file.
    fn read(&self, id: PageId) -> Decoded<(&str, Box<[u8; PAGE]>)> {
        let found = self.files.get(&id.file).filter(|file| u64::from(id.page) < file.pages);
        let Some(file) = found else {
            return super::unknown(format!("page {}:{} is not in the files of the database", id.file, id.page));
        };
        let mut bytes = Box::new([0; PAGE]);
        let offset = u64::from(id.page) * PAGE as u64;
        match &file.bytes {
            Bytes::File(from) => {
                from.read_exact_at(&mut *bytes, offset).map_err(|e| Error::io("read", file.name.as_str(), e))?;
            }
            #[cfg(any(test, feature = "testkit"))]
            Bytes::Memory(from) => {
                let page = usize::try_from(offset).ok().and_then(|at| from.get(at..)?.first_chunk::<PAGE>());
                bytes.copy_from_slice(page.unwrap_or(&[0; PAGE]));
            }
        }
        Ok((&file.name, bytes))
    }
}
