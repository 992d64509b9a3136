//! Conformance suites: one per seam, run by every implementation.

mod codec_conforms;

pub use codec_conforms::codec_conforms;
