//! The data plane of fullbore: bytes only. It knows no SQL, no catalog and no terminal.
//!
//! The modules are in the order in which the data passes them: a [`source`] fills buffers of the
//! [`pool`], workers [`checksum`], compress ([`codec`]) and encrypt ([`cipher`]) them into blocks of the
//! [`media`] format, and each stripe hands its blocks to one [`sink`]. [`pipeline`] joins them for a backup,
//! [`unpack`] for a restore or a verification, which get their bytes from a [`supply`].

pub mod child;
pub mod conduct;
pub mod device;
pub mod error;
pub mod halt;
pub mod resources;
pub mod units;

pub mod checksum;
pub mod cipher;
pub mod key_store;
pub mod codec;
pub mod io;
mod map_scratch;
pub mod media;
mod memory;
pub mod meter;
mod object_url;
pub mod order;
pub mod pipeline;
pub mod plan;
pub mod pool;
pub mod sink;
pub mod source;
#[cfg_attr(not(feature = "s3"), path = "store/absent.rs")]
pub mod store;
pub mod supply;
pub mod threads;
pub mod unpack;

#[cfg(any(test, feature = "testkit"))]
pub mod testkit;

pub use error::{Error, Result};
