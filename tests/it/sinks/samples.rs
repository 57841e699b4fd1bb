//! `channeld test-sink` sends a sample to one sink while the daemon runs.

use serde_json::{Value, json};
use simulator::{Options, Simulator};

use crate::support::{Receiver, Reply, Setup, deliverable, offsets};

#[tokio::test]
async fn a_webhook_gets_one_marked_sample_and_no_cursor_moves() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    receiver.ask_for_tokens(3600);
    let mut setup = Setup::reading(&simulator)
        .with_webhook("hook", &receiver)
        .with("sinks.hook.oauth2.token_url", receiver.token_url())
        .with("sinks.hook.oauth2.client_id", "channeld")
        .with("sinks.hook.oauth2.client_secret", "client-secret-never-to-be-shown")
        .with("sinks.hook.filter", "failures");
    setup.keep_secret("never-to-be-shown");
    let mut daemon = setup.start();
    daemon.until("the file has all events", |_| setup.lines() == 5).await;
    let before = setup.tell(&["cursor", "show", "--json"]).await.json();

    let told = setup.tell(&["test-sink", "hook", "--json"]).await.json().remove(0);
    assert_eq!((&told["ok"], &told["delivered"]), (&json!(true), &json!(true)), "{told}");
    assert!(told["message"].as_str().unwrap().starts_with("answered 204 in "), "{told}");
    let sample: Value = serde_json::from_str(&receiver.posts().last().unwrap().body).unwrap();
    assert_eq!((&sample["type"], &sample["channel"]), (&json!("channeld.test"), &json!("channeld-test")));
    assert_eq!(
        (&sample["verification"]["status"], &sample["event"]["payload"]["test"]),
        (&json!("unsigned"), &json!(true))
    );
    assert_eq!(sample["channel_id"], "00000000-0000-0000-0000-000000000000");
    let said = String::from_utf8(setup.tell(&["test-sink", "hook"]).await.out).unwrap();
    assert!(said.starts_with("sink hook: delivered: answered 204 in "), "{said}");
    let ids = receiver.ids();
    assert_ne!(ids[ids.len() - 2], ids[ids.len() - 1], "each sample has another id");

    assert_eq!(setup.tell(&["cursor", "show", "--json"]).await.json(), before);
    daemon.stop().await;
    assert_eq!(offsets(&setup.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn the_targets_answer_decides_the_exit_code() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    setup.write();
    for (status, code, said) in [
        (422, 1, "answered 422"),
        (503, 69, "answered 503"),
        (429, 69, "answered 429"),
        (410, 1, "answered 410: it accepts no more events"),
    ] {
        receiver.reply(Reply::Refuse(status, None), 1);
        let told = setup.tell(&["test-sink", "hook"]).await;
        assert_eq!((told.code, told.out.is_empty()), (Some(code), true), "{told:?}");
        assert!(told.errors.contains(&format!("sink hook: {said}")), "{told:?}");
    }
    receiver.reply(Reply::Refuse(503, None), 1);
    let told = setup.tell(&["test-sink", "hook", "--json"]).await;
    let told: Value = serde_json::from_slice(&told.out).unwrap();
    assert_eq!(told, json!({"sink": "hook", "ok": false, "delivered": false, "message": "answered 503"}));
    assert_eq!(setup.tell(&["test-sink", "nowhere"]).await.code, Some(64));
    let setup = setup.with("sinks.hook.url", "http://127.0.0.1:1/hook");
    setup.write();
    let told = setup.tell(&["test-sink", "hook"]).await;
    assert!(told.code == Some(69) && told.errors.contains("could not connect"), "{told:?}");
}

#[tokio::test]
async fn a_template_is_tested_with_the_sample() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let receiver = Receiver::start().await;
    for template in ["slack", "teams", "discord", "pagerduty", "opsgenie"] {
        let mut setup = Setup::reading(&simulator)
            .with_webhook("hook", &receiver)
            .with("sinks.hook.format", "template")
            .with("sinks.hook.template", template)
            .with("sinks.hook.template_values.routing_key", "key-never-to-be-shown");
        setup.keep_secret("never-to-be-shown");
        setup.write();
        assert_eq!(setup.tell(&["test-sink", "hook"]).await.code, Some(0));
        let body = receiver.posts().last().unwrap().body.clone();
        assert!(body.contains("channeld.test") && body.contains("nothing has happened"), "{template}: {body}");
    }
}

#[tokio::test]
async fn a_file_is_only_examined_and_standard_output_shows_the_sample() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let setup = Setup::reading(&simulator).with("sinks.out.type", "stdout").with("sinks.out.format", "text");
    setup.write();
    let told = setup.tell(&["test-sink", "file", "--json"]).await.json().remove(0);
    assert_eq!((&told["ok"], &told["delivered"]), (&json!(true), &json!(false)), "{told}");
    assert!(!setup.path("events.jsonl").exists());
    let told = String::from_utf8(setup.tell(&["test-sink", "out"]).await.out).unwrap();
    let (sample, said) = told.split_once('\n').unwrap();
    assert!(sample.starts_with("unsigned channeld-test     0  ") && sample.contains("channeld.test"), "{told}");
    assert!(said.starts_with("sink out: delivered: the test event is above"), "{told}");
}
