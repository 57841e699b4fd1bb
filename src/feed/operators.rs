//! Reports the consumers to operators, and sets cursors for operators.
//!
//! # Invariants
//!
//! * **Bounded queries.** The table is read at an interval, after a reload, and once for all requests of operators that wait.
//! * **Clients are not delayed.** Requests of clients do not wait for this task, even if the table does not answer.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};

use net::Chain;
use operator::Refusal;
use operator::feed::{ConsumerRequest, FeedConsumer, FeedHandle};

use crate::settings::{Consumer, FeedChannel};
use crate::state::{Served, TABLE_TIMEOUT};
use crate::table::{ChannelPosition, ConsumerState, FeedError};

/// The interval at which the consumers are read.
const INTERVAL: Duration = Duration::from_secs(15);

/// The wait before consumers that could not be read are read again.
const RETRY: Duration = Duration::from_secs(2);

/// How many requests of operators are carried out between two reads of the consumers.
const AT_ONCE: usize = 16;

/// Reports the consumers, and carries out the requests of operators. Runs until it is dropped.
pub(crate) async fn answer(
    mut served: watch::Receiver<Arc<Served>>,
    operators: &FeedHandle,
    mut queue: mpsc::Receiver<ConsumerRequest>,
) -> Infallible {
    let mut requests = Vec::new();
    loop {
        let current = served.borrow_and_update().clone();
        let mut readers = Vec::new();
        for request in requests.drain(..) {
            match request {
                ConsumerRequest::Read(done) => readers.push(done),
                ConsumerRequest::Set { consumer, channel, through, done } => {
                    // The error is ignored: an operator who stopped waiting sees the new cursor in `consumers show`.
                    let _ = done.send(set(&current, &consumer, &channel, through).await);
                }
            }
        }
        let read = read(&current).await;
        // At the first start, the sink may create the table a moment later.
        let interval = if read.is_ok() { INTERVAL } else { RETRY };
        operators.report(read);
        for done in readers {
            // The operator may have stopped waiting.
            let _ = done.send(());
        }
        tokio::select! {
            () = sleep(interval) => {}
            Ok(()) = served.changed() => {}
            _ = queue.recv_many(&mut requests, AT_ONCE) => {}
        }
    }
}

/// Reads the configured consumers. Fails with a text for operators.
async fn read(served: &Served) -> Result<Vec<FeedConsumer>, String> {
    let settings = &served.settings;
    if settings.consumers.is_empty() {
        return Ok(Vec::new());
    }
    let read = async {
        let cursors = served.table.consumers().await?;
        // The positions are read after the cursors, so no cursor is above the newest position.
        Ok::<_, FeedError>((cursors, served.table.channels().await?))
    };
    let read = timeout(TABLE_TIMEOUT, read).await.map_err(|_| late())?;
    let (cursors, positions) = read.map_err(|error| Chain(&error).to_string())?;
    let cursors: HashMap<_, _> = cursors.iter().map(|known| ((&*known.consumer, known.channel), known)).collect();
    let positions: HashMap<_, _> = positions.iter().map(|known| (known.channel, known)).collect();
    let mut consumers = Vec::new();
    for consumer in &settings.consumers {
        for channel in consumer.channels.iter().filter_map(|name| settings.channel(name)) {
            let cursor = cursors.get(&(&*consumer.name, channel.id)).copied();
            consumers.push(state_of(consumer, channel, cursor, positions.get(&channel.id).copied()));
        }
    }
    Ok(consumers)
}

/// A consumer without a cursor begins with the oldest event.
fn state_of(
    consumer: &Consumer,
    channel: &FeedChannel,
    cursor: Option<&ConsumerState>,
    known: Option<&ChannelPosition>,
) -> FeedConsumer {
    let position = known.map(|known| known.position).unwrap_or_default();
    let (through, waiting_since) = match cursor {
        Some(cursor) => (cursor.through, cursor.waiting_since),
        None => (position.before_oldest(), known.and_then(|known| known.oldest_since)),
    };
    // A cursor above the newest position is from before the table was restored. The next delivery moves it back.
    let lag = position.newest.saturating_sub(through).max(0);
    FeedConsumer {
        consumer: consumer.name.to_string(),
        channel: channel.name.to_string(),
        channel_id: channel.id.to_string(),
        has_cursor: cursor.is_some(),
        through,
        newest: position.newest,
        oldest: position.oldest,
        lag,
        waiting_since: waiting_since.filter(|_| lag > 0),
        leased_until: cursor.and_then(|cursor| cursor.leased_until),
        gone: cursor.is_some_and(|cursor| cursor.is_gone),
    }
}

/// Sets the cursor of a consumer.
async fn set(served: &Served, consumer: &str, channel: &str, through: i64) -> Result<(), Refusal> {
    let Some(channel) = served.settings.channel(channel) else {
        return Err(Refusal::Usage(format!("the feed has no channel {channel} any more")));
    };
    match timeout(TABLE_TIMEOUT, served.table.set_cursor(consumer, channel.id, through)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error @ FeedError::TooHigh { .. })) => Err(Refusal::Usage(error.to_string())),
        Ok(Err(error)) => Err(Refusal::Failed(format!("the cursor could not be set: {}", Chain(&error)))),
        Err(_) => Err(Refusal::Failed(format!("{}: the cursor may still be set", late()))),
    }
}

fn late() -> String {
    format!("the table did not answer in {} s", TABLE_TIMEOUT.as_secs())
}
