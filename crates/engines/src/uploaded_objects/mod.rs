//! Objects that other programs have uploaded through the gateway: stored as they came, and given back byte for byte.
//!
//! | to understand | read |
//! |---|---|
//! | what a set says of its object | [`position`] |
//! | on the way in: pieces in any order, and pieces that do not count | [`incoming`], [`session`] |
//! | on the way out | [`restore`] |

pub mod engine;
pub mod incoming;
pub mod position;
pub mod restore;
pub mod session;
