//! How a volume is made on this machine: as a block device that the kernel throttles, or in the child's process, and
//! why.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::emulated::{Ceiling, Promise};
use fullbore_core::{Error, Result};
use rustix::fs::{Advice, fadvise};

use super::Profile;
use super::block::{self, BlockVolume};
use super::throttle::{BYTES, CONTROLLER, OPERATIONS};

/// The request of the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Block devices if the machine allows them.
    #[default]
    WherePossible,
    /// Only block devices.
    Block,
    /// Never a block device.
    InProcess,
}

/// How one volume is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// A loop device that the kernel holds to its rates.
    Block,
    /// A token bucket in the child, and why.
    InProcess(String),
}

/// Why a volume is a block device.
const WHY_BLOCK: &str = "a loop device with direct I/O that the kernel's block controller holds to its rates";

impl How {
    /// The name in records.
    pub fn name(&self) -> &'static str {
        match self {
            How::Block => "block device",
            How::InProcess(_) => "in process",
        }
    }

    /// The reason in records.
    pub fn why(&self) -> &str {
        match self {
            How::Block => WHY_BLOCK,
            How::InProcess(why) => why,
        }
    }
}

/// The kind of volumes that this machine can make; decided before the first run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Means(std::result::Result<(), String>);

impl Default for Means {
    fn default() -> Self {
        Self(Err("block devices were not tried".into()))
    }
}

impl Means {
    /// The decision without a trial.
    ///
    /// # Errors
    /// Block devices were requested, but are not possible.
    pub fn seen(choice: Choice) -> Result<Self> {
        if choice == Choice::InProcess {
            return Ok(Self(Err("the matrix says volumes = \"in-process\"".into())));
        }
        Self(obstacle(Path::new(CONTROLLER)).map_or(Ok(()), Err)).or_refused(choice)
    }

    /// The decision after a trial in `folder`, which is made for it and removed.
    ///
    /// # Errors
    /// As [`seen`](Self::seen).
    pub fn tried(self, choice: Choice, folder: &Path) -> Result<Self> {
        if self.0.is_err() {
            return Ok(self);
        }
        let made = fs::create_dir_all(folder).map_err(|e| Error::io("make", folder.display().to_string(), e));
        let tried = made.and_then(|()| trial(folder));
        let _ = fs::remove_dir_all(folder); // The next start empties it too.
        Self(tried.map_err(|error| error.one_line())).or_refused(choice)
    }

    fn or_refused(self, choice: Choice) -> Result<Self> {
        match (&self.0, choice) {
            (Err(why), Choice::Block) => {
                Err(Error::refused("volumes = \"block\"", why, "leave it out: then volumes are emulated in process"))
            }
            _ => Ok(self),
        }
    }

    /// How a volume of this profile is made; `given`: under a database that exists already.
    pub fn of(&self, profile: &Profile, given: bool) -> How {
        match &self.0 {
            Err(why) => How::InProcess(why.clone()),
            Ok(()) if !profile.promise.latency.is_zero() => {
                How::InProcess("a block device cannot have latency-ms".into())
            }
            Ok(()) if given => How::InProcess("an existing database stays where it is".into()),
            Ok(()) => How::Block,
        }
    }
}

/// The visible reason why block devices are not possible.
fn obstacle(controller: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("throttling is not permitted: only root may make a loop device and set its rates".into());
    }
    if let [missing, ..] = block::missing_programs()[..] {
        return Some(format!("there is no program `{missing}`"));
    }
    if !Path::new("/dev/loop-control").exists() {
        return Some("the kernel has no loop devices (/dev/loop-control)".into());
    }
    for file in BYTES.iter().chain(&OPERATIONS) {
        let path = controller.join(file);
        if let Err(e) = fs::OpenOptions::new().write(true).open(&path) {
            return Some(format!("throttling is not permitted: {}: {e}", path.display()));
        }
    }
    None
}

/// Bytes that the trial writes and reads, and their rate in bytes per second. `TRIAL_LEAST` is the least time that they
/// may take: the kernel does not throttle its first slices.
const TRIAL: (usize, f64) = (4 << 20, (8 << 20) as f64);
const TRIAL_LEAST: Duration = Duration::from_millis(200);
/// How often the trial reads. A page that a kernel thread holds at that moment stays in the cache, and memory is not throttled.
const TRIAL_READS: usize = 5;

/// Makes a small volume, and checks that buffered writes and reads keep to its rate: they are the hardest to throttle.
fn trial(folder: &Path) -> Result<()> {
    let bytes = Ceiling { rate: TRIAL.1, burst: None };
    let promise = Promise { bytes, operations: None, operation_bytes: 256 << 10, latency: Duration::ZERO };
    let volume = BlockVolume::make(folder, 0, TRIAL.0 as u64, promise)?;
    volume.throttle()?.begin()?;
    let path = volume.directory().join("trial");
    let failed = |e: std::io::Error| Error::io("try", path.display().to_string(), e);
    let mut file =
        fs::File::options().create(true).truncate(true).read(true).write(true).open(&path).map_err(failed)?;
    let begun = Instant::now();
    file.write_all(&vec![1; TRIAL.0]).and_then(|()| file.sync_all()).map_err(failed)?;
    let written = begun.elapsed();
    let mut read = Duration::ZERO;
    for _ in 0..TRIAL_READS {
        let _ = fadvise(&file, 0, None, Advice::DontNeed); // If it fails, the trial finds reads that are not throttled.
        let begun = Instant::now();
        std::io::Seek::rewind(&mut file)
            .and_then(|()| file.read_to_end(&mut Vec::with_capacity(TRIAL.0)))
            .map_err(failed)?;
        read = begun.elapsed();
        if read >= TRIAL_LEAST {
            break;
        }
    }
    for (what, took) in [("writes", written), ("reads", read)] {
        if took < TRIAL_LEAST {
            let why = format!("the kernel does not hold {what} of a loop device to its rate");
            return Err(Error::refused("throttling", why, ""));
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::volume::profile;

    #[test]
    fn a_machine_without_the_controller_is_said_to_have_none() {
        let folder = tempfile::tempdir().unwrap();
        let why = obstacle(folder.path()).unwrap();
        // Without root, it ends earlier.
        assert!(why.contains("throttling is not permitted") || why.contains("no program"), "{why}");
    }

    #[test]
    fn a_volume_that_cannot_be_a_block_device_is_emulated_in_process_and_says_why() {
        let means = Means(Ok(()));
        let mut own = profile("gp2-1.5tb").unwrap();
        assert_eq!(means.of(&own, false), How::Block);
        assert!(means.of(&own, true).why().contains("stays where it is"));
        own.promise.latency = Duration::from_millis(1);
        assert!(means.of(&own, false).why().contains("latency-ms"));
    }

    #[test]
    fn only_block_devices_is_refused_on_a_machine_without_them() {
        let none = || Means(Err("throttling is not permitted".into()));
        assert_eq!(none().or_refused(Choice::WherePossible).unwrap(), none());
        let error = none().or_refused(Choice::Block).unwrap_err().to_string();
        assert!(error.contains("not permitted") && error.contains("hint: "), "{error}");
        let chosen = Means::seen(Choice::InProcess).unwrap();
        assert!(chosen.of(&profile("io1-9000").unwrap(), false).why().contains("in-process"));
    }
}
