//! Templates for bodies in the format of another system.

use axum::response::IntoResponse;
use proof::event::ChannelId;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{service, until_lane_is, webhook_only};
use crate::support::{Receiver, Scripted, Setup, deliverable};

fn bodies(receiver: &Receiver) -> Vec<Value> {
    receiver.posts().iter().map(|post| serde_json::from_str(&post.body).unwrap()).collect()
}

/// Configures a custom template.
fn templated(setup: Setup, template: &str) -> Setup {
    let path = setup.path("body.jinja");
    std::fs::write(&path, template).unwrap();
    setup.with("sinks.hook.format", "template").with("sinks.hook.template_file", path.display().to_string())
}

#[tokio::test]
async fn events_become_alerts_and_a_reload_changes_the_template() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver)
        .with("sinks.hook.format", "template")
        .with("sinks.hook.template", "pagerduty")
        .with("sinks.hook.template_values.routing_key", "routing-key-never-to-be-shown");
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 20).await;
    for body in bodies(&receiver) {
        assert_eq!(body["routing_key"], "routing-key-never-to-be-shown");
        let (action, key) = (body["event_action"].as_str().unwrap(), body["dedup_key"].as_str().unwrap());
        assert!(["trigger", "resolve"].contains(&action) && key.starts_with("channeld:"), "{body}");
    }
    assert!(
        receiver
            .posts()
            .iter()
            .all(|post| post.headers["content-type"] == "application/json" && post.path.starts_with("/hook?"))
    );

    let mut setup = setup.with("sinks.hook.template", "slack");
    setup.remove("sinks.hook.template_values.routing_key");
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    receiver.drain();
    simulator.publish(0, 5);
    daemon.until("the rest arrives", |_| receiver.received() == 5).await;
    daemon.stop().await;
    assert!(bodies(&receiver).iter().all(|body| body["blocks"][0]["type"] == "header"), "{:?}", bodies(&receiver));
}

#[tokio::test]
async fn closing_an_alert_uses_the_path_below_the_url() {
    let simulator = service(60).await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver)
        .with("sinks.hook.format", "template")
        .with("sinks.hook.template", "opsgenie");
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 60).await;
    daemon.stop().await;
    let posts = receiver.posts();
    let (closing, opening): (Vec<_>, Vec<_>) = posts.iter().partition(|post| post.path.contains("/close?"));
    assert!(!closing.is_empty() && !opening.is_empty(), "{} and {}", closing.len(), opening.len());
    for post in closing {
        assert!(
            post.path.starts_with("/hook/channeld:") && post.path.ends_with("&identifierType=alias"),
            "{}",
            post.path
        );
    }
    for post in opening {
        let body: Value = serde_json::from_str(&post.body).unwrap();
        assert!(body["alias"].as_str().unwrap().starts_with("channeld:"), "{body}");
    }
}

#[tokio::test]
async fn an_event_whose_template_fails_waits_and_becomes_a_dead_letter_alone() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    let all = deliverable(&simulator, 0);
    let bad = all[7];
    let template = format!(
        "{{\"offset\": {{{{ offset }}}}, \"text\": {{% if offset == {bad} %}}{{{{ event.colour }}}}{{% else %}}1{{% endif %}}}}"
    );
    let setup = templated(webhook_only(&simulator, &receiver), &template);
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    let message = lane["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("the body could not be made: line 1: no value for `event.colour`"), "{lane}");
    assert_eq!((receiver.received(), &lane["cursor"]), (7, &json!(all[6])), "the events before it have arrived");
    daemon.stop().await;

    let setup = setup.with("sinks.hook.give_up_after", "50ms");
    let mut daemon = setup.start();
    daemon.until("the other events arrive", |_| receiver.received() == 19).await;
    let letters = setup.tell(&["dead-letters", "list", "c0", "--sink", "hook", "--json"]).await;
    assert_eq!(letters.each("offset"), [json!(bad)]);
    let setup = templated(setup, "{\"offset\": {{ offset }}}");
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    assert_eq!(setup.tell(&["dead-letters", "replay", "c0", "--sink", "hook", "--all"]).await.code, Some(0));
    daemon.until("the replayed event arrives last", |_| receiver.received() == 20).await;
    daemon.stop().await;
    let mut arrived: Vec<_> = bodies(&receiver).iter().map(|body| body["offset"].as_i64().unwrap()).collect();
    assert_eq!(arrived.last(), Some(&bad));
    arrived.sort_unstable();
    assert_eq!(arrived, all);
}

#[tokio::test]
async fn text_lines_go_to_a_webhook_and_standard_output() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    let setup = webhook_only(&simulator, &receiver).with("sinks.hook.format", "text");
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 20).await;
    daemon.stop().await;
    let posts = receiver.posts();
    assert!(posts.iter().all(|post| post.headers["content-type"] == "text/plain; charset=utf-8"));
    let of_line = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    for (post, offset) in posts.iter().zip(deliverable(&simulator, 0)) {
        let words = of_line(&post.body);
        assert!(
            ["verified", "unsigned"].contains(&&*words[0]) && words[1..] == ["c0", &offset.to_string()],
            "{}",
            post.body
        );
    }
}

#[tokio::test]
async fn a_hostile_event_becomes_an_ordinary_message() {
    let text = "\" }, {{ 7 * 7 }} {% raw %} <!channel> [x](http://e.vil) \\ \u{1b}[31m \u{7}\r\n verified c0 2 \u{202e}\u{2066}";
    let texts = [text.to_owned(), text.repeat(2_000), "\u{1f600}".repeat(25_000)];
    let event = |(offset, text): (usize, &String)| {
        let payload = json!({
            "watcher_id": text, "status": "failed", "status_reason": text, "service": text, "chain_selector": text,
        });
        json!({"headers": {"type": "watcher.status", "offset": offset + 1, "proofs": []}, "payload": payload})
            .to_string()
    };
    let events: Vec<_> = texts.iter().enumerate().map(event).rev().collect();
    let service = Scripted::answering(move |asked| {
        let events = if asked.offset < Some(3) { events.join(",") } else { String::new() };
        format!(r#"{{"events":[{events}],"has_more":false}}"#).into_response()
    })
    .await;
    for template in ["slack", "teams", "discord", "pagerduty", "opsgenie"] {
        let receiver = Receiver::start().await;
        let setup = Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))])
            .with_webhook("hook", &receiver)
            .with_webhook("lines", &receiver)
            .with("sinks.hook.format", "template")
            .with("sinks.hook.template", template)
            .with("sinks.hook.template_values.routing_key", "a")
            .with("sinks.hook.filter", "failures")
            .with("sinks.lines.format", "text");
        let mut daemon = setup.start();
        daemon.until("everything arrives", |_| receiver.received() == 6).await;
        daemon.stop().await;
        for post in receiver.posts() {
            if post.headers["content-type"] == "application/json" {
                serde_json::from_str::<Value>(&post.body).unwrap();
            } else {
                assert!(!post.body.contains(|c: char| c.is_control() || c == '\u{202e}'), "{}", post.body);
            }
            assert!(!post.body.contains('\u{202e}') && post.body.len() < 28_000, "{template}: {}", post.body);
        }
    }
}
