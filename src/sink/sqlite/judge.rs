//! Finds out whose fault the refusal of a row is, with rows that do not stay in the table (see `narrowing`).

use std::iter;

use rusqlite::{Connection, Transaction, TransactionBehavior, params_from_iter};

use super::error::SqliteError;
use super::lane::Work;
use super::schema::Statements;
use crate::narrowing::OtherContent;
use crate::table::{Cell, probe};

impl Statements {
    /// The first row of `work` was refused alone. Tries a made-up row, the other rows, and a copy of an existing row, until
    /// the table accepts one.
    pub(super) fn other_content(&self, connection: &mut Connection, work: &Work) -> Result<OtherContent, SqliteError> {
        let Work::Deliver { lane, epoch, after, through, rows } = work else { return Ok(OtherContent::Refused) };
        let mut tried = OtherContent::Untried;
        for row in probe::other_rows(rows, 0) {
            let (lane, rows) = (lane.clone(), vec![row]);
            let probe = Work::Deliver { lane, epoch: *epoch, after: *after, through: *through, rows };
            tried = tried.max(rolled_back(connection, |connection| self.carry_out(connection, &probe).map(|_| true))?);
            if tried == OtherContent::Accepted {
                return Ok(tried);
            }
        }
        // The copy concerns no operation.
        if rows[0].operation.is_some() {
            return Ok(tried);
        }
        let (channel, changed) = (Cell::Id(lane.channel.id.0), probe::changed(&rows[0]));
        let copied = rolled_back(connection, |connection| {
            // If the table of positions cannot be used, no event can be written, although the copy can.
            self.position(connection, lane)?;
            Ok(connection.execute(&self.copy, params_from_iter(iter::once(&channel).chain(&changed)))? > 0)
        });
        Ok(tried.max(copied?))
    }
}

/// Does work in a transaction that is rolled back. The work returns whether it has written a row.
fn rolled_back(
    connection: &mut Connection,
    work: impl FnOnce(&Connection) -> Result<bool, SqliteError>,
) -> Result<OtherContent, SqliteError> {
    let transaction = Transaction::new(connection, TransactionBehavior::Immediate)?;
    match work(&transaction) {
        Ok(true) => Ok(OtherContent::Accepted),
        Ok(false) => Ok(OtherContent::Untried),
        Err(refusal) if refusal.may_be_of_one_row() => Ok(OtherContent::Refused),
        Err(failure) => Err(failure),
    }
}
