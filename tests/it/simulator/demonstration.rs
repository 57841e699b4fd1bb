//! `channeld demo`, and the simulated service as a separate program.

use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::Command;

use crate::feed::access::ask_socket;
use crate::support::Daemon;

/// The offset of the event that the demonstration changes after it was signed.
const FORGED: &str = "10";

#[tokio::test]
async fn the_demonstration_shows_no_forged_event() {
    let (daemon, mut stdout) = Daemon::run_piped(&["demo", "--events", "20"], None, &[]);
    let mut out = String::new();
    stdout.read_to_string(&mut out).await.unwrap();
    assert_eq!(daemon.ended().await.code, Some(0), "{out}");

    let words = |line: &str| line.split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    let shown: Vec<_> =
        out.lines().map(words).filter(|words| words.len() == 2 && words[1].parse::<i64>().is_ok()).collect();
    let events: Vec<_> = shown.iter().filter(|words| words[0] == "verified" || words[0] == "unsigned").collect();
    assert_eq!(events.len(), 20, "{out}");
    assert!(events.iter().all(|words| words[1] != FORGED), "{out}");
    assert!(out.contains("1 rejected"), "{out}");
}

#[tokio::test]
async fn the_demonstration_prints_commands_that_read_its_feed_and_verify_the_events() {
    let (daemon, stdout) = Daemon::run_piped(&["demo"], None, &[]);
    let mut lines = BufReader::new(stdout).lines();
    let command = loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if let Some(command) = line.trim().strip_prefix("curl -N --unix-socket ") {
            break command.to_owned();
        }
    };
    let (socket, url) = command.split_once(" http://feed/v1").unwrap();
    assert_eq!(url, "/channels/demo/stream");
    // A stream has no end, so the test reads the same events as a list.
    let answer = ask_socket(Path::new(socket), "/channels/demo/events?after=0&limit=1&wait=60s").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"status\":\"verified\""), "{answer}");

    lines.next_line().await.unwrap();
    let command = lines.next_line().await.unwrap().unwrap();
    let arguments: Vec<_> = command.split_whitespace().skip(1).chain(["--events", "2"]).collect();
    let mut tail = Command::new(env!("CARGO_BIN_EXE_channeld"));
    let told = tail.args(&arguments).env_clear().output().await.unwrap();
    let shown = String::from_utf8(told.stdout).unwrap();
    assert!(shown.lines().count() == 2 && shown.lines().all(|line| line.starts_with("verified ")), "{shown}");
    // Without the configuration of the demonstration, the signers are those of the production network.
    let feed = format!("unix:{socket}");
    let mut tail = Command::new(env!("CARGO_BIN_EXE_channeld"));
    tail.args(["tail", "--feed", &feed, "--after", "0", "--events", "1"]).env_clear();
    let told = tail.env("CHANNELD_VERIFICATION__ORG_ID", "org_simulated").output().await.unwrap();
    let notes = String::from_utf8(told.stderr).unwrap();
    assert!(notes.contains("see verification.valid_signers"), "{notes}");
    assert!(told.stdout.starts_with(b"rejected "), "{notes}");

    daemon.signal(Signal::INT);
    // The demonstration must be able to print its summary.
    while lines.next_line().await.unwrap().is_some() {}
    assert_eq!(daemon.ended().await.code, Some(0));
    assert!(!Path::new(socket).exists());
}

#[tokio::test]
async fn the_simulator_announces_itself_in_one_line_and_serves() {
    let options = "--events 7 --channels 3 --misbehave 2:404 --api-key key-of-a-test";
    let arguments: Vec<_> = ["simulate"].into_iter().chain(options.split(' ')).collect();
    let (daemon, stdout) = Daemon::run_piped(&arguments, None, &[]);
    let mut lines = BufReader::new(stdout).lines();
    let announced: Value = serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = async |channel: &Value| {
        let url = format!("{}/channels/{}/events", announced["base_url"].as_str().unwrap(), channel.as_str().unwrap());
        http.get(url).header("Authorization", "Apikey key-of-a-test").send().await.unwrap()
    };
    let channels = announced["channels"].as_array().unwrap();
    for channel in &channels[..2] {
        let page: Value = serde_json::from_str(&get(channel).await.text().await.unwrap()).unwrap();
        assert_eq!(page["events"].as_array().unwrap().len(), 7);
    }
    assert_eq!(get(&channels[2]).await.status(), 404);
    assert_eq!(announced["api_key"], "key-of-a-test");
    daemon.signal(Signal::TERM);
    assert_eq!(lines.next_line().await.unwrap(), None, "one line");
    assert_eq!(daemon.ended().await.code, Some(0));
}
