//! `--name-template`: whatever it says, a name stays in its directory, and no two families share one.

use std::collections::HashSet;

use fullbore_core::device::{Destination, Device};
use fullbore_core::media::SetKind;

// The file itself: the rest of the control plane is not wanted here.
#[path = "../../../src/job/names.rs"]
#[allow(dead_code)]
mod names;

/// One input.
pub fn run(input: &[u8]) {
    let Some((&stripes, rest)) = input.split_first() else { return };
    let Ok(template) = std::str::from_utf8(rest) else { return };
    let template = if template.is_empty() { names::DEFAULT_TEMPLATE } else { template };
    let started = jiff::Timestamp::UNIX_EPOCH;
    let fields = names::NameFields { database: "app", kind: SetKind::Full, started, set_id: "7" };
    let to = ["/fuzz/a/", "/fuzz/b/"].map(|name| Device::parse(name).expect("a directory"));
    let Ok(devices) = names::devices(&to, Some(usize::from(stripes)), template, &fields) else { return };
    assert_eq!(devices.len(), usize::from(stripes));
    let mut seen = HashSet::new();
    for device in &devices {
        let Destination::File(path) = device.place() else { panic!("{device} is no file") };
        let parent = path.parent().and_then(|parent| parent.to_str());
        assert!(matches!(parent, Some("/fuzz/a" | "/fuzz/b")), "{device} left its directory");
        assert!(seen.insert(path.clone()), "{device} stands for two families");
    }
}
