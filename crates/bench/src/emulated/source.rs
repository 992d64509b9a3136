//! A source on an emulated volume: the bytes of a reader have passed the volume.

use std::sync::Arc;

use super::Volume;
use fullbore_core::Result;
use fullbore_core::halt::Halt;
use fullbore_core::source::{Extent, Reader, Source, Stream};

/// A source whose readers share a volume.
pub struct PacedSource<'a> {
    source: &'a dyn Source,
    volume: Arc<Volume>,
    halt: Halt,
}

impl<'a> PacedSource<'a> {
    /// `source` on `volume`, until `halt` stops the job.
    pub fn new(source: &'a dyn Source, volume: Arc<Volume>, halt: Halt) -> Self {
        Self { source, volume, halt }
    }
}

impl Source for PacedSource<'_> {
    fn streams(&self) -> &[Stream] {
        self.source.streams()
    }

    fn is_open(&self) -> bool {
        self.source.is_open()
    }

    fn stream(&self, id: u32) -> Option<Stream> {
        self.source.stream(id)
    }

    fn identity(&self, id: u32) -> Option<String> {
        self.source.identity(id)
    }

    fn detail(&self, id: u32) -> Option<serde_json::Value> {
        self.source.detail(id)
    }

    fn found(&self) -> Result<Vec<Stream>> {
        self.source.found()
    }

    fn reader(&self, index: usize, count: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(PacedReader { reader: self.source.reader(index, count)?, volume: &self.volume, halt: &self.halt }))
    }

    fn is_free(&self, stream: u32, offset: u64) -> bool {
        self.source.is_free(stream, offset)
    }

    fn sample(&self, stream: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.source.sample(stream, offset, buffer)
    }

    fn check(&self) -> Result<()> {
        self.source.check()
    }
}

struct PacedReader<'a> {
    reader: Box<dyn Reader + 'a>,
    volume: &'a Volume,
    halt: &'a Halt,
}

impl Reader for PacedReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let extent = self.reader.next(buffer)?;
        if let Some(extent) = extent {
            let read = u64::from(extent.length).saturating_sub(self.reader.unread());
            if read > 0 {
                self.volume.pass(read, 1, self.halt)?;
            }
        }
        Ok(extent)
    }

    fn unread(&self) -> u64 {
        self.reader.unread()
    }
}
