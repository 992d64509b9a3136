//! fullbore.
