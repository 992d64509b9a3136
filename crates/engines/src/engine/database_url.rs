//! The URL of a database, read once.

use fullbore_core::Result;

use super::{Engine, Identity};
use crate::{Options, Session, identity, of_url, without_password};

/// The URL of a database without options: `sqlite:PATH`, `mysql://…`. It is read once, and a job asks it for the rest.
/// A URL that names no engine is refused when the database is opened.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseUrl {
    text: String,
    shown: String,
    identity: Identity,
}

impl DatabaseUrl {
    /// Reads a URL without options: [`resolve_options`](super::resolve_options) takes them out.
    pub(crate) fn new(text: String) -> Self {
        Self { shown: without_password(&text), identity: identity(&text), text }
    }

    /// The database of `engine` with this name on media.
    pub fn of_name(engine: &dyn Engine, name: &str) -> Self {
        Self::new(format!("{}:{name}", engine.name()))
    }

    /// The same database under the name that a repository has for it.
    pub(crate) fn called(mut self, name: &str) -> Self {
        name.clone_into(&mut self.identity.name);
        self
    }

    /// The whole text, perhaps with a password.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text as it may be shown.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The part before the colon, which names the engine; empty without a colon.
    pub fn scheme(&self) -> &str {
        self.text.split_once(':').map_or("", |(scheme, _)| scheme)
    }

    /// The engine, if it is known.
    pub fn engine(&self) -> Option<&'static dyn Engine> {
        of_url(&self.text)
    }

    /// True if its engine is known and is a server.
    pub fn is_server(&self) -> bool {
        self.engine().is_some_and(|engine| engine.is_server())
    }

    /// What the database is on this machine.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Its name on media.
    pub fn name(&self) -> &str {
        &self.identity.name
    }

    /// Opens a session on the database.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub fn open(&self, options: &Options) -> Result<Box<dyn Session>> {
        crate::open(&self.text, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_its_password_and_named_without_its_account() {
        let url = DatabaseUrl::new("mysql://backup:secret@db1:3307/".into());
        assert_eq!((url.scheme(), url.name(), url.is_server()), ("mysql", "db1:3307", true));
        assert!(!url.shown().contains("secret") && url.text().contains("secret"), "{}", url.shown());
        let unknown = DatabaseUrl::new("nothing".into());
        assert_eq!((unknown.scheme(), unknown.name(), unknown.is_server()), ("", "nothing", false));
    }
}
