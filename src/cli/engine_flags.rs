//! The flags of single engines: each engine's table of flags, under its own heading in `--help`.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use fullbore_engines::engine::{EngineFlag, GivenFlags};
use fullbore_engines::{ENGINES, Engine};

/// The flags that were given. With `OF_ESTIMATES`, only the flags that count in estimates exist.
#[derive(Debug, Clone, Default)]
pub struct EngineFlags<const OF_ESTIMATES: bool>(pub GivenFlags);

/// The flags that `backup` takes.
pub type BackupFlags = EngineFlags<false>;
/// The flags of these that `estimate` and `advise` take.
pub type EstimateFlags = EngineFlags<true>;

impl<const OF_ESTIMATES: bool> EngineFlags<OF_ESTIMATES> {
    fn known() -> impl Iterator<Item = (&'static dyn Engine, &'static EngineFlag)> {
        let all = ENGINES.iter().flat_map(|engine| engine.flags().iter().map(|flag| (*engine, flag)));
        all.filter(|(_, flag)| !OF_ESTIMATES || flag.counts_in_estimates)
    }
}

impl<const OF_ESTIMATES: bool> FromArgMatches for EngineFlags<OF_ESTIMATES> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::known().map(|(_, flag)| flag).filter(|flag| matches.get_flag(flag.name));
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<const OF_ESTIMATES: bool> Args for EngineFlags<OF_ESTIMATES> {
    fn augment_args(command: Command) -> Command {
        Self::known().fold(command, |command, (engine, flag)| {
            let arg = Arg::new(flag.name).long(flag.name).help(flag.help).help_heading(engine.title());
            command.arg(arg.action(ArgAction::SetTrue))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
