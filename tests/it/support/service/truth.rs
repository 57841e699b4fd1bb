//! The expected results for the simulated service: the events that a correct daemon delivers, and their original bytes.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use simulator::{Honesty, Options, Simulator, Window};

use crate::support::{Daemon, Setup};

/// The offsets that a correct daemon delivers now, in ascending order.
pub(crate) fn deliverable(simulator: &Simulator, channel: usize) -> Vec<i64> {
    let good = |honesty| matches!(honesty, Honesty::Verifiable | Honesty::Unsigned);
    simulator.offsets(channel).into_iter().filter(|(_, honesty)| good(*honesty)).map(|(offset, _)| offset).collect()
}

/// Returns a daemon that has read the first event, and publishes more events in one second than a search of the service
/// returns at once. The service shows the newest events first.
pub(crate) async fn crowded_second() -> (Simulator, Setup, Daemon) {
    let options = Options { events: 1, window: Window::Newest, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let setup = Setup::reading(&simulator).with("api.page_limit", 20);
    let mut daemon = setup.start();
    daemon.until("the first event arrives", |_| setup.lines() == 1).await;
    simulator.publish(0, 5000);
    (simulator, setup, daemon)
}

/// Every record of a channel as the service returns it, by offset. The service must show the oldest events first.
pub(crate) async fn records(simulator: &Simulator, channel: usize) -> BTreeMap<i64, String> {
    #[derive(Deserialize)]
    struct Page<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Record {
        headers: Headers,
    }
    #[derive(Deserialize)]
    struct Headers {
        offset: i64,
    }
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let known = simulator.announcement();
    let url = format!("{}/channels/{}/events", known.base_url, known.channels[channel]);
    let (mut records, wanted) = (BTreeMap::new(), simulator.offsets(channel).len());
    while records.len() < wanted {
        let offset = records.last_key_value().map_or(0, |(offset, _)| *offset);
        let request = http.get(format!("{url}?offset={offset}&limit=200"));
        let request = request.header("Authorization", format!("Apikey {}", known.api_key));
        let body = request.send().await.unwrap().text().await.unwrap();
        for record in serde_json::from_str::<Page<'_>>(&body).unwrap().events {
            let offset = serde_json::from_str::<Record>(record.get()).unwrap().headers.offset;
            records.insert(offset, record.get().to_owned());
        }
    }
    records
}
