//! Names of the donor's files: they come from the server, so no name may lead out of the target directory.

use super::descriptor::BadMessage;

/// The folder in a copy for files that the donor has outside its data directory (`DATA DIRECTORY`, undo and general
/// tablespaces elsewhere), each under its absolute path.
pub const OUTSIDE: &str = "#outside";

/// The folder of the redo files.
pub const REDO_FOLDER: &str = "#innodb_redo";

/// Where a file is on the donor and in a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Relative to the copy's root, without `.` and `..`.
    pub path: String,
    /// The absolute path on the donor, for a file outside its data directory.
    pub outside: Option<String>,
}

/// Checks a name as the donor gives it: `./shop/a.ibd`, `ibdata1`, `/elsewhere/shop/b.ibd`.
pub fn locate(name: &str) -> Result<Location, BadMessage> {
    let (relative, outside) = match name.strip_prefix('/') {
        Some(rest) => (rest, true),
        None => (name.strip_prefix("./").unwrap_or(name), false),
    };
    if relative.contains(|c: char| c.is_control() || c == '\\') {
        return Err(BadMessage("a file name with control characters or backslashes"));
    }
    let mut first = true;
    for part in relative.split('/') {
        if matches!(part, "" | "." | "..") || part.len() > 255 {
            return Err(BadMessage("a file name that leads out of the directory"));
        }
        // Folders that the copy itself uses.
        if first && !outside && matches!(part, OUTSIDE | REDO_FOLDER | "#clone") {
            return Err(BadMessage("a file name in a reserved folder"));
        }
        first = false;
    }
    Ok(match outside {
        true => Location { path: format!("{OUTSIDE}/{relative}"), outside: Some(name.to_owned()) },
        false => Location { path: relative.to_owned(), outside: None },
    })
}

/// Where redo file number `index` is.
pub fn redo_path(index: u32) -> String {
    format!("{REDO_FOLDER}/#ib_redo{index}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_inside_and_outside_get_a_place_below_the_root() {
        for (name, path) in [
            ("./shop/a.ibd", "shop/a.ibd"),
            ("ibdata1", "ibdata1"),
            ("./shop/t#p#p0.ibd", "shop/t#p#p0.ibd"),
            ("./@002d@002d/ü.ibd", "@002d@002d/ü.ibd"),
        ] {
            assert_eq!(locate(name).unwrap(), Location { path: path.into(), outside: None });
        }
        let outside = locate("/mnt/fast/shop/b.ibd").unwrap();
        assert_eq!(outside.path, "#outside/mnt/fast/shop/b.ibd");
        assert_eq!(outside.outside.as_deref(), Some("/mnt/fast/shop/b.ibd"));
        assert_eq!(redo_path(3), "#innodb_redo/#ib_redo3");
    }

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for name in [
            "",
            ".",
            "..",
            "./",
            "/",
            "../x",
            "./../x",
            "a/../../x",
            "/a/../x",
            "a//b",
            "a/./b",
            "a/",
            "a\0b",
            "a\nb",
            "..\\x",
            "#clone/#status_fix",
            "./#innodb_redo/#ib_redo0",
            "#outside/x",
        ] {
            assert!(locate(name).is_err(), "{name:?}");
        }
        assert!(locate(&"x".repeat(256)).is_err());
    }
}
