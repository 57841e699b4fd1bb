//! Finds out whose fault the refusal of a row is, with rows that do not stay in the table (see `narrowing`).

use tokio_postgres::types::Type;

use super::cells::Parameter;
use super::insert::{Outcome, Step, insert};
use super::pool::Borrowed;
use super::refusal::StatementRefusal;
use crate::narrowing::{OtherContent, others};
use crate::table::{Row, probe};
use crate::{Delivery, SinkError};

pub(super) struct Judge<'a> {
    pub(super) connection: &'a Borrowed<'a>,
    pub(super) delivery: &'a Delivery<'a>,
    /// The statement that was refused.
    pub(super) step: Step,
}

impl Judge<'_> {
    /// The error for the row at `at`, which was refused alone. The rows after it are other content.
    pub(super) async fn judged(&self, refusal: StatementRefusal, rows: &[Row], at: usize) -> SinkError {
        if !refusal.may_be_of_one_row() {
            return refusal.error;
        }
        match Box::pin(self.other_content(rows, at)).await {
            Ok(other) => refusal.error.judged(other),
            Err(refusal) => refusal.error,
        }
    }

    /// Tries a made-up row, other rows of the delivery, and a copy of an existing row, until the table accepts one.
    async fn other_content(&self, rows: &[Row], at: usize) -> Result<OtherContent, StatementRefusal> {
        let (mut tried, made_up) = (OtherContent::Untried, probe::made_up(&rows[at]));
        let others = others(at + 1..rows.len()).map(|other| &rows[other]);
        let others = others.filter(|other| probe::is_comparable(&rows[at], other));
        for row in std::iter::once(&made_up).chain(others) {
            tried = tried.max(Box::pin(self.rolled_back(self.insert(row))).await?);
            if tried == OtherContent::Accepted {
                return Ok(tried);
            }
        }
        if !probe::is_copy_comparable(&rows[at]) {
            return Ok(tried);
        }
        Ok(tried.max(self.rolled_back(self.copy(&rows[at])).await?))
    }

    /// Executes a statement that returns whether it has written a row.
    async fn rolled_back(
        &self,
        statement: impl Future<Output = Result<bool, StatementRefusal>>,
    ) -> Result<OtherContent, StatementRefusal> {
        match self.connection.rolled_back(statement).await {
            Ok(true) => Ok(OtherContent::Accepted),
            Ok(false) => Ok(OtherContent::Untried),
            Err(refusal) if refusal.may_be_of_one_row() => Ok(OtherContent::Refused),
            Err(refusal) => Err(refusal),
        }
    }

    /// Writes a row as the refused statement would. Returns whether the lane had the expected position.
    async fn insert(&self, row: &Row) -> Result<bool, StatementRefusal> {
        let Self { connection, delivery, step } = self;
        let step = Step { is_numbered: false, ..*step };
        let answer = connection.answer(insert(connection, delivery, step, std::slice::from_ref(row))).await?;
        Ok(answer.outcome == Outcome::Written)
    }

    /// Copies an existing row of the channel. Returns whether the channel has a row.
    async fn copy(&self, refused: &Row) -> Result<bool, StatementRefusal> {
        let (channel, changed) = (self.delivery.lane.channel.id.0, probe::changed(refused));
        let kinds = [Type::INT8, Type::UUID, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ];
        let mut parameters: Vec<Parameter<'_>> = vec![(&channel as _, Type::UUID)];
        parameters.extend(changed.iter().zip(kinds).map(|(cell, kind)| (cell as _, kind)));
        let copied = self.connection.query(&self.connection.pool.statements.copy, &parameters).await?;
        Ok(!copied.is_empty())
    }
}
