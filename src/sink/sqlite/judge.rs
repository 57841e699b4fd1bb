//! Finds out whose fault the refusal of a row is, with rows that do not stay in the table (see `narrowing`).

use rusqlite::types::Value;
use rusqlite::{Connection, ToSql, Transaction, TransactionBehavior, params_from_iter};

use super::error::SqliteError;
use super::lane::Work;
use super::schema::Statements;
use crate::narrowing::{OtherContent, others};
use crate::table::{Row, probe};

impl Statements {
    /// The first row of `work` was refused alone. Tries a made-up row, the other rows, and a copy of an existing row, until
    /// the table accepts one.
    pub(super) fn other_content(&self, connection: &mut Connection, work: &Work) -> Result<OtherContent, SqliteError> {
        let Work::Deliver { lane, epoch, after, through, rows } = work else { return Ok(OtherContent::Refused) };
        let (mut tried, made_up) = (OtherContent::Untried, probe::made_up(&rows[0]));
        let others = others(1..rows.len()).map(|other| &rows[other]);
        let others = others.filter(|other| probe::is_comparable(&rows[0], other));
        for row in std::iter::once(&made_up).chain(others) {
            let (lane, rows) = (lane.clone(), vec![row.clone()]);
            let probe = Work::Deliver { lane, epoch: *epoch, after: *after, through: *through, rows };
            tried = tried.max(rolled_back(connection, |connection| self.carry_out(connection, &probe).map(|_| true))?);
            if tried == OtherContent::Accepted {
                return Ok(tried);
            }
        }
        if !probe::is_copy_comparable(&rows[0]) {
            return Ok(tried);
        }
        let channel = lane.channel.id.to_string();
        let copied = rolled_back(connection, |connection| {
            // If the table of positions cannot be used, no event can be written, although the copy can.
            self.position(connection, lane)?;
            Ok(self.copy(connection, &channel, &rows[0])?)
        });
        Ok(tried.max(copied?))
    }

    /// Copies an existing row of the channel. Returns whether there is one.
    fn copy(&self, connection: &Connection, channel: &str, refused: &Row) -> rusqlite::Result<bool> {
        let channel = Value::from(channel.to_owned());
        let changed = probe::changed(refused);
        let values = std::iter::once(&channel as &dyn ToSql).chain(changed.iter().map(|cell| cell as &dyn ToSql));
        Ok(connection.execute(&self.copy, params_from_iter(values))? > 0)
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
