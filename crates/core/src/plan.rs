//! plan (to come).
