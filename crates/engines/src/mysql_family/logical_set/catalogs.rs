//! The catalogs of a session: what was described before the snapshot, and the definitions that readers bring.

use fullbore_core::{Error, Result};

use super::out::{Out, STEP};
use super::session::{LogicalSession, NewDetail, NewStream};
use super::{catalog, lock, set};

/// The catalog of a database, on its way into a stream: not all of its text is in memory.
pub(super) struct CatalogOut {
    /// The stream.
    pub out: Out,
    schema: String,
    /// How many objects it has so far.
    objects: usize,
}

impl LogicalSession {
    /// Begins the catalog of the database at this place.
    ///
    /// # Errors
    /// There are too many streams.
    pub(super) fn catalog(&self, place: usize) -> Result<CatalogOut> {
        let schema = self.listing.databases.get(place).cloned().ok_or(Error::Halted)?;
        let name = set::catalog_name(&schema, place);
        let out = Out::new(self.new_stream(|_| name, NewDetail::Catalog(schema.clone()))?);
        Ok(CatalogOut { out, schema, objects: 0 })
    }

    /// Appends the next objects to a catalog, or closes it.
    pub(super) fn fill(&self, CatalogOut { out, schema, objects }: &mut CatalogOut) {
        let (described, begun) = (lock(&self.described), out.text.len());
        out.closed = true;
        for object in described.objects(&self.listing, schema, *objects) {
            catalog::write(&mut out.text, &object);
            *objects += 1;
            if out.text.len() - begun >= STEP {
                out.closed = false;
                break;
            }
        }
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
        let text = |schema: &String| catalog::written(described.objects(&self.listing, schema, 0));
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
