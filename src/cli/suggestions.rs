//! Suggestions for wrong flags that are better than the most similar word.

use std::ffi::OsString;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue};

use super::args::Arguments;

/// A verb, a flag of other verbs, and the flag of this verb with the same meaning.
const MEANT: [(&str, &str, &str); 3] =
    [("restore", "--to", "--into"), ("backup", "--into", "--to"), ("copy", "--into", "--to")];

/// The error with the flag that was meant, where that is known.
pub fn improved(mut error: clap::Error, words: &[OsString]) -> clap::Error {
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg) else { return error };
    let has_verb = |verb: &str| words.iter().skip(1).take_while(|word| *word != "--").any(|word| word == verb);
    let meant = MEANT.iter().find(|(verb, flag, _)| wrong == flag && has_verb(verb));
    let Some((verb, _, right)) = meant else { return error };
    error.insert(ContextKind::SuggestedArg, ContextValue::String((*right).to_owned()));
    // The usage had the other suggestion in it.
    let mut command = Arguments::command();
    command.build();
    if let Some(verb) = command.find_subcommand_mut(verb) {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(verb.render_usage()));
    }
    error
}
