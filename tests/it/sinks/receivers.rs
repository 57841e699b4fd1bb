//! The example receivers in the documentation work as described.

use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use simulator::{EventSpec, Kind, Options, Simulator};
use tokio::process::Command;

use crate::support::{Daemon, Receiver, Setup, eventually, free_address, programs};

const PAGE: &str = include_str!("../../../src/sink/webhook/receivers.md");
const SECRET: &str = "whsec_b25seSBhIHRlc3Qga25vd3MgdGhpcyBzZWNyZXQ=";

/// The example program for a language in the documentation.
fn shown(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

async fn receives(program: &str, language: &str) {
    if !programs(&[program]) {
        return;
    }
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for kind in [Kind::WatcherEvent, Kind::WalletStatus, Kind::WatcherEvent] {
        simulator.publish_one(0, EventSpec::Honest(kind));
    }
    let port = free_address().port();
    let url = format!("http://127.0.0.1:{port}/hook");
    // This receiver is not used. `with_webhook` sets the keys of the sink; the URL and the secret are replaced.
    let setup = Setup::reading(&simulator).with_webhook("hook", &Receiver::start().await);
    let setup = setup.with("sinks.hook.secret", SECRET).with("sinks.hook.url", url.as_str());
    let config = setup.write();
    let channeld = Path::new(env!("CARGO_BIN_EXE_channeld")).parent().unwrap();
    let path = format!("{}:{}", channeld.display(), std::env::var("PATH").unwrap());
    let source = setup.path("receiver");
    std::fs::write(&source, shown(language)).unwrap();
    let mut receiver = Command::new(program);
    // The receiver runs without the environment of the tests, because `channeld` would read CHANNELD_TEST_… variables
    // as configuration. Its configuration contains only the `verification` keys, which are all that it needs.
    let own = setup.path("of-receiver");
    std::fs::create_dir(&own).unwrap();
    let verification: Vec<_> = std::fs::read_to_string(&config).unwrap().lines().map(str::to_owned).collect();
    let verification: Vec<_> = verification.into_iter().filter(|line| line.starts_with("verification.")).collect();
    std::fs::write(own.join("channeld.toml"), verification.join("\n")).unwrap();
    receiver.arg(&source).current_dir(own).env_clear().env("PATH", path);
    receiver.env("WEBHOOK_SECRET", SECRET).env("PORT", port.to_string());
    receiver.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let _receiver = receiver.spawn().unwrap();
    eventually("the receiver listens", || TcpStream::connect(("127.0.0.1", port)).ok()).await;

    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let forged = client
        .post(&url)
        .header("webhook-id", "1")
        .header("webhook-timestamp", "1")
        .header("webhook-signature", "v1,AA");
    assert_eq!(forged.body("{}").send().await.unwrap().status(), 401, "{language}");
    let mut daemon = setup.start();
    let accepted = |daemon: &Daemon| {
        let recorded = daemon.log().lines("batch recorded");
        recorded.iter().any(|line| line["sink"] == "hook" && line["offset"] == 3)
    };
    daemon.until("the receiver has accepted all events", accepted).await;
    assert!(daemon.log().lines("sink refused: its events wait and will be offered again").is_empty(), "{language}");
    daemon.stop().await;
}

#[tokio::test]
async fn the_python_receiver_accepts_only_signed_and_proved_events() {
    receives("python3", "python").await;
}

#[tokio::test]
async fn the_javascript_receiver_accepts_only_signed_and_proved_events() {
    receives("node", "js").await;
}
