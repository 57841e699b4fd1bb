//! A healthy daemon is ready. A daemon in trouble is not ready and says why. Both are live.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use reqwest::Method;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use simulator::{EventSpec, Fault, HasMore, Kind, Misbehaviour, Options, Route, Simulator, Tampering, Window};

use crate::support::{Admin, Answered, Daemon, Receiver, Reply, Setup, fill_quarantine, free_address, value};

async fn service(events: u64) -> Simulator {
    Simulator::start(Options { events, ..Options::default() }).await.unwrap()
}

/// Starts a daemon with an admin listener.
async fn start(setup: &Setup) -> (Daemon, Admin) {
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    (daemon, admin)
}

#[tokio::test]
async fn the_listener_agrees_with_status_and_accepts_no_commands() {
    let simulator = service(10).await;
    // No other test may listen there after the stop.
    let setup = Setup::reading(&simulator).with("admin.listen", free_address().to_string());
    let (mut daemon, admin) = start(&setup).await;
    let ready = admin.until(&mut daemon, "/readyz", "it is ready", |answer| answer.status == 200).await;
    assert_eq!((&*ready.text, &*ready.kind), ("ready\n", "text/plain; charset=utf-8"));
    let ready = admin.ask(Method::GET, "/readyz", "application/json").await;
    assert_eq!(ready.json(), json!({"ready": true, "reasons": [], "not_ready": []}));
    assert_eq!(admin.get("/livez").await.text, "ok\n");

    let done = |answer: &Answered| {
        let channel = &answer.json()["channels"][0];
        channel["cursor"] == 10 && channel["state"] == "idle"
    };
    let mut served = admin.until(&mut daemon, "/status", "all is processed", done).await.json();
    let mut told = setup.tell(&["status", "--json"]).await.json().remove(0);
    for report in [&mut served, &mut told] {
        // These members change between the two requests.
        report["memory_bytes"].take();
        for member in ["last_poll", "state"] {
            report["channels"][0][member].take();
        }
    }
    assert_eq!(served, told);

    let only_on_the_socket = ["/quarantine", "/quarantine/c0/1", "/dead-letters", "/cursors", "/reload", "/pause"];
    let paths = ["/livez", "/readyz", "/status", "/metrics", "/", "/nowhere"];
    for path in paths.into_iter().chain(only_on_the_socket) {
        for method in [Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS, Method::PATCH] {
            assert_eq!(admin.ask(method, path, "*/*").await.status, 405, "{path}");
        }
        let (get, head) = (admin.get(path).await, admin.ask(Method::HEAD, path, "*/*").await);
        assert_eq!((get.status, &*head.text), (head.status, ""), "{path}");
    }
    for path in ["/"].into_iter().chain(only_on_the_socket) {
        assert_eq!(admin.get(path).await.status, 404, "{path}");
    }
    daemon.stop().await;
    assert!(TcpStream::connect(admin.address).is_err(), "the listener is closed");
}

#[tokio::test]
async fn each_problem_makes_the_daemon_not_ready_but_still_live() {
    for (trouble, said) in [
        (Trouble::KeyRefused, "channel c0: reading events: "),
        (Trouble::Gone, "channel c0: does not exist or is archived"),
        (Trouble::SinkBlocked, "channel c0, sink hook: answered 404"),
        (Trouble::QuarantineFull, "channel c0: its quarantine is full (1,000 events, "),
        (Trouble::InDoubt, "channel c0: reading events: it is unknown whether events exist above offset "),
        (Trouble::ServiceDown, "channel c0: has not been read yet"),
        (Trouble::ServiceHangs, "channel c0: has not been read yet"),
    ] {
        let (simulator, receiver) = (trouble.service().await, Receiver::start().await);
        let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with_admin().with("api.page_limit", 20);
        trouble.begins(&simulator, &receiver, &setup).await;
        let (mut daemon, admin) = start(&setup).await;
        let is_said =
            |answer: &Answered| answer.status == 503 && answer.text.lines().any(|reason| reason.starts_with(said));
        trouble.grows(&simulator, &setup, &mut daemon).await;
        admin.until(&mut daemon, "/readyz", said, is_said).await;
        let so_is_status = |answer: &Answered| {
            let report = answer.json();
            let reasons = report["reasons"].as_array().unwrap();
            report["ready"] == false && reasons.iter().any(|reason| reason.as_str().unwrap().starts_with(said))
        };
        admin.until(&mut daemon, "/status", "the status has the same reason", so_is_status).await;
        assert_eq!(admin.sample("channeld_ready").await, Some(0.0), "{said}");
        assert_eq!(admin.get("/livez").await.text, "ok\n", "{said}");
        assert_eq!(admin.sample("channeld_live").await, Some(1.0), "{said}");
        if trouble == Trouble::Gone { drop(daemon.kill().await) } else { drop(daemon.stop().await) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    KeyRefused,
    Gone,
    SinkBlocked,
    QuarantineFull,
    InDoubt,
    ServiceDown,
    ServiceHangs,
}

impl Trouble {
    async fn service(self) -> Simulator {
        let options = match self {
            Self::InDoubt => Options { events: 1, window: Window::Newest, ..Options::default() },
            // The second channel keeps the daemon running.
            Self::Gone => Options { events: 3, channels: 2, ..Options::default() },
            _ => Options { events: 3, ..Options::default() },
        };
        Simulator::start(options).await.unwrap()
    }

    async fn begins(self, simulator: &Simulator, receiver: &Receiver, setup: &Setup) {
        match self {
            Self::KeyRefused => simulator.fail_next_on(Route::Poll, Fault::Status(401), usize::MAX),
            Self::Gone => simulator.archive(0),
            Self::SinkBlocked => receiver.always(Some(Reply::Refuse(404, None))),
            Self::QuarantineFull => fill_quarantine(setup, simulator.announcement().channels[0]).await,
            Self::ServiceDown => simulator.fail_next_on(Route::Poll, Fault::Status(503), usize::MAX),
            Self::ServiceHangs => {
                simulator.fail_next_on(Route::Poll, Fault::Hang, usize::MAX);
            }
            Self::InDoubt => {}
        }
    }

    async fn grows(self, simulator: &Simulator, setup: &Setup, daemon: &mut Daemon) {
        if self == Self::InDoubt {
            daemon.until("the first event arrives", |_| setup.lines() == 1).await;
            // More events in one second than a search of the service returns.
            simulator.publish(0, 5000);
        }
    }
}

#[tokio::test]
async fn a_service_that_stops_answering_polls_is_not_ready_until_it_answers() {
    for (fault, times) in [(Fault::RateLimited { retry_after: Some("3".to_owned()) }, 3), (Fault::Hang, 8)] {
        let simulator = service(3).await;
        let mut setup = Setup::reading(&simulator).with_admin().with("api.request_timeout", "300ms");
        setup.set("api.retry_wait", "200ms");
        setup.set("api.retry_wait_max", "200ms");
        let (mut daemon, admin) = start(&setup).await;
        admin.until(&mut daemon, "/readyz", "it is ready", |answer| answer.status == 200).await;
        simulator.fail_next_on(Route::Poll, fault.clone(), times);
        let said = "channel c0: the service has not answered a poll for ";
        // Wait for the reason with the error. It has no error if the unanswered request was for the newest event.
        let is_said = |answer: &Answered| {
            answer.status == 503 && answer.text.starts_with(said) && answer.text.contains(" s: reading events: ")
        };
        admin.until(&mut daemon, "/readyz", said, is_said).await;
        assert_eq!(admin.get("/livez").await.text, "ok\n", "{fault:?}");
        admin.until(&mut daemon, "/readyz", "it is ready again", |answer| answer.status == 200).await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_channel_without_progress_is_not_ready_until_it_progresses() {
    for (how, shown) in [
        (Misbehaviour::EmptyPages, "(empty pages)"),
        (Misbehaviour::SamePage, "(offsets 1 to 3 for offset 3)"),
        (Misbehaviour::Backwards, "(offsets 1 to 2 for offset 3)"),
    ] {
        let simulator = service(3).await;
        let setup = Setup::reading(&simulator).with_admin();
        let (mut daemon, admin) = start(&setup).await;
        daemon.until("the backlog arrives", |_| setup.lines() == 3).await;
        simulator.misbehave(0, Some(how));
        let said = "channel c0: the last 15 answers announce more events but contain no new one ";
        let is_said = |answer: &Answered| answer.text.starts_with(&format!("{said}{shown}"));
        admin.until(&mut daemon, "/readyz", said, is_said).await;
        simulator.misbehave(0, None);
        simulator.publish(0, 1);
        admin.until(&mut daemon, "/readyz", "it is ready again", |answer| answer.status == 200).await;
        daemon.until("the new event arrives", |_| setup.lines() == 4).await;
        let said = "answers announce more events but contain no new one: an operator must look";
        assert_eq!(daemon.stop().await.lines(said).len(), 1, "{how:?}");
    }
}

#[tokio::test]
async fn a_channel_that_has_read_everything_is_ready_whatever_has_more_means() {
    for inclusive in [false, true] {
        let options = Options { events: 3, inclusive, has_more: HasMore::Older, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let setup = Setup::reading(&simulator).with_admin();
        let (mut daemon, admin) = start(&setup).await;
        daemon.until("it has polled often", |_| setup.lines() == 3 && simulator.requests().poll > 40).await;
        assert_eq!(admin.get("/status").await.json()["channels"][0]["polls_in_vain"], 0);
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_hanging_poll_counts_from_its_start() {
    let simulator = service(3).await;
    let setup = Setup::reading(&simulator).with_admin().with("api.request_timeout", "60s");
    let (mut daemon, admin) = start(&setup).await;
    admin.until(&mut daemon, "/readyz", "it is ready", |answer| answer.status == 200).await;
    let hangs = Instant::now();
    simulator.misbehave(0, Some(Misbehaviour::Hang));
    let is_said = |answer: &Answered| answer.text.starts_with("channel c0: the service has not answered a poll for ");
    admin.until(&mut daemon, "/readyz", "it is not ready", is_said).await;
    assert!(hangs.elapsed() < Duration::from_secs(20), "request_timeout is 60 s: {:?}", hangs.elapsed());
    simulator.misbehave(0, None);
    daemon.stop().await;
}

#[tokio::test]
async fn a_channel_without_recent_verified_events_is_not_ready() {
    const FEW: usize = 14;
    let simulator = service(0).await;
    let publish = |forged: usize, verifiable: u64| {
        for _ in 0..forged {
            simulator.publish_one(0, EventSpec::Forged(Tampering::Strangers));
        }
        simulator.publish(0, verifiable);
    };
    publish(FEW, 1);
    publish(FEW, 0);
    let setup = Setup::reading(&simulator).with_admin();
    let (mut daemon, admin) = start(&setup).await;
    let quarantined = |answer: &Answered| answer.json()["channels"][0]["quarantined"] == 2 * FEW;
    admin.until(&mut daemon, "/status", "the forged events are quarantined", quarantined).await;
    assert_eq!(admin.get("/readyz").await.text, "ready\n", "one of the last 15 events is verified");
    publish(1, 0);
    let said = "channel c0: 15 of the last 15 events were rejected (too-few-signatures): check valid_signers";
    let is_said = |answer: &Answered| answer.status == 503 && answer.text.starts_with(said);
    admin.until(&mut daemon, "/readyz", said, is_said).await;
    assert_eq!(admin.sample("channeld_ready").await, Some(0.0));
    publish(0, 1);
    admin.until(&mut daemon, "/readyz", "it is ready", |answer| answer.status == 200).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_service_that_went_back_is_not_ready_until_the_cursor_is_set() {
    let simulator = service(5).await;
    simulator.publish(0, 5);
    let setup = Setup::reading(&simulator).with_admin();
    let (mut daemon, admin) = start(&setup).await;
    let done = |answer: &Answered| answer.json()["channels"][0]["cursor"] == 10;
    admin.until(&mut daemon, "/status", "all is processed", done).await;
    assert_eq!(admin.get("/readyz").await.text, "ready\n");
    simulator.go_back(0, 4);
    simulator.publish(0, 2);
    let said = "channel c0: the service's newest event is below the cursor 10: ";
    let is_said = |answer: &Answered| answer.status == 503 && answer.text.starts_with(said);
    admin.until(&mut daemon, "/readyz", said, is_said).await;
    assert_eq!(admin.sample("channeld_ready").await, Some(0.0));
    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
    let state = |state: &'static str| move |answer: &Answered| answer.json()["channels"][0]["state"] == state;
    admin.until(&mut daemon, "/status", "it is paused", state("paused")).await;
    while setup.tell(&["cursor", "set", "c0", "--to", "6", "--yes"]).await.code != Some(0) {
        daemon.until("it runs", |_| true).await;
    }
    assert_eq!(setup.tell(&["resume", "c0"]).await.code, Some(0));
    admin.until(&mut daemon, "/status", "it continues", state("idle")).await;
    assert_eq!(admin.get("/readyz").await.text, "ready\n");
    daemon.until("the events at reused offsets arrive", |_| setup.lines() == 12).await;
    let log = daemon.stop().await;
    assert_eq!(log.lines("event rejected: not delivered"), [] as [Value; 0]);
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 7, 8]);
}

#[tokio::test]
async fn a_full_quarantine_concerns_only_its_channel() {
    let simulator = Simulator::start(Options { events: 3, channels: 2, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with_admin();
    fill_quarantine(&setup, simulator.announcement().channels[1]).await;
    let (mut daemon, admin) = start(&setup).await;
    let is_said = |answer: &Answered| {
        answer.text.lines().eq(["channel c1: its quarantine is full (1,000 events, 2,000 \
                                                               bytes): reading stops before the next event that would \
                                                               be rejected"])
    };
    admin.until(&mut daemon, "/readyz", "the quarantine of c1 is the only reason", is_said).await;
    for (sample, expected) in [
        (r#"channeld_channel_quarantine_full{channel="c0"}"#, None),
        (r#"channeld_channel_quarantine_full{channel="c1"}"#, Some(1.0)),
        (r#"channeld_quarantined_events{channel="c0"}"#, None),
        (r#"channeld_quarantined_events{channel="c1"}"#, Some(1000.0)),
        (r#"channeld_quarantined_bytes{channel="c1"}"#, Some(2000.0)),
        ("channeld_quarantine_events", Some(1000.0)),
        ("channeld_quarantine_full", Some(1.0)),
    ] {
        assert_eq!(admin.sample(sample).await, expected, "{sample}");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_removed_state_directory_is_not_ready_but_live() {
    let simulator = service(3).await;
    let setup = Setup::reading(&simulator).with_admin();
    let (mut daemon, admin) = start(&setup).await;
    let processed = |answer: &Answered| answer.json()["channels"][0]["cursor"] == 3;
    admin.until(&mut daemon, "/status", "all is processed", processed).await;
    // A daemon that still has something to commit would exit. The status can show progress before it is committed.
    daemon.until_logged("batch recorded").await;
    assert_eq!(
        (admin.get("/readyz").await.text.as_str(), admin.sample("channeld_state_writable").await),
        ("ready\n", Some(1.0))
    );
    std::fs::remove_dir_all(setup.path("state")).unwrap();
    let is_said = |answer: &Answered| answer.text.starts_with("the state cannot be written: ");
    admin.until(&mut daemon, "/readyz", "the directory is gone", is_said).await;
    assert_eq!(admin.sample("channeld_state_writable").await, Some(0.0));
    assert_eq!(admin.get("/livez").await.text, "ok\n");
    daemon.kill().await;
}

#[tokio::test]
async fn lost_evidence_is_not_ready_until_an_operator_acknowledges_it() {
    let simulator = service(3).await;
    simulator.publish_one(0, EventSpec::Forged(Tampering::Strangers));
    simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
    let setup = Setup::reading(&simulator).with_admin();
    let (mut daemon, admin) = start(&setup).await;
    let quarantined = |answer: &Answered| answer.json()["channels"][0]["quarantined"] == 1;
    admin.until(&mut daemon, "/status", "one is quarantined", quarantined).await;
    daemon.stop().await;
    std::fs::write(setup.path("state/sled/db"), "").unwrap();

    let (mut daemon, admin) = start(&setup).await;
    let said = "1 quarantined event and 0 dead letters were lost because the state was damaged";
    let is_said = |answer: &Answered| answer.status == 503 && answer.text.starts_with(said);
    admin.until(&mut daemon, "/readyz", said, is_said).await;
    let lost = |kind: &str| format!(r#"channeld_state_lost_events{{kind="{kind}"}}"#);
    assert_eq!(admin.sample(&lost("quarantined")).await, Some(1.0));
    assert_eq!(admin.sample(&lost("dead_letter")).await, Some(0.0));
    assert_eq!(setup.tell(&["state", "acknowledge"]).await.code, Some(0));
    admin.until(&mut daemon, "/readyz", "it is ready", |answer| answer.status == 200).await;
    assert_eq!(admin.sample(&lost("quarantined")).await, Some(0.0));
    daemon.stop().await;
}

#[tokio::test]
async fn clients_that_never_finish_delay_neither_others_nor_the_stop() {
    let simulator = service(3).await;
    let setup = Setup::reading(&simulator).with_admin();
    let (mut daemon, admin) = start(&setup).await;
    let silent: Vec<_> = (0..80).map(|_| TcpStream::connect(admin.address).unwrap()).collect();
    for mut client in &silent {
        client.write_all(b"GET /livez HT").unwrap();
    }
    assert_eq!(admin.get("/livez").await.text, "ok\n", "connections that take too long are closed");
    simulator.publish(0, 3);
    daemon.until("events arrive meanwhile", |_| setup.lines() == 6).await;

    let again: Vec<_> = (0..80).map(|_| TcpStream::connect(admin.address).unwrap()).collect();
    let ends = Instant::now();
    daemon.stop().await;
    assert!(ends.elapsed() < Duration::from_secs(4), "{:?}", ends.elapsed());
    drop((silent, again));
}

#[tokio::test]
async fn an_endless_request_is_refused() {
    use std::io::Read;
    let simulator = service(0).await;
    let setup = Setup::reading(&simulator).with_admin();
    let (daemon, admin) = start(&setup).await;
    let answer = tokio::task::spawn_blocking(move || {
        let mut client = TcpStream::connect(admin.address).unwrap();
        let mut answer = Vec::new();
        client.write_all(b"GET /livez HTTP/1.1\r\nHost: here\r\nX-Padding: ").unwrap();
        // The server may close the connection while the client is still writing.
        while client.write_all(&[b'x'; 4096]).is_ok() && answer.len() < 256 {
            answer.push(0);
        }
        answer.clear();
        let _ = client.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    });
    let answer = answer.await.unwrap();
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431 "), "{answer}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_address_in_use_is_reported_with_its_key_and_nothing_starts() {
    let simulator = service(3).await;
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let setup = Setup::reading(&simulator).with("admin.listen", address.as_str());
    let ended = setup.start().ended().await;
    assert_eq!(ended.code, Some(1), "not the code of a wrong configuration, because the address may become free again");
    let said = ended.log.lines("channeld could not start").remove(0)["error"].as_str().unwrap().to_owned();
    assert!(said.contains("admin.listen") && said.contains(&address) && said.contains("in use"), "{said}");
    assert_eq!((setup.lines(), simulator.requests().poll), (0, 0));
}

#[tokio::test]
async fn a_reload_cannot_change_the_listen_address() {
    let simulator = service(3).await;
    let setup = Setup::reading(&simulator).with_admin();
    let (mut daemon, admin) = start(&setup).await;
    setup.write_but("admin.listen", "127.0.0.1:1");
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_logged("configuration rejected: the previous one stays in force").await;
    // A scrape can be a second old.
    let reloaded = |expected: f64| {
        move |answer: &Answered| value(&answer.text, "channeld_config_last_reload_successful") == Some(expected)
    };
    admin.until(&mut daemon, "/metrics", "it was rejected", reloaded(0.0)).await;
    setup.write();
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    admin.until(&mut daemon, "/metrics", "it is in force", reloaded(1.0)).await;
    daemon.stop().await;
}

#[tokio::test]
async fn dns_rebinding_is_refused() {
    let simulator = service(1).await;
    let setup = Setup::reading(&simulator).with_admin().with("admin.hosts", json!(["channeld.internal"]));
    let (daemon, admin) = start(&setup).await;
    let asked_for = |host: &str| {
        let mut client = TcpStream::connect(admin.address).unwrap();
        write!(client, "GET /status HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        std::io::read_to_string(client).unwrap()
    };
    for host in ["10.0.0.7:9464", "localhost:9464", "channeld.internal:9464"] {
        assert!(asked_for(host).starts_with("HTTP/1.1 200 "), "{host}");
    }
    let refused = asked_for("evil.example");
    assert!(
        refused.starts_with("HTTP/1.1 421 ") && refused.contains("admin.hosts") && !refused.contains("c0"),
        "{refused}"
    );
    daemon.stop().await;
}

#[tokio::test]
async fn thousands_of_silent_connections_do_not_delay_an_answer_by_a_second() {
    let simulator = service(1).await;
    let setup = Setup::reading(&simulator).with_admin();
    let (mut daemon, admin) = start(&setup).await;
    daemon.until("it arrives", |_| setup.lines() == 1).await;
    // At most a quarter of the allowed files, because other tests in this process need files too.
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let silent: Vec<_> = (0..8_000.min(files / 4)).map(|_| TcpStream::connect(admin.address).unwrap()).collect();
    for path in ["/livez", "/readyz", "/metrics"] {
        // Another process can delay a single answer. The connections would delay each of them.
        let mut fastest = Duration::MAX;
        for _ in 0..3 {
            let asked = Instant::now();
            assert_eq!(admin.get(path).await.status, 200);
            fastest = fastest.min(asked.elapsed());
        }
        assert!(fastest < Duration::from_secs(1), "{path}: {fastest:?} with {} silent connections", silent.len());
    }

    let socket = setup.path("state/control.sock");
    let silent: Vec<_> = (0..40).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let asked = Instant::now();
    let mut client = UnixStream::connect(&socket).unwrap();
    client.write_all(b"GET /status HTTP/1.1\r\nHost: channeld\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?} with {} silent connections", asked.elapsed(), silent.len());
    assert_eq!(setup.tell(&["status"]).await.code, Some(0), "a command is not delayed either");
    daemon.stop().await;
}

#[tokio::test]
async fn livez_is_prompt_and_a_scrape_is_small_with_hundreds_of_channels() {
    const CHANNELS: usize = 300;
    let simulator = Simulator::start(Options { channels: CHANNELS, events: 1, ..Options::default() }).await.unwrap();
    // With the wait of other tests, so many channels send requests without any pause.
    let mut setup = Setup::reading(&simulator).with_admin().with("api.idle_wait", "1s");
    for (number, id) in simulator.announcement().channels.iter().enumerate() {
        setup.remove(&format!("channels.c{number}"));
        let name = format!("channels.settlements-eu-{number:05}");
        setup.set(&format!("{name}.id"), id.to_string());
        setup.set(&format!("{name}.sinks"), vec!["file"]);
    }
    let (mut daemon, admin) = start(&setup).await;
    daemon.until("every channel has delivered", |_| setup.lines() == CHANNELS).await;
    let scrape = |address| {
        let mut client = TcpStream::connect(address).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    };
    let scrapes: Vec<_> = (0..20).map(|_| std::thread::spawn(move || scrape(admin.address))).collect();
    let mut times = Vec::new();
    for _ in 0..20 {
        let asked = Instant::now();
        assert_eq!(admin.get("/livez").await.text, "ok\n");
        times.push(asked.elapsed());
    }
    // Another process can delay two of them.
    times.sort();
    assert!(times[17] < Duration::from_secs(1), "{times:?} beside 20 scrapes");
    for scrape in scrapes {
        let answer = scrape.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        assert!(answer.len() <= (1 << 20) * CHANNELS / 1_000 + (64 << 10), "{} bytes", answer.len());
        let of_one = answer.lines().filter(|line| line.contains("\"settlements-eu-00150\"")).count();
        assert!((5..=40).contains(&of_one), "{of_one} series of one channel");
    }
    daemon.stop().await;
}
