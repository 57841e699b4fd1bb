//! Finds out whose fault the refusal of a row is, with rows that do not stay in the table (see `narrowing`).

use tokio_postgres::types::Type;

use super::cells::parameters;
use super::insert::{Outcome, Step, insert};
use super::refusal::StatementRefusal;
use super::writer::Writer;
use crate::SinkError;
use crate::narrowing::OtherContent;
use crate::table::{Row, probe};

impl Writer<'_> {
    /// The error for the row at `at`, which was refused alone, by the statement of `step`. The rows after it are other content.
    pub(super) async fn judged(&self, refusal: StatementRefusal, step: Step, rows: &[Row], at: usize) -> SinkError {
        if !refusal.may_be_of_one_row() {
            return refusal.error;
        }
        match Box::pin(self.other_content(step, rows, at)).await {
            Ok(other) => refusal.error.judged(other),
            Err(refusal) => refusal.error,
        }
    }

    /// Tries a made-up row, other rows of the delivery, and a copy of an existing row, until the table accepts one.
    async fn other_content(&self, step: Step, rows: &[Row], at: usize) -> Result<OtherContent, StatementRefusal> {
        let Self { connection, delivery, .. } = self;
        let (mut tried, step) = (OtherContent::Untried, Step { is_numbered: false, ..step });
        for row in probe::other_rows(rows, at) {
            let inserted = async {
                let sent = insert(connection, delivery, step, std::slice::from_ref(&row));
                Ok(connection.answer(sent).await?.outcome == Outcome::Written)
            };
            tried = tried.max(Box::pin(self.rolled_back(inserted)).await?);
            if tried == OtherContent::Accepted {
                return Ok(tried);
            }
        }
        // The copy concerns no operation.
        if rows[at].operation.is_some() {
            return Ok(tried);
        }
        let changed = probe::changed(&rows[at]);
        let kinds = [Type::INT8, Type::UUID, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ, Type::TIMESTAMPTZ];
        let mut parameters = Vec::from(parameters![delivery.lane.channel.id.0 => UUID]);
        parameters.extend(changed.iter().zip(kinds).map(|(cell, kind)| (cell as _, kind)));
        let copied = async { Ok(!connection.query(&connection.pool.statements.copy, &parameters).await?.is_empty()) };
        Ok(tried.max(self.rolled_back(copied).await?))
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
}
