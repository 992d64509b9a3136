//! The statements for many small tables, sent before the answers of earlier ones have come: the server never waits for
//! the next statement, and opens each table once.

use std::collections::VecDeque;

use fullbore_core::Result;

use super::describe::{PLAIN_NAMES, UTF8_NAMES, show_create};
use super::key::Range;
use super::listing::Listed;
use super::query::select;
use super::snapshot::GIVE_BACK;
use crate::mysql_family::connection::Connection;

/// Statements without an answer have no more bytes together, unless it is one: they fit into the buffers of the network.
/// The server reads no statement while it sends an answer.
const AHEAD_BYTES: usize = 16 << 10;

/// What an answer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The definition of the table at this place.
    Definition(usize),
    /// Its rows.
    Rows(usize),
    /// Of a statement without rows.
    Done,
}

/// Statements in their order, and how many of them were sent.
#[derive(Default)]
pub struct Ahead {
    planned: VecDeque<(Step, String)>,
    sent: VecDeque<(Step, usize)>,
    bytes: usize,
}

impl Ahead {
    /// For these tables: their definitions, if nobody has asked for them yet, and their rows.
    ///
    /// # Errors
    /// A column has an unknown type.
    pub fn of<'t>(tables: impl Iterator<Item = (usize, &'t Listed, bool)> + Clone) -> Result<Self> {
        let mut planned = VecDeque::new();
        definitions(tables.clone().filter(|(.., described)| !described), &mut planned);
        for (place, table, _) in tables {
            planned.push_back((Step::Rows(place), select(table, &Range::default(), None)?));
        }
        planned.push_back((Step::Done, GIVE_BACK.to_owned()));
        Ok(Self { planned, ..Self::default() })
    }

    /// For the definition of one table.
    pub fn definition(place: usize, table: &Listed) -> Self {
        let mut planned = VecDeque::new();
        definitions(std::iter::once((place, table, false)), &mut planned);
        Self { planned, ..Self::default() }
    }

    /// What the next answer on the connection is; None after the last.
    ///
    /// # Errors
    /// The connection fails.
    pub fn next(&mut self, connection: &mut Connection) -> Result<Option<Step>> {
        while let Some((step, statement)) = self.planned.pop_front() {
            if !self.sent.is_empty() && self.bytes + statement.len() > AHEAD_BYTES {
                self.planned.push_front((step, statement));
                break;
            }
            self.bytes += statement.len();
            self.sent.push_back((step, statement.len()));
            connection.send_ahead(&[statement])?;
        }
        let next = self.sent.pop_front();
        self.bytes -= next.map_or(0, |(_, bytes)| bytes);
        Ok(next.map(|(step, _)| step))
    }
}

fn definitions<'t>(tables: impl Iterator<Item = (usize, &'t Listed, bool)>, planned: &mut VecDeque<(Step, String)>) {
    let begun = planned.len();
    planned.extend(tables.map(|(place, table, _)| (Step::Definition(place), show_create(table))));
    if planned.len() > begun {
        planned.push_front((Step::Done, UTF8_NAMES.to_owned()));
        planned.push_back((Step::Done, PLAIN_NAMES.to_owned()));
    }
}
