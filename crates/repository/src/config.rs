//! Configuration: the file that `--config` names, else the first that exists of `./fullbore.toml`,
//! `$XDG_CONFIG_HOME/fullbore/fullbore.toml` and `/etc/fullbore/fullbore.toml`. Flags override it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fullbore_core::io::{config_home, read_whole, refuse_files_of_others, state_home};
use fullbore_core::store::{self, Encryption, LockMode, ObjectLock, ObjectOptions, Stores};
use fullbore_core::{Error, Result};
use fullbore_engines::engine::EngineDefaults;
use jiff::{Timestamp, ToSpan};
use serde::Deserialize;

use crate::chain::retention::KeepRules;
use fullbore_core::units;

/// Bytes of the longest configuration that is read.
const FILE_MAX: usize = 1 << 20;

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
    /// `--outage`, in seconds.
    pub outage: Option<u64>,
    /// `--log-file`.
    pub log_file: Option<PathBuf>,
    /// The profile of the AWS tools whose keys, region and endpoint are used, instead of those of the environment.
    pub aws_profile: Option<String>,
    /// `--sse`.
    pub sse: Option<String>,
    /// `--storage-class`.
    pub storage_class: Option<String>,
    /// `--tag`.
    pub tag: Vec<String>,
    /// `--lock-until`.
    pub lock_until: Option<String>,
    /// `--lock-mode`.
    pub lock_mode: Option<String>,
    /// `--max-parts`.
    pub max_parts: Option<u64>,
    /// Where the catalog is.
    pub catalog: Option<PathBuf>,
    /// The file that this was read from.
    #[serde(skip)]
    pub read_from: Option<PathBuf>,
    /// `[engine.NAME]`: the options of single engines, as of their flags.
    pub engine: EngineDefaults,
    /// `[sql]`: what the names in T-SQL mean.
    pub sql: SqlNames,
    /// Named repositories.
    pub repository: BTreeMap<String, RepositoryConfig>,
}

/// `[sql]`: what the names in statements of `fullbore sql` mean.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SqlNames {
    /// The URL of each database.
    pub databases: BTreeMap<String, String>,
    /// Directories for the beginnings of Windows paths.
    pub paths: BTreeMap<String, String>,
    /// The public key of each certificate.
    pub certificates: BTreeMap<String, String>,
    /// The repository whose tasks the procedures of RDS show.
    pub repository: Option<String>,
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
    /// `--sse`.
    pub sse: Option<String>,
    /// `--storage-class`.
    pub storage_class: Option<String>,
    /// `--tag`.
    pub tag: Vec<String>,
    /// `--lock-until`.
    pub lock_until: Option<String>,
    /// `--lock-mode`.
    pub lock_mode: Option<String>,
    /// `--max-parts`.
    pub max_parts: Option<u64>,
    /// The profile of the AWS tools whose keys, region and endpoint reach it.
    pub aws_profile: Option<String>,
    /// Databases that are not backed up any more: `fullbore check` does not wait for new backups of them.
    pub retired: Vec<String>,
    /// The records do not show paths or `--name` of encrypted sets.
    pub hide_names: bool,
    /// The sets that `fullbore prune` keeps.
    pub keep: Option<KeepRules>,
}

impl RepositoryConfig {
    /// The first key that only an object store can obey.
    pub fn asked_of_store(&self) -> Option<&'static str> {
        let said = [
            ("lock-until", self.lock_until.is_some()),
            ("lock-mode", self.lock_mode.is_some()),
            ("sse", self.sse.is_some()),
            ("storage-class", self.storage_class.is_some()),
            ("tag", !self.tag.is_empty()),
            ("max-parts", self.max_parts.is_some()),
        ];
        said.into_iter().find_map(|(key, said)| said.then_some(key))
    }
}

impl Config {
    /// This configuration for a run on a repository: the keys of the repository win over the general keys.
    pub fn of_repository(&self, name: &str) -> Self {
        let Some(repository) = self.repository.get(name).cloned() else { return self.clone() };
        let (own, all) = (repository, self.clone());
        Self {
            compression: own.compression.or(all.compression),
            stripes: own.stripes.or(all.stripes),
            throttle: own.throttle.or(all.throttle),
            name_template: own.name_template.or(all.name_template),
            key: own.key.or(all.key),
            encrypt_to: if own.encrypt_to.is_empty() { all.encrypt_to } else { own.encrypt_to },
            sse: own.sse.or(all.sse),
            storage_class: own.storage_class.or(all.storage_class),
            tag: if own.tag.is_empty() { all.tag } else { own.tag },
            lock_until: own.lock_until.or(all.lock_until),
            lock_mode: own.lock_mode.or(all.lock_mode),
            max_parts: own.max_parts.or(all.max_parts),
            aws_profile: own.aws_profile.or(all.aws_profile),
            ..self.clone()
        }
    }

    /// The keys that only an object store can obey. A key that promises safety comes with what is missing elsewhere.
    pub fn for_stores_alone(&self) -> Vec<(&'static str, Option<&'static str>)> {
        let said = [
            ("lock-until", self.lock_until.is_some(), Some("the files there can be deleted")),
            ("sse", self.sse.is_some(), Some("the files there are not encrypted by it (encrypt-to encrypts anywhere)")),
            ("storage-class", self.storage_class.is_some(), None),
            ("tag", !self.tag.is_empty(), None),
            ("max-parts", self.max_parts.is_some(), None),
        ];
        said.into_iter().filter(|(_, said, _)| *said).map(|(key, _, lost)| (key, lost)).collect()
    }

    /// Where the catalog is.
    pub fn catalog_path(&self) -> PathBuf {
        self.catalog.clone().unwrap_or_else(default_catalog)
    }

    /// The connections to object stores, with the options for keeping families.
    ///
    /// # Errors
    /// A usage error: an option with a wrong value, or options that do not fit together.
    pub fn stores(&self) -> Result<Stores> {
        let patience = self.device_timeout.map_or(store::PATIENCE, Duration::from_secs);
        let objects = self.object_options(Timestamp::now())?;
        Ok(Stores::of_environment_keeping(patience, objects, self.aws_profile.as_deref()))
    }

    /// For how long objects are locked, if `lock-until` is a time span and not a time.
    ///
    /// # Errors
    /// It is neither.
    pub fn locked_for(&self) -> Result<Option<Duration>> {
        let span = self.lock_until.as_deref().filter(|text| !is_time(text));
        span.map(|text| units::duration("--lock-until", text)).transpose()
    }

    /// How object stores keep families. Days count from `now`.
    fn object_options(&self, now: Timestamp) -> Result<ObjectOptions> {
        let lock = match (&self.lock_until, &self.lock_mode) {
            (None, None) => None,
            (None, Some(_)) => {
                return Err(Error::usage("--lock-mode", "needs --lock-until", "add for example --lock-until 30d"));
            }
            (Some(until), mode) => Some(ObjectLock {
                mode: mode.as_ref().map_or(Ok(LockMode::default()), |mode| LockMode::parse("--lock-mode", mode))?,
                until: lock_until(until, now)?,
            }),
        };
        ObjectOptions {
            encryption: self.sse.as_ref().map(|sse| Encryption::parse("--sse", sse)).transpose()?,
            storage_class: self
                .storage_class
                .as_ref()
                .map(|class| store::storage_class("--storage-class", class))
                .transpose()?,
            tags: self.tag.iter().map(|tag| store::tag("--tag", tag)).collect::<Result<_>>()?,
            lock,
            max_parts: self.max_parts,
            outage: Duration::from_secs(self.outage.unwrap_or(0)),
        }
        .checked()
    }
}

/// The default place of the catalog.
fn default_catalog() -> PathBuf {
    state_home().unwrap_or_else(std::env::temp_dir).join("fullbore/catalog.db")
}

/// True for a time, false for a time span.
fn is_time(text: &str) -> bool {
    text.contains('T') || text.contains(' ')
}

/// `30d` from now, or a time with its zone; rounded up to whole seconds.
fn lock_until(text: &str, now: Timestamp) -> Result<Timestamp> {
    let wrong = |why: String| {
        Error::usage("--lock-until", why, "write days, or a time with its zone: 30d, 2026-12-24T00:00:00Z")
    };
    let until = if is_time(text) {
        text.parse().map_err(|error| wrong(format!("`{text}` is not a time: {error}")))?
    } else {
        let time = units::duration("--lock-until", text)?;
        now.checked_add(time).map_err(|_| wrong(format!("`{text}` is too long")))?
    };
    let whole = Timestamp::from_second(until.as_second()).unwrap_or(until);
    // A backup checks against the store's clock that it is in the future. A restore with this configuration need not.
    Ok(if whole < until { whole.checked_add(1.second()).unwrap_or(until) } else { whole })
}

/// Reads the configuration.
///
/// # Errors
/// The file cannot be read, others may change it, or it has an unknown key or a wrong value: with line and hint.
pub fn load(named: Option<&Path>) -> Result<Config> {
    if let Some(path) = named {
        return trusted(path);
    }
    let home = config_home();
    let places = [
        Some(PathBuf::from("fullbore.toml")),
        home.map(|home| home.join("fullbore/fullbore.toml")),
        Some("/etc/fullbore/fullbore.toml".into()),
    ];
    match places.into_iter().flatten().find(|path| path.is_file()) {
        Some(path) => trusted(&path),
        None => Ok(Config::default()),
    }
}

/// Reads a configuration that only this user and root may change: it says where backups go, and which keys open them.
fn trusted(path: &Path) -> Result<Config> {
    refuse_files_of_others(path)?;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    Ok(Config { read_from: Some(real), ..read(path)? })
}

fn read(path: &Path) -> Result<Config> {
    let shown = path.display().to_string();
    let bytes =
        read_whole(path, FILE_MAX).map_err(|e| Error::io("read the configuration", &shown, e).on_named_thing())?;
    let Some(text) = bytes.as_ref().and_then(|bytes| std::str::from_utf8(bytes).ok()) else {
        let why = format!("is longer than {}, or is not text", units::show_bytes(FILE_MAX as u64));
        return Err(Error::usage(shown, why, "name a configuration as in docs/configuration.md"));
    };
    toml::from_str(text).map_err(|e| {
        let line = e.span().map_or(1, |span| text[..span.start].matches('\n').count() + 1);
        let what = e.message().lines().next().unwrap_or_default().to_owned();
        Error::usage(
            format!("{}, line {line}", path.display()),
            what,
            "the keys are the flags of `fullbore backup --help` that have a value, [engine.NAME] and \
             [repository.NAME]: docs/configuration.md",
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
    fn an_unknown_option_of_an_engine_is_refused_with_its_line_and_the_known_ones() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fullbore.toml");
        let load = |option: &str| {
            std::fs::write(&path, format!("stripes = 2\n\n[engine.sqlite]\n{option}\n")).unwrap();
            read(&path)
        };
        assert_ne!(load("keep-free-pages = true").unwrap().engine, EngineDefaults::default());
        let text = load("free-pages = true").unwrap_err().to_string();
        assert!(text.contains("line 3") && text.contains("`free-pages`") && text.contains("keep-free-pages"), "{text}");
        let text = load("keep-free-pages = 1").unwrap_err().to_string();
        assert!(text.contains("line 3") && text.contains("keep-free-pages: its value is neither true"), "{text}");
        assert_ne!(load("max-wal-growth = \"2GiB\"").unwrap().engine, EngineDefaults::default());
    }

    #[test]
    fn a_configuration_without_an_end_is_refused() {
        let text = read(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(text.contains("/dev/zero") && text.contains("1.0 MiB"), "{text}");
    }

    #[test]
    fn a_lock_is_until_a_time_with_its_zone_in_whole_seconds() {
        let now: Timestamp = "2026-11-22T12:00:00.5Z".parse().unwrap();
        let until = |text: &str| lock_until(text, now).map(|time| time.to_string());
        assert_eq!(until("30d").unwrap(), "2026-12-22T12:00:01Z");
        assert_eq!(until("2026-12-24T01:00:00+01:00").unwrap(), "2026-12-24T00:00:00Z");
        for text in ["", "30", "2026-12-24", "2026-12-24T00:00:00", "999999999d"] {
            assert!(until(text).unwrap_err().to_string().contains("--lock-until"), "{text}");
        }
        let alone = Config { lock_mode: Some("compliance".into()), ..Config::default() };
        assert!(alone.object_options(now).unwrap_err().to_string().contains("--lock-until"));
    }

    #[test]
    fn keys_have_the_names_of_their_flags() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fullbore.toml");
        std::fs::write(&path, "compression = \"zstd:1\"\nmax-transfer-size = \"2MiB\"\n").unwrap();
        assert_eq!(read(&path).unwrap().max_transfer_size.as_deref(), Some("2MiB"));
    }
}
