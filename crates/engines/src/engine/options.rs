//! The options of an engine in a database URL (`sqlite:PATH?keep-free-pages=true`) and in the configuration
//! (`[engine.sqlite]`).

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use fullbore_core::device::percent_decoded;
use fullbore_core::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::{AlsoIn, DatabaseUrl, Engine, EngineOption, FAIL_OVER_FROM, GivenIn, GivenOptions, OptionValue};
use crate::{ENGINES, named, of_url, without_password};

/// The tables `[engine.NAME]` of the configuration: options of engines, for every run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineDefaults(Vec<(&'static str, &'static EngineOption, OptionValue)>);

impl EngineDefaults {
    /// From the options by engine and name.
    ///
    /// # Errors
    /// An unknown engine or option: the text names the known ones. Or a value of another kind.
    pub fn new(tables: &BTreeMap<String, BTreeMap<String, Setting>>) -> Result<Self, String> {
        let mut all = Vec::new();
        for (name, options) in tables {
            let known = || ENGINES.iter().map(|engine| engine.name()).collect::<Vec<_>>().join(", ");
            let engine = named(name).ok_or_else(|| format!("`{name}` is not an engine (known: {})", known()))?;
            for (name, setting) in options {
                // The others are for one restore only, such as the tables that it takes.
                let is_of_all_restores = |option: &&EngineOption| option.also.contains(&AlsoIn::RestoreTest);
                let of_restores = engine.restore_options().iter().copied().filter(is_of_all_restores);
                let option = find(engine, name).or(of_restores.into_iter().find(|option| option.name == name));
                let option = option.ok_or_else(|| unknown(engine, name))?;
                let value = option.kind.parse(name, &setting.text()).map_err(|error| error.one_line())?;
                all.push((engine.name(), option, value));
            }
        }
        Ok(Self(all))
    }

    pub(super) fn of(&self, engine: &dyn Engine, option: &EngineOption) -> Option<&OptionValue> {
        let mine =
            |(name, known, _): &&(&str, &'static EngineOption, OptionValue)| *name == engine.name() && *known == option;
        self.0.iter().find(mine).map(|(_, _, value)| value)
    }
}

/// The value of an option in the configuration: `true`, `8589934592`, `"8GiB"`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Setting {
    /// Of a switch.
    Switch(bool),
    /// Bytes.
    Number(u64),
    /// Bytes with a unit, or a path.
    Text(String),
}

impl Setting {
    fn text(&self) -> String {
        match self {
            Self::Switch(on) => on.to_string(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

impl<'de> Deserialize<'de> for EngineDefaults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(&BTreeMap::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// Takes the options of the engine out of a database URL, and joins them with the flags and the configuration. A flag
/// wins over the URL, and the URL wins over the configuration.
///
/// # Errors
/// An option that the engine does not know or that is there twice, or a value of another kind.
pub fn resolve_options(
    url: &str,
    flags: &GivenOptions,
    defaults: &EngineDefaults,
) -> Result<(DatabaseUrl, GivenOptions)> {
    // `open` refuses the URL of an unknown engine.
    let Some(engine) = of_url(url) else { return Ok((DatabaseUrl::new(url.to_owned()), flags.clone())) };
    let (plain, in_url) = take(engine, url)?;
    let mut given = flags.clone();
    for &option in engine.options().iter().filter(|option| flags.value(option).is_none()) {
        let in_url = in_url.iter().find(|(named, _)| *named == option).map(|(_, value)| (value, GivenIn::Url));
        let default = || defaults.of(engine, option).map(|value| (value, GivenIn::Configuration));
        if let Some((value, place)) = in_url.or_else(default) {
            given.add(option, value.clone(), place);
        }
    }
    let url = DatabaseUrl::new(plain);
    let url = match given.text(&FAIL_OVER_FROM) {
        Some(name) => url.called(name),
        None => url,
    };
    Ok((url, given))
}

/// Refuses options after the path of a target: a restore has no options of its engine. A `?` belongs to the name,
/// unless NAME=VALUE follows it and no file has the whole name.
///
/// # Errors
/// It names the first option.
pub fn refuse_target_options(engine: &dyn Engine, path: &str) -> Result<()> {
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    let option = options_after(engine, path).and_then(|(_, options)| options.split('&').next()?.split_once('='));
    let Some((name, _)) = option.filter(|(name, _)| is_name(name)) else { return Ok(()) };
    let why = format!("a restore of {} has no option `{name}`", engine.title());
    Err(Error::usage(format!("{}:{path}", engine.name()), why, "leave it out, or name another file"))
}

/// The text before the options of a URL or path, and the options. A file may have a `?` in its name: if a file with the
/// whole name exists, there are no options.
fn options_after<'t>(engine: &dyn Engine, text: &'t str) -> Option<(&'t str, &'t str)> {
    if engine.is_server() {
        // With an `@` it may be the end of a password: the engine refuses that, and repeats nothing.
        return text.split_once('?').filter(|(_, options)| !options.contains('@'));
    }
    let start = format!("{}:", engine.name());
    let path = text.strip_prefix(&start).unwrap_or(text);
    if Path::new(path).symlink_metadata().is_ok() { None } else { text.rsplit_once('?') }
}

type InUrl = Vec<(&'static EngineOption, OptionValue)>;

/// The URL without the options of the engine, and these options.
fn take(engine: &'static dyn Engine, url: &str) -> Result<(String, InUrl)> {
    let Some((before, options)) = options_after(engine, url) else { return Ok((url.to_owned(), Vec::new())) };
    let (mut own, mut others) = (Vec::new(), Vec::new());
    let mut names = HashSet::new();
    for option in options.split('&') {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        if !names.insert(name) {
            return Err(Error::usage(
                without_password(url),
                format!("the option `{}` is there twice", shown(name)),
                "write each option once",
            ));
        }
        match find(engine, name) {
            Some(option) if engine.is_server() => {
                let value = percent_decoded(value).and_then(|bytes| String::from_utf8(bytes).ok());
                let bad = || Error::usage(without_password(url), format!("`{name}` has a wrong %XX"), "write % as %25");
                own.push((option, option.kind.parse(name, &value.ok_or_else(bad)?)?));
            }
            Some(option) => own.push((option, option.kind.parse(name, value)?)),
            // These may be of the address, which refuses unknown ones.
            None if engine.is_server() => others.push(option),
            None => {
                let path = url.split_once(':').map_or(url, |(_, path)| path);
                let why = format!("{}, and no file `{path}` exists", unknown(engine, name));
                return Err(Error::usage(
                    without_password(url),
                    why,
                    format!("write {}:PATH?NAME=true", engine.name()),
                ));
            }
        }
    }
    let plain = match (own.is_empty(), others.is_empty()) {
        (true, _) => url.to_owned(),
        (false, true) => before.to_owned(),
        (false, false) => format!("{before}?{}", others.join("&")),
    };
    Ok((plain, own))
}

fn find(engine: &'static dyn Engine, name: &str) -> Option<&'static EngineOption> {
    engine.options().iter().copied().find(|option| option.name == name)
}

/// Why an option is refused.
fn unknown(engine: &dyn Engine, name: &str) -> String {
    let known = names(engine);
    let name = shown(name);
    format!("`{name}` is not an option of {} (known: {known})", engine.title())
}

/// The name of an option for a message: a URL may contain anything, and the text goes to a terminal.
fn shown(name: &str) -> String {
    name.chars().filter(|letter| !letter.is_control()).take(40).collect()
}

/// The names of all options of an engine.
pub(crate) fn names(engine: &dyn Engine) -> String {
    engine.options().iter().map(|option| option.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::mysql::engine::{INCLUDE_OTHER_ENGINES, INSTALL_CLONE_PLUGIN};
    use crate::mysql_family::server_options::PASSWORD_FILE;
    use crate::mysql_family::url::ServerAddress;
    use crate::sqlite::engine::{KEEP_FREE_PAGES, MAX_WAL_GROWTH};

    fn defaults(engine: &str, option: &str, value: bool) -> Result<EngineDefaults, String> {
        EngineDefaults::new(&[(engine.to_owned(), [(option.to_owned(), Setting::Switch(value))].into())].into())
    }

    #[test]
    fn a_flag_wins_over_the_url_and_the_url_over_the_configuration() {
        let always = defaults("sqlite", "keep-free-pages", true).unwrap();
        let never = defaults("sqlite", "keep-free-pages", false).unwrap();
        let (no_flag, flag) = (GivenOptions::default(), GivenOptions::default().with(&KEEP_FREE_PAGES));
        for (url, flags, defaults, expected) in [
            ("sqlite:no.db", &no_flag, &always, true),
            ("sqlite:no.db", &no_flag, &never, false),
            ("sqlite:no.db", &no_flag, &EngineDefaults::default(), false),
            ("sqlite:no.db?keep-free-pages=false", &no_flag, &always, false),
            ("sqlite:no.db?keep-free-pages=true", &no_flag, &never, true),
            ("sqlite:no.db?keep-free-pages=false", &flag, &never, true),
        ] {
            let (plain, given) = resolve_options(url, flags, defaults).unwrap();
            assert_eq!((plain.text(), given.has(&KEEP_FREE_PAGES)), ("sqlite:no.db", expected), "{url}");
        }
        assert!(resolve_options("sqlite:no.db", &no_flag, &always).unwrap().1.asked(&KEEP_FREE_PAGES).is_none());
        let (_, in_url) = resolve_options("sqlite:no.db?keep-free-pages=true", &no_flag, &always).unwrap();
        assert_eq!(in_url.asked(&KEEP_FREE_PAGES).unwrap(), "keep-free-pages=true");
        assert!(!resolve_options("mysql://h", &no_flag, &always).unwrap().1.has(&KEEP_FREE_PAGES), "of another engine");
    }

    #[test]
    fn the_options_of_a_server_are_taken_out_of_its_url_and_those_of_the_address_stay() {
        let url = "mysql://u@h/?install-clone-plugin=true&ssl-mode=required&include-other-engines=false";
        let (plain, given) = resolve_options(url, &GivenOptions::default(), &EngineDefaults::default()).unwrap();
        assert_eq!(plain.text(), "mysql://u@h/?ssl-mode=required");
        assert!(given.has(&INSTALL_CLONE_PLUGIN) && !given.has(&INCLUDE_OTHER_ENGINES));
        for unchanged in ["mysql://u@h/?keep-free-pages=true", "mysql://u@h/?", "mysql://u:12?install=5@h", "x:y?z=1"] {
            let resolved = resolve_options(unchanged, &GivenOptions::default(), &EngineDefaults::default()).unwrap();
            assert_eq!(resolved.0.text(), unchanged);
        }
    }

    #[test]
    fn a_size_and_a_path_are_values_of_options_too() {
        let nothing = GivenOptions::default();
        let none = EngineDefaults::default();
        assert_eq!(nothing.bytes(&MAX_WAL_GROWTH), 8 << 30, "the default");
        let (_, given) = resolve_options("sqlite:no.db?max-wal-growth=2GiB", &nothing, &none).unwrap();
        assert_eq!(given.bytes(&MAX_WAL_GROWTH), 2 << 30);
        for setting in [Setting::Number(1 << 20), Setting::Text("1MiB".into())] {
            let table = [("max-wal-growth".to_owned(), setting)].into();
            let defaults = EngineDefaults::new(&[("sqlite".to_owned(), table)].into()).unwrap();
            assert_eq!(resolve_options("sqlite:no.db", &nothing, &defaults).unwrap().1.bytes(&MAX_WAL_GROWTH), 1 << 20);
            let of_flag = nothing.clone().with_value(&MAX_WAL_GROWTH, OptionValue::Bytes(7));
            assert_eq!(resolve_options("sqlite:no.db", &of_flag, &defaults).unwrap().1.bytes(&MAX_WAL_GROWTH), 7);
        }
        let (plain, given) = resolve_options("mysql://u@h/?password-file=/a%20b", &nothing, &none).unwrap();
        assert_eq!((plain.text(), given.file(&PASSWORD_FILE).unwrap()), ("mysql://u@h/", Path::new("/a b")));
        assert_eq!(given.words(), ["--password-file", "/a b"]);
        for wrong in
            ["sqlite:no.db?max-wal-growth=much", "mysql://u@h/?password-file=", "mysql://u@h/?password-file=%zz"]
        {
            let error = resolve_options(wrong, &nothing, &none).unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 2, "{wrong}");
        }
        assert!(defaults("sqlite", "max-wal-growth", true).unwrap_err().contains("max-wal-growth"));
    }

    #[test]
    fn an_unknown_option_is_an_error_that_names_the_known_ones() {
        for (url, name) in [("sqlite:no.db?keep-pages=true", "keep-pages"), ("sqlite:no?.db", ".db")] {
            let error = resolve_options(url, &GivenOptions::default(), &EngineDefaults::default()).unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 2);
            let text = error.to_string();
            assert!(text.contains(&format!("`{name}`")) && text.contains("known: keep-free-pages"), "{text}");
        }
        for url in [
            "sqlite:no.db?keep-free-pages=true&keep-free-pages=false",
            "mysql://u@h/?ssl-mode=required&ssl-mode=disabled",
        ] {
            let error = resolve_options(url, &GivenOptions::default(), &EngineDefaults::default()).unwrap_err();
            assert_eq!(error.exit_kind().exit_code(), 2);
            assert!(error.to_string().contains("is there twice"), "{error}");
        }
        let of_server = ServerAddress::parse("mysql://u@h/?install-clone=true").unwrap_err().to_string();
        assert!(of_server.contains("`install-clone`") && of_server.contains("install-clone-plugin"), "{of_server}");
        for value in ["", "yes", "1"] {
            let url = format!("sqlite:no.db?keep-free-pages={value}");
            let error = resolve_options(&url, &GivenOptions::default(), &EngineDefaults::default()).unwrap_err();
            assert!(error.to_string().contains("neither true nor false"), "{error}");
        }
        assert!(defaults("sqlite", "free-pages", true).unwrap_err().contains("keep-free-pages"));
        assert!(defaults("oracle", "x", true).unwrap_err().contains("sqlite, mysql, mariadb"));
    }

    #[test]
    fn a_file_with_a_question_mark_in_its_name_is_taken_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a?keep-free-pages=true");
        let url = format!("sqlite:{}", path.display());
        let resolved = || resolve_options(&url, &GivenOptions::default(), &EngineDefaults::default()).unwrap();
        assert!(resolved().1.has(&KEEP_FREE_PAGES) && resolved().0.text().ends_with("/a"));
        std::fs::write(&path, "").unwrap();
        assert!(!resolved().1.has(&KEEP_FREE_PAGES) && resolved().0.text() == url);
        let more = format!("{url}?keep-free-pages=true");
        let (plain, given) = resolve_options(&more, &GivenOptions::default(), &EngineDefaults::default()).unwrap();
        assert!(given.has(&KEEP_FREE_PAGES) && plain.text() == url, "the last `?` begins the options");
    }

    #[test]
    fn a_target_has_no_options_and_may_have_a_question_mark_in_its_name() {
        let engine = named("sqlite").unwrap();
        let error = refuse_target_options(engine, "new.db?keep-free-pages=true").unwrap_err().to_string();
        assert!(error.contains("`keep-free-pages`"), "{error}");
        for name in ["new.db", "new?.db", "new.db?", "new.db?1=2"] {
            refuse_target_options(engine, name).unwrap();
        }
    }
}
