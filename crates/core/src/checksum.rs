//! checksum (to come).
