//! The options of single engines as flags: under the names of their engines in `--help`.

use std::ffi::OsString;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use fullbore::Result;
use fullbore::config::Config;
use fullbore_engines::all_engines;
use fullbore_engines::engine::{
    AlsoIn, Engine, EngineOption, GivenIn, GivenOptions, OptionKind, OptionValue, SetOptions,
};

/// The options that were given, with their values as text. `VERB` is the verb that takes them.
#[derive(Debug, Clone, Default)]
pub struct EngineOptions<const VERB: u8>(Vec<(&'static EngineOption, OsString)>);

const BACKUP: u8 = 0;
const ESTIMATES: u8 = 1;
const LOG_FOLLOW: u8 = 2;
const RESTORE: u8 = 3;
const OF_SET: u8 = 4;
const RESTORE_TEST: u8 = 5;

/// The options that `backup` takes.
pub type BackupOptions = EngineOptions<BACKUP>;
/// The options of these that `estimate` and `advise` take.
pub type EstimateOptions = EngineOptions<ESTIMATES>;
/// The options of these that `log follow` takes.
pub type FollowOptions = EngineOptions<LOG_FOLLOW>;
/// The options of these that `restore` takes, into a server that runs it itself.
pub type RestoreOptions = EngineOptions<RESTORE>;
/// The options that `restore` takes for the engine of the set.
pub type OptionsOfSet = EngineOptions<OF_SET>;
/// The options of these that `restore-test` takes.
pub type RestoreTestOptions = EngineOptions<RESTORE_TEST>;

/// The options of `engine` that the verb has among its own.
fn options_of(engine: &'static dyn Engine, verb: u8) -> &'static [&'static EngineOption] {
    if matches!(verb, OF_SET | RESTORE_TEST) { engine.restore_options() } else { engine.options() }
}

impl<const VERB: u8> EngineOptions<VERB> {
    /// Each option once, although engines share some.
    fn known() -> Vec<&'static EngineOption> {
        let is_wanted = |option: &EngineOption| match VERB {
            ESTIMATES => option.also.contains(&AlsoIn::Estimates),
            LOG_FOLLOW => option.also.contains(&AlsoIn::LogFollow),
            RESTORE => option.also.iter().any(|also| matches!(also, AlsoIn::Restore | AlsoIn::OnlyRestore)),
            BACKUP => !option.also.contains(&AlsoIn::OnlyRestore),
            RESTORE_TEST => option.also.contains(&AlsoIn::RestoreTest),
            _ => true,
        };
        let mut all: Vec<&EngineOption> = Vec::new();
        for &option in all_engines().flat_map(|engine| options_of(engine, VERB)) {
            if is_wanted(option) && !all.contains(&option) {
                all.push(option);
            }
        }
        all
    }

    /// Adds `option` with this value, if the command line does not have it.
    pub fn or(&mut self, option: &'static EngineOption, value: String) {
        if !self.0.iter().any(|(given, _)| *given == option) {
            self.0.push((option, value.into()));
        }
    }

    /// The options of a restore, with those of the configuration.
    ///
    /// # Errors
    /// A value is not of the kind of its option.
    pub fn of_set(&self, config: &Config) -> Result<SetOptions> {
        Ok(SetOptions::new(self.given()?, config.engine.clone()))
    }

    /// The options with their values.
    ///
    /// # Errors
    /// A value is not of the kind of its option.
    pub fn given(&self) -> Result<GivenOptions> {
        let mut all = GivenOptions::default();
        for (option, text) in &self.0 {
            let value = match option.kind {
                OptionKind::File => OptionValue::File(text.into()),
                kind => kind.parse(&format!("--{}", option.name), &text.to_string_lossy())?,
            };
            all.add(option, value, GivenIn::Flag);
        }
        Ok(all)
    }
}

/// The engines that have an option.
fn heading(option: &EngineOption, verb: u8) -> String {
    let engines: Vec<&str> = all_engines()
        .filter(|&engine| options_of(engine, verb).contains(&option))
        .map(|engine| engine.title())
        .collect();
    match engines.split_last() {
        Some((last, before)) if !before.is_empty() => format!("{} and {last}", before.join(", ")),
        _ => engines.concat(),
    }
}

/// The texts that the command line has for `option`.
fn texts_of(option: &EngineOption, matches: &ArgMatches) -> Vec<OsString> {
    match option.kind {
        OptionKind::Switch => matches.get_flag(option.name).then(|| "true".into()).into_iter().collect(),
        _ => matches.get_many::<OsString>(option.name).into_iter().flatten().cloned().collect(),
    }
}

impl<const VERB: u8> FromArgMatches for EngineOptions<VERB> {
    fn from_arg_matches(matches: &ArgMatches) -> std::result::Result<Self, clap::Error> {
        let known = Self::known().into_iter();
        let given = known.flat_map(|option| texts_of(option, matches).into_iter().map(move |text| (option, text)));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> std::result::Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const VERB: u8> Args for EngineOptions<VERB> {
    fn augment_args(command: Command) -> Command {
        Self::known().into_iter().fold(command, |command, option| {
            let arg = Arg::new(option.name).long(option.name).help(option.help).help_heading(heading(option, VERB));
            let arg = if option.kind.is_repeatable() { arg.action(ArgAction::Append) } else { arg };
            command.arg(match option.kind.value_names() {
                [] => arg.action(ArgAction::SetTrue),
                names => arg.num_args(names.len()).value_names(names).value_parser(value_parser!(OsString)),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
