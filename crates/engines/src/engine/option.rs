//! Options of an engine, such as `--install-clone-plugin` of MySQL. The engine names them, explains them, and asks for
//! them. So a new engine adds no field to the options of all engines.

use std::path::{Path, PathBuf};

use fullbore_core::{Error, Result, units};

/// An option that not all engines have: a flag on the command line, `name=value` in a URL, `name = value` in the
/// configuration.
#[derive(Debug, PartialEq, Eq)]
pub struct EngineOption {
    /// Its name without the dashes, such as `keep-free-pages`.
    pub name: &'static str,
    /// What its value is.
    pub kind: OptionKind,
    /// Its effect, for `--help`.
    pub help: &'static str,
    /// Why it is an error with another engine.
    pub elsewhere: &'static str,
    /// The verbs that take it besides `backup`; of an option of restores, besides `restore`.
    pub also: &'static [AlsoIn],
}

/// A verb that takes some options of `backup`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlsoIn {
    /// `estimate` and `advise`: the option changes how much a backup stores, or it is needed to reach the database.
    Estimates,
    /// `log follow`.
    LogFollow,
    /// `restore` into a server that runs the restore itself.
    Restore,
    /// The same, and no backup.
    OnlyRestore,
    /// `restore` of a logical set into a new data directory.
    NewDirectory,
    /// `restore-test`.
    RestoreTest,
}

/// What the value of an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionKind {
    /// On or off. A flag has no value.
    Switch,
    /// A number of bytes, such as `8GiB`. This is its default.
    Bytes(u64),
    /// The path of a file.
    File,
    /// One of these words; the first is the default.
    Choice(&'static [&'static str]),
    /// A number that is 1 or more. This is the word for it in `--help`.
    Number(&'static str),
    /// A text. This is the word for it in `--help`.
    Text(&'static str),
    /// A text that may be given again and again. This is the word for it in `--help`.
    Texts(&'static str),
    /// Two texts, again and again, on the command line only. These are the words for them in `--help`.
    Pairs(&'static [&'static str; 2]),
}

impl OptionKind {
    /// The words for its values in `--help`; none for a switch.
    pub const fn value_names(&self) -> &[&'static str] {
        match self {
            Self::Switch => &[],
            Self::Bytes(_) => &["BYTES"],
            Self::File => &["FILE"],
            Self::Choice(_) => &["WORD"],
            Self::Number(name) | Self::Text(name) | Self::Texts(name) => std::slice::from_ref(name),
            Self::Pairs(names) => *names,
        }
    }

    /// True if it may be given again and again.
    pub const fn is_repeatable(self) -> bool {
        matches!(self, Self::Texts(_) | Self::Pairs(_))
    }

    /// A value of this kind, from text. `name` is for messages.
    ///
    /// # Errors
    /// The text is no such value.
    pub fn parse(self, name: &str, text: &str) -> Result<OptionValue> {
        Ok(match self {
            Self::Switch => OptionValue::Switch(match text {
                "true" => true,
                "false" => false,
                _ => {
                    let why = "its value is neither true nor false";
                    return Err(Error::usage(name, why, format!("write {name}=true")));
                }
            }),
            Self::Bytes(_) => OptionValue::Bytes(units::bytes(name, text)?),
            Self::File if text.is_empty() => {
                return Err(Error::usage(name, "its value is empty", "name a file"));
            }
            Self::File => OptionValue::File(text.into()),
            Self::Choice(words) => match words.iter().find(|word| **word == text) {
                Some(word) => OptionValue::Choice(word),
                None => {
                    let why = format!("its value is not one of: {}", words.join(", "));
                    return Err(Error::usage(name, why, "write one of these words"));
                }
            },
            Self::Number(_) => match text.parse() {
                Ok(number) if number > 0 => OptionValue::Number(number),
                _ => return Err(Error::usage(name, "its value is not a number from 1 to 65535", "write a number")),
            },
            Self::Text(_) | Self::Texts(_) | Self::Pairs(_) if text.is_empty() => {
                return Err(Error::usage(name, "its value is empty", "write a name"));
            }
            Self::Text(_) | Self::Texts(_) | Self::Pairs(_) => OptionValue::Texts(vec![text.to_owned()]),
        })
    }
}

/// The value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OptionValue {
    /// Of [`OptionKind::Switch`].
    Switch(bool),
    /// Of [`OptionKind::Bytes`].
    Bytes(u64),
    /// Of [`OptionKind::File`].
    File(PathBuf),
    /// Of [`OptionKind::Choice`].
    Choice(&'static str),
    /// Of [`OptionKind::Number`].
    Number(u16),
    /// Of [`OptionKind::Text`], [`OptionKind::Texts`] and [`OptionKind::Pairs`].
    Texts(Vec<String>),
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

/// An option that the user gave.
#[derive(Debug, Clone)]
struct Given {
    option: &'static EngineOption,
    value: OptionValue,
    place: GivenIn,
}

/// The options of engines that the user gave.
#[derive(Debug, Clone, Default)]
pub struct GivenOptions(Vec<Given>);

impl GivenOptions {
    /// True when the switch `option` is on.
    pub fn has(&self, option: &EngineOption) -> bool {
        self.value(option) == Some(&OptionValue::Switch(true))
    }

    /// The number of bytes that `option` has, or else its default.
    pub fn bytes(&self, option: &EngineOption) -> u64 {
        match (self.value(option), option.kind) {
            (Some(OptionValue::Bytes(bytes)), _) => *bytes,
            (_, OptionKind::Bytes(default)) => default,
            _ => 0,
        }
    }

    /// The file that `option` names.
    pub fn file(&self, option: &EngineOption) -> Option<&Path> {
        match self.value(option) {
            Some(OptionValue::File(path)) => Some(path),
            _ => None,
        }
    }

    /// The word that `option` has, or else its default.
    pub fn choice(&self, option: &EngineOption) -> &'static str {
        match (self.value(option), option.kind) {
            (Some(OptionValue::Choice(word)), _) => word,
            (_, OptionKind::Choice(words)) => words.first().copied().unwrap_or_default(),
            _ => "",
        }
    }

    /// The texts that `option` has.
    pub fn texts(&self, option: &EngineOption) -> &[String] {
        match self.value(option) {
            Some(OptionValue::Texts(texts)) => texts,
            _ => &[],
        }
    }

    /// The text that `option` has.
    pub fn text(&self, option: &EngineOption) -> Option<&str> {
        self.texts(option).first().map(String::as_str)
    }

    /// The pairs of texts that `option` has.
    pub fn pairs(&self, option: &EngineOption) -> Vec<(&str, &str)> {
        self.texts(option).as_chunks().0.iter().map(|[first, second]| (first.as_str(), second.as_str())).collect()
    }

    /// The number that `option` has.
    pub fn number(&self, option: &EngineOption) -> Option<u16> {
        match self.value(option) {
            Some(OptionValue::Number(number)) => Some(*number),
            _ => None,
        }
    }

    /// The value of `option`, if the user gave one.
    pub fn value(&self, option: &EngineOption) -> Option<&OptionValue> {
        self.0.iter().find(|given| given.option == option).map(|given| &given.value)
    }

    /// The switch `option` as the user wrote it for this run; `None` if only the configuration has it.
    pub fn asked(&self, option: &EngineOption) -> Option<String> {
        let on = OptionValue::Switch(true);
        match self.0.iter().find(|given| given.option == option && given.value == on)?.place {
            GivenIn::Configuration => None,
            GivenIn::Url => Some(format!("{}=true", option.name)),
            GivenIn::Flag => Some(format!("--{}", option.name)),
        }
    }

    /// Adds one. A text joins the texts of the same option.
    pub fn add(&mut self, option: &'static EngineOption, value: OptionValue, place: GivenIn) {
        let given = self.0.iter_mut().find(|given| given.option == option).map(|given| &mut given.value);
        if let (Some(OptionValue::Texts(texts)), OptionValue::Texts(more)) = (given, &value) {
            texts.extend_from_slice(more);
            return;
        }
        self.0.push(Given { option, value, place });
    }

    /// These options, and a switch that is on.
    #[must_use]
    pub fn with(self, option: &'static EngineOption) -> Self {
        self.with_value(option, OptionValue::Switch(true))
    }

    /// These options, and one with a value.
    #[must_use]
    pub fn with_value(mut self, option: &'static EngineOption, value: OptionValue) -> Self {
        self.add(option, value, GivenIn::Flag);
        self
    }

    /// All that were given.
    pub fn iter(&self) -> impl Iterator<Item = &'static EngineOption> {
        self.0.iter().map(|given| given.option)
    }

    /// As words of a command line, whatever place they were given in.
    pub fn words(&self) -> Vec<String> {
        let words = self.0.iter().flat_map(|Given { option, value, .. }| {
            let name = format!("--{}", option.name);
            match value {
                OptionValue::Switch(true) => vec![name],
                OptionValue::Switch(false) => Vec::new(),
                OptionValue::Bytes(bytes) => vec![name, bytes.to_string()],
                OptionValue::File(path) => vec![name, path.display().to_string()],
                OptionValue::Choice(word) => vec![name, (*word).to_owned()],
                OptionValue::Number(number) => vec![name, number.to_string()],
                OptionValue::Texts(texts) => {
                    let values = texts.chunks(option.kind.value_names().len().max(1));
                    values.flat_map(|values| [std::slice::from_ref(&name), values].concat()).collect()
                }
            }
        });
        words.collect()
    }

    /// The options that `verb` takes.
    #[must_use]
    pub fn of(&self, verb: AlsoIn) -> Self {
        Self(self.0.iter().filter(|given| given.option.also.contains(&verb)).cloned().collect())
    }
}
