//! Profiles: keys, region and endpoint out of `~/.aws/credentials` and `~/.aws/config`, where the environment has none.
//!
//! Public source: AWS SDKs and Tools Reference Guide, "Shared config and credentials files".

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// Longer files are not of this kind, in bytes.
const FILE_MAX: u64 = 1 << 20;
/// Keys of a profile, and the variables that they stand for.
const KNOWN: [(&str, &str); 5] = [
    ("aws_access_key_id", "AWS_ACCESS_KEY_ID"),
    ("aws_secret_access_key", "AWS_SECRET_ACCESS_KEY"),
    ("aws_session_token", "AWS_SESSION_TOKEN"),
    ("region", "AWS_REGION"),
    ("endpoint_url", "AWS_ENDPOINT_URL"),
];
/// Keys of profiles whose credentials another program or a login gives.
const FOREIGN: [&str; 4] = ["credential_process", "sso_session", "sso_start_url", "role_arn"];

/// The variables that `AWS_PROFILE`, or without it the profile `default`, adds to those of the environment.
///
/// # Errors
/// The requested profile does not exist, or its keys come from a source that fullbore does not support.
pub(super) fn added(environment: &[(String, String)]) -> Result<Vec<(String, String)>> {
    let get = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    let asked = get("AWS_PROFILE").filter(|name| !name.is_empty());
    let file = |variable: &str, name: &str| {
        let below_home = || get("HOME").map(|home| Path::new(home).join(".aws").join(name));
        get(variable).map(PathBuf::from).or_else(below_home)
    };
    let files = [file("AWS_SHARED_CREDENTIALS_FILE", "credentials"), file("AWS_CONFIG_FILE", "config")];
    let wanted = asked.unwrap_or("default");
    let (mut found, mut there) = (Vec::new(), false);
    for path in files.iter().flatten() {
        if let Some(pairs) = section(&read(path)?, wanted) {
            there = true;
            found.extend(pairs);
        }
    }
    let of_profile = |key: &str| found.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str());
    let thing = || format!("profile `{wanted}`");
    if let (Some(_), false) = (asked, there) {
        let shown: Vec<String> = files.iter().flatten().map(|path| path.display().to_string()).collect();
        let why = format!("is neither in {}", shown.join(" nor in "));
        return Err(Error::usage(thing(), why, "check AWS_PROFILE"));
    }
    let has_keys = get("AWS_ACCESS_KEY_ID").is_some() || of_profile("aws_access_key_id").is_some();
    if let (Some(_), false, Some(key)) = (asked, has_keys, FOREIGN.iter().find(|key| of_profile(key).is_some())) {
        let hint = "put the keys into the environment with `aws configure export-credentials --format env`";
        return Err(Error::usage(thing(), format!("gets its keys by `{key}`, which fullbore does not support"), hint));
    }
    let added = KNOWN.iter().filter(|(key, variable)| {
        // Keys belong together: keys of the environment are not completed from a profile.
        let is_key = key.starts_with("aws_");
        let given = if is_key { get("AWS_ACCESS_KEY_ID") } else { get(variable) };
        given.is_none() && !(*key == "region" && get("AWS_DEFAULT_REGION").is_some())
    });
    Ok(added.filter_map(|(key, variable)| Some(((*variable).to_owned(), of_profile(key)?.to_owned()))).collect())
}

/// The text of the file; nothing if it does not exist.
fn read(path: &Path) -> Result<String> {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_MAX).read_to_string(&mut text));
    match read {
        Ok(_) => Ok(text),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(String::new()),
        Err(error) => Err(Error::io("read the profiles in", path.display().to_string(), error)),
    }
}

/// The pairs of a section; in `config` all but `default` are called `profile NAME`.
fn section(text: &str, wanted: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = None;
    let mut inside = false;
    for line in text.lines() {
        // An indented line belongs to a nested setting, such as `s3 =`.
        if line.starts_with([' ', '\t']) || line.starts_with(['#', ';']) {
            continue;
        }
        let line = line.trim();
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(name, _)| name.trim()) {
            inside = name == wanted || name.strip_prefix("profile").is_some_and(|rest| rest.trim() == wanted);
            if inside {
                pairs.get_or_insert_with(Vec::new);
            }
        } else if let (true, Some((key, value))) = (inside, line.split_once('=')) {
            pairs.get_or_insert_with(Vec::new).push((key.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    pairs
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CREDENTIALS: &str = "# mine\n[default]\naws_access_key_id = A\naws_secret_access_key=B=\n\n\
                               [night]\naws_access_key_id=C\naws_secret_access_key=D\n\
                               aws_session_token=E\n[sso]\nsso_session = x\n";
    const CONFIG: &str = "[default]\nregion=eu-1\n[profile night]\nregion = eu-2\ns3 =\n  endpoint_url = nested\n\
                          endpoint_url = http://x\n";

    fn with(environment: &[(&str, &str)]) -> Result<Vec<(String, String)>> {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join(".aws")).unwrap();
        std::fs::write(home.path().join(".aws/credentials"), CREDENTIALS).unwrap();
        std::fs::write(home.path().join(".aws/config"), CONFIG).unwrap();
        let mut all = vec![("HOME".to_owned(), home.path().display().to_string())];
        all.extend(environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        added(&all)
    }

    fn shown(environment: &[(&str, &str)]) -> String {
        let pairs = with(environment).unwrap();
        pairs.iter().map(|(name, value)| format!("{}={value}", &name[4..])).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_profile_gives_what_the_environment_does_not() {
        assert_eq!(shown(&[]), "ACCESS_KEY_ID=A SECRET_ACCESS_KEY=B= REGION=eu-1");
        assert_eq!(
            shown(&[("AWS_PROFILE", "night")]),
            "ACCESS_KEY_ID=C SECRET_ACCESS_KEY=D SESSION_TOKEN=E REGION=eu-2 ENDPOINT_URL=http://x"
        );
        assert_eq!(
            shown(&[("AWS_PROFILE", "night"), ("AWS_REGION", "r"), ("AWS_ENDPOINT_URL", "u")]).matches('=').count(),
            3
        );
        // Keys belong together.
        assert_eq!(shown(&[("AWS_ACCESS_KEY_ID", "X"), ("AWS_SECRET_ACCESS_KEY", "Y")]), "REGION=eu-1");
    }

    #[test]
    fn a_profile_that_is_not_there_or_has_no_keys_of_its_own_is_refused_with_its_name() {
        let error = with(&[("AWS_PROFILE", "gone")]).unwrap_err().to_string();
        assert!(error.contains("profile `gone`") && error.contains(".aws/credentials"), "{error}");
        let error = with(&[("AWS_PROFILE", "sso")]).unwrap_err().to_string();
        assert!(error.contains("sso_session") && error.contains("export-credentials"), "{error}");
        assert_eq!(added(&[("HOME".into(), "/nonexistent".into())]).unwrap(), []);
    }
}
