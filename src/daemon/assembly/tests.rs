//! What all channels share.

use std::fmt::Write;

use super::*;
use crate::config::Text;
use crate::daemon::open_ledgers;
use ledger::store::StateSettings;
use ledger::{PROOFS, PROOFS_OF_A_CHANNEL};
use telemetry::metrics::Metrics;
use telemetry::trace::Traces;

fn config(directory: &std::path::Path, channels: usize) -> Config {
    let mut text = "api.base_url = \"http://127.0.0.1:1\"\napi.api_key = \"k\"\nverification.org_id = \"o\"\n\
                    sinks.s.type = \"stdout\"\n"
        .to_owned();
    for channel in 0..channels {
        let id = uuid::Uuid::from_u128(channel as u128);
        writeln!(text, "channels.c{channel} = {{ id = \"{id}\", sinks = [\"s\"] }}").unwrap();
    }
    let file = directory.join("channeld.toml");
    std::fs::write(&file, text).unwrap();
    Config::of(Text::read(Some(&file)).unwrap(), []).unwrap_or_else(|problems| panic!("{problems}")).config
}

#[tokio::test]
async fn channels_share_the_room_for_recent_proofs_and_none_has_fewer_than_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let ledgers =
        Arc::new(open_ledgers(StateSettings { path: directory.path().join("state"), database: None }).await.unwrap());
    let parts = SharedParts::new(ledgers, Arc::default(), Metrics::default(), Traces::default());
    for (channels, each) in [(1, PROOFS), (4, PROOFS / 4), (200, PROOFS_OF_A_CHANNEL)] {
        assemble(&config(directory.path(), channels), None, &parts).unwrap();
        assert_eq!(parts.recent.proofs_each(), each, "{channels} channels");
    }
}
