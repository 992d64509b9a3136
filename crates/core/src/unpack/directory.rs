//! A directory as a target: one new file for each stream, under the path that the manifest gives it.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::OFlags;

use super::target::{Target, TargetFile, unnamed_stream};
use crate::error::{Error, Result};
use crate::io::sync_directory;
use crate::media::{Changes, ManifestStream, check_path};
use crate::threads;

/// Files open at once: a server may have more than a process may open.
const MOST_OPEN: usize = 256;
/// Files that are made durable at once, when all are written. A server has hundreds of files with a few pages, and a
/// file system's journal takes several in one write: eight at once took 0.07 ms a file, one after the other 0.21 ms. On
/// a volume with 800 operations a second it was 2.8 against 7.5 ms.
pub const SYNCS_AT_ONCE: usize = 8;

/// New files below a directory.
pub struct DirectoryTarget {
    files: HashMap<u32, (PathBuf, u64)>,
    /// Files without a name: they went while they were copied.
    nameless: BTreeSet<u32>,
    directories: BTreeSet<PathBuf>,
    /// Least recently used first.
    open: Mutex<Vec<(u32, Arc<TargetFile>)>>,
}

impl DirectoryTarget {
    /// Makes an empty file for each stream that has a name, and their directories, below `root`, which must exist.
    /// Modes are 0660 and 0770, less the umask.
    ///
    /// # Errors
    /// A name that leads out of `root`, a name that is there twice, or an existing file.
    pub fn create(root: &Path, streams: &[ManifestStream]) -> Result<Self> {
        let target = Self::named(root, streams)?;
        target.make_directories()?;
        for (path, _) in target.files.values() {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o660).open(path);
            made.map_err(|e| Error::io("create", path.display().to_string(), e))?;
        }
        Ok(target)
    }

    /// The same in a directory that an interrupted restore has left. Files for which `keeps` is true keep their
    /// content, the others begin empty. Everything that does not belong is removed, except files in `root` itself for
    /// which `stays` is true.
    ///
    /// # Errors
    /// As [`create`](Self::create), except for existing files; and files that cannot be removed.
    pub fn adopt(
        root: &Path,
        streams: &[ManifestStream],
        keeps: &dyn Fn(&ManifestStream) -> bool,
        stays: &dyn Fn(&OsStr) -> bool,
    ) -> Result<Self> {
        let target = Self::named(root, streams)?;
        let paths: BTreeSet<&Path> = target.files.values().map(|(path, _)| path.as_path()).collect();
        if paths.len() < target.files.len() {
            return Err(Error::incomplete("media set", "its manifest names a file twice", "use another set"));
        }
        target.clear(root, &paths, stays)?;
        target.make_directories()?;
        for stream in streams {
            let Some((path, _)) = target.files.get(&stream.id) else { continue };
            // Links were removed; fullbore follows none.
            let flags = OFlags::NOFOLLOW.bits().cast_signed();
            let mut options = OpenOptions::new();
            let opened =
                options.write(true).create(true).truncate(!keeps(stream)).mode(0o660).custom_flags(flags).open(path);
            opened.map_err(|e| Error::io("open", path.display().to_string(), e))?;
        }
        Ok(target)
    }

    /// Removes what is below `directory` and does not belong there.
    fn clear(&self, directory: &Path, files: &BTreeSet<&Path>, stays: &dyn Fn(&OsStr) -> bool) -> Result<()> {
        let failed = |action: &str, path: &Path, e| Error::io(action, path.display().to_string(), e);
        for entry in fs::read_dir(directory).map_err(|e| failed("list", directory, e))? {
            let entry = entry.map_err(|e| failed("list", directory, e))?;
            let path = entry.path();
            let metadata = entry.metadata().map_err(|e| failed("look at", &path, e))?;
            if stays(&entry.file_name())
                || metadata.is_file() && metadata.nlink() == 1 && files.contains(path.as_path())
            {
                continue;
            }
            if metadata.is_dir() && self.directories.contains(&path) {
                self.clear(&path, files, &|_| false)?;
                continue;
            }
            let removed = if metadata.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(|e| failed("remove", &path, e))?;
        }
        Ok(())
    }

    /// The file of a stream, if it has one.
    pub fn path(&self, stream: u32) -> Option<&Path> {
        self.files.get(&stream).map(|(path, _)| path.as_path())
    }

    fn named(root: &Path, streams: &[ManifestStream]) -> Result<Self> {
        let mut target = Self {
            files: HashMap::with_capacity(streams.len()),
            nameless: streams.iter().filter(|stream| stream.name.is_empty()).map(|stream| stream.id).collect(),
            directories: BTreeSet::from([root.to_owned()]),
            open: Mutex::new(Vec::new()),
        };
        for stream in streams.iter().filter(|stream| !stream.name.is_empty()) {
            let path = root.join(relative_path(&stream.name)?);
            for above in path.ancestors().skip(1).take_while(|above| *above != root) {
                target.directories.insert(above.to_owned());
            }
            target.files.insert(stream.id, (path, stream.size));
        }
        Ok(target)
    }

    fn make_directories(&self) -> Result<()> {
        // In their order: parents come first.
        for directory in &self.directories {
            match fs::create_dir(directory) {
                Err(error) if !directory.is_dir() => {
                    return Err(Error::io("make", directory.display().to_string(), error));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gives every file its size, and returns when all of them and their directories are durable.
    pub fn finish(&self) -> Result<()> {
        let at_once = SYNCS_AT_ONCE.min(self.files.len());
        threads::in_turns("sync", at_once, &self.files, |(&stream, &(_, size))| {
            let file = self.file(stream)?;
            file.set_size(size)?;
            file.sync()
        })?;
        self.directories.iter().try_for_each(|directory| sync_directory(directory))
    }

    /// Writes the bytes within `size`: bytes of a run beyond it would be cut off, and no file may be that long.
    fn write_within(&self, stream: u32, size: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let room = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
        if self.nameless.contains(&stream) || room == 0 {
            return Ok(());
        }
        self.file(stream)?.write(offset, &bytes[..bytes.len().min(room)])
    }

    /// The same for zeros.
    fn zero_within(&self, stream: u32, size: u64, offset: u64, length: u64) -> Result<()> {
        let room = size.saturating_sub(offset);
        if self.nameless.contains(&stream) || room == 0 {
            return Ok(());
        }
        self.file(stream)?.zero(offset, length.min(room))
    }

    /// Bytes of a stream. An unknown stream has the largest size, because it is refused when it is written.
    fn size(&self, stream: u32) -> u64 {
        self.files.get(&stream).map_or(u64::MAX, |(_, size)| *size)
    }

    fn file(&self, stream: u32) -> Result<Arc<TargetFile>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let file = match open.iter().position(|(known, _)| *known == stream) {
            Some(at) => open.remove(at).1,
            None => {
                let (path, _) = self.files.get(&stream).ok_or_else(|| unnamed_stream(stream))?;
                if open.len() == MOST_OPEN {
                    open.remove(0);
                }
                // Not fresh: a higher layer may make zero what a lower one wrote.
                Arc::new(TargetFile::open(path, false)?)
            }
        };
        open.push((stream, Arc::clone(&file)));
        Ok(file)
    }
}

/// The streams of a full, unpacked below those of a differential: each into the file of the stream that begins with it.
/// A stream of the full that no stream of the differential begins with is not written.
pub struct BaseTarget<'a> {
    target: &'a DirectoryTarget,
    /// The stream of the differential, and the size of that of the full.
    files: HashMap<u32, (u32, u64)>,
}

impl<'a> BaseTarget<'a> {
    /// For the full with these streams, below `target`, which was made for the `differential`.
    ///
    /// # Errors
    /// The differential begins with a stream that the full does not have, or that is of another kind there.
    pub fn new(
        target: &'a DirectoryTarget,
        full: &[ManifestStream],
        differential: &[ManifestStream],
        changes: Changes,
    ) -> Result<Self> {
        // A compared differential needs the page map of its full.
        let fits = |like: &ManifestStream| changes == Changes::Reported || like.map_window > 0;
        let known: HashMap<u32, &ManifestStream> = full.iter().map(|stream| (stream.id, stream)).collect();
        let mut files = HashMap::new();
        for stream in differential {
            let Some(base) = stream.base else { continue };
            let like = known.get(&base).filter(|like| like.unit == stream.unit && !like.ordered && fits(like));
            let like = like.ok_or_else(|| {
                let what = match known.contains_key(&base) {
                    false => "does not have this stream",
                    true => "has this stream with another unit, in order, or without a page map",
                };
                let why = format!("`{}` begins as stream {base} of its full, but the full {what}", stream.name);
                Error::incomplete("differential", why, "use another set")
            })?;
            files.insert(base, (stream.id, like.size));
        }
        Ok(Self { target, files })
    }

    /// The file that gets a stream of the full, if there is one.
    pub fn path(&self, stream: u32) -> Option<&Path> {
        self.files.get(&stream).and_then(|&(stream, _)| self.target.path(stream))
    }

    /// Gives every file the size that it had in the full: bytes beyond it are not part of the full.
    pub fn finish(&self) -> Result<()> {
        self.files.values().try_for_each(|&(stream, size)| self.target.file(stream)?.set_size(size))
    }
}

impl Target for BaseTarget<'_> {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.files.get(&stream).map_or(Ok(()), |&(stream, size)| self.target.write_within(stream, size, offset, bytes))
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        self.files.get(&stream).map_or(Ok(()), |&(stream, size)| self.target.zero_within(stream, size, offset, length))
    }
}

impl Target for DirectoryTarget {
    fn discards(&self) -> bool {
        false
    }

    fn write(&self, stream: u32, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write_within(stream, self.size(stream), offset, bytes)
    }

    fn zero(&self, stream: u32, offset: u64, length: u64) -> Result<()> {
        self.zero_within(stream, self.size(stream), offset, length)
    }
}

/// The name of a stream as a path below a directory, and never outside of it.
///
/// # Errors
/// Names that a hostile or damaged manifest may hold: an absolute path, `..`, an empty part, a part that no file name
/// can have.
pub fn relative_path(name: &str) -> Result<PathBuf> {
    let hint = "use another set: fullbore did not write this manifest";
    check_path(name).map_err(|flaw| Error::incomplete("media set", flaw.to_string(), hint))?;
    Ok(name.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn stream(id: u32, name: &str, size: u64) -> ManifestStream {
        ManifestStream {
            id,
            name: name.into(),
            layer: 0,
            unit: 4096,
            map_window: 0,
            size,
            ordered: false,
            identity: String::new(),
            base: None,
            detail: None,
        }
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        for name in ["", "/etc/passwd", "..", "a/../../b", "a//b", "./a", "a/.", "a/", "a\0b", &"x".repeat(256)] {
            assert!(relative_path(name).is_err(), "{name:?}");
        }
        for name in ["ibdata1", "shop/orders.ibd", "a/b/..c", "#sql.ibd"] {
            assert_eq!(relative_path(name).unwrap(), PathBuf::from(name));
        }
    }

    #[test]
    fn more_files_than_may_be_open_get_their_bytes_and_sizes() {
        let root = tempfile::tempdir().unwrap();
        let streams: Vec<_> = (1..=600).map(|id| stream(id, &format!("d{}/f{id}", id % 7), 10)).collect();
        let target = DirectoryTarget::create(root.path(), &streams).unwrap();
        for stream in streams.iter().rev() {
            target.write(stream.id, 2, &stream.id.to_le_bytes()).unwrap();
            target.write(stream.id, 8, &[7; 8]).unwrap();
            target.zero(stream.id, 9, 1).unwrap();
        }
        target.finish().unwrap();
        for stream in &streams {
            let [a, b, c, d] = stream.id.to_le_bytes();
            assert_eq!(fs::read(root.path().join(&stream.name)).unwrap(), [0, 0, a, b, c, d, 0, 0, 7, 0]);
        }
        assert!(target.write(601, 0, &[1]).is_err());
    }

    #[test]
    fn only_leftovers_of_this_set_stay() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        for directory in ["d", "old", "mark", "d/mark"] {
            fs::create_dir(at(directory)).unwrap();
        }
        for name in ["d/kept", "d/emptied", "d/other", "old/x", "mark/y"] {
            fs::write(at(name), "something").unwrap();
        }
        fs::write(at("outside"), "of nobody").unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let precious = elsewhere.path().join("precious");
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, at("d/link")).unwrap();
        fs::hard_link(&precious, at("d/twice")).unwrap();
        let names = ["d/kept", "d/emptied", "d/link", "d/twice", "new/made", "outside/below"];
        let streams: Vec<_> = (1..).zip(names).map(|(id, name)| stream(id, name, 5)).collect();
        let target =
            DirectoryTarget::adopt(root.path(), &streams, &|stream| stream.id != 2, &|name| name == "mark").unwrap();
        let read = |name: &str| fs::read_to_string(at(name)).unwrap();
        assert_eq!(
            (read("d/kept"), read("d/emptied"), read("mark/y")),
            ("something".into(), String::new(), "something".into())
        );
        assert!(!at("old").exists() && !at("d/other").exists() && !at("d/mark").exists() && at("outside").is_dir());
        assert_eq!((read("d/link"), read("d/twice")), (String::new(), String::new()));
        target.finish().unwrap();
        assert_eq!((read("d/kept"), fs::read_to_string(&precious).unwrap()), ("somet".into(), "precious".into()));
        assert!(
            DirectoryTarget::adopt(root.path(), &[stream(1, "b", 1), stream(2, "b", 1)], &|_| true, &|_| false)
                .is_err()
        );
    }

    #[test]
    fn nameless_streams_are_skipped_and_unknown_ones_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let target = DirectoryTarget::create(root.path(), &[stream(1, "", 0), stream(2, "a", 3)]).unwrap();
        target.write(1, 0, b"gone").unwrap();
        target.zero(1, 0, 4096).unwrap();
        target.write(2, 0, b"abc").unwrap();
        assert!(target.write(3, 0, b"x").is_err());
        target.finish().unwrap();
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_is_there_or_named_twice_is_not_touched() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a"), "kept").unwrap();
        assert!(DirectoryTarget::create(root.path(), &[stream(1, "a", 1)]).is_err());
        assert_eq!(fs::read(root.path().join("a")).unwrap(), b"kept");
        assert!(DirectoryTarget::create(root.path(), &[stream(1, "b", 1), stream(2, "b", 1)]).is_err());
    }
}
