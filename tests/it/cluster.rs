//! Several instances share a database: which instance runs a channel, and how another instance takes over.

use std::time::{Duration, Instant};

use serde_json::Value;
use simulator::{Options, Simulator};
use tokio_postgres::error::SqlState;

use crate::support::{Database, LONGEST_WAIT, Receiver, Setup};

mod arrivals;
mod audit;
mod backup;
mod belonging;
mod chaos;
mod copying;
mod dropped;
mod failures;
mod faults;
mod fencing;
mod identity;
mod instances;
mod joining;
mod kills;
mod late;
mod operators;
mod outage;
mod promotion;
mod proofs;
mod seeded;
mod sharing;
mod state;
mod unusable;
mod upgrade;

/// The time between two queries.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Starts a service with this number of channels, and of events per channel.
async fn service(channels: usize, events: u64) -> Simulator {
    Simulator::start(Options { channels, events, ..Options::default() }).await.unwrap()
}

/// An instance that delivers every channel to a webhook.
fn instance(name: &str, simulator: &Simulator, database: &Database, receiver: &Receiver) -> Setup {
    let mut setup = Setup::reading(simulator).sharing(database, name).with_webhook("hook", receiver);
    for channel in 0..simulator.announcement().channels.len() {
        setup.set(&format!("channels.c{channel}.sinks"), vec!["hook"]);
    }
    setup.remove("sinks.file");
    setup
}

/// The offsets received from a channel, in order of arrival.
fn offsets(receiver: &Receiver, channel: &str) -> Vec<i64> {
    let delivered = receiver.delivered().into_iter().filter(|record| record.channel == channel);
    delivered.map(|record| record.offset).collect()
}

/// Waits until `holds` accepts the status of an instance, and returns the status.
async fn until_status(setup: &Setup, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        let told = setup.tell(&["status", "--json"]).await;
        if told.code == Some(0) && holds(&told.json()[0]) {
            return told.json().remove(0);
        }
        assert!(Instant::now() < deadline, "{what}: {told:?}");
    }
}

/// Waits until the query returns these numbers.
async fn until(database: &Database, what: &str, query: &str, numbers: &[i64]) {
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        let rows = match database.try_query(query).await {
            // The first instance has not created the tables yet.
            Err(error) if error.code() == Some(&SqlState::UNDEFINED_TABLE) => Vec::new(),
            rows => rows.unwrap(),
        };
        let found: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        if found == numbers {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: not within {LONGEST_WAIT:?}, but {found:?}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}
