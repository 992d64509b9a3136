//! The way back: families in, blocks checked and unpacked, bytes into a target. A verification is the same
//! with a target that throws everything away.

mod balance;
mod base_map;
mod block;
mod by_place;
mod claims;
mod compare;
mod directory;
mod family;
mod fetch;
mod in_order;
mod index_walk;
mod layers;
mod marks;
mod parse;
mod pieces;
mod reservation;
mod restore;
mod scattered;
mod sealed;
mod set;
mod small_stream;
mod tally;
mod target;

pub use base_map::BaseMap;
pub use by_place::BlockPlaces;
pub use compare::{Compared, OpenStream};
pub use directory::{BaseTarget, DirectoryTarget, SYNCS_AT_ONCE, relative_path};
pub use family::Family;
pub use fetch::Fetched;
pub use marks::Marks;
pub use restore::{Unpack, UnpackOutcome};
pub use scattered::{BlockRanges, ReadBlocks};
pub(crate) use sealed::check_sealed;
pub use set::{FamilyPlace, MediaSet, group};
pub use target::{BlockTaker, CheckedBlock, FileTarget, LEAST_DIRECT_TRANSFER, NullTarget, Target};
