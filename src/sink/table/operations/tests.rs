use std::sync::Arc;

use super::*;
use crate::tests::{offset, orders, record_of_operation};
use record::testing::{notice, proved};
use record::{Message, Shape};

/// The known statuses, in the order of the ladder. The statuses in one entry have the same step.
const LADDER: [&[&str]; 9] = [
    &["pending_signature"],
    &["accepted"],
    &["sending"],
    &["sent"],
    &["broadcasting"],
    &["confirmed_latest"],
    &["confirmed_safe"],
    &["failed", "reverted", "cancelled", "expired"],
    &["confirmed"],
];

/// The id of an operation.
const ID: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

fn operation(message: &Message) -> Option<Operation> {
    Operation::of(message.record(), Timestamp::from_second(message.offset().get()).unwrap())
}

/// An event of the operation `f`.
fn event(number: i64, status: &str, transaction: &str) -> Operation {
    let transactions = format!(r#","transactions":[{{"to":"0x1"}},{{"to":"0x2","hash":"{transaction}"}}]"#);
    let members = if transaction.is_empty() { "" } else { &*transactions };
    operation(&record_of_operation(number, "f", status, members)).unwrap()
}

fn merge(events: &[Operation]) -> Operation {
    let (first, others) = events.split_first().unwrap();
    others.iter().fold(first.clone(), |mut merged, event| {
        merged.merge(event);
        merged
    })
}

/// The values of these columns, as text.
fn values<const N: usize>(operation: &Operation, names: [&str; N]) -> [String; N] {
    let cells = operation.cells();
    names.map(|name| match &cells[COLUMNS.iter().position(|column| column.name == name).unwrap()] {
        Cell::Null => String::new(),
        Cell::Number(number) => number.to_string(),
        Cell::Text(text) => text.to_string(),
        other => panic!("{name}: {other:?}"),
    })
}

#[test]
fn a_status_never_replaces_a_higher_one_and_an_unknown_status_replaces_none() {
    let unknown: &[&str] = &["teleported"];
    let ladder = std::iter::once(unknown).chain(LADDER).enumerate();
    let all: Vec<_> = ladder.flat_map(|(step, statuses)| statuses.iter().map(move |status| (step, *status))).collect();
    for (step, status) in &all {
        for (other_step, other) in &all {
            // The second event has the higher offset, so it wins if both have the same step.
            let expected = if step > other_step { status } else { other };
            let merged = merge(&[event(1, status, ""), event(2, other, "")]);
            assert_eq!(values(&merged, ["status"]), [*expected], "{status}, then {other}");
        }
    }
}

#[test]
fn any_order_of_events_gives_the_same_operation_with_the_highest_step() {
    let statuses =
        [("accepted", ""), ("sent", "0xa"), ("sent", "0xb"), ("expired", ""), ("confirmed_safe", ""), ("new", "0xc")];
    let events: Vec<_> =
        statuses.iter().zip(1..).map(|((status, transaction), number)| event(number, status, transaction)).collect();
    for count in 1..=events.len() {
        let events = &events[..count];
        let highest = events.iter().map(|event| event.latest.rank).max().unwrap();
        let expected = merge(events);
        assert_eq!(expected.latest.rank, highest);
        for order in orders(events) {
            let mut merged = merge(&order);
            assert_eq!(merged, expected);
            for event in &order {
                merged.merge(event);
            }
            assert_eq!(merged, expected, "merging the same events again changes nothing");
        }
    }
    let names = ["status", "step", "event_offset", "transaction_hash", "transaction_step", "transaction_offset"];
    assert_eq!(values(&merge(&events), names), ["expired", "8", "4", "0xb", "4", "3"]);
}

#[test]
fn the_times_are_of_the_first_event_and_of_the_event_with_the_status() {
    let timed = |number: i64, status: &str, second: Option<i64>| {
        let mut record = notice("operation.status", &format!(r#"{{"operation_id":"{ID}","status":"{status}"}}"#));
        (record.offset, record.time) = (offset(number), second);
        Operation::of(&record, Timestamp::UNIX_EPOCH).unwrap()
    };
    let events = [
        timed(1, "sent", Some(20)),
        timed(2, "accepted", Some(10)),
        timed(3, "failed", Some(30)),
        timed(4, "sent", None),
    ];
    let at = |second| Some(Timestamp::from_second(second).unwrap());
    for order in orders(&events) {
        let merged = merge(&order);
        assert_eq!((merged.first_seen, merged.latest.time), (at(10), at(30)));
    }
    assert_eq!(merge(&events[3..]).first_seen, None);
}

#[test]
fn signed_content_decides_about_the_status_and_the_transaction() {
    let signed = r#"{"service":"_crec","name":"OperationConfirmed","chain_event":{"tx_hash":"0xsigned"}}"#;
    let of = |status: &str, signed: &str| {
        let members = format!(r#""operation_id":"{ID}","status":"{status}","transactions":[{{"hash":"0xunsigned"}}]"#);
        Operation::of(&proved(&members, signed), Timestamp::UNIX_EPOCH)
    };
    let names = ["status", "verification", "transaction_hash"];
    let confirmed = of("confirmed_safe", signed).unwrap();
    assert_eq!(values(&confirmed, names), ["confirmed_safe", "verified", "0xsigned"]);
    let without_hash = of("confirmed", r#"{"service":"_crec","name":"OperationConfirmed"}"#).unwrap();
    assert_eq!(values(&without_hash, names), ["confirmed", "verified", "0xunsigned"]);
    assert_eq!(of("failed", signed), None, "the status contradicts the signed content");
    assert_eq!(of("confirmed", r#"{"service":"dvp","name":"Transfer"}"#), None, "it is an event of a watcher");
}

#[test]
fn only_an_event_with_an_operation_and_a_status_is_merged() {
    for (kind, payload) in [
        ("wallet.status", format!(r#"{{"operation_id":"{ID}","status":"failed"}}"#)),
        ("operation.status", r#"{"status":"failed"}"#.to_owned()),
        ("operation.status", format!(r#"{{"operation_id":"{ID}"}}"#)),
    ] {
        assert_eq!(Operation::of(&notice(kind, &payload), Timestamp::UNIX_EPOCH), None, "{kind}: {payload}");
    }
    let large = format!(r#"{{"operation_id":"{}","status":"sent"}}"#, ID.to_uppercase());
    let found = Operation::of(&notice("operation.status", &large), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(&*found.id, ID);
    for members in ["", r#","transactions":[]"#, r#","transactions":[{"to":"0x1"},{"hash":7},{"hash":""}]"#] {
        let operation = operation(&record_of_operation(1, "f", "sent", members)).unwrap();
        assert_eq!(operation.transaction, None, "{members}");
    }
}

#[test]
fn a_statement_gets_each_operation_once_in_the_order_of_the_ids() {
    let row =
        |number, id: &str, status| Row::of(&record_of_operation(number, id, status, ""), Timestamp::UNIX_EPOCH, true);
    let notice = Message::new(&Arc::new(notice("wallet.status", "{}")), &Shape::default());
    let notice = Row::of(&notice, Timestamp::UNIX_EPOCH, true);
    let rows = [row(1, "b", "sent"), row(2, "a", "failed"), notice, row(3, "b", "accepted"), row(4, "a", "confirmed")];
    let merged = merged(&rows);
    let found: Vec<_> = merged.iter().map(|operation| values(operation, ["status", "operation_id"])).collect();
    let [[confirmed, a], [sent, b]] = &found[..] else { panic!("{found:?}") };
    assert!(confirmed == "confirmed" && a.ends_with("0a") && sent == "sent" && b.ends_with("0b"), "{found:?}");
    let message = record_of_operation(1, "a", "sent", "");
    assert_eq!(Row::of(&message, Timestamp::UNIX_EPOCH, false).operation, None, "the sink has no such table");
}
