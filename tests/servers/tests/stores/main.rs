//! The object stores and the fault proxy before them. All are in one module: `./test` leaves `object_store::` out where
//! there is no go to build a store with.
#![allow(clippy::unwrap_used)]

mod object_store;
