//! Memory for buffers: one region for all of them, aligned, zeroed, in huge pages where the kernel has some.
#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::error::{Error, Result};

/// Alignment of every buffer, in bytes: enough for direct I/O on any device with blocks of up to 4 KiB.
pub const ALIGNMENT: usize = 4096;

/// A huge page of x86-64 and of aarch64 with 4 KiB pages, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// A mapping of anonymous memory that the buffers of a pool share.
///
/// Invariant: `start` points to `length` mapped, initialised bytes, until this value is dropped.
struct Region {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: a region is only an address and a length; its bytes are reached through `Memory`, each of which owns its own.
unsafe impl Send for Region {}
// SAFETY: as above: a shared region gives no access to bytes.
unsafe impl Sync for Region {}

impl Region {
    /// Maps `length` zeroed bytes, which is not 0.
    fn map(length: usize) -> Option<Self> {
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), length, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        Some(Self { start: NonNull::new(start.ok()?.cast())?, length })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and each user of it held an `Arc` of it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) }; // Nothing can be done about a failure.
    }
}

/// A fixed piece of memory, aligned to [`ALIGNMENT`].
///
/// Invariant: `start` points to `size` bytes inside `region` that belong to no other `Memory`.
pub struct Memory {
    start: NonNull<u8>,
    size: usize,
    _region: Arc<Region>,
}

// SAFETY: the bytes are owned by this value alone and are plain; nothing in them belongs to a thread.
unsafe impl Send for Memory {}
// SAFETY: shared access is through `&[u8]` only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes `size` zeroed bytes.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn new(size: usize) -> Result<Self> {
        Self::pieces(1, size)?.pop().ok_or(Error::Halted)
    }

    /// Takes `count` pieces of `size` zeroed bytes each.
    ///
    /// They lie in huge pages where there are any: checksums run 10 to 20 % faster then, and the kernel has fewer pages
    /// to pin for each direct read and write.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub fn pieces(count: usize, size: usize) -> Result<Vec<Self>> {
        let refused = || {
            Error::refused(
                "memory",
                format!("{count} × {size} bytes cannot be allocated"),
                "lower --buffer-count or --max-transfer-size",
            )
        };
        let step = size.checked_next_multiple_of(ALIGNMENT).map(|step| step.max(ALIGNMENT)).ok_or_else(refused)?;
        let whole = step.checked_mul(count).and_then(|bytes| bytes.checked_add(HUGE_PAGE)).ok_or_else(refused)?;
        let region = Arc::new(Region::map(whole).ok_or_else(refused)?);
        let lead = region.start.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        // SAFETY: `lead + step × count` is not more than the region's length, of which HUGE_PAGE bytes are for `lead`.
        let first = unsafe { region.start.add(lead) };
        // SAFETY: advice on a part of our own mapping; its bytes stay what they are. Without huge pages it fails: no
        // harm.
        let _ = unsafe { madvise(first.as_ptr().cast(), step * count, Advice::LinuxHugepage) };
        let piece = |at: usize| {
            // SAFETY: `at < count`: inside the region, and `step ≥ size`, so that pieces do not overlap.
            let start = unsafe { first.add(at * step) };
            Self { start, size, _region: Arc::clone(&region) }
        };
        Ok((0..count).map(piece).collect())
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the invariant of the type; the region lives as long as this value.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.size) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the invariant of the type; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.size) }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn pieces_are_aligned_zeroed_and_apart_and_outlive_each_other() {
        for size in [1, 4096, 5000, 1 << 20, 3 << 20] {
            let mut pieces = Memory::pieces(5, size).unwrap();
            assert!(pieces.iter().all(|piece| piece.len() == size && crate::checksum::is_zero(piece)));
            assert!(pieces.iter().all(|piece| piece.as_ptr().align_offset(ALIGNMENT) == 0));
            for (at, piece) in pieces.iter_mut().enumerate() {
                piece.fill(at as u8 + 1);
            }
            let last = pieces.pop().unwrap();
            assert!(pieces.iter().enumerate().all(|(at, piece)| piece.iter().all(|byte| *byte == at as u8 + 1)));
            drop(pieces);
            assert!(last.iter().all(|byte| *byte == 5));
        }
    }

    #[test]
    fn no_pieces_and_too_many_are_no_panic() {
        assert!(Memory::pieces(0, 4096).unwrap().is_empty());
        assert!(Memory::pieces(usize::MAX, 4096).is_err());
        assert!(Memory::pieces(2, usize::MAX).is_err());
        assert!(Memory::pieces(1 << 30, 1 << 30).is_err());
    }
}
