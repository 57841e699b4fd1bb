use axum::body::Body;
use axum::response::Response;
use serde_json::Value;

use super::*;
use crate::cli::prove::verify::tests::{recorded, verifier};
use api::testing::Scripted;
use record::ChannelRef;

/// The output of `get` for this answer of the service.
async fn got(status: u16, body: String, json: bool) -> Result<String, CommandError> {
    let verifier = verifier();
    let event_id = "be42ae95-8ad4-4b3b-b7b4-ed874b111111".parse().unwrap();
    let channel = ChannelRef { name: "test".into(), id: "7c9e6679-7425-40de-944b-e07fc1f90ae7".parse().unwrap() };
    let service = Scripted::start(move |_| Response::builder().status(status).body(Body::from(body.clone())).unwrap());
    let (client, _service) = service.await.client_and_server();
    let mut out = Vec::new();
    let args = Args { channel: channel.name.to_string(), event: EventName::Id(event_id), json };
    run(
        &args,
        &Connection { client, channel, verifier, signer_names: SignerNames::default() },
        &mut Context { file: None, out: &mut out },
    )
    .await?;
    Ok(String::from_utf8(out).unwrap())
}

#[tokio::test]
async fn an_event_is_shown_with_its_verdict() {
    let shown = got(200, recorded().event.to_string(), false).await.unwrap();
    assert!(shown.contains("2025-05-28T21:15:20Z  watcher.event     verified"), "{shown}");
    assert!(shown.contains("\nsigners, 2 required:\n  0x"), "{shown}");

    let json: Value = serde_json::from_str(&got(200, recorded().event.to_string(), true).await.unwrap()).unwrap();
    assert_eq!((&json["verification"]["status"], &json["event"]), (&"verified".into(), &recorded().event));
}

#[tokio::test]
async fn a_rejected_event_is_shown_with_the_reason_and_without_control_characters() {
    let mut event = recorded().event;
    event["headers"]["type"] = "\u{1b}[2Jodd.type".into();
    let shown = got(200, event.to_string(), false).await.unwrap();
    assert!(shown.contains("\u{fffd}[2Jodd.type") && !shown.contains('\u{1b}'), "{shown:?}");
    let mut event = recorded().event;
    event["payload"]["verifiable_event"] = "eyJ9".into();
    let shown = got(200, event.to_string(), false).await.unwrap();
    assert!(shown.contains("rejected:event-hash-mismatch"), "{shown}");
    assert!(shown.contains("reason: the report is not about this event's signed text"), "{shown}");
}

#[tokio::test]
async fn the_exit_code_depends_on_why_an_event_is_unavailable() {
    let envelope = r#"{"type":"NOT_FOUND"}"#;
    for (status, body, exit) in [
        (404, envelope, Exit::Failed),
        (404, "", Exit::Unavailable),
        (401, "", Exit::Failed),
        (500, "", Exit::Unavailable),
        (429, "", Exit::Unavailable),
    ] {
        let failure = got(status, body.to_owned(), false).await.unwrap_err();
        assert_eq!(failure.0, exit, "{status} {body}");
    }
}
