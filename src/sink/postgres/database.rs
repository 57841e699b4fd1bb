//! The database of a sink, and the positions of its lanes.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::cells::Parameter;
use super::pool::{Borrowed, Pool};
use super::refusal::Refusal;
use super::statements::Statements;
use crate::settings::PostgresSettings;
use crate::table::{displaced, overtaken, progress, without_row};
use crate::{Delivery, LaneRef, Position, SinkError};
use net::postgres::bigint;
use proof::event::Offset;

/// Writes events into a table, shared by any number of channels and instances.
pub struct Postgres {
    pub(super) settings: Arc<PostgresSettings>,
    pub(super) statements: Statements,
    pub(super) pool: Pool,
}

impl Postgres {
    /// Makes the sink with this name. It connects at the first use.
    ///
    /// # Errors
    /// If no server certificate can be verified.
    pub fn new(name: &str, settings: PostgresSettings) -> Result<Self, SinkError> {
        let settings = Arc::new(settings);
        let (statements, pool) = (Statements::of(&settings), Pool::new(name, settings.clone())?);
        Ok(Self { settings, statements, pool })
    }

    /// The name of the table with the positions, for messages.
    pub(super) fn progress_name(&self) -> String {
        format!("{}.{}", self.settings.schema, progress(&self.settings.table))
    }

    /// The lane's position and epoch.
    pub(super) async fn row_of(&self, connection: &Borrowed<'_>, lane: &LaneRef) -> Result<(Position, i64), Refusal> {
        let (channel, sink) = (lane.channel.id.0, &*lane.sink);
        let parameters: [Parameter<'_>; 2] = [(&channel as _, Type::UUID), (&sink as _, Type::TEXT)];
        let rows = connection.query(&self.statements.position, &parameters).await?;
        let through = |row: &Row| row.get::<_, Option<i64>>(0).and_then(Offset::new);
        Ok(match rows.first() {
            Some(row) => (Position::At(through(row)), row.get(1)),
            None => (Position::Missing(without_row(&self.progress_name())), 0),
        })
    }

    /// Why a statement has not moved the lane from the expected position.
    pub(super) async fn why_unmoved(
        &self,
        connection: &Borrowed<'_>,
        delivery: &Delivery<'_>,
        expected: Option<Offset>,
    ) -> SinkError {
        let epoch = bigint(delivery.epoch);
        match self.row_of(connection, delivery.lane).await {
            Ok((_, later)) if epoch != 0 && later > epoch => {
                overtaken(delivery.lane, delivery.epoch, &self.settings.progress())
            }
            Ok((found, _)) => displaced(&self.progress_name(), &found, expected),
            Err(refusal) => refusal.error,
        }
    }
}
