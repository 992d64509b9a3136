//! A small HTTPS S3 endpoint. It speaks the protocol, checks keys and signatures, and keeps the memory within a budget.
//! It knows no repository: a [`Storage`] takes the objects and gives them back, by blocking calls.
//!
//! | to understand | read |
//! |---|---|
//! | the seam | [`storage`] |
//! | a connection | `server` (TLS, the end of all), `front` (requests), then `trace` and `refusals` (what is refused before its body is read) |
//! | what bounds a request | `incoming` (the body: time, chunks, memory), `chunks`, `patience` (the client has to take bytes) |
//! | who may do what | [`keys`] |
//! | an upload | `requests`, `gateway` (the state), `uploads` (which run), `receive` (a body, its checksums) |
//! | a download | `send`, `listing` |
//! | the memory | `budget` |
//! | TLS certificates | `certificate` |
//! | all of it without a socket | `wire` |

mod answers;
pub mod budget;
#[cfg(feature = "tls")]
pub mod certificate;
pub mod keys;
mod chunks;
mod digests;
mod front;
mod gateway;
mod incoming;
mod listing;
mod patience;
mod receive;
mod refusals;
mod requests;
mod send;
#[cfg(feature = "tls")]
pub mod server;
pub mod storage;
#[cfg(feature = "tls")]
mod tls;
mod trace;
mod uploads;
#[cfg(feature = "testkit")]
pub mod wire;

pub use gateway::Tell;
pub use storage::{Failure, FinishedPart, NewObject, ObjectInfo, ObjectReader, Storage, Upload};
