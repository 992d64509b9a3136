//! The flags of single engines on the command line: each engine's table of flags, under a heading of its own in `--help`.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use fullbore_engines::ENGINES;
use fullbore_engines::engine::{EngineFlag, GivenFlags};

/// The flags that `backup` takes.
#[derive(Debug, Clone, Default)]
pub struct EngineFlags(pub GivenFlags);

/// Those of them that `estimate` and `advise` take.
#[derive(Debug, Clone, Default)]
pub struct EstimateFlags(pub GivenFlags);

fn with_flags(command: Command, is_wanted: fn(&EngineFlag) -> bool) -> Command {
    let flags = ENGINES.iter().flat_map(|engine| engine.flags().iter().map(|flag| (engine.title(), flag)));
    flags.filter(|(_, flag)| is_wanted(flag)).fold(command, |command, (title, flag)| {
        let arg = Arg::new(flag.name).long(flag.name).help(flag.help).help_heading(title);
        command.arg(arg.action(ArgAction::SetTrue))
    })
}

fn given(matches: &ArgMatches, is_wanted: fn(&EngineFlag) -> bool) -> GivenFlags {
    let flags = ENGINES.iter().flat_map(|engine| engine.flags());
    flags.filter(|flag| is_wanted(flag) && matches.get_flag(flag.name)).collect()
}

fn all(_: &EngineFlag) -> bool {
    true
}

fn of_estimates(flag: &EngineFlag) -> bool {
    flag.counts_in_estimates
}

/// What clap asks of arguments that no derive can write.
macro_rules! arguments {
    ($name:ident, $is_wanted:expr) => {
        impl FromArgMatches for $name {
            fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
                Ok(Self(given(matches, $is_wanted)))
            }

            fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
                self.0 = given(matches, $is_wanted);
                Ok(())
            }
        }

        impl Args for $name {
            fn augment_args(command: Command) -> Command {
                with_flags(command, $is_wanted)
            }

            fn augment_args_for_update(command: Command) -> Command {
                Self::augment_args(command)
            }
        }
    };
}

arguments!(EngineFlags, all);
arguments!(EstimateFlags, of_estimates);
