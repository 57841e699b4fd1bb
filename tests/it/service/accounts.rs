//! Several accounts in one daemon: a failure of one account stops only its channels, and commands use the account of the channel.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use simulator::{EventSpec, Fault, Kind, Options, Route, Simulator};

use crate::support::{Admin, Answered, Setup, deliverable};

/// The accounts that use the first service. Each has one channel.
const ACCOUNTS: usize = 99;

/// The account whose key is revoked.
const REVOKED: usize = 3;

/// How many events each channel has at the start, and how many are published later.
const EVENTS: usize = 5;

fn key(account: usize) -> String {
    format!("key-of-account-{account}-of-a-test")
}

/// A service that accepts one key for each account, and one more.
async fn service(accounts: usize) -> Simulator {
    let (api_keys, events) = ((0..=accounts).map(key).collect(), EVENTS as u64);
    Simulator::start(Options { channels: accounts, events, api_keys, ..Options::default() }).await.unwrap()
}

/// Reads each channel of the service with an account of its own. The key of each account is in a file. No other key is
/// configured, and the shared organization is wrong.
fn with_accounts(simulator: &Simulator, accounts: usize) -> Setup {
    let known = simulator.announcement();
    let mut setup = Setup::reading(simulator).with("verification.org_id", "org_of_nobody");
    setup.remove("api.api_key");
    for account in 0..accounts {
        put(&setup, account, &key(account));
        setup.keep_secret(&key(account));
        setup.set(&format!("channels.c{account}.account"), format!("a{account}"));
        let file = setup.path(&format!("key-{account}")).display().to_string();
        setup.set(&format!("accounts.a{account}.api_key_file"), file);
        setup.set(&format!("accounts.a{account}.org_id"), known.org_id.as_str());
    }
    setup
}

/// Replaces the file with the key of an account.
fn put(setup: &Setup, account: usize, key: &str) {
    let (new, path) = (setup.path(&format!("key-{account}.new")), setup.path(&format!("key-{account}")));
    std::fs::write(&new, format!("{key}\n")).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(new, path).unwrap();
}

/// Adds two channels of another service. Both use the account `limited`.
fn add_limited(setup: &mut Setup, simulator: &Simulator) {
    let known = simulator.announcement();
    let signers: Vec<_> = known.valid_signers.iter().map(ToString::to_string).collect();
    for (key, value) in [
        ("base_url", json!(known.base_url)),
        ("api_key", json!(known.api_key)),
        ("org_id", json!(known.org_id)),
        ("don.tenant_id", json!("1")),
        ("don.min_required_signatures", json!(known.min_required_signatures)),
        ("don.valid_signers", json!(signers)),
    ] {
        setup.set(&format!("accounts.limited.{key}"), value);
    }
    for (number, id) in known.channels.iter().enumerate() {
        let table = format!("channels.c{}", ACCOUNTS + number);
        setup.set(&format!("{table}.id"), id.to_string());
        setup.set(&format!("{table}.sinks"), json!(["file"]));
        setup.set(&format!("{table}.account"), "limited");
    }
}

/// The status of the channel with this number.
fn of_channel(status: &Answered, number: usize) -> Value {
    let name = json!(format!("c{number}"));
    let channels = status.json()["channels"].as_array().unwrap().clone();
    channels.into_iter().find(|channel| channel["channel"] == name).unwrap()
}

#[tokio::test]
async fn of_a_hundred_accounts_a_revoked_and_a_limited_one_delay_no_other() {
    let simulator = service(ACCOUNTS).await;
    let limited = Options { channels: 2, events: EVENTS as u64, seed: 8, ..Options::default() };
    let limited = Simulator::start(limited).await.unwrap();
    let mut setup = with_accounts(&simulator, ACCOUNTS).with_admin();
    add_limited(&mut setup, &limited);
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the backlog of every channel arrives", |_| setup.lines() == (ACCOUNTS + 2) * EVENTS).await;

    simulator.revoke_api_key(&key(REVOKED));
    limited.fail_next_on(Route::Poll, Fault::RateLimited { retry_after: Some("600".to_owned()) }, 1_000_000);
    let is_limited = |channel: &Value| channel["state"] == "awaiting_turn" || channel.to_string().contains("HTTP 429");
    let has_failed = |status: &Answered| {
        let are_limited = (0..2).all(|number| is_limited(&of_channel(status, ACCOUNTS + number)));
        are_limited && of_channel(status, REVOKED).to_string().contains("check accounts.a3.api_key")
    };
    let status = admin.until(&mut daemon, "/status", "both accounts have failed", has_failed).await;
    for number in 0..ACCOUNTS {
        assert_ne!(of_channel(&status, number)["state"], "awaiting_turn", "c{number} waits for another account");
    }

    (0..ACCOUNTS).for_each(|channel| simulator.publish(channel, EVENTS as u64));
    (0..2).for_each(|channel| limited.publish(channel, EVENTS as u64));
    let on_time = (ACCOUNTS + 2) * EVENTS + (ACCOUNTS - 1) * EVENTS;
    daemon.until("the other channels are on time", |_| setup.lines() >= on_time).await;
    for number in (0..ACCOUNTS).filter(|number| *number != REVOKED) {
        assert_eq!(setup.offsets(&format!("c{number}")), deliverable(&simulator, number));
    }
    for number in [REVOKED, ACCOUNTS, ACCOUNTS + 1] {
        assert_eq!(setup.offsets(&format!("c{number}")).len(), EVENTS, "c{number} has to wait");
    }
    let status = admin.get("/status").await;
    assert_eq!(of_channel(&status, 0)["account"], "a0");
    let keys = status.json()["api_keys"].as_array().unwrap().clone();
    let refused: Vec<_> = keys.iter().filter(|key| key["is_refused"] == true).map(|key| &key["account"]).collect();
    assert_eq!((keys.len(), refused), (ACCOUNTS + 1, vec![&json!(format!("a{REVOKED}"))]));
    assert_eq!(admin.sample("channeld_api_keys_refused").await, Some(1.0));

    // A new key is used at once, and concerns only its account.
    put(&setup, REVOKED, &key(ACCOUNTS));
    daemon.until("the account continues", |_| setup.offsets(&format!("c{REVOKED}")).len() == 2 * EVENTS).await;
    let log = daemon.stop().await;
    let reloads = log.lines("files of the configuration changed: reloaded");
    assert_eq!(reloads.len(), 1);
    let changes = reloads[0]["changes"].as_str().unwrap();
    assert!(changes.contains("accounts.a3") && !changes.contains("accounts.a4"), "{changes}");
    assert!(log.at("ERROR").iter().all(|line| line.to_string().contains("c3")), "{}", log.tail());
}

#[tokio::test]
async fn commands_use_the_account_of_the_channel() {
    let simulator = service(2).await;
    let mut setup = with_accounts(&simulator, 2).with("sinks.file.include_proof", true);
    // The default account is not used by any channel. Its key is wrong.
    setup.set("api.api_key", "a-wrong-key-of-a-test");
    setup.write();
    let (code, checked) = check(&setup).await;
    assert_eq!(code, Some(0), "{checked:#}");
    let accounts: Vec<_> = checked["accounts"].as_object().unwrap().keys().cloned().collect();
    assert_eq!((accounts, &checked["channels"][1]["account"]), (vec!["a0".to_owned(), "a1".to_owned()], &json!("a1")));

    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 2 * EVENTS).await;
    daemon.stop().await;
    let (offset, file) = (setup.offsets("c1")[0].to_string(), setup.path("events.jsonl").display().to_string());
    for command in [
        &["search", "c1", "--json"][..],
        &["get", "c1", &offset],
        &["check", "--history", "c1"],
        &["tail", "--from-service", "--last", "5", "--events", "10"],
        &["cursor", "set", "c1", "--to", "latest", "--yes"],
        &["verify", "--channel", "c1", "--allow-unsigned", &file],
    ] {
        let told = setup.tell(command).await;
        assert_eq!(told.code, Some(0), "{command:?}: {told:?}");
    }

    simulator.revoke_api_key(&key(1));
    let (code, checked) = check(&setup).await;
    let failed: Vec<_> = checked["asked"].as_array().unwrap().iter().filter(|check| check["ok"] == false).collect();
    assert_eq!((code, failed.len(), &failed[0]["name"]), (Some(69), 1, &json!("c1")), "{checked:#}");
    let told = setup.tell(&["search", "c1"]).await;
    assert!(told.errors.contains("check accounts.a1.api_key"), "{told:?}");
}

async fn check(setup: &Setup) -> (Option<i32>, Value) {
    let told = setup.tell(&["check", "--connect", "--json"]).await;
    (told.code, serde_json::from_slice(&told.out).unwrap())
}

#[tokio::test]
async fn an_account_that_may_not_read_names_does_not_hide_the_names_of_another_account() {
    const EVENT: EventSpec = EventSpec::Honest(Kind::WatcherEvent);
    let api_keys = (0..2).map(key).collect();
    let simulator = Simulator::start(Options { channels: 2, api_keys, ..Options::default() }).await.unwrap();
    simulator.deny(&key(0), Route::Watcher);
    let setup = with_accounts(&simulator, 2).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    simulator.publish_one(0, EVENT);
    daemon.until("the first account is refused", |_| simulator.requests().watcher > 0).await;
    simulator.publish_one(1, EVENT);
    let is_named = |status: &Answered| of_channel(status, 1)["watchers"][0]["name"].is_string();
    let status = admin.until(&mut daemon, "/status", "the other account has the name of its watcher", is_named).await;
    assert!(of_channel(&status, 0)["watchers"][0]["name"].is_null());
    daemon.stop().await;
}
