//! `channeld tail --feed` shows the events of a feed, and verifies them.

use rustix::process::Signal;
use serde_json::Value;
use simulator::Options;

use super::{FeedClient, Served, TOKEN};
use crate::observe::tail::Tail;
use crate::support::{Authority, Daemon, LONGEST_WAIT, free_address, signal};

const OTHER: &str = "token-of-other-never-to-be-shown";

/// A feed with two channels, at an address that stays the same. Each channel has three events.
struct Watched {
    served: Served,
    url: String,
    token_file: String,
}

impl Watched {
    async fn start() -> (Self, Daemon) {
        let mut served = Served::by("sqlite", Options { channels: 2, events: 3, ..Options::default() }).await.unwrap();
        served.add_consumer("other", OTHER, &["c1"]);
        let address = free_address();
        served.setup.set("feed.listen", address.to_string());
        let token_file = served.setup.path("ledger.token").display().to_string();
        let watched = Self { served, url: format!("http://{address}"), token_file };
        let daemon = watched.start_daemon().await;
        (watched, daemon)
    }

    /// Waits until the feed has the events of both channels.
    async fn start_daemon(&self) -> Daemon {
        let mut daemon = self.served.setup.start();
        let client = FeedClient::of(&mut daemon).await;
        client.until(&mut daemon, "c0", 3).await;
        client.until(&mut daemon, "c1", 3).await;
        daemon
    }

    fn arguments<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["tail", "--feed", &*self.url], more].concat()
    }

    fn with_token<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&["--feed", &*self.url, "--token-file", &*self.token_file], more].concat()
    }
}

fn place(event: &Value) -> (&str, i64) {
    (event["channel"].as_str().unwrap(), event["position"].as_i64().unwrap())
}

#[tokio::test]
async fn tail_shows_each_event_of_a_feed_once_and_continues_after_a_restart_of_the_daemon() {
    let (watched, daemon) = Watched::start().await;
    let Watched { served, .. } = &watched;
    let mut tail = Tail::start(&served.setup, &watched.with_token(&["--after", "1", "--json"]));
    let mut shown = Vec::new();
    for _ in 0..4 {
        shown.push(tail.json().await);
    }
    let mut places: Vec<_> = shown.iter().map(place).collect();
    places.sort_unstable();
    assert_eq!(places, [("c0", 2), ("c0", 3), ("c1", 2), ("c1", 3)]);
    assert!(shown.iter().all(|event| event["verification"]["status"] == "verified"), "{shown:#?}");

    daemon.kill().await;
    let note = tail.notes.next_line().await.unwrap().unwrap();
    assert!(note.contains("did not answer") && note.ends_with("; retrying"), "{note}");
    assert!(!note.contains(TOKEN), "{note}");
    let daemon = watched.start_daemon().await;
    served.simulator.publish(0, 2);
    assert_eq!(place(&tail.json().await), ("c0", 4));
    assert_eq!(place(&tail.json().await), ("c0", 5));

    // Ctrl-C ends every tail with the same exit code.
    signal(&tail.child, Signal::INT);
    let ended = tokio::time::timeout(LONGEST_WAIT, tail.child.wait()).await.expect("it ends").unwrap();
    assert_eq!(ended.code(), Some(0));
    daemon.stop().await;
}

#[tokio::test]
async fn tail_begins_after_the_newest_position_of_a_feed_or_with_the_last_events() {
    let (watched, daemon) = Watched::start().await;
    let Watched { served, .. } = &watched;
    let last = served
        .setup
        .tell(&[&["tail", "c1"], &*watched.with_token(&["--last", "2", "--events", "2", "--json"])].concat())
        .await;
    assert_eq!(last.each("position"), [2, 3]);

    let mut tail = Tail::start(&served.setup, &[&["c0"], &*watched.with_token(&["--json"])].concat());
    let publish = async {
        loop {
            served.simulator.publish(0, 1);
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    let first = tokio::select! { shown = tail.json() => shown, () = publish => unreachable!("it does not end") };
    assert!(place(&first) > ("c0", 3), "{first}");
    drop(tail);
    daemon.stop().await;
}

#[tokio::test]
async fn a_record_that_was_changed_in_the_table_is_shown_as_rejected_without_its_content() {
    let (watched, daemon) = Watched::start().await;
    let Watched { served, .. } = &watched;
    let forge = "replace(record, '\"decoded\":{', '\"decoded\":{\"forged\":true,')";
    served.change(&format!("update events set record = {forge} where channel = 'c0' and position = 2")).await;
    let mut tail =
        Tail::start(&served.setup, &[&["c0"], &*watched.with_token(&["--after", "0", "--events", "3"])].concat());
    let lines = [tail.next().await, tail.next().await, tail.next().await];
    let verdicts: Vec<_> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(verdicts, ["verified", "rejected", "verified"], "{lines:#?}");
    assert!(lines[1].contains("record-mismatch"), "{lines:#?}");
    assert_eq!(tail.lines.next_line().await.unwrap(), None, "tail ends after three events");

    // A filter cannot exclude an event whose content is not known.
    let flags = ["--after", "0", "--type", "query.status", "--events", "1", "--json"];
    let told = served.setup.tell(&[&["tail", "c0"], &*watched.with_token(&flags)].concat()).await;
    let shown = &told.json()[0];
    assert_eq!((place(shown), &shown["verification"]["status"]), (("c0", 2), &"rejected".into()));
    assert!(!shown.to_string().contains("forged"), "{shown}");
    daemon.stop().await;
}

#[tokio::test]
async fn tail_says_what_to_do_if_the_feed_refuses() {
    let (watched, daemon) = Watched::start().await;
    let Watched { served, token_file, .. } = &watched;
    served.change("delete from events where channel = 'c0' and position <= 2").await;
    let wrong = served.setup.path("wrong.token");
    std::fs::write(&wrong, "token-of-nobody-at-all\n").unwrap();
    let (wrong, other) = (wrong.display().to_string(), served.setup.path("other.token").display().to_string());
    for (flags, code, message) in [
        (vec!["c0"], 64, "the feed needs the token of a consumer: name the file that contains it with --token-file"),
        (vec!["--token-file", "/nowhere"], 1, "--token-file: the file \"/nowhere\" cannot be opened"),
        (
            vec!["--token-file", &wrong],
            1,
            "refuses the token (401): --token-file must name a file with the token of a consumer",
        ),
        (
            vec!["c0", "--token-file", &other],
            64,
            "has no channel c0 that the token may read; the channels that it may read are: c1",
        ),
        (vec!["c0", "--token-file", token_file, "--after", "0"], 1, "were deleted (410): use --after 2"),
        (vec!["c1", "--token-file", token_file, "--after", "9"], 1, "the position 9 does not exist"),
        (vec!["--token-file", token_file, "--chain-environment", "testnet"], 64, "filter by its chain selector"),
        (vec!["--token-file", token_file, "--sink", "table"], 64, "cannot be used with"),
    ] {
        let told = served.setup.tell(&watched.arguments(&flags)).await;
        assert_eq!(told.code, Some(code), "{flags:?}: {told:?}");
        assert!(told.errors.contains(message), "{flags:?}: {told:?}");
    }
    let https = watched.url.replace("http://", "https://");
    let told = served.setup.tell(&["tail", "--feed", &https, "--token-file", token_file]).await;
    assert!(told.code == Some(69) && told.errors.contains("does not use TLS"), "{told:?}");
    daemon.stop().await;
    let told = served.setup.tell(&watched.arguments(&["--token-file", token_file])).await;
    assert!(told.code == Some(69) && told.errors.contains("did not answer"), "{told:?}");
}

#[tokio::test]
async fn tail_reads_a_feed_over_tls_and_on_a_unix_socket() {
    let (mut watched, daemon) = Watched::start().await;
    daemon.stop().await;
    let setup = &mut watched.served.setup;
    let authority = Authority::new("the authority of a test");
    let [certificate, key] = authority.issue_server(&setup.path("feed.pem"), &setup.path("feed.key"));
    let ca_file = authority.write(&setup.path("ca.pem"));
    setup.set("feed.tls_certificate", certificate);
    setup.set("feed.tls_key", key);
    let port = watched.url.rsplit(':').next().unwrap().to_owned();
    let url = format!("https://localhost:{port}");
    let mut daemon = setup.start();
    daemon.until_logged("the feed is served").await;
    let flags = ["tail", "c0", "--feed", &url, "--token-file", &watched.token_file, "--after", "0", "--events", "3"];
    let trusting = watched.served.setup.tell(&[&flags[..], &["--json", "--ca-file", &ca_file]].concat()).await;
    assert_eq!(trusting.each("position"), [1, 2, 3]);
    let other = Authority::new("another authority").write(&watched.served.setup.path("other.pem"));
    let told = watched.served.setup.tell(&[&flags[..], &["--ca-file", &other]].concat()).await;
    assert!(told.code == Some(69) && told.errors.contains("ca_file"), "{told:?}");
    daemon.stop().await;

    let setup = &mut watched.served.setup;
    let socket = format!("unix:{}", setup.path("feed.sock").display());
    setup.remove("feed.tls_certificate");
    setup.remove("feed.tls_key");
    setup.set("feed.listen", socket.as_str());
    let mut daemon = setup.start();
    daemon.until_logged("the feed is served").await;
    let told = setup.tell(&["tail", "c1", "--feed", &socket, "--after", "0", "--events", "3", "--json"]).await;
    assert_eq!(told.each("position"), [1, 2, 3]);
    daemon.stop().await;
}
