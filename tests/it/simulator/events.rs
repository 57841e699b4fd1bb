//! The events of the simulator have the properties that it reports for them.

use std::collections::HashMap;
use std::time::Duration;

use proof::event::Event;
use proof::verify::Verdict;
use simulator::{ApiVersion, EventSpec, Honesty, Kind, LateProofs, Options, ReplayedId, Simulator, Tampering};

use super::client::{Client, ENDS_AT, LONGEST_WAIT, backlog, id_of, json, on_each_version, playing};

on_each_version! {
    the_simulators_verdicts_match_the_verifiers,
    chosen_events_are_generated,
    a_displaced_event_verifies_and_is_announced_as_displaced,
    a_withheld_proof_appears_under_the_same_id_and_offset,
    late_proofs_appear_after_their_delay,
    new_events_appear_at_the_configured_rate,
    the_seed_determines_the_service,
    a_million_events_are_available_at_once,
    a_restored_service_reuses_offsets_for_other_events,
    going_back_in_time_is_an_option,
}

async fn the_simulators_verdicts_match_the_verifiers(version: ApiVersion) {
    let late_proofs = Some(LateProofs { share: 0.1, delay: Duration::from_secs(3600) });
    let options = Options { unsigned: 0.2, forged: 0.2, late_proofs, ..backlog(version, 450) };
    let simulator = Simulator::start(options).await.unwrap();
    let client = Client::of(&simulator);
    let events = client.everything().await;
    let truth = simulator.offsets(0);
    assert_eq!(events.len(), truth.len());
    let mut kinds = HashMap::new();
    for ((offset, record), (known, honesty)) in events.iter().zip(truth) {
        assert_eq!(*offset, known);
        *kinds.entry(honesty).or_insert(0) += 1;
        let agreed = match client.verify(record) {
            Verdict::Verified(_) => honesty == Honesty::Verifiable,
            Verdict::Unsigned(_) => honesty == Honesty::Unsigned,
            Verdict::Pending(_) => honesty == Honesty::Pending,
            Verdict::Rejected(..) => honesty == Honesty::Forged,
        };
        assert!(agreed, "{honesty:?}: {record}");
        let event = Event::parse(record.clone().into()).unwrap();
        assert!(event.unknown.is_empty(), "the version is documented: {:?}: {record}", event.unknown);
    }
    assert!(kinds.len() == 4 && kinds.values().all(|count| *count > 10), "{kinds:?}");
}

async fn chosen_events_are_generated(version: ApiVersion) {
    let simulator = Simulator::start(playing(version)).await.unwrap();
    let client = Client::of(&simulator);
    let honest = Kind::ALL.map(EventSpec::Honest).into_iter();
    let late = Kind::ALL.into_iter().filter(|kind| kind.is_signed()).map(EventSpec::Late);
    let forged = Tampering::ALL.into_iter().map(EventSpec::Forged);
    let chosen: Vec<_> = honest.chain(late).chain(forged).chain([EventSpec::WithoutId, EventSpec::Malformed]).collect();
    let offsets: Vec<_> = chosen.iter().map(|spec| simulator.publish_one(0, *spec)).collect();
    let events = client.everything().await;
    assert_eq!(events.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), offsets);
    for (spec, (_, record)) in chosen.into_iter().zip(&events) {
        let verdict = client.verify(record);
        let found = match &verdict {
            Verdict::Rejected(_, reason) => reason.name(),
            other => other.name(),
        };
        assert_eq!(found, expected(version, spec), "{spec:?}");
        assert_eq!(json(record)["headers"]["type"], spec.kind().event_type());
        assert_eq!(json(record)["event_id"].is_null(), spec == EventSpec::WithoutId);
    }
}

fn expected(version: ApiVersion, spec: EventSpec) -> &'static str {
    match spec {
        EventSpec::Honest(kind) | EventSpec::Late(kind) if !kind.published_by(version).is_signed() => "unsigned",
        EventSpec::Honest(_) | EventSpec::WithoutId | EventSpec::Displaced(_) => "verified",
        EventSpec::Late(_) => "pending",
        EventSpec::Malformed => "malformed",
        EventSpec::Forged(tampering) => match tampering {
            Tampering::ContentChanged | Tampering::OtherEvent => "event-hash-mismatch",
            Tampering::Strangers | Tampering::TooFewSignatures | Tampering::RepeatedSigner => "too-few-signatures",
            Tampering::MalformedSignature => "malformed-signature",
            Tampering::OtherOwner => "wrong-owner",
            Tampering::ReportTruncated => "malformed-report",
            Tampering::TwoProofs => "multiple-proofs",
        },
    }
}

async fn a_displaced_event_verifies_and_is_announced_as_displaced(version: ApiVersion) {
    let simulator = Simulator::start(Options { channels: 2, events: 1, ..playing(version) }).await.unwrap();
    let offset = simulator.publish_one(0, EventSpec::Honest(Kind::WatcherEvent));
    let client = Client::of(&simulator);
    let before = client.everything().await;
    let replay = simulator.replay(0, offset, 0, ReplayedId::New);
    simulator.contradict(0, offset);

    let after = client.everything().await;
    let [original, replayed, contradicting] =
        [&before[1].1, &after[2].1, &after[1].1].map(|record| (json(record), client.verify(record).name()));
    assert_eq!([original.1, replayed.1, contradicting.1], ["verified"; 3]);
    assert_eq!(replayed.0["headers"]["proofs"], original.0["headers"]["proofs"]);
    assert_eq!(replayed.0["payload"], original.0["payload"]);
    assert_ne!(replayed.0["event_id"], original.0["event_id"]);
    assert_ne!(contradicting.0["payload"]["verifiable_event"], original.0["payload"]["verifiable_event"]);
    assert_eq!(contradicting.0["event_id"], original.0["event_id"]);
    assert_eq!(simulator.offsets(0)[1..], [(offset, Honesty::Displaced), (replay, Honesty::Displaced)]);

    simulator.prove(0, offset);
    assert_eq!(client.everything().await[1].1, before[1].1);
    assert_eq!(simulator.replay(0, replay, 1, ReplayedId::New), 2);
    simulator.replay(0, offset, 0, ReplayedId::Same);
    assert_eq!(json(&client.everything().await[3].1)["event_id"], original.0["event_id"]);
}

async fn a_withheld_proof_appears_under_the_same_id_and_offset(version: ApiVersion) {
    let simulator = Simulator::start(playing(version)).await.unwrap();
    let client = Client::of(&simulator);
    let offset = simulator.publish_one(0, EventSpec::Late(Kind::OperationConfirmed));
    let forged = simulator.publish_one(0, EventSpec::Forged(Tampering::Strangers));
    let page = client.poll("").await;
    let id = id_of(&page.records[1]);
    assert!(matches!(client.verify(&page.records[1]), Verdict::Pending(_)));
    let alone = client.event(&id).await.text().await.unwrap();
    assert_eq!(alone, page.records[1]);

    simulator.prove(0, offset);
    simulator.prove(0, forged);

    let alone = client.event(&id).await.text().await.unwrap();
    let page = client.poll("").await;
    assert_eq!((alone.as_str(), page.offsets.as_slice()), (page.records[1].as_str(), &[forged, offset][..]));
    assert_eq!(id_of(&alone), id);
    assert!(page.records.iter().all(|record| matches!(client.verify(record), Verdict::Verified(_))));
}

async fn late_proofs_appear_after_their_delay(version: ApiVersion) {
    let late_proofs = Some(LateProofs { share: 1.0, delay: Duration::from_secs(1) });
    let simulator = Simulator::start(Options { late_proofs, ..backlog(version, 3) }).await.unwrap();
    assert_eq!(simulator.offsets(0)[0].1, Honesty::Pending);
    let client = Client::of(&simulator);
    let verified = async {
        loop {
            let page = client.poll("").await;
            if page.records.iter().all(|record| matches!(client.verify(record), Verdict::Verified(_))) {
                return;
            }
        }
    };
    tokio::time::timeout(LONGEST_WAIT, verified).await.unwrap();
}

async fn new_events_appear_at_the_configured_rate(version: ApiVersion) {
    let simulator = Simulator::start(Options { rate: 200.0, ..backlog(version, 5) }).await.unwrap();
    let client = Client::of(&simulator);
    let grown = async { while client.poll("limit=1").await.offsets[0] < 25 {} };
    tokio::time::timeout(LONGEST_WAIT, grown).await.unwrap();
    let newest = json(&client.poll("limit=1").await.records[0])["payload"]["timestamp"].as_i64().unwrap();
    assert!(newest > ENDS_AT, "a new event has the current time");
}

async fn the_seed_determines_the_service(version: ApiVersion) {
    let options = Options { forged: 0.1, unsigned: 0.1, sparse: true, channels: 2, ..backlog(version, 60) };
    let simulators = [
        Simulator::start(options.clone()).await.unwrap(),
        Simulator::start(Options { prepared: true, ..options.clone() }).await.unwrap(),
        Simulator::start(Options { seed: 8, ..options }).await.unwrap(),
    ];
    let mut seen = Vec::new();
    for simulator in &simulators {
        seen.push((Client::of(simulator).channels, Client::of(simulator).everything().await));
        assert_ne!(simulator.announcement().channels[0], simulator.announcement().channels[1]);
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0].0, seen[2].0);
    assert_ne!(seen[0].1, seen[2].1);
}

async fn a_million_events_are_available_at_once(version: ApiVersion) {
    let simulator = Simulator::start(Options { sparse: true, ..backlog(version, 1_000_000) }).await.unwrap();
    let client = Client::of(&simulator);
    let middle = client.poll("offset=2500000&limit=3").await;
    assert_eq!(middle.offsets.len(), 3);
    assert!(middle.records.iter().all(|record| matches!(client.verify(record), Verdict::Verified(_))));
    let id = id_of(&middle.records[2]);
    assert_eq!(client.event(&id).await.text().await.unwrap(), middle.records[2]);
}

async fn a_restored_service_reuses_offsets_for_other_events(version: ApiVersion) {
    let simulator = Simulator::start(backlog(version, 6)).await.unwrap();
    simulator.publish(0, 4);
    let client = Client::of(&simulator);
    let before = client.everything().await;
    simulator.go_back(0, 7);
    assert_eq!(client.everything().await, before[..3]);

    simulator.publish(0, 2);
    simulator.go_back(0, 1);
    simulator.publish(0, 3);
    let after = client.everything().await;
    assert_eq!(after.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(after[..3], before[..3]);
    for ((_, was), (_, is)) in before[3..].iter().zip(&after[3..]) {
        assert!(matches!(client.verify(is), Verdict::Verified(_)));
        assert_ne!(json(was)["headers"]["proofs"], json(is)["headers"]["proofs"]);
        assert_eq!(client.event(&id_of(was)).await.status(), 404);
        assert_eq!(client.event(&id_of(is)).await.text().await.unwrap(), *is);
    }
    simulator.contradict(0, 5);
    simulator.prove(0, 5);
    assert_eq!(client.everything().await, after);
}

async fn going_back_in_time_is_an_option(version: ApiVersion) {
    let go_back = Some("3:0s".parse().unwrap());
    let simulator = Simulator::start(Options { go_back, channels: 2, ..backlog(version, 5) }).await.unwrap();
    let client = Client::of(&simulator);
    let gone = async { while client.poll("").await.offsets != [2, 1] {} };
    tokio::time::timeout(LONGEST_WAIT, gone).await.unwrap();
    assert_eq!(simulator.offsets(1).len(), 2);
}
