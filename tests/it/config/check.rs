//! `channeld check --connect` says yes, or no and what to do, and leaves nothing behind.

use axum::Router;
use axum::http::StatusCode;
use channeld::simulator::{Options, Simulator};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Receiver, Setup};

async fn service() -> Simulator {
    Simulator::start(Options { events: 10, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

/// The exit code, and what came of asking, by what was asked.
async fn connect(setup: &Setup) -> (Option<i32>, Vec<(String, bool, String)>) {
    setup.write();
    let told = setup.tell(&["check", "--connect", "--json"]).await;
    let shown: Value = serde_json::from_slice(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    let asked = shown["asked"].as_array().unwrap().iter().map(|asked| {
        let what = format!("{} {}", asked["what"].as_str().unwrap(), asked["name"].as_str().unwrap());
        (what, asked["ok"].as_bool().unwrap(), asked["message"].as_str().unwrap().to_owned())
    });
    (told.code, asked.collect())
}

#[tokio::test]
async fn where_everything_is_well_it_says_so_and_nothing_was_delivered_or_made() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let (code, asked) = connect(&setup).await;
    assert!(code == Some(0) && asked.iter().all(|(_, ok, _)| *ok), "{asked:?}");
    let names: Vec<_> = asked.iter().map(|(what, ..)| what.as_str()).collect();
    assert_eq!(names[1..], ["channel c0", "sink file", "sink hook"]);
    assert!(asked[1].2.contains("newest event is at offset 10") && asked[1].2.contains("verified"), "{asked:?}");
    assert!(receiver.posts().is_empty());
    assert!(!setup.path("state").exists() && !setup.path("events.jsonl").exists());

    let told = setup.tell(&["check", "--connect"]).await;
    let text = String::from_utf8(told.out).unwrap();
    assert!(text.contains("\nok   channel c0: ") && text.contains("\nok   sink hook: "), "{text}");
}

#[tokio::test]
async fn what_is_wrong_is_said_with_what_to_do() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let strict = format!("http://{}/", listener.local_addr().unwrap());
    let _strict = AbortOnDropHandle::new(tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(|| async { StatusCode::UNAUTHORIZED })).await.unwrap();
    }));
    let good = || Setup::reading(&simulator);
    let signers: Vec<_> = (1..=4).map(|number| format!("0x{number:040x}")).collect();
    let cases = [
        (good().with("api.api_key", "another"), "channel c0", "check api.api_key"),
        (good().with("channels.c0.id", "7c9e6679-7425-40de-944b-e07fc1f90ae7"), "channel c0", "check the channel's id"),
        (good().with("verification.valid_signers", signers), "channel c0", "check verification.valid_signers"),
        (good().with("verification.org_id", "org_other"), "channel c0", "check verification.org_id"),
        (good().with("sinks.file.path", "/nowhere/at/all.jsonl"), "sink file", "no file can be made in /nowhere/at"),
        (good().with("sinks.file.path", "/proc"), "sink file", "it is no regular file"),
        (
            good().with_webhook("hook", &receiver).with("sinks.hook.url", strict),
            "sink hook",
            "does it know who we are?",
        ),
        (good().with_webhook("hook", &receiver).with("sinks.hook.url", "http://127.0.0.1:9/"), "sink hook", "refused"),
        (good().with("api.base_url", "http://127.0.0.1:9/v1"), "service http://127.0.0.1:9/v1", "check api.base_url"),
    ];
    for (setup, wrong, advice) in cases {
        let (code, asked) = connect(&setup).await;
        let said = asked.iter().find(|(what, ok, _)| what == wrong && !ok);
        let said = said.unwrap_or_else(|| panic!("{wrong} is not said to be wrong: {asked:?}"));
        assert!(code == Some(69) && said.2.contains(advice), "{advice}: {asked:?}");
    }
}

#[tokio::test]
async fn a_wrong_configuration_is_not_tried_out() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("api.page_limit", 1000);
    setup.write();
    let told = setup.tell(&["check", "--connect", "--json"]).await;
    let shown: Value = serde_json::from_slice(&told.out).unwrap();
    assert_eq!((told.code, &shown["valid"], &shown["asked"]), (Some(78), &json!(false), &Value::Null));
}
