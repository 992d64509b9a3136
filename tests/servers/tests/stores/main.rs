//! The object stores and the fault proxy before them. All are in one module: `./test` leaves `object_store::` out where
//! there is no go to build a store with.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod object_store;
