use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::*;
use crate::config::Config;
use crate::state::State;

const PATIENCE: Duration = Duration::from_secs(60);

/// Asks without an async runtime, and gives the status line and the body.
fn get(address: SocketAddr, path: &str) -> (String, String) {
    let mut client = TcpStream::connect(address).unwrap();
    write!(client, "GET {path} HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Asks until the body begins so, and gives the status line.
fn until(address: SocketAddr, path: &str, begins: &str) -> String {
    let asked = Instant::now();
    loop {
        let (status, body) = get(address, path);
        if body.starts_with(begins) {
            return status;
        }
        assert!(asked.elapsed() < PATIENCE, "{path}: {body}, not {begins}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The state and the operations of a daemon that reads nothing.
fn operations(directory: &std::path::Path) -> (Arc<State>, Operations) {
    let file = directory.join("channeld.toml");
    let text = "[api]\napi_key = \"k\"\n[verification]\norg_id = \"o\"\n[channels.c]\n\
                id = \"7c9e6679-7425-40de-944b-e07fc1f90ae7\"\nsinks = [\"s\"]\n[sinks.s]\ntype = \"stdout\"\n";
    std::fs::write(&file, text).unwrap();
    let state = Arc::new(State::open(&directory.join("state")).unwrap());
    let operations = Operations::offline(state.clone(), &Config::load_with(Some(&file), []).unwrap().channels);
    (state, operations)
}

#[test]
fn while_every_thread_of_the_runtime_is_stuck_it_answers_and_says_so() {
    const WORKERS: usize = 2;
    let directory = tempfile::tempdir().unwrap();
    let (state, operations) = operations(directory.path());
    let operations = watch::Sender::new(Arc::new(operations));
    let liveness = Liveness::hasty(Arc::default(), state.writes());
    let metrics = Metrics::default();
    let sources = Sources { liveness: liveness.clone(), operations: operations.subscribe(), metrics };
    let admin = Admin::start("127.0.0.1:0".parse().unwrap(), sources).unwrap();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(WORKERS).enable_all().build().unwrap();
    runtime.spawn(liveness.beat());
    assert_eq!(until(admin.address(), "/livez", "ok\n"), "HTTP/1.1 200 OK");

    let plugs: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (open, plug) = channel::<()>();
            runtime.spawn(async move {
                // The only message is that there will be none.
                let _ = plug.recv();
            });
            open
        })
        .collect();
    let stuck = "the async runtime has not turned for ";
    assert_eq!(until(admin.address(), "/livez", stuck), "HTTP/1.1 503 Service Unavailable");
    let (status, scrape) = get(admin.address(), "/metrics");
    assert!(status.ends_with(" 200 OK") && scrape.contains("\nchanneld_live 0\n"), "{status}\n{scrape}");
    assert_eq!(get(admin.address(), "/readyz").1, "no daemon runs\n");
    drop(plugs);
    assert_eq!(until(admin.address(), "/livez", "ok\n"), "HTTP/1.1 200 OK");
}
