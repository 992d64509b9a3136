//! The names of an open set's streams: paths that a restore can make below a directory.

use super::{Flaw, broken, require};

/// Bytes in a path, and in one part of it.
const PATH_MAX: usize = 4096;
const PART_MAX: usize = 255;
/// Bytes in the paths of all directories, each counted once and whole: 256 for each of 65,536.
const DIRECTORIES_MAX: usize = 16 << 20;

/// Checks that a name is a path below a directory, and never outside of it.
pub(crate) fn check_path(name: &str) -> Result<(), Flaw> {
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= PART_MAX;
    if name.len() <= PATH_MAX && !name.contains('\0') && name.split('/').all(is_part) {
        return Ok(());
    }
    let shown: String = name.chars().take(100).collect();
    Err(broken(format!("the manifest names a file {shown:?}, which is not a path below a directory")))
}

/// Checks the names of all streams of an open set: all streams with a name can be made below one directory.
pub(super) fn check_paths<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Flaw> {
    let mut paths: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    paths.iter().try_for_each(|path| check_path(path))?;
    // The slash sorts before all other bytes, so the content of a directory follows it at once.
    let order = |byte: u8| if byte == b'/' { 0 } else { byte };
    paths.sort_unstable_by(|one, other| one.bytes().map(order).cmp(other.bytes().map(order)));
    let (mut before, mut directories) = ("", 0_usize);
    for path in paths {
        require(path != before, &format!("the manifest names the file {path:?} twice"))?;
        let common = path.bytes().zip(before.bytes()).take_while(|(one, other)| one == other).count();
        let is_below = common == before.len() && path.as_bytes().get(common) == Some(&b'/') && !before.is_empty();
        require(!is_below, &format!("the manifest names {before:?} as a file and as a directory"))?;
        directories = path
            .match_indices('/')
            .map(|(at, _)| at)
            .filter(|at| *at >= common)
            .fold(directories, usize::saturating_add);
        require(directories <= DIRECTORIES_MAX, "the manifest names files in too many directories")?;
        before = path;
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_out_of_a_directory_or_that_no_directory_takes_is_refused() {
        let long = format!("{}x", "abc/".repeat(1024));
        for name in ["", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/.", "a/", "a\0b", &"x".repeat(256), &long]
        {
            assert!(check_path(name).is_err(), "{name:?}");
        }
        for name in ["ibdata1", "shop/orders.ibd", "a/b/..c", "#sql.ibd", &"x".repeat(255), &long[2..]] {
            check_path(name).unwrap();
        }
    }

    #[test]
    fn one_path_twice_or_as_file_and_directory_is_refused() {
        let refused = |names: &[&str]| check_paths(names.iter().copied()).unwrap_err().to_string();
        assert!(refused(&["b", "a/c", "a", "b/x"]).contains("\"a\" as a file and as a directory"));
        assert!(refused(&["x/y", "b", "x/y", "c"]).contains("\"x/y\" twice"));
        assert!(refused(&["a/b/c", "a/b.c", "a/b", "a b"]).contains("\"a/b\" as a file"));
        check_paths(["a.b", "", "a", "", "ab/c", "a b/c", "a-/d", "ab/d"].into_iter()).unwrap();
    }

    #[test]
    fn a_directory_counts_once_and_too_many_of_them_are_refused() {
        let in_one: Vec<String> = (0..65_535).map(|file| format!("{}/{file}", "d".repeat(255))).collect();
        check_paths(in_one.iter().map(String::as_str)).unwrap();
        let deep = |files: usize| (0..files).map(|file| format!("{file}/{}x", "d/".repeat(2000))).collect::<Vec<_>>();
        check_paths(deep(3).iter().map(String::as_str)).unwrap();
        let error = check_paths(deep(5).iter().map(String::as_str)).unwrap_err().to_string();
        assert!(error.contains("too many directories"), "{error}");
    }
}
