//! Flags of one engine, such as `--install-clone-plugin` of MySQL. The engine names them, explains them, and asks for
//! them.

/// A flag of a single engine. The flag takes no value.
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

/// The flags of engines that the user gave.
#[derive(Debug, Clone, Default)]
pub struct GivenFlags(Vec<&'static EngineFlag>);

impl GivenFlags {
    /// True when `flag` was given.
    pub fn has(&self, flag: &EngineFlag) -> bool {
        self.iter().any(|given| given == flag)
    }

    /// All that were given, in the order of the engines.
    pub fn iter(&self) -> impl Iterator<Item = &'static EngineFlag> {
        self.0.iter().copied()
    }

    /// The flags that count in estimates.
    #[must_use]
    pub fn of_estimates(&self) -> Self {
        self.iter().filter(|flag| flag.counts_in_estimates).collect()
    }
}

impl FromIterator<&'static EngineFlag> for GivenFlags {
    fn from_iter<I: IntoIterator<Item = &'static EngineFlag>>(flags: I) -> Self {
        Self(flags.into_iter().collect())
    }
}
