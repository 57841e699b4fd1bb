//! `channeld console`: access, pages and changes, tested by HTTP requests and in a real browser.

use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use crate::support::{Daemon, Setup, rows_of};

mod access;
mod browser;
mod changes;
mod consumers;
mod daemon;
mod events;
mod layout;
mod million;
mod palette;
mod postgres;

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
const FORGED: EventSpec = EventSpec::Forged(Tampering::ContentChanged);

/// A service with one channel, and a setup that delivers its events to a SQLite table with a word index.
async fn with_table(events: u64) -> (Simulator, Setup) {
    let simulator = Simulator::start(Options { events, unsigned: 0.2, ..Options::default() }).await.unwrap();
    let setup = into_table(Setup::reading(&simulator));
    (simulator, setup)
}

fn into_table(setup: Setup) -> Setup {
    let path = setup.path("events.db").display().to_string();
    setup
        .with("sinks.local.type", "sqlite")
        .with("sinks.local.path", path)
        .with("sinks.local.search", "words")
        .with("channels.c0.sinks", vec!["local"])
}

/// Starts the daemon, and waits until the table has this number of rows.
async fn daemon_with_rows(setup: &Setup, rows: i64) -> Daemon {
    let mut daemon = setup.start();
    let file = setup.path("events.db");
    daemon.until(&format!("{rows} rows"), |_| rows_of(&file) >= rows).await;
    daemon
}
