use axum::body::Body;
use axum::response::Response;

use super::*;
use crate::api::scripted::Scripted;
use crate::channel::SharedParts;
use crate::config::{Config, Text};
use crate::daemon::assembly;
use crate::daemon::open_ledgers;
use crate::metrics::Metrics;
use crate::telemetry::trace::Traces;

const GRACE: Duration = Duration::from_secs(30);

/// Longer than a supervisor without channels would take to end by mistake.
const LONG: Duration = Duration::from_secs(3600);

fn nothing() -> Wanted {
    Wanted { channels: Vec::new(), grace: GRACE }
}

/// A channel of which the service says that it does not exist.
async fn gone(directory: &std::path::Path) -> (Wanted, Scripted) {
    let missing = |_: &str| Response::builder().status(404).body(Body::from(r#"{"type":"NOT_FOUND"}"#)).unwrap();
    let service = Scripted::start(missing).await;
    let file = directory.join("channeld.toml");
    let text = format!(
        "[api]\nbase_url = \"{}\"\napi_key = \"k\"\n[verification]\norg_id = \"o\"\n[channels.c]\n\
         id = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"s\"]\n[sinks.s]\ntype = \"stdout\"\n",
        service.base_url
    );
    std::fs::write(&file, text).unwrap();
    let config = Config::of(&Text::read(Some(&file)).unwrap(), []).unwrap();
    let ledgers = Arc::new(open_ledgers(directory.join("state")).await.unwrap());
    let client = assembly::client(&config).unwrap();
    let sinks = assembly::sinks(&config, None).unwrap();
    let parts = SharedParts::new(ledgers, Metrics::default(), Traces::default());
    (Wanted { channels: assembly::channels(&config, &client, &sinks, &parts), grace: GRACE }, service)
}

#[tokio::test(start_paused = true)]
async fn without_a_channel_it_waits_for_the_stop() {
    let (wanted, stop) = (watch::Sender::new(nothing()), CancellationToken::new());
    let running = run(wanted.subscribe(), stop.clone());
    tokio::pin!(running);
    assert!(tokio::time::timeout(LONG, &mut running).await.is_err(), "it ended by itself");
    stop.cancel();
    assert_eq!(running.await, Outcome::Drained);
}

#[tokio::test]
async fn it_ends_when_every_wanted_channel_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (wanted, _service) = gone(directory.path()).await;
    let wanted = watch::Sender::new(wanted);
    assert_eq!(run(wanted.subscribe(), CancellationToken::new()).await, Outcome::AllGone);
}

#[tokio::test]
async fn a_list_that_comes_later_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (later, _service) = gone(directory.path()).await;
    let wanted = watch::Sender::new(nothing());
    let running = run(wanted.subscribe(), CancellationToken::new());
    tokio::pin!(running);
    assert!(futures_util::poll!(&mut running).is_pending());
    wanted.send_replace(later);
    assert_eq!(running.await, Outcome::AllGone);
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_is_no_longer_wanted_does_not_count_as_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (first, _service) = gone(directory.path()).await;
    let (wanted, stop) = (watch::Sender::new(first), CancellationToken::new());
    let running = run(wanted.subscribe(), stop.clone());
    tokio::pin!(running);
    assert!(futures_util::poll!(&mut running).is_pending());
    wanted.send_replace(nothing());
    assert!(tokio::time::timeout(LONG, &mut running).await.is_err(), "it ended by itself");
    stop.cancel();
    assert_eq!(running.await, Outcome::Drained);
}
