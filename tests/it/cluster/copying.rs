//! The state moves from one backend to the other, and back: nothing is lost, nothing comes twice, nothing is overwritten.

use channeld::simulator::{EventSpec, Kind, Options, Simulator, Tampering};
use serde_json::Value;

use crate::support::{Database, Setup};

const SEASON: [EventSpec; 5] = [
    EventSpec::Honest(Kind::WatcherEvent),
    EventSpec::Forged(Tampering::Strangers),
    EventSpec::Late(Kind::QueryCompleted),
    EventSpec::Honest(Kind::WalletStatus),
    EventSpec::Honest(Kind::WatcherEvent),
];

/// What operators see of it.
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
async fn a_state_that_is_copied_to_postgres_and_back_goes_on_where_it_was() {
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
    daemon.until("what holds is delivered", |_| setup.lines() == 3).await;
    let refused = setup.tell(&["state", "copy", "--to", "postgres"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("in use"), "{refused:?}");
    assert_eq!(setup.tell(&["pause", "c0", "--sink", "file"]).await.code, Some(0));
    daemon.stop().await;
    let before = remembered(&setup).await;

    let copied = setup.tell(&["state", "copy", "--to", "postgres", "--json"]).await.json().remove(0);
    assert_eq!(copied["channels"], 1, "{copied:#}");
    let refused = setup.tell(&["state", "copy", "--to", "postgres"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("is kept already"), "{refused:?}");
    setup.set("state.backend", "postgres");
    setup.write();
    assert_eq!(remembered(&setup).await, before);
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "file"]).await.code, Some(0), "the pause was copied too");
    simulator.prove(0, 3);
    simulator.publish(0, 2);
    daemon.until("it goes on, and the late one comes", |_| setup.lines() == 6).await;
    let refused = setup.tell(&["state", "copy", "--to", "sled"]).await;
    assert!(refused.code == Some(1) && refused.errors.contains("instances live (only)"), "{refused:?}");
    daemon.stop().await;
    let before = remembered(&setup).await;

    setup.set("state.path", setup.path("another").display().to_string());
    setup.write();
    let told = setup.tell(&["state", "copy", "--to", "sled"]).await;
    assert!(String::from_utf8_lossy(&told.out).starts_with("copied and compared: 1 channels"), "{told:?}");
    setup.set("state.backend", "sled");
    setup.write();
    assert_eq!(remembered(&setup).await, before);
    let mut offsets = setup.offsets("c0");
    offsets.sort_unstable();
    assert_eq!(offsets, [1, 3, 4, 5, 6, 7], "nothing is lost, nothing comes twice");
}
