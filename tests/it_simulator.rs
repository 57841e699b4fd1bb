//! The simulator keeps its word: what it says of its events is what the verifier finds, and what it says of the
//! service is spec/wire.md.

#![allow(clippy::unwrap_used, reason = "a helper of a test fails as the test does")]

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use channeld::event::RawEvent;
use channeld::simulator::{
    EventSpec, Fault, HasMore, Honesty, Kind, LateProofs, Options, Route, Simulator, Tampering, Window,
};
use channeld::verify::{SignerSet, Verdict, Verifier, workflow_owner};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// When the backlogs of these tests end, so that they are the same in every run.
const ENDS_AT: i64 = 1_750_000_000;

/// How long a condition may take to come true.
const PATIENCE: Duration = Duration::from_secs(30);

struct Client {
    http: reqwest::Client,
    base: String,
    key: String,
    channels: Vec<String>,
    verifier: Verifier,
}

struct Page {
    records: Vec<String>,
    offsets: Vec<i64>,
    has_more: bool,
}

impl Client {
    fn of(simulator: &Simulator) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let known = simulator.announcement();
        let signers = SignerSet::new(known.valid_signers.clone(), known.min_required_signatures).unwrap();
        Self {
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            base: known.base_url.clone(),
            key: known.api_key.clone(),
            channels: known.channels.iter().map(ToString::to_string).collect(),
            verifier: Verifier::new(signers, known.workflow_owner),
        }
    }

    async fn try_get(&self, path: &str) -> reqwest::Result<Response> {
        let authorization = format!("Apikey {}", self.key);
        self.http.get(format!("{}{path}", self.base)).header("Authorization", authorization).send().await
    }

    async fn get(&self, path: &str) -> Response {
        self.try_get(path).await.unwrap()
    }

    async fn poll(&self, query: &str) -> Page {
        page(self.get(&format!("/channels/{}/events?{query}", self.channels[0])).await).await
    }

    async fn search(&self, query: &str) -> Page {
        page(self.get(&format!("/channels/{}/events/search?{query}", self.channels[0])).await).await
    }

    async fn event(&self, id: &str) -> Response {
        self.get(&format!("/channels/{}/events/search/{id}", self.channels[0])).await
    }

    fn judge(&self, record: &str) -> Verdict {
        self.verifier.judge(RawEvent::locate(Bytes::from(record.to_owned())).unwrap())
    }

    /// Every event there is, oldest first, by walking up from offset 0 (window oldest, exclusive).
    async fn everything(&self) -> Vec<(i64, String)> {
        let (mut events, mut offset) = (Vec::new(), 0);
        loop {
            let page = self.poll(&format!("offset={offset}")).await;
            let (offsets, has_more) = (page.offsets.clone(), page.has_more);
            events.extend(page.offsets.into_iter().zip(page.records).rev());
            offset = offsets.first().copied().unwrap_or(offset);
            if !has_more {
                return events;
            }
        }
    }
}

async fn page(response: Response) -> Page {
    #[derive(Deserialize)]
    struct Wire<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
        has_more: bool,
    }
    assert_eq!(response.status(), StatusCode::OK);
    let body = response.text().await.unwrap();
    let wire: Wire<'_> = serde_json::from_str(&body).unwrap();
    let records: Vec<_> = wire.events.iter().map(|record| record.get().to_owned()).collect();
    let offsets: Vec<_> = records.iter().map(|record| json(record)["headers"]["offset"].as_i64().unwrap()).collect();
    assert!(offsets.windows(2).all(|pair| pair[0] > pair[1]), "a page is in descending order: {offsets:?}");
    Page { records, offsets, has_more: wire.has_more }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn id_of(record: &str) -> String {
    json(record)["event_id"].as_str().unwrap().to_owned()
}

async fn refusal(response: Response) -> (u16, String, String) {
    let status = response.status().as_u16();
    let body: Value = json(&response.text().await.unwrap());
    assert!(body["message"].is_string(), "{body}");
    let text = |name: &str| body[name].as_str().unwrap_or_default().to_owned();
    (status, text("type"), text("code"))
}

fn backlog(events: u64) -> Options {
    Options { events, seed: 7, ends_at: Some(ENDS_AT), ..Options::default() }
}

#[tokio::test]
async fn what_it_says_of_its_events_is_what_the_verifier_finds() {
    let late_proofs = Some(LateProofs { share: 0.1, delay: Duration::from_secs(3600) });
    let options = Options { unsigned: 0.2, forged: 0.2, late_proofs, ..backlog(450) };
    let simulator = Simulator::start(options).await.unwrap();
    let client = Client::of(&simulator);
    let events = client.everything().await;
    let truth = simulator.offsets(0);
    assert_eq!(events.len(), truth.len());
    let mut kinds = HashMap::new();
    for ((offset, record), (known, honesty)) in events.iter().zip(truth) {
        assert_eq!(*offset, known);
        *kinds.entry(honesty).or_insert(0) += 1;
        let agreed = match client.judge(record) {
            Verdict::Verified(_) => honesty == Honesty::Verifiable,
            Verdict::Unsigned(_) => honesty == Honesty::Unsigned,
            Verdict::Pending(_) => honesty == Honesty::Pending,
            Verdict::Rejected(..) => honesty == Honesty::Forged,
        };
        assert!(agreed, "{honesty:?}: {record}");
    }
    assert!(kinds.len() == 4 && kinds.values().all(|count| *count > 10), "{kinds:?}");
}

#[tokio::test]
async fn events_of_choice_are_what_was_chosen() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let client = Client::of(&simulator);
    let signed = [Kind::WatcherEvent, Kind::OperationConfirmed, Kind::QueryCompleted];
    let notices =
        [Kind::OperationAccepted, Kind::QueryAccepted, Kind::WatcherStatus, Kind::WalletStatus, Kind::Unknown];
    let honest = signed.into_iter().chain(notices).map(EventSpec::Honest);
    let late = signed.into_iter().map(EventSpec::Late);
    let forged = Tampering::ALL.into_iter().map(EventSpec::Forged);
    let chosen: Vec<_> = honest.chain(late).chain(forged).chain([EventSpec::Malformed]).collect();
    let offsets: Vec<_> = chosen.iter().map(|spec| simulator.publish_one(0, *spec)).collect();
    let events = client.everything().await;
    assert_eq!(events.iter().map(|(offset, _)| *offset).collect::<Vec<_>>(), offsets);
    for (spec, (_, record)) in chosen.into_iter().zip(&events) {
        let verdict = client.judge(record);
        let found = match &verdict {
            Verdict::Rejected(_, reason) => reason.name(),
            other => other.name(),
        };
        assert_eq!(found, expected(spec), "{spec:?}");
        assert_eq!(json(record)["headers"]["type"], spec.kind().event_type());
    }
}

fn expected(spec: EventSpec) -> &'static str {
    match spec {
        EventSpec::Honest(kind) if kind.is_signed() => "verified",
        EventSpec::Honest(_) => "unsigned",
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

#[tokio::test]
async fn offset_is_read_as_the_options_say() {
    for window in [Window::Oldest, Window::Newest] {
        for inclusive in [false, true] {
            for sparse in [false, true] {
                let simulator = Simulator::start(Options { window, inclusive, sparse, ..backlog(40) }).await.unwrap();
                let client = Client::of(&simulator);
                let all: Vec<_> = simulator.offsets(0).into_iter().map(|(offset, _)| offset).collect();
                assert_eq!(all.windows(2).any(|pair| pair[1] > pair[0] + 1), sparse);
                assert!(all[0] >= 1 && (sparse || all[0] == 1));
                for (offset, limit) in [(all[4], 10), (all[29], 10), (all[30], 10), (all[39], 1), (all[39] + 9, 3)] {
                    let page = client.poll(&format!("offset={offset}&limit={limit}")).await;
                    let above: Vec<_> =
                        all.iter().copied().filter(|o| *o > offset || (inclusive && *o == offset)).collect();
                    let held = above.len().min(limit);
                    let expected = match window {
                        Window::Oldest => &above[..held],
                        Window::Newest => &above[above.len() - held..],
                    };
                    let ascending: Vec<_> = page.offsets.iter().rev().copied().collect();
                    assert_eq!(ascending, expected, "{window:?} inclusive={inclusive} sparse={sparse} {offset}");
                    assert_eq!(page.has_more, above.len() > limit);
                }
            }
        }
    }
}

#[tokio::test]
async fn without_offset_the_latest_come_again_until_there_are_newer_ones() {
    let simulator = Simulator::start(backlog(300)).await.unwrap();
    let client = Client::of(&simulator);
    for _ in 0..2 {
        let page = client.poll("").await;
        assert_eq!((page.offsets.len(), page.offsets[0], page.has_more), (200, 300, true));
    }
    simulator.publish(0, 2);
    let page = client.poll("limit=3").await;
    assert_eq!(page.offsets, [302, 301, 300]);
    assert_eq!(client.search("").await.offsets.len(), 50);
}

#[tokio::test]
async fn has_more_can_speak_of_older_events() {
    let simulator = Simulator::start(Options { has_more: HasMore::Older, ..backlog(30) }).await.unwrap();
    let client = Client::of(&simulator);
    assert!(client.poll("offset=25").await.has_more);
    assert!(!client.poll("offset=0&limit=5").await.has_more);
}

#[tokio::test]
async fn a_withheld_proof_comes_under_the_same_id_and_offset() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let client = Client::of(&simulator);
    let offset = simulator.publish_one(0, EventSpec::Late(Kind::OperationConfirmed));
    let forged = simulator.publish_one(0, EventSpec::Forged(Tampering::Strangers));
    let page = client.poll("").await;
    let id = id_of(&page.records[1]);
    assert!(matches!(client.judge(&page.records[1]), Verdict::Pending(_)));
    let alone = client.event(&id).await.text().await.unwrap();
    assert_eq!(alone, page.records[1]);

    simulator.prove(0, offset);
    simulator.prove(0, forged);

    let alone = client.event(&id).await.text().await.unwrap();
    let page = client.poll("").await;
    assert_eq!((alone.as_str(), page.offsets.as_slice()), (page.records[1].as_str(), &[forged, offset][..]));
    assert_eq!(id_of(&alone), id);
    assert!(page.records.iter().all(|record| matches!(client.judge(record), Verdict::Verified(_))));
}

#[tokio::test]
async fn late_proofs_come_after_their_delay() {
    let late_proofs = Some(LateProofs { share: 1.0, delay: Duration::from_secs(1) });
    let simulator = Simulator::start(Options { late_proofs, ..backlog(3) }).await.unwrap();
    assert_eq!(simulator.offsets(0)[0].1, Honesty::Pending);
    let client = Client::of(&simulator);
    let verified = async {
        loop {
            let page = client.poll("").await;
            if page.records.iter().all(|record| matches!(client.judge(record), Verdict::Verified(_))) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, verified).await.unwrap();
}

#[tokio::test]
async fn new_events_come_at_the_rate() {
    let simulator = Simulator::start(Options { rate: 200.0, ..backlog(5) }).await.unwrap();
    let client = Client::of(&simulator);
    let grown = async { while client.poll("limit=1").await.offsets[0] < 25 {} };
    tokio::time::timeout(PATIENCE, grown).await.unwrap();
    let newest = json(&client.poll("limit=1").await.records[0])["payload"]["timestamp"].as_i64().unwrap();
    assert!(newest > ENDS_AT, "what is new happens now");
}

#[tokio::test]
async fn search_filters_by_everything_an_event_has() {
    let simulator = Simulator::start(Options { unsigned: 0.5, ..backlog(400) }).await.unwrap();
    let client = Client::of(&simulator);
    let all: Vec<_> = client.everything().await.into_iter().map(|(_, record)| json(&record)).collect();
    let payload = |event: &Value, name: &str| event["payload"][name].as_str().unwrap_or_default().to_owned();
    let mut tried = 0;
    for event in all.iter().rev().take(60) {
        let kind = event["headers"]["type"].as_str().unwrap();
        for name in [
            "watcher_id",
            "wallet_id",
            "operation_id",
            "wallet_operation_id",
            "query_id",
            "chain_selector",
            "address",
            "status",
        ] {
            let value = payload(event, name);
            let applies = !value.is_empty() && (name, kind) != ("address", "watcher.event");
            if !applies {
                continue;
            }
            let page = client.search(&format!("type={kind}&{name}={value}&limit=200")).await;
            let same = |other: &&Value| other["headers"]["type"] == kind && payload(other, name) == value;
            let wanted: Vec<_> =
                all.iter().rev().filter(same).map(|event| event["headers"]["offset"].as_i64()).collect();
            let found: Vec<_> = page.offsets.iter().copied().map(Some).collect();
            assert_eq!(found, &wanted[..wanted.len().min(200)], "{kind} {name}={value}");
            tried += 1;
        }
    }
    assert!(tried > 100);
}

#[tokio::test]
async fn search_reads_several_values_names_services_and_times() {
    let simulator = Simulator::start(Options { unsigned: 0.3, ..backlog(400) }).await.unwrap();
    let client = Client::of(&simulator);
    let either = client.search("type=wallet.status&type=watcher.status&limit=200").await;
    let types: Vec<_> = either.records.iter().map(|record| json(record)["headers"]["type"].clone()).collect();
    assert!(types.contains(&"wallet.status".into()) && types.contains(&"watcher.status".into()));
    assert!(types.iter().all(|name| name != "watcher.event"));

    let named = client.search("event_name=SettlementAccepted&service=settlement&service=fund&limit=200").await;
    assert!(!named.records.is_empty());
    for record in &named.records {
        let Verdict::Verified(verified) = client.judge(record) else { panic!("{record}") };
        let signed = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, verified.event().signed().unwrap());
        assert_eq!(json(&String::from_utf8(signed.unwrap()).unwrap())["name"], "SettlementAccepted");
    }

    let (from, to) = (ENDS_AT - 40, ENDS_AT - 20);
    let timed = client.search(&format!("created.gte={from}&created.lt={to}&limit=200")).await;
    let happened: Vec<_> =
        timed.records.iter().map(|record| json(record)["payload"]["timestamp"].as_i64().unwrap()).collect();
    assert!((60..100).contains(&happened.len()), "four events a second: {}", happened.len());
    assert!(happened.iter().all(|time| (from - 2..to).contains(time)));
    let rest = client.search(&format!("created.gte={to}&limit=200")).await;
    assert!(rest.offsets.iter().all(|offset| !timed.offsets.contains(offset)));
}

#[tokio::test]
async fn search_pages_by_offset_as_poll_does() {
    let simulator = Simulator::start(Options { unsigned: 0.5, ..backlog(200) }).await.unwrap();
    let client = Client::of(&simulator);
    let all = client.search("type=watcher.event&limit=200").await;
    assert!(!all.has_more);
    let (mut walked, mut offset) = (Vec::new(), 0);
    loop {
        let page = client.search(&format!("type=watcher.event&limit=7&offset={offset}")).await;
        walked.extend(page.offsets.iter().rev());
        offset = *walked.last().unwrap();
        if !page.has_more {
            break;
        }
    }
    walked.reverse();
    assert_eq!(walked, all.offsets);
}

#[tokio::test]
async fn what_is_not_there_or_not_allowed_is_refused_with_the_envelope() {
    let simulator = Simulator::start(Options { channels: 2, ..backlog(3) }).await.unwrap();
    let mut client = Client::of(&simulator);
    let (own, other) = (client.channels[0].clone(), client.channels[1].clone());
    let nobody = "00000000-0000-4000-8000-000000000000";
    let missing = |code: &str| (404, "NOT_FOUND".to_owned(), code.to_owned());
    let invalid = || (400, "VALIDATION_ERROR".to_owned(), String::new());
    let id = id_of(&client.poll("").await.records[0]);
    for (path, expected) in [
        (format!("/channels/{nobody}/events"), missing("CHANNEL_NOT_FOUND")),
        (format!("/channels/{nobody}/events/search"), missing("CHANNEL_NOT_FOUND")),
        (format!("/channels/{nobody}/events/search/{id}"), missing("CHANNEL_NOT_FOUND")),
        (format!("/channels/{own}/events/search/{nobody}"), missing("EVENT_NOT_FOUND")),
        (format!("/channels/{other}/events/search/{id}"), missing("EVENT_NOT_FOUND")),
        (format!("/channels/{own}/watchers/{nobody}"), missing("WATCHER_NOT_FOUND")),
        ("/channels".to_owned(), missing("ROUTE_NOT_FOUND")),
        ("/channels/7/events".to_owned(), invalid()),
        (format!("/channels/{own}/events/search/7"), invalid()),
        (format!("/channels/{own}/events?limit=201"), invalid()),
        (format!("/channels/{own}/events?offset=-1"), invalid()),
        (format!("/channels/{own}/events?type=watcher.event"), invalid()),
        (format!("/channels/{own}/events/search?type=watcher.event&status=active"), invalid()),
    ] {
        assert_eq!(refusal(client.get(&path).await).await, expected, "{path}");
    }

    simulator.archive(0);
    assert_eq!(refusal(client.get(&format!("/channels/{own}/events")).await).await, missing("CHANNEL_NOT_FOUND"));
    assert_eq!(client.get(&format!("/channels/{other}/events")).await.status(), 200);

    simulator.set_api_key("rotated");
    assert_eq!(refusal(client.get(&format!("/channels/{other}/events")).await).await.0, 401);
    assert_eq!(client.get("/health-check").await.status(), 200);
    "rotated".clone_into(&mut client.key);
    assert_eq!(client.get(&format!("/channels/{other}/events")).await.status(), 200);
    let anonymous = client.http.get(format!("{}/channels/{other}/events", client.base)).send().await.unwrap();
    assert_eq!(refusal(anonymous).await.0, 401);
}

#[tokio::test]
async fn watchers_have_the_status_that_a_test_sets() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    let client = Client::of(&simulator);
    let id = simulator.watchers(0)[1];
    let read = async || {
        json(&client.get(&format!("/channels/{}/watchers/{id}", client.channels[0])).await.text().await.unwrap())
    };
    assert_eq!(read().await["status"], "active");
    simulator.set_watcher_status(0, id, "failed");
    let watcher = read().await;
    assert_eq!((&watcher["status"], &watcher["watcher_id"]), (&"failed".into(), &id.to_string().into()));
}

#[tokio::test]
async fn faults_come_as_they_were_asked_for_and_are_counted() {
    let simulator = Simulator::start(backlog(10)).await.unwrap();
    let client = Client::of(&simulator);
    let path = format!("/channels/{}/events", client.channels[0]);
    for fault in [
        Fault::RateLimited { retry_after: Some("7".to_owned()) },
        Fault::RateLimited { retry_after: None },
        Fault::Status(503),
        Fault::Html,
        Fault::HtmlOk,
        Fault::EmptyBody,
        Fault::TruncatedJson,
        Fault::WrongShape,
        Fault::NotDescending,
    ] {
        simulator.fail_next(fault, 1);
    }
    let limited = client.get(&path).await;
    assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (429, "7"));
    assert!(!client.get(&path).await.headers().contains_key("retry-after"));
    assert_eq!(refusal(client.get(&path).await).await, (503, "INTERNAL_ERROR".to_owned(), String::new()));
    let text = async || {
        let response = client.get(&path).await;
        (response.status().as_u16(), response.text().await.unwrap())
    };
    assert!(matches!(text().await, (502, html) if html.starts_with("<html>")));
    assert!(matches!(text().await, (200, html) if html.starts_with("<html>")));
    assert_eq!(text().await, (200, String::new()));
    let (status, truncated) = text().await;
    assert!(status == 200 && truncated.starts_with(r#"{"events":["#) && !truncated.ends_with('}'));
    assert!(json(&text().await.1)["events"].is_object());
    let offsets: Vec<_> = json(&text().await.1)["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["headers"]["offset"].as_i64().unwrap())
        .collect();
    assert_eq!(offsets, (1..=10).collect::<Vec<_>>());
    assert_eq!(client.poll("").await.offsets.len(), 10);
    assert_eq!((simulator.requests().poll, simulator.requests().search), (10, 0));
}

#[tokio::test]
async fn a_reset_is_an_error_of_the_connection() {
    let simulator = Simulator::start(backlog(10)).await.unwrap();
    let client = Client::of(&simulator);
    let path = format!("/channels/{}/events", client.channels[0]);
    simulator.fail_next(Fault::Reset, 1);
    assert!(client.try_get(&path).await.unwrap_err().is_request());
    simulator.fail_next(Fault::ResetMidway, 1);
    let midway = match client.try_get(&path).await {
        Ok(response) => response.bytes().await.err(),
        Err(error) => Some(error),
    };
    assert!(midway.is_some());
    assert_eq!(client.poll("").await.offsets.len(), 10);
}

#[tokio::test]
async fn a_fault_can_be_for_one_route_only_and_slowness_delays_an_answer() {
    let simulator = Simulator::start(backlog(10)).await.unwrap();
    let client = Client::of(&simulator);
    simulator.fail_next_on(Route::Event, Fault::Status(500), 1);
    let page = client.poll("").await;
    let id = id_of(&page.records[0]);
    assert_eq!(client.event(&id).await.status(), 500);
    assert_eq!(client.event(&id).await.status(), 200);
    let delay = Duration::from_millis(200);
    simulator.fail_next(Fault::Slow(delay), 1);
    let asked = std::time::Instant::now();
    client.poll("").await;
    assert!(asked.elapsed() >= delay);
}

#[tokio::test]
async fn faults_by_chance_come_in_their_share_and_never_to_the_health_check() {
    let simulator = Simulator::start(Options { faults: 1.0, ..backlog(1) }).await.unwrap();
    let client = Client::of(&simulator);
    let path = format!("/channels/{}/events", client.channels[0]);
    assert_eq!(client.get(&path).await.status(), 429);
    assert_eq!(client.get("/health-check").await.status(), 200);
    assert_eq!(client.get(&path).await.status(), 500);
}

#[tokio::test]
async fn the_same_seed_gives_the_same_service_and_another_seed_another() {
    let options = Options { forged: 0.1, unsigned: 0.1, sparse: true, channels: 2, ..backlog(60) };
    let simulators = [
        Simulator::start(options.clone()).await.unwrap(),
        Simulator::start(options.clone()).await.unwrap(),
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

#[tokio::test]
async fn a_million_events_are_there_at_once() {
    let simulator = Simulator::start(Options { sparse: true, ..backlog(1_000_000) }).await.unwrap();
    let client = Client::of(&simulator);
    let middle = client.poll("offset=2500000&limit=3").await;
    assert_eq!(middle.offsets.len(), 3);
    assert!(middle.records.iter().all(|record| matches!(client.judge(record), Verdict::Verified(_))));
    let id = id_of(&middle.records[2]);
    assert_eq!(client.event(&id).await.text().await.unwrap(), middle.records[2]);
}

#[tokio::test]
async fn stopping_or_dropping_frees_the_port_and_cuts_what_is_open() {
    let first = Simulator::start(backlog(1)).await.unwrap();
    let client = Client::of(&first);
    client.poll("").await;
    let at = first.announcement().base_url.clone();
    let listen = at.trim_start_matches("http://").trim_end_matches("/v1").parse().unwrap();
    first.fail_next(Fault::Slow(PATIENCE), 1);
    let path = format!("/channels/{}/events", client.channels[0]);
    let asking = client.try_get(&path);
    let stopping = async {
        while first.requests().poll < 2 {
            tokio::task::yield_now().await;
        }
        tokio::time::timeout(PATIENCE / 2, first.stop()).await.unwrap();
    };
    let (answer, ()) = tokio::join!(asking, stopping);
    assert!(answer.is_err());

    let second = Simulator::start(Options { listen, ..backlog(1) }).await.unwrap();
    assert_eq!(second.announcement().base_url, at);
    assert_eq!(client.poll("").await.offsets, [1]);
    drop(second);
    let gone = async { while client.try_get(&path).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
}

#[tokio::test]
async fn the_announcement_is_what_a_client_needs() {
    let options = Options { channels: 3, org_id: "org_of_a_test".to_owned(), ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    let known = serde_json::to_value(simulator.announcement()).unwrap();
    assert_eq!(known["channels"].as_array().unwrap().len(), 3);
    assert_eq!(known["valid_signers"].as_array().unwrap().len(), 10);
    assert_eq!(known["min_required_signatures"], 4);
    assert_eq!(known["workflow_owner"], workflow_owner("org_of_a_test", "1").to_string());
    assert!(known["base_url"].as_str().unwrap().ends_with("/v1"));
}
