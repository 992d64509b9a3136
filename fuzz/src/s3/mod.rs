//! A gateway in memory, and a client that signs: for the target of whole S3 requests.

pub mod signer;
pub mod storage;
