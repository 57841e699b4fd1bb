//! The service's list of channels: `channeld channels list` shows it, and `channeld init` chooses from it.

use std::process::Stdio;

use axum::Router;
use axum::http::{StatusCode, Uri, header};
use axum::routing::get;
use serde_json::{Value, json};
use simulator::{Options, Simulator};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::support::{Setup, deliverable};

/// The service of a simulator, with a list of channels that the test writes.
struct Listing {
    base_url: String,
    _serving: JoinSet<()>,
}

impl Listing {
    /// Answers a request for the list with this status and body, and all other requests as the simulator does.
    async fn start(simulator: &Simulator, status: StatusCode, list: &Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = format!("http://{}/v1", listener.local_addr().unwrap());
        let (service, key) = (simulator.announcement().base_url.clone(), simulator.announcement().api_key.clone());
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (http, list) = (reqwest::Client::builder().no_proxy().build().unwrap(), list.to_string());
        let relay = move |uri: Uri| {
            let path = uri.path_and_query().unwrap().as_str().strip_prefix("/v1").unwrap();
            let request = http.get(format!("{service}{path}")).header(header::AUTHORIZATION, format!("Apikey {key}"));
            async move {
                let response = request.send().await.unwrap();
                let (status, body) = (response.status(), response.bytes().await.unwrap());
                (status, [(header::CONTENT_TYPE, "application/json")], body)
            }
        };
        let routes = Router::new().route("/v1/channels", get(move || async move { (status, list) })).fallback(relay);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { base_url, _serving: serving }
    }

    /// Lists the two channels of the simulator.
    async fn of_both(simulator: &Simulator) -> Self {
        let channels = &simulator.announcement().channels;
        let list = json!({"has_more": false, "channels": [
            {"channel_id": channels[0], "name": "Mints", "status": "active", "created_at": 1_716_000_000},
            {"channel_id": channels[1], "name": "Settlements (EU)", "status": "archived"},
        ]});
        Self::start(simulator, StatusCode::OK, &list).await
    }

    async fn without_scope(simulator: &Simulator) -> Self {
        let refusal = json!({"type": "PERMISSION_DENIED", "message": "missing scope"});
        Self::start(simulator, StatusCode::FORBIDDEN, &refusal).await
    }
}

async fn service() -> Simulator {
    Simulator::start(Options { channels: 2, events: 5, ..Options::default() }).await.unwrap()
}

#[tokio::test]
async fn the_list_shows_which_channels_are_configured() {
    let simulator = service().await;
    let listing = Listing::of_both(&simulator).await;
    let mut setup = Setup::reading(&simulator).with("api.base_url", listing.base_url.as_str());
    setup.remove("channels.c0");
    setup.write();
    let told = setup.tell(&["channels", "list", "--json"]).await;
    assert_eq!(told.each("configured"), [Value::Null, json!("c1")]);
    assert_eq!(told.each("name"), ["Mints", "Settlements (EU)"]);
    let told = setup.tell(&["channels", "list"]).await;
    let lines: Vec<_> = std::str::from_utf8(&told.out).unwrap().lines().collect();
    let [_, mints, settlements] = lines[..] else { panic!("{told:?}") };
    assert!(mints.contains("active") && mints.ends_with('-'), "{mints}");
    assert!(settlements.contains("Settlements (EU)") && settlements.ends_with("c1"), "{settlements}");

    // The list helps to write the first configuration, so no channel need be configured.
    setup.remove("channels.c1");
    setup.write();
    assert_eq!(setup.tell(&["channels", "list", "--json"]).await.each("configured"), [Value::Null, Value::Null]);
}

#[tokio::test]
async fn the_list_of_an_account_comes_from_its_own_service() {
    let simulator = service().await;
    let listing = Listing::of_both(&simulator).await;
    let setup = Setup::reading(&simulator).with("accounts.fund.base_url", listing.base_url.as_str());
    // A mistake in another account does not matter.
    let setup = setup.with("accounts.other.api_key_file", "/nowhere");
    setup.write();
    let told = setup.tell(&["channels", "list", "--account", "fund", "--json"]).await;
    assert_eq!(
        (told.each("name"), told.each("configured")),
        (vec![json!("Mints"), json!("Settlements (EU)")], vec![json!("c0"), json!("c1")])
    );
    let told = setup.tell(&["channels", "list", "--account", "found"]).await;
    assert!(told.code == Some(78) && told.errors.contains("the defined accounts are: fund, other"), "{told:?}");
}

#[tokio::test]
async fn a_key_without_the_scope_gets_a_clear_answer() {
    let simulator = service().await;
    let listing = Listing::without_scope(&simulator).await;
    let setup = Setup::reading(&simulator).with("api.base_url", listing.base_url.as_str());
    setup.write();
    let told = setup.tell(&["channels", "list"]).await;
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(told.errors.contains("the API key lacks the scope for reading channels (HTTP 403"), "{told:?}");
}

#[tokio::test]
async fn an_archived_channel_whose_events_can_still_be_polled_is_delivered_completely() {
    let simulator = service().await;
    // The list says that the second channel is archived, and polling it works.
    let listing = Listing::of_both(&simulator).await;
    let setup = Setup::reading(&simulator).with("api.base_url", listing.base_url.as_str());
    setup.run_until_lines(10).await;
    assert_eq!((setup.offsets("c1"), deliverable(&simulator, 1).len()), (deliverable(&simulator, 1), 5));
    let daemon = setup.start_until_caught_up();
    assert_eq!(daemon.ended().await.code, Some(0), "the channel is not gone");
}

/// Runs `channeld init` for one channel without a terminal. Returns the exit code, the output, and the file if it was written.
async fn init(simulator: &Simulator, base_url: &str, channel: &str) -> (Option<i32>, String, Option<String>) {
    let (directory, known) = (tempfile::tempdir().unwrap(), simulator.announcement());
    std::fs::write(directory.path().join("api-key"), &known.api_key).unwrap();
    let signers: Vec<_> = known.valid_signers.iter().map(ToString::to_string).collect();
    let required = known.min_required_signatures.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.args(["init", "--base-url", base_url, "--org-id", &known.org_id, "--valid-signers", &signers.join(",")]);
    command.args(["--min-required-signatures", &required, "--channel", channel]);
    command.current_dir(directory.path()).env_clear().stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.code(), said, std::fs::read_to_string(directory.path().join("channeld.toml")).ok())
}

#[tokio::test]
async fn a_configuration_is_written_without_typing_an_id() {
    let simulator = service().await;
    let listing = Listing::of_both(&simulator).await;
    let id = simulator.announcement().channels[1].to_string();
    for channel in ["Settlements (EU)", "Settlements-EU", &id] {
        let (code, said, written) = init(&simulator, &listing.base_url, channel).await;
        assert_eq!(code, Some(0), "{channel}: {said}");
        let written = written.unwrap();
        assert!(written.contains(&format!("[channels.Settlements-EU]\nid = \"{id}\"\n")), "{written}");
    }
    let (code, said, written) = init(&simulator, &listing.base_url, "burns").await;
    assert_eq!((code, written), (Some(64), None), "{said}");
    assert!(said.contains("the service lists no channel burns; it lists Mints, Settlements-EU"), "{said}");

    let listing = Listing::without_scope(&simulator).await;
    let (code, said, written) = init(&simulator, &listing.base_url, "Mints").await;
    assert_eq!((code, written), (Some(1), None), "{said}");
    assert!(said.contains("lacks the scope for reading channels"), "{said}");
    let (code, said, _) = init(&simulator, &listing.base_url, &format!("mine={id}")).await;
    assert_eq!(code, Some(0), "an id needs no list: {said}");
}
