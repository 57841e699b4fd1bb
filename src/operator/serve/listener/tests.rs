use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use super::*;
use crate::ConfiguredChannel;
use crate::serve::router::tests::{sources, sources_of};
use net::tasks::lock;
use proof::verify::{Address, SignerSet, Verifier};
use record::ChannelRef;

const MAX_WAIT: Duration = Duration::from_secs(60);

/// Sends a request without an async runtime. Returns the status line and the body.
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Repeats the request until the body begins with this text. Returns the status line.
fn until(address: SocketAddr, path: &str, begins: &str) -> String {
    let asked = Instant::now();
    loop {
        let (status, body) = get(address, path);
        if body.starts_with(begins) {
            return status;
        }
        assert!(asked.elapsed() < MAX_WAIT, "{path}: {body}, not {begins}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_listener_answers_while_the_runtime_is_stuck() {
    const WORKERS: usize = 2;
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
    let sources = runtime.block_on(async { sources(&directory.path().join("state")) });
    let liveness = sources.liveness.clone();
    let listener = Listener::start("127.0.0.1:0".parse().unwrap(), &["here".to_owned()], sources).unwrap();
    runtime.spawn(liveness.beat());
    assert_eq!(until(listener.address, "/livez", "ok\n"), "HTTP/1.1 200 OK");

    let plugs: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (open, plug) = mpsc::channel::<()>();
            runtime.spawn(async move {
                // No message is ever sent: `recv` returns when the sender is dropped.
                let _ = plug.recv();
            });
            open
        })
        .collect();
    let stuck = "the async runtime has made no progress for ";
    assert_eq!(until(listener.address, "/livez", stuck), "HTTP/1.1 503 Service Unavailable");
    let (status, scrape) = get(listener.address, "/metrics");
    assert!(status.ends_with(" 200 OK") && scrape.contains("\nchanneld_live 0\n"), "{status}\n{scrape}");
    assert_eq!(get(listener.address, "/readyz").1, "no daemon runs\n");
    drop(plugs);
    assert_eq!(until(listener.address, "/livez", "ok\n"), "HTTP/1.1 200 OK");
}

#[test]
fn livez_answers_while_a_report_blocks_and_many_requests_wait_for_it() {
    const WAIT: usize = 32;
    const TOO_MANY: usize = 8;
    let directory = tempfile::tempdir().unwrap();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let channel = ChannelRef { name: "c0".into(), id: "00000000-0000-0000-0000-000000000001".parse().unwrap() };
    let verifier = Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([2; 20]));
    let (account, sinks, expect) = <_>::default();
    let configured =
        ConfiguredChannel { channel: channel.clone(), account, discovered: false, sinks, verifier, expect };
    let (sources, ledger) = runtime.block_on(async {
        let sources = sources_of(&directory.path().join("state"), [configured]);
        let operations = sources.operations.borrow().clone();
        let ledger = operations.ledger(&channel).await.unwrap();
        (sources, ledger)
    });
    let listener = Listener::start("127.0.0.1:0".parse().unwrap(), &["here".to_owned()], sources).unwrap();
    let address = listener.address;
    let blocked = lock(&ledger);
    let (answered, answers): (Sender<(String, String)>, Receiver<_>) = mpsc::channel();
    for path in ["/metrics", "/status"].into_iter().cycle().take(WAIT + TOO_MANY) {
        let answered = answered.clone();
        std::thread::spawn(move || answered.send(get(address, path)));
    }
    for _ in 0..TOO_MANY {
        let (status, body) = answers.recv_timeout(MAX_WAIT).unwrap();
        assert!(status.ends_with(" 503 Service Unavailable"), "{status}");
        assert_eq!(body, "too many requests wait for a report\n");
    }
    let live = answered.clone();
    std::thread::spawn(move || live.send(get(address, "/livez")));
    let (status, body) = answers.recv_timeout(MAX_WAIT).unwrap();
    assert_eq!((&*status, &*body), ("HTTP/1.1 200 OK", "ok\n"), "it waits for no report");
    drop(blocked);
    for _ in 0..WAIT {
        let (status, body) = answers.recv_timeout(MAX_WAIT).unwrap();
        assert!(status.ends_with(" 200 OK"), "{status}\n{body}");
    }
}

#[test]
fn only_configured_host_names_are_accepted() {
    let hosts = ["channeld".to_owned(), "app1.internal".to_owned()];
    let known = |host: &str| is_known_host(&HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]), &hosts);
    for host in [
        "127.0.0.1",
        "10.1.2.3:9464",
        "[::1]:9464",
        "[fd00::7]",
        "localhost:9464",
        "LOCALHOST",
        "channeld:9464",
        "App1.internal.",
    ] {
        assert!(known(host), "{host}");
    }
    for host in [
        "",
        ":9464",
        "evil.example",
        "127.0.0.1.evil.example:9464",
        "localhost.evil.example",
        "[evil]:1",
        "app1",
        "1:2:3",
    ] {
        assert!(!known(host), "{host}");
    }
    assert!(is_known_host(&HeaderMap::new(), &hosts));
}
