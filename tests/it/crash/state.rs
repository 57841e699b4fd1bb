//! The state in sled: only one process uses it, and it is restored if it is damaged.

use std::path::Path;

use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use crate::support::{Admin, Answered, Daemon, Receiver, Setup, deliverable, offsets};

const PAGE: usize = 10;

type Damage = fn(&Path);

async fn service() -> Simulator {
    Simulator::start(Options { events: 45, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

fn deleted(database: &Path) {
    std::fs::remove_dir_all(database).unwrap();
}

fn emptied(database: &Path) {
    std::fs::write(database.join("db"), "").unwrap();
}

fn overwritten(database: &Path) {
    for file in ["conf", "db"] {
        let path = database.join(file);
        let length = std::fs::metadata(&path).unwrap().len();
        std::fs::write(&path, vec![0x5a; usize::try_from(length).unwrap()]).unwrap();
    }
}

#[tokio::test]
async fn a_second_process_on_the_same_state_is_refused() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator);
    let mut first = setup.start();
    first.until("the backlog arrives", |_| setup.lines() == 45).await;

    let second = setup.start().ended().await;

    assert_eq!(second.code, Some(1));
    let said = second.log.at("ERROR");
    let holder = format!("process {}", first.pid());
    assert!(said.len() == 1 && said[0]["error"].as_str().unwrap().contains(&holder), "{said:?}");
    simulator.publish(0, 1);
    first.until("the first daemon continues", |_| setup.lines() == 46).await;
    first.stop().await;
}

#[tokio::test]
async fn a_missing_or_damaged_database_is_restored_from_its_mirror() {
    let cases: [(_, Damage); 3] = [("deleted", deleted), ("emptied", emptied), ("overwritten", overwritten)];
    for (case, damage) in cases {
        let simulator = service().await;
        let receiver = Receiver::start().await;
        let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", PAGE);
        let late = simulator.publish_one(0, EventSpec::Late(Kind::WatcherEvent));
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        daemon.until("the backlog arrives", |_| setup.lines() == 45 && receiver.received() == 45).await;
        daemon
            .until("the late event is set aside", |_| {
                std::fs::read_to_string(setup.path("state/cursors.json"))
                    .is_ok_and(|json| json.matches("46").count() >= 3)
            })
            .await;
        daemon.stop().await;

        damage(&setup.path("state").join("sled"));
        simulator.publish(0, 5);
        simulator.prove(0, late);
        let mut daemon = setup.start();
        daemon.until("the rest arrives", |_| setup.lines() >= 51 && receiver.received() >= 51).await;
        let log = daemon.stop().await;

        assert!(log.0.contains("cursors.json"), "{case}: the log tells the operator");
        let sorted = |mut offsets: Vec<i64>| {
            offsets.sort_unstable();
            offsets
        };
        let expected = deliverable(&simulator, 0);
        assert_eq!(sorted(setup.offsets("c0")), expected, "{case}");
        assert_eq!(sorted(offsets(&receiver.delivered())), expected, "{case}");
    }
}

#[tokio::test]
async fn a_torn_mirror_is_a_warning_and_without_a_database_an_error() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(45).await;
    let tear = || std::fs::write(setup.path("state/cursors.json"), "{\"format\":1,\"chan").unwrap();

    tear();
    let mut daemon = setup.start();
    simulator.publish(0, 1);
    daemon.until("delivery continues", |_| setup.lines() == 46).await;
    assert_eq!(daemon.stop().await.at("WARN").len(), 1);

    tear();
    std::fs::remove_file(setup.path("state/sled/db")).unwrap();
    std::fs::create_dir(setup.path("state/sled/db")).unwrap();
    let ended = setup.start().ended().await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.log.0.contains("cursors.json"), "{}", ended.log.0);
    assert_eq!(setup.lines(), 46);
}

#[tokio::test]
async fn a_state_missing_from_its_directory_is_not_treated_as_new() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(45).await;
    deleted(&setup.path("state/sled"));
    std::fs::remove_file(setup.path("state/cursors.json")).unwrap();
    let ended = setup.start().ended().await;
    assert!(ended.code == Some(1) && ended.log.0.contains("is gone: restore the directory"), "{}", ended.log.0);
    let checked = setup.tell(&["check"]).await;
    let said = String::from_utf8_lossy(&checked.out);
    assert!(said.contains("is gone") && said.contains("state.json"), "{said}");
    assert!(!setup.path("state/sled").exists(), "no new state was created");

    // An operator decides to start with a new state.
    std::fs::remove_file(setup.path("state/state.json")).unwrap();
    simulator.publish(0, 1);
    setup.run_until_lines(46).await;
}

/// Earlier, a flipped bit made the database drop every later entry, and the daemon still reported that it was ready.
#[tokio::test]
async fn losses_from_a_flipped_bit_are_reported_until_acknowledged() {
    let simulator = service().await;
    for _ in 0..20 {
        simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    }
    simulator.publish(0, 1);
    let good = deliverable(&simulator, 0).len();
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(good).await;
    let log = setup.path("state/sled/db");
    let mut bytes = std::fs::read(&log).unwrap();
    let middle = bytes.iter().rposition(|byte| *byte != 0).unwrap() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&log, &bytes).unwrap();

    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    simulator.publish(0, 1);
    daemon.until("delivery continues", |_| setup.lines() == good + 1).await;
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    let kept = status["channels"][0]["quarantined"].as_u64().unwrap();
    let lost = status["lost"]["quarantined"].as_u64().unwrap();
    assert!(lost > 0 && kept + lost >= 20, "{kept} kept, {lost} lost");
    assert_eq!(status["ready"], false);
    let aside = Path::new(status["lost"]["kept"].as_str().unwrap());
    assert_eq!(std::fs::read(aside.join("db")).unwrap(), bytes, "the damaged file is unchanged");

    assert_eq!(setup.tell(&["state", "acknowledge"]).await.code, Some(0));
    let status = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!(status["ready"], true, "{status}");
    let said = daemon.stop().await.at("ERROR");
    let said: Vec<_> = said.iter().filter(|line| line["quarantined"].as_u64() == Some(lost)).collect();
    assert_eq!(said.len(), 1, "{said:?}");
}

#[tokio::test]
async fn a_state_directory_open_to_others_is_refused() {
    use std::os::unix::fs::PermissionsExt;

    let simulator = service().await;
    let setup = Setup::reading(&simulator).with_admin();
    let state = setup.path("state");
    std::fs::create_dir_all(&state).unwrap();
    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o755)).unwrap();
    let refused = setup.start().ended().await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.log.0.contains("chmod 700"), "{}", refused.log.0);

    std::fs::set_permissions(&state, std::fs::Permissions::from_mode(0o700)).unwrap();
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 45).await;
    let admin = Admin::of(&mut daemon).await;
    // Wait for the commit: if the directory disappeared during the commit, the daemon would end.
    let is_recorded = |daemon: &Daemon| daemon.log().lines("batch recorded").iter().any(|line| line["offset"] == 45);
    daemon.until("the backlog is recorded", is_recorded).await;
    std::fs::rename(&state, setup.path("elsewhere")).unwrap();
    let noticed = |answer: &Answered| answer.status == 503 && answer.text.contains("is gone");
    admin.until(&mut daemon, "/readyz", "the daemon reports the missing directory", noticed).await;
    daemon.stop().await;
}
