//! `fullbore key`.

use std::path::{Path, PathBuf};

use fullbore::config::Config;
use fullbore::job::keys;
use fullbore::{Error, Result};
use serde::Serialize;

use super::args::{Key, KeyVerb};
use super::listing::ReportFlags;
use super::show;

/// A new key as an object.
#[derive(Serialize)]
struct NewKey {
    key_id: String,
    secret_file: PathBuf,
    public_file: PathBuf,
    /// Key id of the recovery key.
    recovery_key_id: Option<String>,
}

/// The written sidecars as an object.
#[derive(Serialize)]
struct Rewrapped {
    sidecars: Vec<PathBuf>,
}

/// Runs the verb; gives the exit code.
pub fn run(args: &Key, config: &Config) -> Result<u8> {
    match &args.verb {
        KeyVerb::New { file, recovery, no_recovery, shown } => new(file, recovery.as_deref(), *no_recovery, shown),
        KeyVerb::Rewrap { from, key, encrypt_to, shown } => {
            let sidecars = keys::rewrap(from, key, encrypt_to, &super::stores(config)?)?;
            let rewrapped = Rewrapped { sidecars };
            if shown.write("key rewrap", &rewrapped)? {
                rewrapped.sidecars.iter().for_each(|path| show::line(&format!("wrote {}", path.display())));
            }
            Ok(0)
        }
    }
}

fn new(file: &Path, recovery: Option<&Path>, no_recovery: bool, shown: &ReportFlags) -> Result<u8> {
    if recovery.is_none() && !no_recovery {
        return Err(Error::usage(
            "key new",
            "no offline recovery key is named: if you lose this key, you lose every backup encrypted to it alone",
            "make a recovery key on another machine (fullbore key new --no-recovery recovery.key), keep its secret \
             offline, and name its public part here: --recovery recovery.key.pub; or say --no-recovery",
        ));
    }
    let recovery_key_id = recovery.map(keys::id_of).transpose()?;
    let key_id = keys::new(file)?;
    let (secret_file, public_file) = (file.to_owned(), keys::public_path(file));
    let made = NewKey { key_id, secret_file, public_file, recovery_key_id };
    if shown.write("key new", &made)? {
        told(&made, recovery);
    }
    Ok(0)
}

/// The new key for people.
fn told(made: &NewKey, recovery: Option<&Path>) {
    let (secret, public) = (made.secret_file.display(), made.public_file.display());
    show::line(&format!("key {}: secret in {secret} (keep it safe), public part in {public}", made.key_id));
    if let (Some(path), Some(recovery_id)) = (recovery, &made.recovery_key_id) {
        show::line(&format!("recovery key {recovery_id}; encrypt to both:"));
        show::line(&format!("  fullbore backup … --encrypt-to {public} --encrypt-to {}", path.display()));
    }
}
