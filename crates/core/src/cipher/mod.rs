//! mod (to come).
