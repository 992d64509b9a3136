//! Memory that direct I/O takes, without `unsafe`: a longer one, from its first aligned byte on.

use std::fs::{File, OpenOptions};
use std::ops::{Deref, DerefMut};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::OFlags;

/// What direct I/O wants, in bytes.
const ALIGNMENT: usize = 4096;

/// So many bytes, and a few before them.
struct Aligned {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self { memory, start, length }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

/// Memory that is used again: fresh pages cost the kernel as much as a checksum.
#[derive(Clone)]
pub struct Shelf {
    length: usize,
    free: Arc<Mutex<Vec<Aligned>>>,
}

/// Memory of a shelf; its last reader returns it.
pub struct Lent {
    memory: Option<Aligned>,
    shelf: Shelf,
}

impl Shelf {
    /// Of pieces so long.
    pub fn new(length: usize) -> Self {
        Self { length, free: Arc::default() }
    }

    pub fn take(&self) -> Lent {
        let free = self.free.lock().unwrap().pop();
        Lent { memory: Some(free.unwrap_or_else(|| Aligned::new(self.length))), shelf: self.clone() }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.shelf.free.lock().unwrap().extend(self.memory.take());
    }
}

impl Deref for Lent {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.memory.as_ref().unwrap()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.as_mut().unwrap()
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

/// A file past the page cache, and through it for what is not aligned.
pub struct DirectFile {
    direct: File,
    buffered: File,
}

impl DirectFile {
    pub fn open(path: &Path, write: bool) -> Self {
        let options = || OpenOptions::new().read(true).write(write).create(write).to_owned();
        let buffered = options().truncate(false).open(path).unwrap();
        let direct = options().custom_flags(OFlags::DIRECT.bits().cast_signed()).open(path).unwrap();
        Self { direct, buffered }
    }

    /// Fills `bytes` from `offset` on, to the end of the file at most; how many there are.
    pub fn read(&self, bytes: &mut [u8], offset: u64) -> usize {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.direct.read_at(&mut bytes[filled..], offset + filled as u64).unwrap() {
                0 => break,
                count => filled += count,
            }
        }
        filled
    }

    pub fn write(&self, bytes: &[u8], offset: u64, buffered: bool) {
        let aligned = (offset as usize | bytes.len() | bytes.as_ptr().addr()).is_multiple_of(ALIGNMENT);
        let file = if aligned && !buffered { &self.direct } else { &self.buffered };
        file.write_all_at(bytes, offset).unwrap();
    }

    pub fn set_length_of_new(&self, length: u64, reserved: bool) {
        if reserved {
            rustix::fs::fallocate(&self.buffered, rustix::fs::FallocateFlags::empty(), 0, length).unwrap();
        }
        self.buffered.set_len(length).unwrap();
    }

    pub fn sync(&self) {
        self.buffered.sync_all().unwrap();
    }
}
