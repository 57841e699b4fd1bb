//! The sinks that write tables, `postgres` and `sqlite`. Each table contains each event exactly once, whatever fails.
//!
//! Most tests run both sinks at the same time. They read the tables with psql and Python.

use std::time::{Duration, Instant};

use simulator::{Options, Simulator};

use crate::support::{Daemon, Database, LONGEST_WAIT, Setup, Tables, programs};

pub(super) mod check;
mod failures;
mod fault;
mod history;
mod instances;
mod kills;
mod large;
mod poison;
mod positions;
mod restored;
mod search;
mod tls;

/// Longer than any test: a proof arrives only when the test releases it.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// Returns `None` if the test is skipped.
pub(super) async fn tables(options: Options) -> Option<(Simulator, Setup, Tables)> {
    let database = Database::new().await?;
    if !programs(&["psql", "python3"]) {
        return None;
    }
    let simulator = Simulator::start(options).await.unwrap();
    let (setup, tables) = Setup::reading(&simulator).with_tables(database);
    Some((simulator, setup, tables))
}

/// Waits until the condition is true. Fails if the daemon ends.
pub(super) async fn until(daemon: &mut Daemon, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + LONGEST_WAIT;
    while !holds().await {
        assert!(!daemon.has_ended(), "the daemon ended before: {what}: {}", daemon.log().0);
        assert!(Instant::now() < deadline, "{what}: not within {LONGEST_WAIT:?}: {}", daemon.log().0);
    }
}
