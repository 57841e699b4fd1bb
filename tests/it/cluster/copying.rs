//! `channeld state copy` copies the state between sled and PostgreSQL. No event is lost or delivered twice, and no existing
//! state is overwritten.

use serde_json::Value;
use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use crate::config::check::connect;
use crate::support::{Daemon, Database, Relay, Setup, deliverable};

const SEASON: [EventSpec; 5] = [
    EventSpec::Honest(Kind::WatcherEvent),
    EventSpec::Forged(Tampering::Strangers),
    EventSpec::Late(Kind::QueryCompleted),
    EventSpec::Honest(Kind::WalletStatus),
    EventSpec::Honest(Kind::WatcherEvent),
];

/// The cursors and the quarantine, as the commands show them.
async fn remembered(setup: &Setup) -> Vec<Value> {
    let mut all = Vec::new();
    for arguments in [
        &["cursor", "show", "--json"][..],
        &["quarantine", "list", "--json"],
        &["quarantine", "show", "c0", "2", "--json"],
    ] {
        all.extend(setup.tell(arguments).await.json());
    }
    all
}

#[tokio::test]
async fn a_state_copied_to_postgres_and_back_continues() {
    let Some(database) = Database::new().await else { return };
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in SEASON {
        simulator.publish_one(0, spec);
    }
    let mut setup = Setup::reading(&simulator)
        .with("state.url", database.url())
        .with("cluster.lease", "3s")
        .with("cluster.instance", "only")
        .with("sinks.file.per_instance", true);
    let mut daemon = setup.start();
    daemon.until("the verified events are delivered", |_| setup.lines() == 3).await;
    let refused = setup.tell(&["state", "copy", "--to", "postgres"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("in use"), "{refused:?}");
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "file"]).await.code, Some(0));
    daemon.stop().await;
    let before = remembered(&setup).await;

    let copied = setup.tell(&["state", "copy", "--to", "postgres", "--json"]).await.json().remove(0);
    assert_eq!(copied["channels"], 1, "{copied:#}");
    let refused = setup.tell(&["state", "copy", "--to", "postgres"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("already contains a state"), "{refused:?}");
    setup.set("state.backend", "postgres");
    setup.write();
    assert_eq!(remembered(&setup).await, before);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "file"]).await.code, Some(0), "the pause was copied too");
    simulator.prove(0, 3);
    simulator.publish(0, 2);
    daemon.until("delivery continues, and the pending event arrives", |_| setup.lines() == 6).await;
    let refused = setup.tell(&["state", "copy", "--to", "sled"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("instances are running (only)"), "{refused:?}");
    daemon.stop().await;
    let before = remembered(&setup).await;
    database
        .change("insert into channeld.entries select channel_id, 'of-tomorrow', 'k', 'v' from channeld.channels")
        .await;

    setup.set("state.path", setup.path("another").display().to_string());
    setup.write();
    let told = setup.tell(&["state", "copy", "--to", "sled"]).await;
    assert!(String::from_utf8_lossy(&told.out).starts_with("copied and compared: 1 channel,"), "{told:?}");
    setup.set("state.backend", "sled");
    setup.write();
    assert_eq!(remembered(&setup).await, before);
    let mut offsets = setup.offsets("c0");
    offsets.sort_unstable();
    assert_eq!(offsets, [1, 3, 4, 5, 6, 7], "no event is lost or repeated");
}

/// The number of channels in the tests of an interrupted copy.
const CHANNELS: usize = 5;

/// Delivers ten events of each channel with the state in sled. The setup reaches the database through the relay.
async fn delivered(database: &Database) -> (Simulator, Relay, Setup) {
    let simulator = Simulator::start(Options { channels: CHANNELS, events: 10, ..Options::default() }).await.unwrap();
    let relay = Relay::before(database.server.socket()).await;
    let setup = Setup::reading(&simulator)
        .with("state.url", database.url_by(relay.address()))
        .with("cluster.lease", "6s")
        .with("cluster.instance", "only")
        .with("sinks.file.per_instance", true);
    setup.run_until_lines(CHANNELS * 10).await;
    (simulator, relay, setup)
}

/// Kills the copy at its first statement with the id of the third channel.
async fn interrupt(simulator: &Simulator, relay: &Relay, setup: &Setup, to: &str) {
    let mut channels = simulator.announcement().channels.clone();
    channels.sort_unstable();
    relay.holds_next(channels[2].0.as_bytes());
    let mut copying = Daemon::run(&["state", "copy", "--to", to], Some(&setup.write()), &[]);
    copying.until("the copy reaches the third channel", |_| relay.is_holding()).await;
    copying.kill().await;
    relay.delivers_late().await;
}

async fn copy(setup: &Setup, to: &str) {
    let copied = setup.tell(&["state", "copy", "--to", to, "--json"]).await.json().remove(0);
    assert_eq!(copied["channels"], CHANNELS, "{copied:#}");
}

/// The error that `check --connect` reports for the state or its database, if any.
async fn complaint(setup: &Setup) -> Option<String> {
    let (_, asked) = connect(setup).await;
    let of_state = |what: &str| what.starts_with("database ") || what.starts_with("state ");
    asked.into_iter().find(|(what, ok, _)| of_state(what) && !ok).map(|(.., said)| said)
}

async fn assert_goes_on(simulator: &Simulator, setup: &Setup) {
    assert_eq!(complaint(setup).await, None);
    let before = setup.lines();
    (0..CHANNELS).for_each(|channel| simulator.publish(channel, 1));
    setup.run_until_lines(before + CHANNELS).await;
    for channel in 0..CHANNELS {
        let mut offsets = setup.offsets(&format!("c{channel}"));
        offsets.sort_unstable();
        assert_eq!(offsets, deliverable(simulator, channel), "no event is lost or repeated");
    }
}

#[tokio::test]
async fn an_interrupted_copy_to_postgres_is_refused_until_completed() {
    let Some(database) = Database::new().await else { return };
    let (simulator, relay, mut setup) = delivered(&database).await;
    interrupt(&simulator, &relay, &setup, "postgres").await;
    setup.set("state.backend", "postgres");
    let said = complaint(&setup).await.unwrap_or_default();
    assert!(said.contains("incomplete copy") && said.contains("state copy --to postgres"), "{said}");
    let mut daemon = setup.start();
    daemon
        .until("the daemon reports the incomplete copy", |daemon| daemon.log().0.contains("is an incomplete copy"))
        .await;
    assert!(!daemon.has_logged("channel started"));
    daemon.stop().await;
    let refused = setup.tell(&["cursor", "show"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("incomplete copy"), "{refused:?}");
    let refused = setup.tell(&["state", "copy", "--to", "sled"]).await;
    assert!(
        refused.code == Some(1) && refused.errors.contains("the source is itself an incomplete copy"),
        "{refused:?}"
    );
    copy(&setup, "postgres").await;
    assert_goes_on(&simulator, &setup).await;
}

#[tokio::test]
async fn an_interrupted_copy_to_sled_is_refused_until_completed() {
    let Some(database) = Database::new().await else { return };
    let (simulator, relay, mut setup) = delivered(&database).await;
    copy(&setup, "postgres").await;
    setup.set("state.path", setup.path("another").display().to_string());
    interrupt(&simulator, &relay, &setup, "sled").await;
    setup.set("state.backend", "postgres");
    assert_eq!(complaint(&setup).await, None, "the source is unchanged");
    setup.set("state.backend", "sled");
    let said = complaint(&setup).await.unwrap_or_default();
    assert!(said.contains("incomplete copy") && said.contains("state copy --to sled"), "{said}");
    let ended = setup.start().ended().await;
    assert!(ended.code == Some(1) && ended.log.0.contains("is an incomplete copy"), "{}", ended.log.0);
    copy(&setup, "sled").await;
    assert_goes_on(&simulator, &setup).await;
}

#[tokio::test]
async fn an_empty_or_missing_state_is_not_copied() {
    let Some(database) = Database::new().await else { return };
    let (_simulator, _relay, mut setup) = delivered(&database).await;
    let refused = setup.tell(&["state", "copy", "--to", "sled"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("the source contains no channel"), "{refused:?}");
    database.change("drop schema channeld cascade").await;
    copy(&setup, "postgres").await;
    database.change("drop schema channeld cascade").await;
    setup.set("state.path", setup.path("state").display().to_string());
    setup.write();
    let refused = setup.tell(&["state", "copy", "--to", "sled"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("is gone"), "{refused:?}");
}
