//! Two devices that hold one family, by their descriptions: `verify` compares their bytes. Which of two is right, no
//! description tells: where nothing protects the bytes, both can pass every check.

use std::io::Read;

use fullbore_core::conduct::Conduct;
use fullbore_core::{Error, Result};
use fullbore_engines::{ForeignCopy, ForeignMediaSet};

use super::{ForeignDevices, READ, all_bytes_pool};
use crate::report::Report;

/// Compares each copy with the device that is read in its place; gives the first difference of each. A copy that is cut
/// off is a warning.
///
/// # Errors
/// A device cannot be read.
pub(super) fn compare(
    found: &ForeignDevices,
    set: &ForeignMediaSet,
    conduct: &Conduct,
    report: &mut Report,
) -> Result<Vec<Error>> {
    let mut different = Vec::new();
    for copy in &set.copies {
        if !copy.is_equal {
            report.warnings.push(copy.not_read());
            continue;
        }
        match first_difference(found, copy, conduct)? {
            None => report.notes.push(format!("`{}` has the same bytes as `{}`", copy.device, copy.of)),
            Some(at) => different.push(Error::incomplete(
                format!("`{}` and `{}`", copy.of, copy.device),
                format!("say that they are the same family, and differ from byte {at} on: one of them is wrong"),
                "compare them with other copies; `verify` of one alone judges what has checksums",
            )),
        }
    }
    Ok(different)
}

/// The offset of the first byte that is not the same in both.
fn first_difference(found: &ForeignDevices, copy: &ForeignCopy, conduct: &Conduct) -> Result<Option<u64>> {
    // Each has its own buffers, so no one waits for the other.
    let mut one = found.open(&copy.of, &all_bytes_pool()?, conduct)?.bytes;
    let mut other = found.open(&copy.device, &all_bytes_pool()?, conduct)?.bytes;
    let (mut first, mut second) = (Vec::with_capacity(READ), Vec::with_capacity(READ));
    let mut at = 0;
    loop {
        fill(&mut one, &mut first, &copy.of)?;
        fill(&mut other, &mut second, &copy.device)?;
        if first != second {
            let same = first.iter().zip(&second).take_while(|(one, other)| one == other).count();
            return Ok(Some(at + same as u64));
        }
        if first.is_empty() {
            return Ok(None);
        }
        at += first.len() as u64;
    }
}

/// The next bytes, as many as a buffer has; fewer at the end.
fn fill(from: &mut dyn Read, into: &mut Vec<u8>, device: &str) -> Result<()> {
    into.clear();
    let read = from.take(READ as u64).read_to_end(into);
    read.map_err(|error| Error::of_read(device, error))?;
    Ok(())
}
