//! Tests against a socket like the one of a service manager.

use std::cell::Cell;

use super::*;

const WATCHDOG: Duration = Duration::from_secs(30);

/// Returns the socket of a manager, and a notifier that sends to it.
fn manager() -> (tempfile::TempDir, UnixDatagram, Notifier) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_nonblocking(true).unwrap();
    let notifier = Notifier::to(Some(super::manager(path.as_os_str()).unwrap()), Some(WATCHDOG));
    (directory, socket, notifier)
}

/// Returns every message that has arrived until now.
fn told(socket: &UnixDatagram) -> Vec<String> {
    let mut buffer = [0; 1024];
    let message = || socket.recv(&mut buffer).ok().map(|size| String::from_utf8(buffer[..size].to_vec()).unwrap());
    std::iter::from_fn(message).collect()
}

#[test]
fn a_status_is_one_short_line_sent_once() {
    let (_directory, socket, notifier) = manager();
    notifier.status("2 channels\nREADY=1\r\n");
    notifier.status("2 channels\nREADY=1\r\n");
    assert_eq!(told(&socket), ["STATUS=2 channels READY=1  "]);

    notifier.status(&"é".repeat(10_000));
    assert_eq!(told(&socket), [format!("STATUS={}", "é".repeat(MAX_STATUS))]);
}

#[test]
fn a_rejected_configuration_is_reported_until_one_is_accepted() {
    let (_directory, socket, notifier) = manager();
    notifier.status("ready");
    notifier.enter(Phase::Rejected);
    notifier.status("not ready");
    notifier.enter(Phase::Running);
    let rejected = "the last configuration was rejected: see the log";
    let expected = [
        "STATUS=ready".to_owned(),
        format!("READY=1\nSTATUS=ready; {rejected}"),
        format!("STATUS=not ready; {rejected}"),
        "READY=1\nSTATUS=not ready".to_owned(),
    ];
    assert_eq!(told(&socket), expected);
}

#[test]
fn a_stop_extends_the_timeout_by_its_grace_period() {
    let (_directory, socket, notifier) = manager();
    notifier.enter(Phase::Stopping(Duration::from_secs(5)));
    notifier.status("2 channels, ready");
    let stopping = "STATUS=stopping: finishing and recording the current batch";
    assert_eq!(told(&socket), [format!("STOPPING=1\nEXTEND_TIMEOUT_USEC=15000000\n{stopping}")]);

    notifier.enter(Phase::Stopping(Duration::MAX));
    assert!(told(&socket)[0].contains("EXTEND_TIMEOUT_USEC=4294967295\n"), "the longest time that the protocol allows");
}

#[tokio::test(start_paused = true)]
async fn the_watchdog_is_notified_at_half_its_interval_while_there_is_progress() {
    let (_directory, socket, notifier) = manager();
    let stuck = Cell::new(false);
    let fed = async |periods: u32| {
        let alive = notifier.keep_alive(|| if stuck.get() { Err("stuck".to_owned()) } else { Ok(()) });
        // The time is slightly longer than whole periods, and the first message is sent at once.
        let _ = tokio::time::timeout(WATCHDOG * periods + WATCHDOG / 4, alive).await;
        let told = told(&socket);
        assert!(told.iter().all(|message| message == "WATCHDOG=1"), "{told:?}");
        told.len()
    };
    assert_eq!(fed(2).await, 5);
    stuck.set(true);
    assert_eq!(fed(2).await, 0);
    stuck.set(false);
    assert_eq!(fed(1).await, 3);
}

#[test]
fn an_address_is_a_path_or_an_abstract_name() {
    let at = |name: &str| address(OsStr::new(name));
    assert_eq!(at("/run/systemd/notify").unwrap().as_pathname().unwrap().to_str(), Some("/run/systemd/notify"));
    assert_eq!(at("@notify").unwrap().as_abstract_name(), Some(&b"notify"[..]));
    let long = format!("/{}", "x".repeat(200));
    for name in ["", "notify", "vsock:2:1234", &long] {
        assert!(at(name).is_err(), "{name}");
    }
}
