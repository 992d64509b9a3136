//! Memory for buffers: page-aligned, zeroed, taken once.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use crate::error::{Error, Result};

/// Alignment of every buffer, in bytes: enough for direct I/O on any device with blocks of up to 4 KiB.
pub const ALIGNMENT: usize = 4096;

/// A fixed piece of memory, aligned to [`ALIGNMENT`].
///
/// Invariant: `start` points to `layout.size()` initialised bytes that this value alone owns.
pub struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory is owned and plain bytes; nothing in it belongs to a thread.
unsafe impl Send for Memory {}
// SAFETY: shared access is through `&[u8]` only.
unsafe impl Sync for Memory {}

impl Memory {
    /// Takes `size` zeroed bytes.
    pub fn new(size: usize) -> Result<Self> {
        let refused = || {
            Error::refused(
                "memory",
                format!("{size} bytes cannot be allocated"),
                "lower --buffer-count or --max-transfer-size",
            )
        };
        let layout = Layout::from_size_align(size.max(1), ALIGNMENT).map_err(|_| refused())?;
        // SAFETY: the layout's size is at least 1.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(refused)?;
        Ok(Self { start, layout })
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this layout and is freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the invariant of the type.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: the invariant of the type; `&mut self` makes the access exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}
