//! Options of one engine, such as `--install-clone-plugin` of MySQL. The engine names them, explains them, and asks for
//! them.

/// An option of a single engine: a flag without a value on the command line, `name=true` in a URL, `name = true` in the
/// configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct EngineFlag {
    /// Its name without the dashes, such as `keep-free-pages`.
    pub name: &'static str,
    /// Its effect, for `--help`.
    pub help: &'static str,
    /// Why it is an error with another engine.
    pub elsewhere: &'static str,
    /// True when it changes how much a backup stores: then `estimate` and `advise` take it, too.
    pub counts_in_estimates: bool,
}

/// The place where the user gave an option. A later one wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GivenIn {
    /// In the table of the engine. It is for all runs, also those that it means nothing to.
    Configuration,
    /// After the database.
    Url,
    /// On the command line.
    Flag,
}

/// The options of engines that the user gave.
#[derive(Debug, Clone, Default)]
pub struct GivenFlags(Vec<(&'static EngineFlag, GivenIn)>);

impl GivenFlags {
    /// True when `flag` was given.
    pub fn has(&self, flag: &EngineFlag) -> bool {
        self.iter().any(|given| given == flag)
    }

    /// `flag` as the user wrote it for this run; `None` if only the configuration has it.
    pub fn asked(&self, flag: &EngineFlag) -> Option<String> {
        match self.0.iter().find(|(given, _)| *given == flag)?.1 {
            GivenIn::Configuration => None,
            GivenIn::Url => Some(format!("{}=true", flag.name)),
            GivenIn::Flag => Some(format!("--{}", flag.name)),
        }
    }

    /// Adds one.
    pub fn add(&mut self, flag: &'static EngineFlag, place: GivenIn) {
        self.0.push((flag, place));
    }

    /// All that were given, in the order of the engines.
    pub fn iter(&self) -> impl Iterator<Item = &'static EngineFlag> {
        self.0.iter().map(|(flag, _)| *flag)
    }

    /// The options that count in estimates.
    #[must_use]
    pub fn of_estimates(&self) -> Self {
        Self(self.0.iter().filter(|(flag, _)| flag.counts_in_estimates).copied().collect())
    }
}

impl FromIterator<&'static EngineFlag> for GivenFlags {
    fn from_iter<I: IntoIterator<Item = &'static EngineFlag>>(flags: I) -> Self {
        Self(flags.into_iter().map(|flag| (flag, GivenIn::Flag)).collect())
    }
}
