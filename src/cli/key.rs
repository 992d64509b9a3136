//! `fullbore key`.

use std::path::Path;

use fullbore::config::Config;
use fullbore::job::keys;
use fullbore::{Error, Result};

use super::args::{Key, KeyVerb};
use super::show;

/// Runs the verb; gives the exit code.
pub fn run(args: &Key, config: &Config) -> Result<u8> {
    match &args.verb {
        KeyVerb::New { file, recovery, no_recovery } => new(file, recovery.as_deref(), *no_recovery),
        KeyVerb::Rewrap { from, key, encrypt_to } => {
            let written = keys::rewrap(from, key, encrypt_to, &super::stores(config)?)?;
            written.iter().for_each(|path| show::line(&format!("wrote {}", path.display())));
            Ok(0)
        }
    }
}

fn new(file: &Path, recovery: Option<&Path>, no_recovery: bool) -> Result<u8> {
    if recovery.is_none() && !no_recovery {
        return Err(Error::usage(
            "key new",
            "no offline recovery key is named: if you lose this key, you lose every backup encrypted to it alone",
            "make a recovery key on another machine (fullbore key new --no-recovery recovery.key), keep its secret \
             offline, and name its public part here: --recovery recovery.key.pub; or say --no-recovery",
        ));
    }
    let recovery_id = recovery.map(keys::id_of).transpose()?;
    let id = keys::new(file)?;
    show::line(&format!(
        "key {id}: secret in {} (keep it safe), public part in {}",
        file.display(),
        keys::public_path(file).display()
    ));
    if let (Some(path), Some(recovery_id)) = (recovery, recovery_id) {
        show::line(&format!("recovery key {recovery_id}; encrypt to both:"));
        show::line(&format!(
            "  fullbore backup … --encrypt-to {} --encrypt-to {}",
            keys::public_path(file).display(),
            path.display()
        ));
    }
    Ok(0)
}
