//! Key files and sidecars on disk: this is not in [`crate::cipher`], which is pure. Nothing is overwritten in place.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use uuid::Uuid;

use crate::cipher::{KeyFile, LARGEST_KEY_FILE, LARGEST_SIDECAR, Sidecar};
use crate::error::{Error, Result};
use crate::io::{is_credential, read_small};

impl KeyFile {
    /// Writes everything there is to a new file: mode 0600 with a secret, else 0644. Never overwrites.
    pub fn write_new(&self, path: &Path) -> Result<()> {
        let mode = if self.has_secret() { 0o600 } else { 0o644 };
        write_new(path, mode, self.to_text().as_bytes())
    }

    /// Writes the public half alone to a new file of mode 0644. Never overwrites.
    pub fn write_public_new(&self, path: &Path) -> Result<()> {
        write_new(path, 0o644, self.to_public_text().as_bytes())
    }

    /// Reads a key file of either kind. One with a secret that group or others may read is refused, except a credential
    /// of systemd.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let io = |action: &'static str| {
            let name = name.clone();
            move |source| Error::io(action, name, source).on_named_thing()
        };
        let (bytes, metadata) = read_small(path, LARGEST_KEY_FILE + 1).map_err(io("read"))?;
        let mode = metadata.permissions().mode();
        let key_file = Self::parse(&name, &bytes)?;
        if key_file.has_secret() && mode & 0o077 != 0 && !is_credential(path) {
            let why = format!(
                "it holds a secret key, and users other than its owner may use it (mode {:04o})",
                mode & 0o7777
            );
            return Err(Error::refused(&name, why, format!("chmod 600 '{name}'")));
        }
        Ok(key_file)
    }
}

impl Sidecar {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|source| Error::io("open", &name, source))?;
        let mut bytes = Vec::new();
        let limit = LARGEST_SIDECAR as u64 + 1; // One byte more than the largest: enough to notice it.
        file.take(limit).read_to_end(&mut bytes).map_err(|source| Error::io("read", &name, source))?;
        Self::parse(&bytes).map_err(|error| Error::Damaged {
            device: name,
            offset: 0,
            what: error.to_string(),
            hint: "the keys that the media were made for still open them".into(),
        })
    }

    /// Writes the file at `path` so that at every moment the old one or the new one is there, whole and durable.
    pub fn write(&self, path: &Path) -> Result<()> {
        let name = path.display().to_string();
        let bytes = self.to_bytes()?;
        let directory = directory_of(path);
        let file_name =
            path.file_name().ok_or_else(|| Error::usage(&name, "it does not name a file", "give a file name"))?;
        let mut temporary = file_name.to_owned();
        temporary.push(format!(".new-{}", Uuid::new_v4().simple()));
        let temporary = directory.join(temporary);
        let written = OpenOptions::new().write(true).create_new(true).open(&temporary).and_then(|mut file| {
            file.write_all(&bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, path)
        });
        if let Err(source) = written {
            let _ = fs::remove_file(&temporary); // The first error is the one to show.
            return Err(Error::io("write", &name, source));
        }
        sync(directory).map_err(|source| Error::io("sync", name, source))
    }
}

/// Creates `path`, which must not be there, and makes it durable; leaves nothing behind when that fails.
///
/// # Errors
/// The file exists, or cannot be written.
pub fn write_new(path: &Path, mode: u32, bytes: &[u8]) -> Result<()> {
    let name = path.display().to_string();
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
        Ok(file) => file,
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => {
            let hint =
                "choose another name: fullbore never overwrites a key file, because backups may need the old one";
            return Err(Error::refused(name, "it is already there", hint));
        }
        Err(source) => return Err(Error::io("create", name, source).on_named_thing()),
    };
    file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| sync(directory_of(path))).map_err(|source| {
        let _ = fs::remove_file(path); // The first error is the one to show.
        Error::io("write", name, source)
    })
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory).and_then(|directory| directory.sync_all())
}

/// The directory that holds `path`.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}
