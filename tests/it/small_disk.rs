//! A disk of a few MiB: a file system of its own, mounted for one test. Only root can make one.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::program;
use crate::world::World;

/// Unmounted when dropped.
pub struct SmallDisk {
    path: PathBuf,
}

impl SmallDisk {
    /// Of so many MiB, in the directory `name` of the world, or over a directory that is there. None where nobody may mount: then `test` is said to be skipped.
    pub fn mount(world: &World, name: &str, mebibytes: u32, test: &str) -> Option<Self> {
        Self::mount_with(world, name, &format!("size={mebibytes}m"), test)
    }

    /// With much space, and room for few files: what is full then is known before by nobody.
    pub fn of_few_files(world: &World, name: &str, files: u32, test: &str) -> Option<Self> {
        Self::mount_with(world, name, &format!("size=700m,nr_inodes={files}"), test)
    }

    fn mount_with(world: &World, name: &str, options: &str, test: &str) -> Option<Self> {
        let path = world.at(name);
        fs::create_dir_all(&path).unwrap();
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("{options},mode=0777"), "fullbore-test"])
            .arg(&path)
            .output();
        match mount {
            Ok(done) if done.status.success() => Some(Self { path }),
            Ok(done) => {
                program::skipped(test, String::from_utf8_lossy(&done.stderr).trim());
                None
            }
            Err(error) => {
                program::skipped(test, &format!("no `mount`: {error}"));
                None
            }
        }
    }

    /// What is on it.
    pub fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.path).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.path).status(); // The directory cannot be removed then, and says so.
    }
}
