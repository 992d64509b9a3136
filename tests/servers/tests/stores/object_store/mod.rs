//! Tests that need an installed versitygw.

mod fault_proxy;
mod servers;
