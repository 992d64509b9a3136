//! Hidden names (`hide-names`): the records have a digest in place of a database's name. Sets with the same digest
//! belong together. Its key is the public key that sets are encrypted to, which is nowhere in a repository.

use std::fmt::Write;
use std::path::PathBuf;

use fullbore_core::cipher::KeyFile;
use fullbore_core::media::EngineValue;
use fullbore_core::{Error, Result};

use super::Repository;
use super::format::SetRecord;
use crate::config::Config;

/// The prefix of a digest; and of the digest of a file, a socket or a server on the machine itself.
const HIDDEN: &str = "hidden-";
const LOCAL: &str = "hidden-local-";
/// Bytes of a digest that are shown.
const DIGEST: usize = 16;
/// The default template for the names of families.
const TEMPLATE: &str = "{kind}-{time}-{id}-{family}of{families}.bore";
/// The text in place of an error, which may contain any name.
pub const UNTOLD: &str = "only that host has the error text: this repository hides names";

/// The key of the digests; `None` on a host that cannot read it. Names are hidden in both cases.
#[derive(Clone)]
pub struct NameKey(Option<[u8; 32]>);

impl NameKey {
    fn of(config: &Config, name: &str) -> Result<Option<Self>> {
        if !is_asked(config, name) {
            return Ok(None);
        }
        let key = KeyFile::read(&recipient(config, name)?)?;
        let purpose = "fullbore 2026-11 names of databases in a repository";
        Ok(Some(Self(Some(blake3::derive_key(purpose, key.public().bytes())))))
    }

    /// The digest of a database's name; a digest stays as it is.
    pub fn token(&self, database: &str) -> String {
        let Some(key) = &self.0 else { return format!("{HIDDEN}unknown") };
        if database.is_empty() || is_hidden(database) {
            return database.to_owned();
        }
        let mut token = if is_local_name(database) { LOCAL } else { HIDDEN }.to_owned();
        for byte in &blake3::keyed_hash(key, database.as_bytes()).as_bytes()[..DIGEST] {
            let _ = write!(token, "{byte:02x}"); // A string takes everything.
        }
        token
    }
}

impl Repository {
    /// The same repository; its records hide names if the configuration says so.
    ///
    /// # Errors
    /// The configuration hides names, but names no key, or the key cannot be read.
    pub fn hiding(self, config: &Config) -> Result<Self> {
        Ok(Self { names: NameKey::of(config, &self.name)?, ..self })
    }

    /// The same for commands that write no set: an unreadable key is not an error.
    pub fn hiding_as_it_can(self, config: &Config) -> Self {
        let names = NameKey::of(config, &self.name).unwrap_or(Some(NameKey(None)));
        Self { names, ..self }
    }

    /// The record of a set in the form that this repository stores.
    pub fn hidden(&self, set: SetRecord) -> SetRecord {
        match &self.names {
            Some(key @ NameKey(Some(_))) if set.encrypted => {
                let database = key.token(&set.database);
                // Positions order the log sets, but the positions of a server name files and tables.
                let is_told = fullbore_engines::named(&set.engine).is_some_and(|engine| !engine.is_server());
                let mut position = set.position;
                if !is_told {
                    for part in [&mut position.first, &mut position.checkpoint, &mut position.last] {
                        *part = EngineValue::default();
                    }
                }
                SetRecord { database, name: String::new(), position, ..set }
            }
            _ => set,
        }
    }

    /// A database as the records of this repository name it.
    pub fn named(&self, database: &str) -> String {
        self.names.as_ref().map_or_else(|| database.to_owned(), |key| key.token(database))
    }

    /// An error text in the form that its records store.
    pub fn told(&self, error: String) -> String {
        if self.names.is_some() { UNTOLD.to_owned() } else { error }
    }
}

/// True for a digest in place of a name.
pub fn is_hidden(database: &str) -> bool {
    database.starts_with(HIDDEN)
}

/// True for a name that means another database on another machine, for any engine: a path, a socket, or a server on the
/// machine itself.
pub fn is_local_name(name: &str) -> bool {
    let here = ["/", "localhost", "127.", "[::1]", "::1", LOCAL];
    here.iter().any(|here| name.starts_with(here))
}

/// The template for the names of families in a repository; `template` is the user's choice.
///
/// # Errors
/// The names would contain the name that the records hide, or no set is encrypted there.
pub fn template(config: &Config, name: &str, template: Option<String>) -> Result<Option<String>> {
    if !is_asked(config, name) {
        return Ok(template);
    }
    recipient(config, name)?;
    match template {
        None => Ok(Some(TEMPLATE.to_owned())),
        Some(told) if told.contains("{database}") => {
            let why = "would put the name of the database, which hide-names hides, into the names of families";
            let hint = "leave {database} out";
            Err(Error::usage(format!("--name-template {told}"), why, hint))
        }
        template => Ok(template),
    }
}

/// The key file whose public key makes the digests: the first recipient of the sets.
fn recipient(config: &Config, name: &str) -> Result<PathBuf> {
    config.of_repository(name).encrypt_to.into_iter().next().ok_or_else(|| {
        let why = "hides the names of encrypted sets, but no set is encrypted: the configuration has no encrypt-to";
        let hint = "write encrypt-to = [\"/etc/fullbore/app.key.pub\"] beside it, or leave hide-names out";
        Error::usage(format!("[repository.{name}] hide-names"), why, hint)
    })
}

fn is_asked(config: &Config, name: &str) -> bool {
    config.repository.get(name).is_some_and(|repository| repository.hide_names)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_tells_databases_apart_and_keeps_what_is_local() {
        let (one, two) = (NameKey(Some([1; 32])), NameKey(Some([2; 32])));
        let token = one.token("/data/app.db");
        assert_eq!((one.token("/data/app.db"), one.token(&token)), (token.clone(), token.clone()));
        assert!(token != one.token("/data/app.db2") && token != two.token("/data/app.db"));
        assert!(token.starts_with(LOCAL) && token.len() == LOCAL.len() + 2 * DIGEST && is_local_name(&token));
        let far = one.token("db.example.org:3306");
        assert!(is_hidden(&far) && !is_local_name(&far), "{far}");
        assert_eq!(one.token(""), "");
        assert!(!NameKey(None).token("/data/app.db").contains("app"));
    }
}
