//! The only module with `unsafe`: aligned memory and io_uring.

mod memory;

pub use memory::Memory;
