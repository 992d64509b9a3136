//! The number of families: the given number, or as many as needed so that each fits into an object of its store.

use fullbore_core::device::{Destination, Device};
use fullbore_core::media::MAX_FAMILIES;
use fullbore_core::sink::{PartSizes, object_most, usual_part};
use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};

use fullbore_core::units::show_bytes;

/// More stripes than there are destinations, and why.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Raised {
    /// The number of stripes.
    pub stripes: usize,
    /// A line for the user.
    pub note: String,
}

/// Checks that `whole` bytes in `stripes` families fit into the stores of `to`. If not, raises the number, if names are
/// made by a template and the number was not given (`asked`).
///
/// # Errors
/// They do not fit; the hint says how many stripes are needed.
pub(super) fn enough(
    to: &[Device],
    stripes: usize,
    asked: bool,
    whole: u64,
    stores: &Stores,
) -> Result<Option<Raised>> {
    let Some((device, most)) = tightest(to, stores)? else { return Ok(None) };
    let per_family = whole.div_ceil(stripes as u64);
    if per_family <= most {
        return Ok(None);
    }
    // Evenly over the destinations.
    let needed = (whole.div_ceil(most) as usize).next_multiple_of(to.len());
    let why = format!(
        "about {} are expected in each of {stripes} families, but an object there may have at most {}",
        show_bytes(per_family),
        show_bytes(most)
    );
    if needed > usize::from(MAX_FAMILIES) {
        let hint = format!(
            "it would need {needed} families, but a set has at most {MAX_FAMILIES}: choose a stronger --compression or \
             a store that takes more parts"
        );
        return Err(Error::usage(device.to_string(), why, hint));
    }
    if asked || !to.iter().all(Device::holds_many) {
        return Err(Error::usage(device.to_string(), why, format!("use at least --stripes {needed}")));
    }
    Ok(Some(Raised { stripes: needed, note: format!("{needed} stripes instead of {stripes}: for {device}, {why}") }))
}

/// The memory of upload parts that are not full, for all stripes together, in bytes: each stripe in a store keeps one
/// part while it waits. A part has `part_size` bytes, or more if there would be too many parts.
pub(super) fn part_bytes(
    to: &[Device],
    stripes: usize,
    per_family: u64,
    part_size: u64,
    stores: &Stores,
) -> Result<u64> {
    let mut bytes = 0;
    for family in 0..stripes {
        if let Some(parts_most) = parts_most(&to[family % to.len()], stores)? {
            bytes += PartSizes::new(per_family, parts_most, part_size).largest(per_family);
        }
    }
    Ok(bytes)
}

/// The size of upload parts for so many families of an expected length, in bytes: 0 without a store.
pub(super) fn part_size(to: &[Device], stripes: usize, per_family: u64) -> u64 {
    if to.iter().any(Device::is_in_store) { usual_part(per_family, stripes) } else { 0 }
}

/// The destination with the smallest limit for an object, and this limit.
fn tightest<'a>(to: &'a [Device], stores: &Stores) -> Result<Option<(&'a Device, u64)>> {
    let mut tightest: Option<(&Device, u64)> = None;
    for device in to {
        if let Some(most) = parts_most(device, stores)?.map(object_most)
            && tightest.is_none_or(|(_, least)| most < least)
        {
            tightest = Some((device, most));
        }
    }
    Ok(tightest)
}

fn parts_most(device: &Device, stores: &Stores) -> Result<Option<u64>> {
    match device.place() {
        Destination::Object { bucket, .. } | Destination::Prefix { bucket, .. } => {
            Ok(Some(stores.bucket(bucket)?.parts_most()))
        }
        Destination::File(_) | Destination::Directory(_) | Destination::Null | Destination::Pipe => Ok(None),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use fullbore_core::store::ObjectOptions;

    use super::*;

    fn stores(endpoint: &str, max_parts: Option<u64>) -> Stores {
        let setting = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let settings = vec![
            setting("AWS_ACCESS_KEY_ID", "a"),
            setting("AWS_SECRET_ACCESS_KEY", "b"),
            setting("AWS_ENDPOINT_URL", endpoint),
        ];
        Stores::keeping(Duration::from_secs(1), settings, ObjectOptions { max_parts, ..ObjectOptions::default() })
    }

    fn to(names: &[&str]) -> Vec<Device> {
        names.iter().map(|name| Device::parse(name).unwrap()).collect()
    }

    #[test]
    fn more_than_an_object_is_planned_for_is_refused_with_the_stripes_that_it_takes() {
        let (stores, most) = (stores("http://127.0.0.1:9", None), object_most(10_000));
        let named = to(&["s3://bucket/a.bore", "s3://bucket/b.bore"]);
        assert_eq!(enough(&named, 2, false, 2 * most, &stores).unwrap(), None);
        let error = enough(&named, 2, false, 4 * most + 1, &stores).unwrap_err().to_string();
        assert!(error.contains("s3://bucket/a.bore") && error.contains("--stripes 6"), "{error}");
        let error = enough(&to(&["s3://bucket/night/"]), 2, true, 4 * most, &stores).unwrap_err().to_string();
        assert!(error.contains("--stripes 4"), "who asks for a number gets it or is refused: {error}");
        assert_eq!(enough(&to(&["/a.bore", "nul:"]), 2, false, u64::MAX, &stores).unwrap(), None);
        let error = enough(&to(&["s3://bucket/night/"]), 1, false, 65 * most, &stores).unwrap_err().to_string();
        assert!(error.contains("65 families"), "{error}");
    }

    #[test]
    fn generated_names_allow_any_number_of_stripes() {
        let most = object_most(1_000);
        for (stores, places) in [
            (stores("http://127.0.0.1:9", Some(1_000)), to(&["s3://bucket/night/", "/mnt/a/"])),
            (stores("https://s3.fr-par.scw.cloud", None), to(&["s3://bucket/night/", "s3://bucket/b/"])),
        ] {
            let raised = enough(&places, 2, false, 4 * most + 1, &stores).unwrap().unwrap();
            assert_eq!(raised.stripes, 6, "{}", raised.note);
            assert!(
                raised.note.contains("6 stripes instead of 2") && raised.note.contains("50.0 GiB"),
                "{}",
                raised.note
            );
        }
        let elsewhere = stores("https://scw.cloud.example.com", None);
        assert_eq!(enough(&to(&["s3://bucket/night/"]), 1, false, 4 * most, &elsewhere).unwrap(), None);
    }

    #[test]
    fn each_stripe_in_a_store_may_keep_a_part_of_its_own() {
        let stores = stores("http://127.0.0.1:9", None);
        let places = to(&["s3://bucket/night/", "/mnt/a/"]);
        assert_eq!(part_bytes(&places, 4, 0, 16 << 20, &stores).unwrap(), 2 * (16 << 20));
        assert_eq!(part_bytes(&places, 4, object_most(10_000), 0, &stores).unwrap(), 2 * (64 << 20));
        assert_eq!(part_bytes(&to(&["/mnt/a/"]), 4, 0, 0, &stores).unwrap(), 0);
    }
}
