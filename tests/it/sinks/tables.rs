//! The sinks that write tables, `postgres` and `sqlite`: each event is there exactly once, whatever fails.
//!
//! Both are held to the same at the same time. They are read by psql and by python.

use std::time::{Duration, Instant};

use simulator::{Options, Simulator};

use crate::support::{Daemon, Database, LONGEST_WAIT, Setup, Tables, programs};

mod check;
mod failures;
mod history;
mod instances;
mod kills;
mod large;
mod poison;
mod positions;
mod restored;
mod search;
mod tls;

/// Longer than this takes: proofs come when a test says so.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// `None` where the test is skipped.
async fn tables(options: Options) -> Option<(Simulator, Setup, Tables)> {
    let database = Database::new().await?;
    if !programs(&["psql", "python3"]) {
        return None;
    }
    let simulator = Simulator::start(options).await.unwrap();
    let (setup, tables) = Setup::reading(&simulator).with_tables(database);
    Some((simulator, setup, tables))
}

/// Waits until it holds, while the daemon runs.
async fn until(daemon: &mut Daemon, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LONGEST_WAIT;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}: not within {LONGEST_WAIT:?}: {}", daemon.log().0);
        daemon.until("it runs", |_| true).await;
    }
}
