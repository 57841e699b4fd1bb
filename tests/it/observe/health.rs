//! `channeld health` reports the same as the probes of the listener.

use simulator::{Options, Simulator};

use crate::support::{LONGEST_WAIT, Receiver, Reply, Setup, Told, eventually, free_address};

/// An address for `admin.listen` with a port that is known before the daemon starts.
fn listen() -> String {
    format!("0.0.0.0:{}", free_address().port())
}

/// The exit code and the output of a command.
fn said(told: &Told) -> (Option<i32>, &str) {
    (told.code, std::str::from_utf8(&told.out).unwrap())
}

#[tokio::test]
async fn health_asks_the_daemon_even_if_its_configuration_file_changed() {
    let simulator = Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(404, None)));
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("admin.listen", listen());
    setup.write();
    let unanswered = setup.tell(&["health"]).await;
    assert_eq!(said(&unanswered), (Some(1), ""));
    assert!(unanswered.errors.contains("no answer from http://127.0.0.1:"), "{unanswered:?}");

    let mut daemon = setup.start();
    daemon.until_logged("health, metrics and status are served").await;
    assert_eq!(said(&setup.tell(&["health"]).await), (Some(0), "ok\n"));
    daemon.until("the sink is retried", |_| receiver.requests() > 1).await;
    let troubled = setup.tell(&["health", "--ready"]).await;
    let reason = "channel c0, sink hook: answered 404";
    assert!(troubled.code == Some(1) && said(&troubled).1.starts_with(reason), "{troubled:?}");

    // The daemon would not start with this file, but its health does not depend on the file.
    setup.write_but("api.api_kee", "");
    assert_eq!(said(&setup.tell(&["health"]).await), (Some(0), "ok\n"));
    receiver.always(None);
    let mut last = None;
    let since = std::time::Instant::now();
    while last.as_ref().map(said) != Some((Some(0), "ready\n")) {
        assert!(since.elapsed() < LONGEST_WAIT, "{last:?}");
        last = Some(setup.tell(&["health", "--ready"]).await);
    }
    eventually("all events arrive", || (receiver.received() == 3).then_some(())).await;
    daemon.stop().await;
}

#[tokio::test]
async fn without_a_listener_health_says_so() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.write();
    let told = setup.tell(&["health"]).await;
    assert!(told.code == Some(1) && told.errors.contains("admin.listen is \"\""), "{told:?}");
}
