//! The rehearsal of a start and of deliveries, for `channeld check --connect`: the statements of the daemon, in a transaction
//! that is rolled back.
//!
//! # Invariants
//!
//! * **Nothing remains.** The transaction is never committed. Its connection is closed, so that nothing else can join the
//!   transaction.
//! * **No lane is disturbed for long.** The rehearsal uses lanes with names of its own. A running lane of the same channel, and a lane
//!   that uses a table that the rehearsal changes, waits for the end of the rehearsal. The rehearsal waits only briefly for
//!   locks, and its transaction ends soon even if this process is stopped.

use jiff::Timestamp;
use tokio_postgres::error::SqlState;

use super::pool::{Borrowed, Pool, changing};
use super::refusal::{Detail, StatementRefusal};
use super::table::SchemaChanges;
use super::writer::write_once;
use super::{cells, held_of, oldest, take_over};
use crate::{Confirmed, Delivery, LaneRef, Recorded, SinkError};
use net::postgres::DatabaseError;

/// Ends the transaction at the server if this process does not continue it.
const BEGIN: &str = "begin; set local lock_timeout = '2s'; set local idle_in_transaction_session_timeout = '10s'";

/// How long changes of the tables may take. Meanwhile, other sessions wait for the tables.
const CHANGE_LIMIT: &str = "3s";

/// Rehearses the changes of the tables and these deliveries. Describes the state of the tables, and the changes that a start
/// will make.
pub(super) async fn rehearse(pool: &Pool, samples: &[Delivery<'_>]) -> Result<String, SinkError> {
    let connection = pool.borrow_unprepared().await?;
    let (seen, missing) = pool.look(connection.open()).await?;
    let said = seen.said(&pool.settings, &missing.all());
    connection.begin(BEGIN).await?;
    let rehearsed = rehearse_in_transaction(&connection, &missing, samples).await;
    // Closing the connection rolls the transaction back too, but a little later.
    let _ = connection.execute("rollback").await;
    Ok(if rehearsed? {
        said
    } else {
        format!("{said}; these changes were not tried to their end, because they take longer than {CHANGE_LIMIT}")
    })
}

/// Returns false if the changes of the tables take too long to be rehearsed.
async fn rehearse_in_transaction(
    connection: &Borrowed<'_>,
    missing: &SchemaChanges,
    samples: &[Delivery<'_>],
) -> Result<bool, SinkError> {
    let changes = missing.all();
    if !changes.is_empty() {
        connection.execute(&format!("set local statement_timeout = '{CHANGE_LIMIT}'")).await?;
        match connection.attempt(&changing(&changes)).await {
            Ok(()) => connection.execute("set local statement_timeout to default").await?,
            Err(DatabaseError::Server(error)) if error.code() == Some(&SqlState::QUERY_CANCELED) => return Ok(false),
            Err(error) => return Err(connection.pool.unchanged(&error)),
        }
    }
    for sample in samples {
        deliver(connection, sample).await?;
    }
    // The tables can have constraints and triggers that are deferred to the end of a transaction.
    connection.execute("set constraints all immediate").await?;
    Ok(true)
}

/// Executes every statement of a lane: at its start, for a delivery, at the start after that, and for a comparison.
async fn deliver(connection: &Borrowed<'_>, sample: &Delivery<'_>) -> Result<(), SinkError> {
    let lane =
        LaneRef { channel: sample.lane.channel.clone(), sink: format!("{} (rehearsal)", sample.lane.sink).into() };
    let channel = lane.channel.id;
    let keys: Vec<_> = sample.messages.iter().map(record::Message::event_key).collect();
    let start = Recorded::new(lane, sample.epoch);
    take_over(connection, &start).await?;
    write(connection, &Delivery { lane: &start.lane, after: None, ..*sample }).await?;
    connection.row_of(&start.lane).await?;
    let (through, confirmed) = (Some(sample.through), Some(Confirmed::default()));
    let pending = keys.iter().copied().collect();
    take_over(connection, &Recorded { through, pending, confirmed, ..start }).await?;
    oldest(connection, channel).await?;
    held_of(connection, channel, &keys).await?;
    Ok(())
}

/// Inserts the rows of a delivery, without JSON that the server refuses.
async fn write(connection: &Borrowed<'_>, delivery: &Delivery<'_>) -> Result<(), SinkError> {
    let has_operations = connection.pool.settings.operations;
    let row = |message| cells::row(message, Timestamp::now(), has_operations);
    let mut rows: Vec<_> = delivery.messages.iter().map(row).collect();
    loop {
        connection.execute("savepoint rows").await?;
        match write_once(connection, delivery, &rows).await {
            Ok(true) => return Ok(()),
            Ok(false) => {
                let progress = connection.pool.settings.progress_name();
                return Err(SinkError::unusable(format!(
                    "table {progress} did not keep a position that was just written: a trigger, a rule or a policy of that table changes or hides rows"
                )));
            }
            Err(StatementRefusal { detail: Detail::Json, .. })
                if rows.iter_mut().map(cells::forgo_json).filter(|had_json| *had_json).count() > 0 =>
            {
                connection.execute("rollback to rows").await?;
            }
            Err(refusal) => return Err(refusal.error),
        }
    }
}
