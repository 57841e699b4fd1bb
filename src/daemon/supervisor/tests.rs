use axum::body::Body;
use axum::response::Response;
use futures_util::FutureExt;

use super::*;
use crate::config::{Config, ConfigText};
use crate::daemon::assembly;
use crate::daemon::open_ledgers;
use api::testing::Scripted;
use channel::SharedParts;
use ledger::store::StateSettings;
use telemetry::metrics::Metrics;
use telemetry::trace::Traces;

const GRACE: Duration = Duration::from_secs(30);

/// If a supervisor ended by mistake, it would end within this time.
const LONG: Duration = Duration::from_secs(3600);

fn supervisor(stop: &CancellationToken, wanted: &[Arc<Channel>]) -> Supervisor {
    let mut supervisor = Supervisor::new(stop);
    supervisor.follow(wanted, GRACE);
    supervisor
}

/// Returns a list with one channel, and the service, which reports that the channel does not exist.
async fn gone(directory: &std::path::Path) -> (Vec<Arc<Channel>>, Scripted) {
    let missing = |_: &str| Response::builder().status(404).body(Body::from(r#"{"type":"NOT_FOUND"}"#)).unwrap();
    let service = Scripted::start(missing).await;
    let file = directory.join("channeld.toml");
    let text = format!(
        "[api]\nbase_url = \"{}\"\napi_key = \"k\"\n[verification]\norg_id = \"o\"\n[channels.c]\n\
         id = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"s\"]\n[sinks.s]\ntype = \"stdout\"\n",
        service.base_url
    );
    std::fs::write(&file, text).unwrap();
    let config =
        Config::of(ConfigText::read(Some(&file)).unwrap(), []).unwrap_or_else(|problems| panic!("{problems}")).config;
    let ledgers =
        Arc::new(open_ledgers(StateSettings { path: directory.join("state"), database: None }).await.unwrap());
    let parts = SharedParts::new(ledgers, Arc::default(), Metrics::default(), Traces::default());
    (assembly::assemble(&config, None, &parts).unwrap().2, service)
}

#[tokio::test(start_paused = true)]
async fn without_a_channel_the_supervisor_waits_for_the_stop() {
    let stop = CancellationToken::new();
    let mut supervisor = supervisor(&stop, &[]);
    assert!(
        tokio::time::timeout(LONG, supervisor.ended()).await.is_err(),
        "the supervisor ended before it was stopped"
    );
    stop.cancel();
    assert_eq!(supervisor.ended().await, EndReason::Drained);
}

#[tokio::test]
async fn the_supervisor_ends_when_every_channel_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let (wanted, _service) = gone(directory.path()).await;
    assert_eq!(supervisor(&CancellationToken::new(), &wanted).ended().await, EndReason::AllGone);
}

#[tokio::test]
async fn a_later_list_of_channels_is_applied() {
    let directory = tempfile::tempdir().unwrap();
    let (later, _service) = gone(directory.path()).await;
    let mut supervisor = supervisor(&CancellationToken::new(), &[]);
    assert!(supervisor.ended().now_or_never().is_none());
    supervisor.follow(&later, GRACE);
    assert_eq!(supervisor.ended().await, EndReason::AllGone);
}

#[tokio::test(start_paused = true)]
async fn the_supervisor_does_not_end_when_its_only_channel_is_removed_from_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let (first, _service) = gone(directory.path()).await;
    let stop = CancellationToken::new();
    let mut supervisor = supervisor(&stop, &first);
    assert!(supervisor.ended().now_or_never().is_none());
    supervisor.follow(&[], GRACE);
    assert!(
        tokio::time::timeout(LONG, supervisor.ended()).await.is_err(),
        "the supervisor ended before it was stopped"
    );
    stop.cancel();
    assert_eq!(supervisor.ended().await, EndReason::Drained);
}

#[tokio::test(start_paused = true)]
async fn restart_waits_grow_and_reset_after_a_long_run() {
    let mut restarts = Restarts { waits: Retry::new(RESTART), began: Instant::now() };
    let short = RESTART.wait * 2;
    for _ in 0..10 {
        sleep(restarts.next_wait() + SOUND_RUN / 2).await;
    }
    let grown = restarts.next_wait();
    assert!(grown > RESTART.max_wait / 2, "after short runs: {grown:?}");
    sleep(grown + SOUND_RUN).await;
    let wait = restarts.next_wait();
    assert!(wait < short, "after a long run: {wait:?}");
}

#[test]
fn few_channels_start_apart_and_many_all_start_within_seconds() {
    assert_eq!([0, 1, 1_000].map(between_starts), [BETWEEN_STARTS; 3]);
    assert!((10_000 * between_starts(10_000)).abs_diff(ALL_STARTS) < Duration::from_millis(10));
}
