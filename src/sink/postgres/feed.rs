//! The feed of a PostgreSQL table.
//!
//! The feed has connections of its own, so that a delivery never waits for a reader. Deliveries of this process wake readers directly.
//! Deliveries of other instances notify them through the server. A slow query behind both finds what a notification missed, for
//! example because a pooler does not forward notifications.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tokio_postgres::Row;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;
use uuid::Uuid;

use super::cells::{Parameter, parameters};
use super::pool::Pool;
use crate::SinkError;
use crate::feed::lease::{ConsumerRef, Cursor, LeaseStore, NewLease, checked_cursor, fitting, lease};
use crate::feed::{
    ChannelPosition, Committed, ConsumerState, FeedError, FeedEvent, FeedPage, FeedPosition, FeedTable, Leased,
    PageSize,
};
use crate::settings::PostgresSettings;
use net::Chain;
use net::postgres::{DatabaseError, OnNotification, answered};

mod statements;

use statements::FeedStatements;

/// How often the newest positions are compared, in case a notification was lost.
const POLL: Duration = Duration::from_secs(5);

pub(super) struct PostgresFeed {
    tables: Arc<FeedTables>,
    /// Started at the first request for changes.
    listener: OnceLock<AbortOnDropHandle<()>>,
}

struct FeedTables {
    pool: Pool,
    statements: FeedStatements,
    changes: watch::Sender<u64>,
}

impl PostgresFeed {
    /// The feed of the sink with this name. `changes` changes when the sink has delivered.
    pub(super) fn new(name: &str, settings: PostgresSettings, changes: watch::Sender<u64>) -> Result<Self, SinkError> {
        let statements = FeedStatements::of(&settings);
        let pool = Pool::new(name, settings)?;
        Ok(Self { tables: Arc::new(FeedTables { pool, statements, changes }), listener: OnceLock::new() })
    }

    async fn query(&self, statement: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>, SinkError> {
        let connection = self.tables.pool.borrow().await?;
        Ok(connection.query(statement, parameters).await?)
    }
}

impl FeedTables {
    /// Wakes the readers after deliveries of other processes. Ends when it is aborted.
    async fn listen(self: Arc<Self>) {
        let changes = self.changes.clone();
        let notified: OnNotification = Arc::new(move || changes.send_modify(|changes| *changes += 1));
        let (mut open, mut known) = (None, None);
        let mut ticks = interval(POLL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            // If the database cannot be used, the next request of a reader reports it.
            let seen = async {
                let connection = match open.take() {
                    Some(open) => open,
                    None => self.pool.listening(&notified).await?,
                };
                let rows = answered(connection.client.query_typed(&self.statements.total, &[])).await?;
                // The sum of the newest positions.
                let total = rows.first().map_or(0, |row| row.get::<_, i64>(0));
                Ok::<_, DatabaseError>((connection, total))
            };
            match seen.await {
                Ok((connection, total)) => {
                    open = Some(connection);
                    if known.replace(total) != Some(total) {
                        notified();
                    }
                }
                Err(error) => {
                    debug!(error = %Chain(&error), "the feed is not notified of deliveries by other instances");
                }
            }
        }
    }
}

#[async_trait]
impl LeaseStore for PostgresFeed {
    async fn cursor(&self, ConsumerRef { consumer, channel }: ConsumerRef<'_>) -> Result<Option<Cursor>, SinkError> {
        let parameters = parameters![consumer => TEXT, channel => UUID];
        let rows = self.query(&self.tables.statements.cursor, &parameters).await?;
        Ok(rows.first().map(|row| Cursor { through: row.get(0), is_leased: row.get(1) }))
    }

    async fn take(&self, of: ConsumerRef<'_>, new: &NewLease) -> Result<bool, SinkError> {
        let valid = i64::try_from(new.valid.as_millis()).unwrap_or(i64::MAX);
        let parameters = parameters![
            of.consumer => TEXT, of.channel => UUID, new.after => INT8, new.lease => TEXT, valid => INT8, new.through => INT8
        ];
        Ok(!self.query(&self.tables.statements.take, &parameters).await?.is_empty())
    }
}

#[async_trait]
impl FeedTable for PostgresFeed {
    async fn newest(&self, channel: Uuid) -> Result<FeedPosition, FeedError> {
        let rows = self.query(&self.tables.statements.position, &parameters![channel => UUID]).await?;
        Ok(rows.first().map_or_else(FeedPosition::default, position))
    }

    async fn page(&self, channel: Uuid, after: i64, most: PageSize) -> Result<FeedPage, FeedError> {
        let [limit, bytes] = [most.events, most.bytes].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let parameters = parameters![channel => UUID, after => INT8, limit => INT8, bytes => INT8];
        let rows = self.query(&self.tables.statements.page, &parameters).await?;
        let known = rows.first().map_or_else(FeedPosition::default, position);
        // Without an event after the position, the only row has no event.
        let event = |row: &Row| Some(FeedEvent { position: row.get::<_, Option<i64>>(2)?, record: row.get(3) });
        let events = rows.iter().map_while(event).take_while(fitting(most.bytes)).collect();
        Ok(FeedPage::of(after, events, known))
    }

    async fn lease(&self, consumer: &str, channel: Uuid, most: PageSize, valid: Duration) -> Result<Leased, FeedError> {
        lease(self, ConsumerRef { consumer, channel }, most, valid).await
    }

    async fn commit(&self, consumer: &str, channel: Uuid, lease: &str, through: i64) -> Result<Committed, FeedError> {
        // No lease contains a NUL, and PostgreSQL refuses it in a text.
        if lease.contains('\0') {
            return Ok(Committed::NotHeld);
        }
        let parameters = parameters![consumer => TEXT, channel => UUID, lease => TEXT, through => INT8];
        let rows = self.query(&self.tables.statements.commit, &parameters).await?;
        let (is_held, has_moved) = rows.first().map_or((false, false), |row| (row.get(0), row.get(1)));
        Ok(match (is_held, has_moved) {
            (_, true) => Committed::Moved,
            (true, false) => Committed::Beyond,
            (false, false) => Committed::NotHeld,
        })
    }

    async fn consumers(&self) -> Result<Vec<ConsumerState>, FeedError> {
        let rows = self.query(&self.tables.statements.consumers, &[]).await?;
        let state = |row: &Row| ConsumerState {
            consumer: row.get(0),
            channel: row.get(1),
            through: row.get(2),
            leased_until: time(row, 3).filter(|_| row.get(4)),
            waiting_since: time(row, 5),
            is_gone: row.get(6),
        };
        Ok(rows.iter().map(state).collect())
    }

    async fn channels(&self) -> Result<Vec<ChannelPosition>, FeedError> {
        let rows = self.query(&self.tables.statements.channels, &[]).await?;
        let channel = |row: &Row| ChannelPosition {
            channel: row.get(0),
            position: FeedPosition::of(row.get(2), row.get::<_, Option<i64>>(1).unwrap_or_default()),
            oldest_since: time(row, 3),
        };
        Ok(rows.iter().map(channel).collect())
    }

    async fn set_cursor(&self, consumer: &str, channel: Uuid, through: i64) -> Result<(), FeedError> {
        let through = checked_cursor(self, channel, through).await?;
        let parameters = parameters![consumer => TEXT, channel => UUID, through => INT8];
        self.query(&self.tables.statements.set, &parameters).await?;
        Ok(())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        let tables = &self.tables;
        self.listener.get_or_init(|| AbortOnDropHandle::new(tokio::spawn(tables.clone().listen())));
        tables.changes.subscribe()
    }
}

fn position(row: &Row) -> FeedPosition {
    FeedPosition::of(row.get(0), row.get(1))
}

fn time(row: &Row, column: usize) -> Option<Timestamp> {
    row.get::<_, Option<i64>>(column).and_then(|time| Timestamp::from_microsecond(time).ok())
}
