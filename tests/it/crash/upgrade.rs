//! The daemon continues with a state that an earlier version wrote.

use std::path::Path;
use std::time::Duration;

use simulator::{EventSpec, Kind, LateProofs, Options, Simulator};

use crate::support::{Daemon, Receiver, Setup, offsets};

/// A state of format 1, written by version 0.1.0 after it had read 60 events of this simulated service. It contains
/// pending and rejected events, and dead letters of a webhook that refused every offset ending in 5.
const FORMAT_1: &str = "tests/it/crash/format-1";
const SEED: u64 = 7;
const LATE: [i64; 6] = [7, 11, 33, 34, 38, 56];
const FORGED: [i64; 2] = [37, 54];
const GIVEN_UP: [i64; 6] = [5, 15, 25, 35, 45, 55];

async fn service() -> Simulator {
    let late_proofs = Some(LateProofs { share: 0.15, delay: Duration::from_secs(3600) });
    let options = Options { events: 60, seed: SEED, late_proofs, forged: 0.1, unsigned: 0.2, ..Options::default() };
    Simulator::start(options).await.unwrap()
}

fn put_state(setup: &Setup) {
    use std::os::unix::fs::PermissionsExt;

    let (from, to) = (Path::new(env!("CARGO_MANIFEST_DIR")).join(FORMAT_1), setup.path("state"));
    std::fs::create_dir_all(to.join("sled/blobs")).unwrap();
    for (name, place) in [("cursors.json", "cursors.json"), ("db", "sled/db"), ("conf", "sled/conf")] {
        std::fs::copy(from.join(name), to.join(place)).unwrap();
    }
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o700)).unwrap();
}

#[tokio::test]
async fn a_state_of_format_1_continues_with_every_event_that_it_stored() {
    let (simulator, receiver) = (service().await, Receiver::start().await);
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    put_state(&setup);
    setup.write();
    assert_eq!(
        setup.tell(&["cursor", "show", "--json"]).await.each("cursor"),
        [60, 60],
        "by a command, without a daemon"
    );

    // Prove them before the start, because their proof timeout may already have expired.
    for offset in LATE {
        simulator.prove(0, offset);
    }
    let mut daemon = setup.start();
    for _ in 0..5 {
        simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
    }
    let arrived = |_: &Daemon| setup.lines() == 11 && receiver.received() == 11;
    daemon.until("the new events and the pending events arrive", arrived).await;
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.each("offset"), FORGED);
    assert_eq!(setup.tell(&["dead-letters", "list", "--json"]).await.each("offset"), GIVEN_UP);
    let redeliver = setup.tell(&["dead-letters", "replay", "c0", "--sink", "hook", "--all"]).await;
    assert_eq!(redeliver.code, Some(0), "{redeliver:?}");
    daemon.until("the dead letters arrive", |_| receiver.received() == 17).await;
    daemon.stop().await;

    let sorted = |mut offsets: Vec<i64>| {
        offsets.sort_unstable();
        offsets
    };
    let new = 61..=65;
    assert_eq!(sorted(setup.offsets("c0")), LATE.into_iter().chain(new.clone()).collect::<Vec<_>>());
    let posted = sorted(offsets(&receiver.delivered()));
    assert_eq!(posted, sorted(LATE.into_iter().chain(GIVEN_UP).chain(new).collect()));
    assert_eq!(setup.tell(&["status", "--json"]).await.json()[0].get("lost"), None);
}

/// Version 0.1.0 stored every pending event in `cursors.json`, so none is lost with the database.
#[tokio::test]
async fn a_damaged_database_of_format_1_loses_no_pending_event() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator);
    put_state(&setup);
    std::fs::write(setup.path("state/sled/db"), "nonsense".repeat(10_000)).unwrap();

    let mut daemon = setup.start();
    // The lowest pending event has offset 7. Reading continues from there, so all later events are delivered again.
    let again = (7..=60).filter(|offset| !FORGED.contains(offset) && !LATE.contains(offset)).count();
    daemon.until("the events above the lowest pending event arrive", |_| setup.lines() == again).await;
    for offset in LATE {
        simulator.prove(0, offset);
    }
    daemon.until("the pending events arrive", |_| setup.lines() == again + LATE.len()).await;
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!((&status["ready"], &status["lost"]["late"]), (&false.into(), &LATE.len().into()), "{status}");
    assert_eq!(setup.tell(&["state", "acknowledge"]).await.code, Some(0));
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!((&status["ready"], status.get("lost")), (&true.into(), None), "{status}");
    daemon.stop().await;
}
