//! The row of uploaded objects in the table of engines. fullbore fetches no object by itself: the gateway receives them.

use fullbore_core::{Error, Result};

use crate::engine::{Engine, Identity, Stems};
use crate::{Options, Session};

/// The engine of sets that hold one uploaded object each.
pub struct UploadedObject;

/// Its name, in manifests and in front of the directory of a restore.
pub const OBJECT: &str = "object";
/// Letters of a key in the name of a family, at most: a file name has 255 bytes, and the template adds times and ids.
const STEM_MAX: usize = 80;

impl Engine for UploadedObject {
    fn name(&self) -> &'static str {
        OBJECT
    }

    fn title(&self) -> &'static str {
        "uploaded object"
    }

    /// The database of such a set is the key of its object.
    fn identity(&self, url: &str) -> Identity {
        let name = url.split_once(':').map_or(url, |(_, name)| name).to_owned();
        Identity { name: name.clone(), written: name, files: Vec::new() }
    }

    /// An object has one name, whatever host its gateway runs on.
    fn is_server(&self) -> bool {
        true
    }

    fn stems(&self, name: &str) -> Stems {
        let last = name.rsplit('/').find(|part| !part.is_empty()).unwrap_or_default();
        let letters =
            |letter: char| if letter.is_ascii_alphanumeric() || "._-".contains(letter) { letter } else { '-' };
        Stems::new(last.chars().map(letters).take(STEM_MAX).collect(), "object-")
    }

    fn open(&self, url: &str, _: &Options) -> Result<Box<dyn Session>> {
        let why = "fullbore does not fetch objects: it stores what is uploaded through its gateway";
        Err(Error::usage(url, why, "start `fullbore gateway`, and upload the object into it"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_is_named_after_the_last_part_of_its_key_without_odd_letters() {
        for (key, stem) in
            [("a/b/shop_1.bak", "shop_1.bak"), ("a b/ü", "database"), ("..", "database"), ("-x/", "object-x")]
        {
            assert_eq!(UploadedObject.stems(key).now, stem, "{key}");
        }
        assert_eq!(UploadedObject.stems(&"k".repeat(1024)).now.len(), STEM_MAX);
    }
}
