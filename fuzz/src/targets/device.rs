//! Names of devices, as a user writes them.

use fullbore_core::device::{Destination, Device};

/// One input.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(device) = Device::parse(text) else { return };
    assert_eq!(device.to_string(), text);
    assert_eq!(device.identity().is_none(), *device.place() == Destination::Null);
    if let Some(joined) = device.join("name.bore") {
        assert!(matches!(joined.place(), Destination::File(_) | Destination::Object { .. }));
    }
}
