//! meter (to come).
