//! Configuration: `./fullbore.toml`, then `$XDG_CONFIG_HOME/fullbore/fullbore.toml`, then `/etc/fullbore/fullbore.toml`; the
//! first that exists counts, or the one that `--config` names. Flags override it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::store::Stores;
use fullbore_core::{Error, Result};
use serde::Deserialize;

use crate::chain::retention::KeepRules;

/// Defaults for flags, under the names that the flags have.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Config {
    /// `--compression`.
    pub compression: Option<String>,
    /// `--stripes`.
    pub stripes: Option<usize>,
    /// `--max-transfer-size`.
    pub max_transfer_size: Option<String>,
    /// `--block-size`.
    pub block_size: Option<String>,
    /// `--buffer-count`.
    pub buffer_count: Option<usize>,
    /// `--queue-depth`.
    pub queue_depth: Option<usize>,
    /// `--readers`.
    pub readers: Option<usize>,
    /// `--workers`.
    pub workers: Option<usize>,
    /// `--throttle`.
    pub throttle: Option<String>,
    /// `--name-template`.
    pub name_template: Option<String>,
    /// `--encrypt-to`.
    pub encrypt_to: Vec<PathBuf>,
    /// `--key`.
    pub key: Option<PathBuf>,
    /// `--device-timeout`, in seconds.
    pub device_timeout: Option<u64>,
    /// Where the catalog is.
    pub catalog: Option<PathBuf>,
    /// Named repositories.
    pub repository: BTreeMap<String, RepositoryConfig>,
}

/// A named repository: where it is, and defaults for what goes there.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct RepositoryConfig {
    /// Directories and prefixes; the first holds the records as well.
    pub to: Vec<String>,
    /// `--kind auto` takes a full when the last differential was larger than this share of its full.
    pub differential_share: Option<f64>,
    /// `--compression`.
    pub compression: Option<String>,
    /// `--stripes`.
    pub stripes: Option<usize>,
    /// `--throttle`.
    pub throttle: Option<String>,
    /// `--name-template`.
    pub name_template: Option<String>,
    /// `--encrypt-to`.
    pub encrypt_to: Vec<PathBuf>,
    /// `--key`.
    pub key: Option<PathBuf>,
    /// What `fullbore prune` leaves.
    pub keep: Option<KeepRules>,
}

impl Config {
    /// This configuration for a run on a repository: what is said of that comes before what is said of all.
    pub fn of_repository(&self, name: &str) -> Self {
        let Some(repository) = self.repository.get(name).cloned() else { return self.clone() };
        let encrypt_to = if repository.encrypt_to.is_empty() { &self.encrypt_to } else { &repository.encrypt_to };
        Self {
            compression: repository.compression.or_else(|| self.compression.clone()),
            stripes: repository.stripes.or(self.stripes),
            throttle: repository.throttle.or_else(|| self.throttle.clone()),
            name_template: repository.name_template.or_else(|| self.name_template.clone()),
            key: repository.key.or_else(|| self.key.clone()),
            encrypt_to: encrypt_to.clone(),
            ..self.clone()
        }
    }

    /// Where the catalog is.
    pub fn catalog_path(&self) -> PathBuf {
        self.catalog.clone().unwrap_or_else(crate::catalog::default_path)
    }

    /// What object stores are reached through.
    pub fn stores(&self) -> Stores {
        self.device_timeout.map_or_else(Stores::default, |seconds| Stores::of_environment(Duration::from_secs(seconds)))
    }
}

/// Reads the configuration.
///
/// # Errors
/// The named file cannot be read, or a file has an unknown key or a wrong value: with line and hint.
pub fn load(named: Option<&Path>) -> Result<Config> {
    if let Some(path) = named {
        return read(path);
    }
    let home = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let places = [
        Some(PathBuf::from("fullbore.toml")),
        home.map(|home| home.join("fullbore/fullbore.toml")),
        Some("/etc/fullbore/fullbore.toml".into()),
    ];
    match places.into_iter().flatten().find(|path| path.is_file()) {
        Some(path) => read(&path),
        None => Ok(Config::default()),
    }
}

fn read(path: &Path) -> Result<Config> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::io("read the configuration", path.display().to_string(), e))?;
    toml::from_str(&text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let what = e.message().lines().next().unwrap_or_default().to_owned();
        Error::usage(
            format!("{}, line {line}", path.display()),
            what,
            "its keys are those flags of `fullbore backup --help` that have a value, and [repository.NAME]: docs/REPOSITORY.md",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_key_is_refused_with_its_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fullbore.toml");
        std::fs::write(&path, "compression = \"lz4\"\nstrips = 4\n").unwrap();
        let text = read(&path).unwrap_err().to_string();
        assert!(text.contains("line 2") && text.contains("strips"), "{text}");
    }

    #[test]
    fn keys_have_the_names_of_their_flags() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fullbore.toml");
        std::fs::write(&path, "compression = \"zstd:1\"\nmax-transfer-size = \"2MiB\"\n").unwrap();
        assert_eq!(read(&path).unwrap().max_transfer_size.as_deref(), Some("2MiB"));
    }
}
