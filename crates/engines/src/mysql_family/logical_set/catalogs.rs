//! The catalogs of a session: what was described before the snapshot, and the definitions that readers bring.

use fullbore_core::{Error, Result};

use super::session::{LogicalSession, NewDetail, NewStream};
use super::{catalog, lock, set};

impl LogicalSession {
    /// The stream of a catalog, and its text.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn catalog(&self, place: usize) -> Result<(NewStream, Vec<u8>)> {
        let schema = self.listing.databases.get(place).cloned().ok_or(Error::Halted)?;
        let objects = lock(&self.described).objects(&self.listing, &schema);
        let name = set::catalog_name(&schema, place);
        Ok((self.new_stream(|_| name, NewDetail::Catalog(schema))?, catalog::written(&objects)))
    }

    /// The stream of the accounts, and its text.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn accounts(&self) -> Result<(NewStream, Vec<u8>)> {
        let accounts = std::mem::take(&mut *lock(&self.accounts));
        let mut stream = self.new_stream(|_| set::ACCOUNTS.to_owned(), NewDetail::Accounts)?;
        stream.tables = accounts.len() as u64;
        Ok((stream, catalog::written(&accounts)))
    }

    /// The catalogs before any row is read: a name and the text of each.
    ///
    /// # Errors
    /// The server does not describe a table.
    pub fn catalogs(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mut described = lock(&self.described);
        described.tables(&mut lock(&self.control), &self.listing)?;
        let text = |schema: &String| catalog::written(&described.objects(&self.listing, schema));
        let schemas = described.catalogs.keys().enumerate();
        Ok(schemas.map(|(at, schema)| (set::catalog_name(schema, at), text(schema))).collect())
    }

    /// Whether the definition of the table at this place is there.
    pub(super) fn is_described(&self, place: usize) -> bool {
        lock(&self.described).creates.contains_key(&place)
    }

    /// The definition of the table at this place came.
    pub(super) fn has_come(&self, place: usize, create: String) {
        lock(&self.described).creates.insert(place, create);
    }
}
