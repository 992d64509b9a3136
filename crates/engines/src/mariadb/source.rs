//! A hot copy as a source: readers fill the pipeline's buffers with pieces of the server's files.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use fullbore_core::Result;
use fullbore_core::source::{Extent, Reader, Source, Stream};

use super::hot_copy::{CopiedFile, FileNumber, PIECE_UNIT, PieceReader, Told};
use super::session::MariadbSession;
use crate::mysql_family::innodb::verify;
use crate::streams;

impl Source for MariadbSession {
    fn streams(&self) -> &[Stream] {
        self.expected()
    }

    fn is_open(&self) -> bool {
        true
    }

    fn stream(&self, id: u32) -> Option<Stream> {
        Some(Stream { id, name: String::new(), unit: self.told(id)?.unit, size: 0 })
    }

    /// A page is handed on once, when it is whole; the redo log, which has no identity, makes the rest of the
    /// difference.
    fn identity(&self, id: u32) -> Option<String> {
        self.told(id)?.identity
    }

    fn detail(&self, id: u32) -> Option<serde_json::Value> {
        self.told(id)?.flags.map(verify::detail)
    }

    /// Files without a name were removed during the copy, or were copied again under another number.
    fn found(&self) -> Result<Vec<Stream>> {
        let copy = self.copy()?;
        let outcome = copy.outcome()?;
        let files: HashMap<FileNumber, &CopiedFile> = outcome.files.iter().map(|file| (file.number, file)).collect();
        let described = |number: u32| {
            let id = stream_of(FileNumber(number))?;
            Ok(match files.get(&FileNumber(number)) {
                Some(file) => Stream { id, name: file.name.clone(), unit: file.unit, size: file.size },
                None => Stream { id, name: String::new(), unit: PIECE_UNIT as u32, size: 0 },
            })
        };
        (0..copy.files()).map(described).collect()
    }

    fn reader(&self, _index: usize, _count: usize) -> Result<Box<dyn Reader + '_>> {
        Ok(Box::new(FileReader(self.copy()?.reader()?)))
    }

    fn is_free(&self, _: u32, _: u64) -> bool {
        false
    }

    /// A sample of the files one after another; for estimates only.
    fn sample(&self, _: u32, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut before = 0;
        let file = self.files.iter().find(|(_, size)| {
            before += size;
            offset < before
        });
        let Some((path, size)) = file else { return Ok(0) };
        let within = offset - (before - size);
        let length = buffer.len().min(usize::try_from(size - within).unwrap_or(buffer.len()));
        let read = File::open(path).and_then(|file| file.read_at(&mut buffer[..length], within));
        Ok(read.unwrap_or(0)) // It may have been removed.
    }

    /// The copy's own threads ask the server, and stop the job.
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

impl MariadbSession {
    fn told(&self, id: u32) -> Option<Told> {
        self.begun()?.told(FileNumber(id.checked_sub(1)?))
    }
}

/// Streams are numbered from 1 on, as files are from 0.
fn stream_of(file: FileNumber) -> Result<u32> {
    streams::number(file.0.into())
}

struct FileReader<'a>(PieceReader<'a>);

impl Reader for FileReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        let whole = buffer.len() / PIECE_UNIT * PIECE_UNIT;
        let Some(piece) = self.0.next(&mut buffer[..whole])? else { return Ok(None) };
        let stream = stream_of(piece.file)?;
        // One layer: the redo log is a file of its own, and no two pieces overlap.
        Ok(Some(Extent { stream, layer: 0, offset: piece.offset, length: piece.length as u32 }))
    }
}
