//! The databases that fullbore knows, one folder each.
