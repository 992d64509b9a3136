//! unpack (to come).
