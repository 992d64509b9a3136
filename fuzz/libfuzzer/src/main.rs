//! All fuzz targets under libFuzzer. `FULLBORE_FUZZ_TARGET` names the target of a run.
#![no_main]

use std::sync::LazyLock;

use fullbore_fuzz::targets::TARGETS;
use libfuzzer_sys::fuzz_target;

static CHOSEN: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let wanted = std::env::var("FULLBORE_FUZZ_TARGET").expect("FULLBORE_FUZZ_TARGET names a target");
    let found = TARGETS.iter().find(|(name, _)| *name == wanted);
    found.unwrap_or_else(|| panic!("{wanted} is not a target")).1
});

fuzz_target!(|input: &[u8]| CHOSEN(input));
