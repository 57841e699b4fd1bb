//! Search supports every filter in spec/wire.md.

use proof::verify::Verdict;
use serde_json::Value;
use simulator::{ApiVersion, Options, Simulator};

use super::client::{Client, ENDS_AT, backlog, json, on_each_version};

on_each_version! {
    search_filters_by_every_field,
    search_accepts_several_values_names_services_and_times,
    search_pages_by_offset_like_polling,
    an_empty_value_is_no_filter_and_any_text_can_be_an_id,
    an_environment_selects_the_events_of_its_networks,
}

async fn search_filters_by_every_field(version: ApiVersion) {
    let simulator = Simulator::start(Options { unsigned: 0.5, ..backlog(version, 400) }).await.unwrap();
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

async fn search_accepts_several_values_names_services_and_times(version: ApiVersion) {
    let simulator = Simulator::start(Options { unsigned: 0.3, ..backlog(version, 400) }).await.unwrap();
    let client = Client::of(&simulator);
    let either = client.search("type=wallet.status&type=watcher.status&limit=200").await;
    let types: Vec<_> = either.records.iter().map(|record| json(record)["headers"]["type"].clone()).collect();
    assert!(types.contains(&"wallet.status".into()) && types.contains(&"watcher.status".into()));
    assert!(types.iter().all(|name| name != "watcher.event"));

    let named = client.search("event_name=SettlementAccepted&service=settlement&service=fund&limit=200").await;
    assert!(!named.records.is_empty());
    for record in &named.records {
        let Verdict::Verified(verified) = client.verify(record) else { panic!("{record}") };
        let signed = base64::Engine::decode(
            &base64::prelude::BASE64_STANDARD,
            verified.event().payload.signed.as_deref().unwrap(),
        );
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

async fn search_pages_by_offset_like_polling(version: ApiVersion) {
    let simulator = Simulator::start(Options { unsigned: 0.5, ..backlog(version, 200) }).await.unwrap();
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

async fn an_empty_value_is_no_filter_and_any_text_can_be_an_id(version: ApiVersion) {
    let simulator = Simulator::start(backlog(version, 30)).await.unwrap();
    let client = Client::of(&simulator);
    for empty in ["type=", "type=&status=", "service=&service=", "watcher_id=", "created.gte="] {
        assert_eq!(client.search(empty).await.offsets.len(), 30, "{empty}");
    }
    for unknown in ["operation_id=op-7", "wallet_operation_id=7", "query_id=the+last", "chain_selector=0x1"] {
        assert!(client.search(unknown).await.offsets.is_empty(), "{unknown}");
    }
}

async fn an_environment_selects_the_events_of_its_networks(version: ApiVersion) {
    let simulator = Simulator::start(backlog(version, 100)).await.unwrap();
    let client = Client::of(&simulator);
    let networks = [
        (
            "mainnet",
            [
                "5009297550715157269",
                "4949039107694359620",
                "6433500567565415381",
                "4051577828743386545",
                "15971525489660198786",
            ],
        ),
        (
            "testnet",
            [
                "16015286601757825753",
                "3478487238524512106",
                "14767482510784806043",
                "16281711391670634445",
                "10344971235874465080",
            ],
        ),
    ];
    let mut found = 0;
    for (environment, selectors) in networks {
        let page = client.search(&format!("chain_environment={environment}&limit=200")).await;
        for record in &page.records {
            let selector = json(record)["payload"]["chain_selector"].as_str().unwrap().to_owned();
            assert!(selectors.contains(&&*selector), "{environment}: {record}");
        }
        found += page.records.len();
    }
    assert_eq!(found, 100, "each event is in one environment");
}
