//! Commands use the socket of a running daemon, or open the state of a stopped one.

use rustix::process::Signal;

use super::{FORGED, PROVED, service};
use crate::support::{Setup, records};
use simulator::{Options, Simulator};

#[tokio::test]
async fn commands_create_no_state() {
    let simulator = service(&[]).await;
    let setup = Setup::reading(&simulator);
    setup.write();
    let told = setup.tell(&["quarantine", "list"]).await;
    assert_eq!(told.code, Some(1));
    assert!(told.errors.contains("no state exists in"), "{told:?}");
    assert!(!setup.path("state").exists());
}

#[tokio::test]
async fn a_running_daemon_answers_at_a_socket_only_its_owner_can_use() {
    use std::os::unix::fs::PermissionsExt;

    let simulator = service(&[PROVED, FORGED, PROVED, FORGED]).await;
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the valid events arrive", |_| setup.lines() == 2).await;
    daemon.until_logged("batch recorded").await;

    let socket = setup.path("state/control.sock");
    assert_eq!(std::fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(setup.tell(&["quarantine", "list", "c0", "--json"]).await.each("offset"), [2, 4]);
    let truth = records(&simulator, 0).await;
    assert_eq!(setup.tell(&["quarantine", "show", "c0", "2", "--raw"]).await.out, truth[&2].as_bytes());
    assert_eq!(setup.tell(&["quarantine", "drop", "c0", "2", "--yes"]).await.code, Some(0));
    assert_eq!(setup.tell(&["quarantine", "list", "--json"]).await.each("offset"), [4]);
    let listed = String::from_utf8(setup.tell(&["quarantine", "list"]).await.out).unwrap();
    let [heading, row, "", summary] = listed.lines().collect::<Vec<_>>()[..] else { panic!("{listed}") };
    let reason = row.split_whitespace().nth(3).unwrap();
    assert!(heading.starts_with("CHANNEL ") && row.starts_with("c0 "), "{listed}");
    assert!(summary.starts_with(&format!("1 quarantined event: 1 {reason}. ")), "{listed}");
    assert_eq!(setup.tell(&["quarantine", "list", "--json", "--reason", reason]).await.each("offset"), [4]);
    assert!(setup.tell(&["quarantine", "list", "--json", "--reason", "nonsense"]).await.json().is_empty());
    assert_eq!(setup.tell(&["dead-letters", "list"]).await.out, b"No dead letters.\n");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [4]);
    assert_eq!(setup.tell(&["cursor", "show", "no-such-channel"]).await.code, Some(64));

    let refused = setup.tell(&["cursor", "set", "c0", "--to", "earliest", "--yes"]).await;
    assert_eq!(refused.code, Some(1));
    assert!(refused.errors.contains("is running"), "{refused:?}");
    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.each("cursor"), [4]);
    let log = daemon.stop().await;
    assert_eq!(log.lines("quarantined event dropped by an operator").len(), 1);
    assert!(!socket.exists());
}

#[tokio::test]
async fn a_command_does_not_wait_forever_for_a_daemon_that_does_not_answer() {
    let simulator = service(&[PROVED]).await;
    let setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("the event arrives", |_| setup.lines() == 1).await;
    daemon.signal(Signal::STOP);
    let told = setup.tell(&["status"]).await;
    daemon.signal(Signal::CONT);
    assert_eq!(told.code, Some(1));
    let said = "did not answer: no answer for 30 s: see whether the process hangs";
    assert!(told.errors.contains(said) && told.out.is_empty(), "{told:?}");
    assert_eq!(setup.tell(&["status"]).await.code, Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn a_state_path_too_long_for_a_socket_does_not_stop_the_daemon() {
    let simulator = service(&[PROVED]).await;
    let mut setup = Setup::reading(&simulator);
    setup.set("state.path", setup.path(&"long".repeat(30)).display().to_string());
    let mut daemon = setup.start();
    daemon.until("the event arrives", |_| setup.lines() == 1).await;
    assert_eq!(setup.tell(&["cursor", "show"]).await.code, Some(1));
    let said = daemon.stop().await.at("WARN");
    assert!(said.len() == 1 && said[0]["error"].as_str().unwrap().contains("shorter state.path"), "{said:?}");
}

#[tokio::test]
async fn state_commands_need_no_secrets() {
    let simulator = Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator);
    let mut daemon = setup.start();
    daemon.until("all events arrive", |_| setup.lines() == 3).await;
    daemon.stop().await;
    setup.remove("api.api_key");
    setup.set("api.api_key_file", "/nowhere/at/all");
    setup.write();
    for command in [&["cursor", "show"][..], &["quarantine", "list"], &["dead-letters", "list"], &["status"]] {
        let told = setup.tell(command).await;
        assert_eq!(told.code, Some(0), "{command:?}: {told:?}");
    }
    let told = setup.tell(&["check"]).await;
    assert!(told.code == Some(78) && told.errors.contains("api.api_key_file"), "{told:?}");
}
