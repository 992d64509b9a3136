//! Media of other programs as backup sets of this program: stored by their places in a database, and given back byte for
//! byte. Nothing here knows a format: the kind of media says which bytes have a place.
//!
//! | to understand | read |
//! |---|---|
//! | which byte of a family is where | [`layout`] (the bytes), [`places`] (found by stream) |
//! | on the way in | [`bytes`], [`tap`] (read and judged once), [`source`] (what the pipeline gets), [`session`], [`digest`] (proves a family) |
//! | on the way out | [`target`], [`working_file`]; [`stored_family`] for a reader that needs no file |

pub mod bytes;
pub mod digest;
pub mod layout;
pub mod places;
pub mod session;
mod reader;
pub mod source;
pub mod stored_family;
pub mod tap;
pub mod target;
pub mod working_file;
