//! One small stream of a set, found by the index: the rest of the set is not read.

use super::set::MediaSet;
use crate::error::{Error, Result};
use crate::media::{BlockKind, BlockReference, ManifestStream, RunKind};

impl MediaSet {
    /// The bytes of a stream in layer 0, which has at most `most` bytes. Every block of it is checked.
    ///
    /// # Errors
    /// The stream is larger, or a block of it is missing, damaged or elsewhere than its index says.
    pub fn small_stream(&mut self, stream: &ManifestStream, most: u64) -> Result<Vec<u8>> {
        let wrong = |why: &str| {
            let why = format!("its stream `{}` {why}", stream.name);
            Error::incomplete("media set", why, "use another copy of the set")
        };
        let size = usize::try_from(stream.size).ok().filter(|_| stream.size <= most);
        let mut bytes = vec![0; size.ok_or_else(|| wrong("is larger than it can be"))?];
        let mut filled = 0_u64;
        let (families, data_key) = self.parts_mut();
        for family in families {
            let mut found = Vec::new();
            family.for_each_entry(data_key, |entry| {
                if entry.kind == BlockKind::Data as u8 && entry.stream() == stream.id {
                    found.push(BlockReference { offset: entry.offset.get(), length: entry.length.get() });
                }
            })?;
            for reference in found {
                let block = family.block(reference, BlockKind::Data, data_key)?;
                if block.header.stream != stream.id || block.header.layer != 0 {
                    return Err(wrong("differs from its index"));
                }
                let mut rest = &block.payload[..];
                for run in &block.runs {
                    let length = run.length as usize;
                    filled = filled.saturating_add(run.length.into());
                    let data = if run.kind == RunKind::Data { rest.split_at_checked(length) } else { None };
                    let begin = usize::try_from(run.offset).ok();
                    let into = begin.and_then(|begin| bytes.get_mut(begin..begin.checked_add(length)?));
                    let into = into.ok_or_else(|| wrong("has bytes behind its end"))?;
                    match (run.kind, data) {
                        (RunKind::Data, Some((data, behind))) => {
                            into.copy_from_slice(data);
                            rest = behind;
                        }
                        (RunKind::Zero, _) => {}
                        _ => return Err(wrong("has a block that cannot be read")),
                    }
                }
            }
        }
        if filled == stream.size { Ok(bytes) } else { Err(wrong("is not complete")) }
    }
}
