//! The address of an event list: any query is written back as the same query, and a table answers it.

#![no_main]

use std::collections::BTreeSet;
use std::sync::LazyLock;

use console::EventSource;
use libfuzzer_sys::fuzz_target;
use proof::event::ChannelId;
use record::ChannelRef;
use sink::{LaneRef, Recorded, Search, SqliteSettings};
use telemetry::metrics::UpkeepFailures;
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

/// The runtime, and a table that the sink made, with a search in words.
static TABLE: LazyLock<(Runtime, SqliteSettings)> = LazyLock::new(|| {
    let path = tempfile::tempdir().unwrap().keep().join("events.db");
    let settings = SqliteSettings {
        path,
        table: "events".to_owned(),
        operations: false,
        search: Search::Words,
        keep_for: None,
        keep_for_consumers: Vec::new(),
        keep_size: None,
        feed: false,
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let channel = ChannelRef { name: "c".into(), id: ChannelId(Uuid::from_u128(1)) };
    let lane = LaneRef { channel, sink: "local".into() };
    let sink = sink::sqlite(settings.clone(), UpkeepFailures::default()).unwrap();
    let recorded = Recorded {
        lane,
        epoch: 1,
        through: None,
        pending: BTreeSet::new(),
        replayed: BTreeSet::new(),
        confirmed: None,
        late: Vec::new(),
    };
    runtime.block_on(sink.resume(&recorded)).unwrap();
    (runtime, settings)
});

fuzz_target!(|data: &[u8]| {
    let Ok(query) = std::str::from_utf8(data) else { return };
    let (runtime, settings) = &*TABLE;
    runtime.block_on(console::testing::list_events(EventSource::Sqlite("local".to_owned(), settings.clone()), query));
});
