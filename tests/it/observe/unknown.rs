//! Values of the service that this version does not know are delivered unchanged, and are reported once.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Admin, Scripted, serving, signed, value};

const SAID: &str =
    "the service sent a value that this version does not know: nothing is lost; look for a newer version of channeld";

/// An event without a proof.
fn notice(offset: i64, kind: &str, payload: &Value) -> String {
    let id = Uuid::from_u128(u128::try_from(offset).unwrap());
    format!(r#"{{"event_id":"{id}","headers":{{"type":"{kind}","offset":{offset},"proofs":[]}},"payload":{payload}}}"#)
}

/// The unknown values of a report, as sorted texts.
fn listed(report: &Value) -> Vec<String> {
    let values = report["channels"][0]["unknown_values"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let shown = |value: &Value| format!("{} {} {}", text(&value["what"]), text(&value["value"]), value["offset"]);
    let mut values: Vec<_> = values.iter().map(shown).collect();
    values.sort();
    values
}

#[tokio::test]
async fn unknown_values_are_delivered_unchanged_and_reported_once() {
    let with_member =
        signed(6, r#"{"name":"Transfer","service":"dvp"}"#).replace(r#""payload":{"#, r#""payload":{"tier":1,"#);
    let events = vec![
        notice(1, "wallet.status", &json!({"status": "teleported\n", "timestamp": 1})),
        notice(2, "wallet.status", &json!({"status": "teleported\n", "timestamp": 2})),
        notice(3, "policy.status", &json!({"status": "evaluated"})),
        notice(4, "operation.status", &json!({"status": "reverted", "gas": 7})),
        notice(5, "query.status", &json!({"status": "failed"})),
        with_member,
    ];
    let (_service, setup) = serving(events.clone()).await;
    let setup = setup.with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("every event is delivered", |_| setup.lines() == 6).await;

    let delivered = setup.delivered();
    assert!(delivered.iter().map(|event| event.event.get()).eq(events.iter().map(String::as_str)), "byte for byte");
    assert_eq!(delivered[5].status(), "verified");
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    let expected = ["payload_member gas 4", "payload_member tier 6", r"status teleported\n 1", "type policy.status 3"];
    assert_eq!(listed(&report), expected);
    assert_eq!(report["ready"], true);
    let text = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    let notice = "notice: channel c0 shows values that this version does not know: ";
    assert!(text.contains(notice) && text.contains("payload member gas"), "{text}");
    let scrape = admin.get("/metrics").await.text;
    for (what, count) in [("status", 1.0), ("type", 1.0), ("payload_member", 2.0), ("error_type", 0.0), ("proof", 0.0)]
    {
        let sample = format!(r#"channeld_unknown_values_total{{what="{what}"}}"#);
        assert_eq!(value(&scrape, &sample), Some(count), "{sample}");
    }
    assert_eq!(daemon.stop().await.lines(SAID).len(), expected.len());
}

#[tokio::test]
async fn an_unknown_proof_is_malformed_and_reported() {
    let generic = signed(1, r#"{"name":"Transfer"}"#).replace(r#""proofs":[{"#, r#""proofs":[{"zk_proof":"0x00","#);
    let generic = generic.replace(r#""ocr_report""#, r#""zk_report""#);
    let (_service, setup) = serving(vec![generic, signed(2, r#"{"name":"Transfer"}"#)]).await;
    let mut daemon = setup.start();
    daemon.until("the other event is delivered", |_| setup.lines() == 1).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!(listed(&report), ["proof zk_proof 1", "proof zk_report 1"]);
    assert_eq!(setup.delivered()[0].offset, 2);
    // The event has a proof, but without its required members, so the daemon does not wait for one.
    let quarantined = setup.tell(&["quarantine", "list", "--json"]).await;
    assert_eq!(
        (quarantined.each("offset"), quarantined.each("reason")),
        (vec![json!(1)], vec![json!("malformed-proof")])
    );
    daemon.stop().await;
}

#[tokio::test]
async fn an_unknown_error_type_is_reported_and_the_request_repeated() {
    let failed = AtomicBool::new(false);
    let event = signed(1, r#"{"name":"Transfer"}"#);
    let service = Scripted::answering(move |asked| {
        if !failed.swap(true, Ordering::SeqCst) {
            let envelope = r#"{"type":"QUOTA_EXHAUSTED","code":"Q1","message":"later"}"#;
            return (StatusCode::SERVICE_UNAVAILABLE, envelope).into_response();
        }
        let events = if asked.offset.unwrap_or(0) < 1 { event.as_str() } else { "" };
        format!(r#"{{"events":[{events}],"has_more":false}}"#).into_response()
    })
    .await;
    // The settings for verification are the same as in `serving`.
    let (_other, verifying) = serving(Vec::new()).await;
    let setup = verifying.with("api.base_url", service.base_url());
    let mut daemon = setup.start();
    daemon.until("the event is delivered", |_| setup.lines() == 1).await;
    let report = setup.tell(&["status", "--json"]).await.json().remove(0);
    assert_eq!(listed(&report), ["error_type QUOTA_EXHAUSTED null"]);
    daemon.stop().await;
}
