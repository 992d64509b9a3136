//! A volume that is a real block device: an image file, a loop device with direct I/O on it, ext4, and a mount point.
//! The kernel's block controller limits its rates ([`Throttle`]).
//!
//! A bench locks its image. So the leftovers of a killed bench differ from the volumes of a running one.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::emulated::Promise;
use fullbore_core::io::{LockableFile, free_space};
use fullbore_core::{Error, Result};

use super::throttle::{self, Throttle};

/// The name of every image: it shows that a loop device belongs to a bench.
const IMAGE: &str = "fullbore-bench-volume.img";
/// The directory beside it.
const MOUNTED: &str = "volume";
/// Bytes of the smallest image: space for ext4's journal and for the other files of a small job.
const LEAST_IMAGE: u64 = 64 << 20;
/// The kernel appends this to the name of an image that was removed.
const DELETED: &str = " (deleted)";
/// How long a file may still be open on a volume to remove: a child that was ended cleans up first.
const BUSY: Duration = Duration::from_secs(20);
/// How long the kernel may take to free a loop device, and how often this is checked.
const LETTING_GO: Duration = Duration::from_secs(2);
const TICK: Duration = Duration::from_millis(50);
/// The path of an administrator's tools: not every user has it.
const TOOLS: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Required programs.
pub const PROGRAMS: [&str; 4] = ["losetup", "mkfs.ext4", "mount", "umount"];

/// A mounted volume. Unmounted, detached and removed when dropped.
pub struct BlockVolume {
    folder: PathBuf,
    /// Held while the volume exists.
    _lock: LockableFile,
    device: Option<PathBuf>,
    throttle: Option<Arc<Throttle>>,
}

impl BlockVolume {
    /// Makes a volume in `folder`, which exists and is empty. It has space for `bytes` bytes; `used` bytes will be
    /// written. Its rates begin with [`Throttle::begin`].
    ///
    /// # Errors
    /// Not enough space, or a step that this machine does not allow. Then no file stays.
    pub fn make(folder: &Path, bytes: u64, used: u64, promise: Promise) -> Result<Self> {
        let free = free_space(folder)?;
        if free < used {
            let shown = fullbore_core::units::show_bytes;
            let why = format!("has {} free, but a volume there will hold {}", shown(free), shown(used));
            return Err(Error::refused(folder.display().to_string(), why, "free space there, or make `scale` smaller"));
        }
        let image = folder.join(IMAGE);
        let failed = |e| Error::io("make the image of a volume", image.display().to_string(), e);
        let file = File::options().create_new(true).write(true).open(&image).map_err(failed)?;
        let file = LockableFile::from(file);
        file.try_lock().map_err(|e| failed(e.into()))?;
        file.set_len(bytes.max(LEAST_IMAGE)).map_err(failed)?;
        let mut volume = Self { folder: folder.to_owned(), _lock: file, device: None, throttle: None };
        let device = tool("losetup", &["--find", "--show", "--direct-io=on"], &[&image])?;
        let device = PathBuf::from(device.trim());
        volume.device = Some(device.clone());
        let direct = fs::read_to_string(sysfs(&device).join("loop/dio")).unwrap_or_default();
        if direct.trim() != "1" {
            let why = "its loop device has no direct I/O, so the page cache would hide its speed";
            return Err(Error::refused(image.display().to_string(), why, "give a --work on another file system"));
        }
        let throttle = Throttle::of(&sysfs(&device), promise)?;
        throttle.lift(); // An earlier device of that number may have left rates.
        volume.throttle = Some(Arc::new(throttle));
        // Few inodes, and no writes by the file system itself later: also no zeroing of the journal.
        let quiet = "nodiscard,lazy_itable_init=0,lazy_journal_init=1";
        tool("mkfs.ext4", &["-q", "-F", "-m", "0", "-i", "1048576", "-E", quiet], &[&device])?;
        let at = volume.directory();
        fs::create_dir(&at).map_err(|e| Error::io("make", at.display().to_string(), e))?;
        tool("mount", &["-t", "ext4", "-o", "noatime"], &[&device, &at])?;
        Ok(volume)
    }

    /// Its mount point.
    pub fn directory(&self) -> PathBuf {
        self.folder.join(MOUNTED)
    }

    /// Its throttle.
    ///
    /// # Errors
    /// None for a volume that was made.
    pub fn throttle(&self) -> Result<&Arc<Throttle>> {
        let missing = || Error::refused(self.folder.display().to_string(), "its volume has no rates", "");
        self.throttle.as_ref().ok_or_else(missing)
    }
}

impl Drop for BlockVolume {
    fn drop(&mut self) {
        if let Some(throttle) = &self.throttle {
            throttle.lift(); // First: otherwise the remaining writes would be throttled.
            throttle.put_back();
        }
        if let Some(device) = &self.device {
            let _ = take_away(device); // The next start tries again, and reports a failure.
        }
        let _ = fs::remove_file(self.folder.join(IMAGE)); // Likewise.
        let _ = fs::remove_dir(self.directory());
    }
}

/// Removes every volume of a bench that has ended, wherever its image is.
///
/// # Errors
/// One cannot be unmounted or detached.
pub fn sweep() -> Result<()> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().filter_map(std::result::Result::ok);
    for device in devices.map(|entry| entry.path()) {
        let Ok(backing) = fs::read_to_string(device.join("loop/backing_file")) else { continue };
        let Some((image, _lock)) = dead_image(backing.trim_end_matches('\n')) else { continue };
        throttle::lift(&device);
        let name = device.file_name().unwrap_or_default();
        take_away(&Path::new("/dev").join(name))?;
        let _ = fs::remove_file(&image); // The owner of its directory empties it.
    }
    Ok(())
}

/// The image of a loop device, if it belongs to a bench that has ended: then its lock is free. The lock is held from
/// here on, so that two starting benches do not both remove it.
fn dead_image(backing: &str) -> Option<(PathBuf, Option<LockableFile>)> {
    let image = PathBuf::from(backing.trim_end_matches(DELETED));
    if image.file_name()? != IMAGE {
        return None;
    }
    match File::open(&image).map(LockableFile::from) {
        Ok(file) => match file.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            _ => Some((image, Some(file))),
        },
        Err(e) if e.kind() == ErrorKind::NotFound && backing.ends_with(DELETED) => Some((image, None)),
        Err(_) => None, // Of another user, or of a container with other directories.
    }
}

/// Unmounts a loop device wherever it is mounted, and detaches it.
fn take_away(device: &Path) -> Result<()> {
    let begun = Instant::now();
    loop {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let places = mount_points(&mounts, &device.display().to_string());
        let Some(place) = places.first() else { break };
        match tool("umount", &[], &[place]) {
            Ok(_) => {}
            Err(_) if begun.elapsed() < BUSY => std::thread::sleep(TICK),
            // Detach the name at once, and the rest when the last file on it is closed.
            Err(_) => drop(tool("umount", &["--lazy"], &[place])?),
        }
    }
    tool("losetup", &["--detach"], &[&device.to_path_buf()])?;
    let begun = Instant::now();
    while sysfs(device).join("loop/backing_file").exists() && begun.elapsed() < LETTING_GO {
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// The mount points of `device` in the kernel's table of mounts.
fn mount_points(table: &str, device: &str) -> Vec<PathBuf> {
    let of = |line: &str| {
        let (place, source) = line.split_once(" - ")?;
        let mounted = source.split(' ').nth(1)? == device;
        // The kernel writes blanks in names as octal numbers.
        mounted.then(|| PathBuf::from(place.split(' ').nth(4).unwrap_or_default().replace("\\040", " ")))
    };
    table.lines().filter_map(of).collect()
}

/// The kernel's directory of a device.
fn sysfs(device: &Path) -> PathBuf {
    Path::new("/sys/block").join(device.file_name().unwrap_or_default())
}

/// Runs a program of the system; returns its output.
fn tool(program: &str, words: &[&str], paths: &[&PathBuf]) -> Result<String> {
    let mut command = Command::new(program);
    command.args(words).args(paths).env("PATH", TOOLS).env("LC_ALL", "C").stdin(Stdio::null());
    let thing = paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" ");
    let failed = |e| Error::io(format!("run {program} on"), thing.clone(), e);
    let ended = command.output().map_err(failed)?;
    match ended.status.success() {
        true => Ok(String::from_utf8_lossy(&ended.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&ended.stderr);
            Err(failed(std::io::Error::other(said.split_whitespace().collect::<Vec<_>>().join(" "))))
        }
    }
}

/// The missing programs of [`PROGRAMS`].
pub fn missing_programs() -> Vec<&'static str> {
    let there = |name: &&str| TOOLS.split(':').any(|folder| Path::new(folder).join(name).exists());
    PROGRAMS.into_iter().filter(|name| !there(name)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_where_it_is_mounted_and_blanks_are_read() {
        let table = "22 1 254:0 / / rw - ext4 /dev/vda rw\n\
                     90 22 7:1 / /work/a\\040b/volume rw,noatime - ext4 /dev/loop1 rw\n\
                     91 22 7:11 / /work/c rw - ext4 /dev/loop11 rw\nbroken\n";
        assert_eq!(mount_points(table, "/dev/loop1"), [PathBuf::from("/work/a b/volume")]);
        assert!(mount_points(table, "/dev/loop2").is_empty());
    }

    #[test]
    fn an_image_is_taken_for_dead_only_where_nobody_holds_it() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join(IMAGE);
        let shown = image.display().to_string();
        let file = LockableFile::from(File::create(&image).unwrap());
        file.try_lock().unwrap();
        let dead = |backing: &str| dead_image(backing).map(|(image, _)| image);
        assert_eq!(dead(&shown), None, "a bench has it");
        drop(file);
        assert_eq!(dead(&shown), Some(image.clone()));
        fs::remove_file(&image).unwrap();
        assert_eq!(dead(&format!("{shown} (deleted)")), Some(image), "the directory was removed");
        assert_eq!(dead(&shown), None, "the name belongs to another container");
        assert_eq!(dead("/home/somebody/disk.img"), None, "not ours");
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_what_it_said() {
        let error = tool("umount", &[], &[&PathBuf::from("/no/such/place")]).unwrap_err().to_string();
        assert!(error.contains("run umount on") && error.contains("/no/such/place"), "{error}");
        let error = tool("no-such-program", &[], &[]).unwrap_err().to_string();
        assert!(error.contains("run no-such-program"), "{error}");
    }
}
