//! One connection of a clone as a reader: the server's data goes straight into the pool's buffers.

use std::sync::atomic::Ordering;

use fullbore_core::source::{Extent, Reader};
use fullbore_core::{Error, Result};

use super::{CloneSession, LEAST_UNIT};
use crate::mysql::clone::descriptor::{Stage, StateDescriptor};
use crate::mysql::clone::files::{Change, CloneFile, FileId};
use crate::mysql::clone::task::{DataExtent, Event, Task};

/// The rest of the last message of the server.
pub(super) enum Rest {
    /// Bytes on the connection.
    Wire { extent: DataExtent, done: u32 },
    /// The first page of a file that was created during the clone.
    Page { file: CloneFile, page: Vec<u8>, done: usize },
}

/// One connection of the clone.
pub(super) struct TaskReader<'a> {
    pub session: &'a CloneSession,
    pub task: Option<Task>,
    /// The first connection announces files before their bytes come, and ends last.
    pub is_first: bool,
    /// The stage that runs, as the first task knows it.
    pub stage: Stage,
    pub rest: Option<Rest>,
}

/// How much of a buffer is filled at once: whole units, so that each is hashed. A buffer shorter than a unit gets parts
/// of it, which a differential always stores.
fn whole_units(buffer: usize, unit: u32) -> usize {
    let whole = buffer / unit as usize * unit as usize;
    if whole > 0 { whole } else { buffer / LEAST_UNIT as usize * LEAST_UNIT as usize }
}

/// Bytes of a later stage replace the bytes of an earlier stage.
pub(super) fn layer_of(stage: Stage) -> u16 {
    match stage {
        Stage::Init | Stage::FileCopy => 0,
        Stage::PageCopy => 1,
        Stage::RedoCopy | Stage::Done => 2,
    }
}

impl Reader for TaskReader<'_> {
    fn next(&mut self, buffer: &mut [u8]) -> Result<Option<Extent>> {
        loop {
            match self.rest.take() {
                Some(Rest::Wire { extent, done }) if done < extent.length => {
                    return self.wire_extent(extent, done, buffer).map(Some);
                }
                Some(Rest::Page { file, page, done }) if done < page.len() => {
                    return self.page_extent(file, page, done, buffer).map(Some);
                }
                _ => {}
            }
            let Some(task) = &mut self.task else { return Ok(None) };
            match task.next_event()? {
                None if self.is_first => return self.session.behind_the_clone(buffer),
                None => return Ok(None),
                Some(Event::StageBegins(StateDescriptor { stage, .. })) => self.stage = stage,
                Some(Event::StageEnds(stage)) => self.session.stage_ends(stage)?,
                Some(Event::Data(extent)) => {
                    if self.is_first {
                        self.session.told.store(true, Ordering::Relaxed);
                    }
                    self.rest = Some(Rest::Wire { extent, done: 0 });
                }
                Some(Event::File(Change::Born(file, page))) => self.rest = Some(Rest::Page { file, page, done: 0 }),
                // Its number now: all files are announced before the first byte, and there may be too many. Names and
                // sizes are final only at the end.
                Some(Event::File(Change::Found(file))) => {
                    self.session.table().number(&file)?;
                }
                Some(Event::File(_)) => {}
            }
        }
    }
}

impl TaskReader<'_> {
    fn wire_extent(&mut self, extent: DataExtent, done: u32, buffer: &mut [u8]) -> Result<Extent> {
        let file = self.session.file(extent.file)?;
        let (stream, unit, judge) = self.session.table().place(&file)?;
        let room = whole_units(buffer.len(), unit);
        let length = room.min((extent.length - done) as usize);
        let offset = extent.offset + u64::from(done);
        let task = self.task.as_mut().ok_or(Error::Halted)?;
        let mut filled = 0;
        while filled < length {
            match task.read(&mut buffer[filled..length])? {
                0 => return Err(Error::refused("the server", "it sent less of a file than it announced", "try again")),
                count => filled += count,
            }
        }
        match extent.file {
            FileId::Data(_) => {
                self.session.look_at(&file, offset, &mut buffer[..length])?;
                if let Some(judge) = judge {
                    self.session.suspects.look(stream, &judge, u64::MAX, offset, &buffer[..length]);
                    if let Some(format) = judge.numbered_format() {
                        self.session.zeros.look(stream, &format, offset, &buffer[..length]);
                    }
                }
            }
            FileId::Redo(index) => self.session.redo.keep(index, file.size, offset, &buffer[..length]),
        }
        self.rest = Some(Rest::Wire { extent, done: done + length as u32 });
        Ok(Extent { stream, layer: layer_of(extent.stage), offset, length: length as u32 })
    }

    fn page_extent(&mut self, file: CloneFile, mut page: Vec<u8>, done: usize, buffer: &mut [u8]) -> Result<Extent> {
        if done == 0 {
            self.session.first_page(&file, &mut page)?;
        }
        let (stream, unit, _) = self.session.table().place(&file)?;
        let length = whole_units(buffer.len(), unit).min(page.len() - done);
        buffer[..length].copy_from_slice(&page[done..done + length]);
        self.rest = Some(Rest::Page { file, page, done: done + length });
        Ok(Extent { stream, layer: layer_of(self.stage), offset: done as u64, length: length as u32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_filled_with_whole_units_if_it_has_room_for_one() {
        assert_eq!(whole_units((1 << 20) - 4096, 16384), 63 * 16384);
        assert_eq!(whole_units((64 << 10) - 4096, 65536), (64 << 10) - 4096);
    }
}
