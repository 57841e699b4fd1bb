//! The database of a sink: the positions of its lanes, and which events have a row.

use std::fmt;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use super::cells::Parameter;
use super::pool::{Borrowed, Pool};
use super::refusal::Refusal;
use super::statements::Statements;
use crate::settings::PostgresSettings;
use crate::table::{displaced, overtaken, progress, without_row};
use crate::{Delivery, LaneRef, Oldest, Position, Recorded, Resumed, SinkError};
use net::postgres::bigint;
use proof::event::{ChannelId, EventId, EventKey, Offset};

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

    pub(super) async fn take_over(&self, recorded: &Recorded) -> Result<Resumed, SinkError> {
        let Recorded { lane, epoch, through, owed, confirmed } = recorded;
        let (channel, sink) = (lane.channel.id.0, &*lane.sink);
        let (through, numbered) = (through.map(Offset::get), bigint(*epoch));
        let (offsets, ids): (Vec<_>, Vec<_>) = owed.iter().map(|key| (key.offset.get(), key.id.map(|id| id.0))).unzip();
        let parameters: [Parameter<'_>; 6] = [
            (&channel as _, Type::UUID),
            (&sink as _, Type::TEXT),
            (&through as _, Type::INT8),
            (&numbered as _, Type::INT8),
            (&offsets as _, Type::INT8_ARRAY),
            (&ids as _, Type::UUID_ARRAY),
        ];
        let Statements { adopt, claim, .. } = &self.statements;
        let statement = if confirmed.is_some() { claim } else { adopt };
        let rows = self.pool.borrow().await?.query(statement, &parameters).await?;
        let row = rows.first().expect("an aggregate gives one row");
        let (is_ours, is_there): (bool, bool) = (row.get(0), row.get(1));
        let position = match (is_ours, is_there) {
            (true, _) => Position::At(row.get::<_, Option<i64>>(2).and_then(Offset::new)),
            (false, false) if confirmed.is_some() => Position::Missing(without_row(&self.progress_name())),
            (false, _) => return Err(overtaken(lane, *epoch, &self.settings.progress())),
        };
        let (offsets, ids): (Vec<i64>, Vec<Option<Uuid>>) = (row.get(3), row.get(4));
        Ok(Resumed { position, held: offsets.into_iter().zip(ids).filter_map(key_of).collect() })
    }

    pub(super) async fn first(&self, channel: ChannelId) -> Result<Oldest, Refusal> {
        let parameters: [Parameter<'_>; 1] = [(&channel.0 as _, Type::UUID)];
        let rows = self.pool.borrow_unprepared().await?.query(&self.statements.oldest, &parameters).await?;
        let key = rows.first().and_then(|row| key_of((row.get(0), row.get(1))));
        Ok(key.map_or(Oldest::Nothing, Oldest::Event))
    }

    pub(super) async fn with_rows(&self, channel: ChannelId, keys: &[EventKey]) -> Result<Vec<EventKey>, SinkError> {
        let (offsets, ids): (Vec<_>, Vec<_>) = keys.iter().map(|key| (key.offset.get(), key.id.map(|id| id.0))).unzip();
        let parameters: [Parameter<'_>; 3] =
            [(&channel.0 as _, Type::UUID), (&offsets as _, Type::INT8_ARRAY), (&ids as _, Type::UUID_ARRAY)];
        let rows = self.pool.borrow_unprepared().await?.query(&self.statements.holds, &parameters).await?;
        Ok(rows.iter().filter_map(|row| key_of((row.get(0), row.get(1)))).collect())
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
        let found = match self.row_of(connection, delivery.lane).await {
            Ok(found) => found,
            Err(refusal) => return refusal.error,
        };
        let epoch = bigint(delivery.epoch);
        match found {
            (_, later) if epoch != 0 && later > epoch => {
                overtaken(delivery.lane, delivery.epoch, &self.settings.progress())
            }
            (found, _) => displaced(&self.progress_name(), &found, expected),
        }
    }
}

fn key_of((offset, id): (i64, Option<Uuid>)) -> Option<EventKey> {
    Offset::new(offset).map(|offset| EventKey { offset, id: id.map(EventId) })
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("database", &self.settings.server.place()).finish_non_exhaustive()
    }
}
