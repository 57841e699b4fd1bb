//! OAuth access tokens are fetched, cached and renewed. Refusals are reported in terms of the configuration.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use simulator::Simulator;

use super::{service, until_lane_is, webhook_only};
use crate::support::{Receiver, Reply, Setup, deliverable, offsets};

const SECRET: &str = "client-secret-never-to-be-shown";

fn with_tokens(simulator: &Simulator, receiver: &Receiver) -> Setup {
    let mut setup = webhook_only(simulator, receiver)
        .with("sinks.hook.oauth2.token_url", receiver.token_url())
        .with("sinks.hook.oauth2.client_id", "channeld of a test");
    std::fs::write(setup.path("client-secret"), format!("{SECRET}\n")).unwrap();
    setup.set("sinks.hook.oauth2.client_secret_file", setup.path("client-secret").display().to_string());
    setup.keep_secret("never-to-be-shown");
    setup
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_when_it_is_refused() {
    let simulator = service(20).await;
    let receiver = Receiver::start().await;
    receiver.ask_for_tokens(3600);
    let setup = with_tokens(&simulator, &receiver).with("sinks.hook.oauth2.scope", "events.write events.read");
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 20).await;
    let asked = receiver.asked_for_tokens();
    assert_eq!(asked.len(), 1);
    let basic = STANDARD.encode(format!("channeld+of+a+test:{SECRET}"));
    assert_eq!(asked[0].0["authorization"], format!("Basic {basic}"));
    assert_eq!(asked[0].1, "grant_type=client_credentials&scope=events.write+events.read");

    receiver.revoke_token();
    simulator.publish(0, 10);
    daemon.until("the rest arrives", |_| receiver.received() == 30).await;
    daemon.stop().await;
    assert_eq!(
        (receiver.asked_for_tokens().len(), receiver.requests()),
        (2, 31),
        "the refused event was posted again at once, with a new token"
    );
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_short_lived_token_is_renewed_before_it_expires() {
    let simulator = service(1).await;
    let receiver = Receiver::start().await;
    receiver.ask_for_tokens(1);
    let setup = with_tokens(&simulator, &receiver).with("sinks.hook.oauth2.credentials", "body");
    let mut daemon = setup.start();
    daemon
        .until("several tokens were needed", |_| {
            simulator.publish(0, 1);
            receiver.asked_for_tokens().len() >= 3
        })
        .await;
    daemon.stop().await;
    assert_eq!(receiver.requests(), receiver.received(), "no request was refused");
    let (headers, form) = receiver.asked_for_tokens().remove(0);
    assert!(!headers.contains_key("authorization"), "{headers:?}");
    let id = "client_id=channeld+of+a+test";
    assert_eq!(form, format!("grant_type=client_credentials&{id}&client_secret={SECRET}"));
}

#[tokio::test]
async fn an_unknown_oauth_client_blocks_the_sink_with_remedy() {
    let simulator = service(5).await;
    let receiver = Receiver::start().await;
    receiver.ask_for_tokens(3600);
    receiver.refuse_tokens(Some((401, r#"{"error":"invalid_client","error_description":"never-to-be-shown"}"#)));
    let setup = with_tokens(&simulator, &receiver);
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    let message = lane["error"]["message"].as_str().unwrap();
    assert!(message.starts_with("no access token from http://127.0.0.1:"), "{lane}");
    assert!(message.ends_with("it answered 401 (invalid_client): check oauth2.client_id and its secret"), "{lane}");
    let checked = setup.tell(&["check", "--connect"]).await;
    assert_eq!(checked.code, Some(69), "{checked:?}");
    assert_eq!(receiver.requests(), 0);
    receiver.refuse_tokens(None);
    daemon.until("everything arrives", |_| receiver.received() == 5).await;
    daemon.stop().await;
    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
}

#[tokio::test]
async fn an_endpoint_that_refuses_tokens_differs_from_a_server_that_issues_none() {
    let simulator = service(1).await;
    let receiver = Receiver::start().await;
    receiver.ask_for_tokens(3600);
    receiver.always(Some(Reply::Refuse(401, None)));
    let setup =
        with_tokens(&simulator, &receiver).with("sinks.hook.retry_wait", "1h").with("sinks.hook.retry_wait_max", "1h");
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    assert_eq!(lane["error"]["message"], "answered 401; the access token was new: check oauth2.scope and url");
    assert_eq!(
        (receiver.requests(), receiver.asked_for_tokens().len()),
        (2, 2),
        "the event is posted once more, with a new token"
    );
    daemon.stop().await;
}
