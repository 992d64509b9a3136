//! Names of devices, as a user writes them.
#![no_main]

use fullbore_core::device::{Destination, Device};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let Ok(device) = Device::parse(text) else { return };
    assert_eq!(device.to_string(), text);
    assert_eq!(device.identity().is_none(), *device.place() == Destination::Null);
    if let Some(joined) = device.join("name.bore") {
        assert!(matches!(joined.place(), Destination::File(_) | Destination::Object { .. }));
    }
});
