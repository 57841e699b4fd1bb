//! A backlog is delivered completely, in order and once, however the service behaves. Each record is as documented.

use axum::response::IntoResponse;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proof::event::ChannelId;
use proof::verify::{event_hash, signed_digest};
use serde_json::{Value, json};
use simulator::{HasMore, Options, Simulator};
use uuid::Uuid;

use crate::support::{Delivered, Scripted, Setup, deliverable, records};

/// Numbers that no 64-bit float or integer can represent, and other details that a careless reader would change.
const NOTICE: &str = "{ \"event_id\": \"d290f1ee-6c54-4b01-90e6-d701748f0851\",\n  \"headers\": {\"type\":\"wallet.status\",\
    \"offset\":5,\"proofs\":[],\"seen\":1.10,\"cost\":-0.0},\r\n\t\"payload\":{\"status\":\"deployed\",\
    \"status_reason\":\"\\u00e9 \\/ é\",\"wallet_id\":\"d290f1ee-6c54-4b01-90e6-d701748f0852\",\"address\":\"0x01\",\
    \"chain_selector\":\"1\",\"timestamp\":1750000000,\
    \"supply\":115792089237316195423570985008687907853269984665640564039457584007913129639935,\"tiny\":1E-400}}";

#[tokio::test]
async fn a_backlog_of_several_pages_is_delivered_completely_and_in_order() {
    for (page_limit, events) in [(1, 6), (2, 9), (7, 40), (200, 450)] {
        for has_more in [HasMore::Remaining, HasMore::Older] {
            for (inclusive, sparse) in [(false, false), (true, false), (false, true), (true, true)] {
                let options = Options { events, unsigned: 0.2, inclusive, sparse, has_more, ..Options::default() };
                let simulator = Simulator::start(options).await.unwrap();
                let setup = Setup::reading(&simulator).with("api.page_limit", page_limit);
                let expected = deliverable(&simulator, 0);

                setup.run_until_lines(expected.len()).await;

                let case = format!("limit {page_limit}, {has_more:?}, inclusive {inclusive}, sparse {sparse}");
                assert_eq!(setup.offsets("c0"), expected, "{case}");
            }
        }
    }
}

#[tokio::test]
async fn events_published_while_it_runs_are_delivered() {
    for inclusive in [false, true] {
        let options = Options { events: 3, inclusive, sparse: true, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let setup = Setup::reading(&simulator).with("api.page_limit", 10);
        let mut daemon = setup.start();
        for more in [1, 0, 2, 25] {
            simulator.publish(0, more);
            let expected = simulator.offsets(0).len();
            daemon.until("the published events arrive", |_| setup.lines() == expected).await;
        }
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
    }
}

#[tokio::test]
async fn a_record_has_the_documented_form_and_keeps_the_services_bytes() {
    let simulator = Simulator::start(Options { events: 60, unsigned: 0.4, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(60).await;

    let truth = records(&simulator, 0).await;
    let known = simulator.announcement();
    let mut seen = [0; 2];
    for delivered in setup.delivered() {
        let event: Value = serde_json::from_str(&truth[&delivered.offset]).unwrap();
        assert_eq!(delivered.event.get(), truth[&delivered.offset]);
        assert_eq!((delivered.channel.as_str(), delivered.channel_id), ("c0", known.channels[0]));
        assert_eq!(
            (&event["event_id"], &event["headers"]["type"]),
            (&json!(delivered.event_id), &json!(delivered.kind))
        );
        let text = delivered.time.as_deref().unwrap();
        let time: jiff::Timestamp = text.parse().unwrap();
        assert_eq!(event["payload"]["timestamp"], time.as_second());
        assert!(text.ends_with('Z'), "{text}");

        let signed = ["verifiable_event", "verifiable_result"].map(|name| event["payload"][name].as_str());
        let expected = if let Some(signed) = signed.into_iter().flatten().next() {
            seen[0] += 1;
            assert_proved(&delivered, signed, &simulator);
            assert_eq!(delivered.decoded.as_ref().unwrap().get().as_bytes(), STANDARD.decode(signed).unwrap());
            let has_log = event["payload"]["verifiable_event"].is_string();
            let confidence = if has_log { " confidence" } else { "" };
            format!(
                "channel channel_id offset event_id type time{confidence} network received verification decoded event"
            )
        } else {
            seen[1] += 1;
            assert_eq!(delivered.verification, json!({"status": "unsigned", "covers": []}));
            "channel channel_id offset event_id type time network received verification event".to_owned()
        };
        assert_eq!(delivered.names().join(" "), expected);
    }
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
}

fn assert_proved(delivered: &Delivered, signed: &str, simulator: &Simulator) {
    let known = simulator.announcement();
    let mut signers: Vec<_> =
        delivered.verification["signers"].as_array().unwrap().iter().map(|signer| signer.as_str().unwrap()).collect();
    signers.sort_unstable();
    signers.dedup();
    assert_eq!(signers.len(), known.min_required_signatures);
    assert!(signers.iter().all(|signer| known.valid_signers.iter().any(|valid| valid.to_string() == **signer)));
    let expected = json!({
        "status": "verified",
        "covers": ["decoded"],
        "digest": delivered.verification["digest"],
        "signers": delivered.verification["signers"],
        "required": known.min_required_signatures,
        "event_hash": event_hash(signed).to_string(),
        "workflow_owner": known.workflow_owner.to_string(),
        "workflow_id": delivered.verification["workflow_id"],
        "execution_id": delivered.verification["execution_id"],
    });
    assert_eq!(delivered.verification, expected);
    assert_eq!(delivered.verification["digest"], signed_digest_of(&delivered.event));
    let workflows = (0..known.channels.len()).flat_map(|channel| simulator.workflow_ids(channel));
    assert!(workflows.into_iter().any(|id| delivered.verification["workflow_id"] == id.to_string()));
    let execution_id = delivered.verification["execution_id"].as_str().unwrap();
    let report = proof_of(&delivered.event)["ocr_report"].to_string();
    assert!(
        execution_id.len() == 2 + 64 && report.contains(&execution_id[2..]),
        "{execution_id} is part of the report"
    );
}

fn proof_of(event: &serde_json::value::RawValue) -> Value {
    serde_json::from_str::<Value>(event.get()).unwrap()["headers"]["proofs"][0].take()
}

/// The digest that was signed, computed from the proof of the event.
fn signed_digest_of(event: &serde_json::value::RawValue) -> String {
    let proof = proof_of(event);
    let bytes = |name: &str| hex::decode(&proof[name].as_str().unwrap()[2..]).unwrap();
    signed_digest(&bytes("ocr_report"), &bytes("ocr_context")).to_string()
}

#[tokio::test]
async fn numbers_of_any_size_and_notation_survive() {
    let service = Scripted::answering(|asked| {
        let events = if asked.offset < Some(5) { NOTICE } else { "" };
        format!(r#"{{"events":[{events}],"has_more":false}}"#).into_response()
    })
    .await;
    let setup = Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))]);

    setup.run_until_lines(1).await;

    // A record is one line, so a line break between two tokens becomes a space. Nothing else changes.
    assert_eq!(setup.delivered()[0].event.get(), NOTICE.replace(['\n', '\r'], " "));
}

#[tokio::test]
async fn an_event_proved_by_a_real_network_is_delivered_as_verified() {
    let recorded: Value = serde_json::from_str(include_str!("../../vectors/recorded.json")).unwrap();
    let event = recorded["event"].to_string();
    let page = format!(r#"{{"events":[{event}],"has_more":false}}"#);
    let service = Scripted::answering(move |_| page.clone().into_response()).await;
    let mut setup = Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))])
        .with("verification.workflow_owner", recorded["workflow_owner"].clone())
        .with("verification.valid_signers", recorded["signers"].clone())
        .with("verification.min_required_signatures", recorded["min_required"].clone());
    setup.remove("verification.org_id");

    setup.run_until_lines(1).await;

    let delivered = setup.delivered();
    assert_eq!((delivered[0].status(), delivered[0].event.get()), ("verified", &*event));
}
