//! Reading by long polls and by server-sent events.

use std::io::{Read, Write};
use std::net::TcpListener;

use serde_json::{Value, json};
use simulator::{Honesty, LateProofs, Options};

use super::program::Client;
use super::{Feed, ten_events, with_each_client};
use crate::feed::reading::NEVER;
use crate::feed::{FeedClient, assert_positions, sorted_offsets};
use crate::support::deliverable;

with_each_client![
    a_client_lists_channels_and_resumes_at_a_position,
    long_polls_continue_across_a_restart_and_a_late_delivery,
    streams_continue_across_a_restart_and_a_late_delivery,
    deleted_events_are_an_error_with_the_oldest_position,
    a_broken_answer_is_requested_again,
];

async fn a_client_lists_channels_and_resumes_at_a_position(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    let direct = FeedClient::of(&mut daemon).await;
    direct.until(&mut daemon, "c0", 10).await;
    let Some(mut client) = Client::start(language, &feed.task("channels", &json!({}))) else { return };
    let channels = client.next("channels").await;
    let id = feed.served.simulator.announcement().channels[0].to_string();
    assert_eq!(channels, json!([{"name": "c0", "id": id, "position": 10}]));
    client.ended().await;

    let all = direct.read("c0", 0, 100).await;
    for action in ["events", "stream"] {
        for (after, first) in [(Value::Null, 1), (json!(0), 1), (json!(3), 4)] {
            let task = feed.task(action, &json!({"after": after, "count": 6}));
            let mut client = Client::start(language, &task).unwrap();
            let events = client.events(6).await;
            assert_positions(&events, first..first + 6);
            assert_eq!(events, all[usize::try_from(first).unwrap() - 1..][..6], "the events are unchanged");
            client.ended().await;
        }
    }
    daemon.stop().await;
}

async fn long_polls_continue_across_a_restart_and_a_late_delivery(language: &str) {
    continues_across_a_restart_and_a_late_delivery(language, "events").await;
}

async fn streams_continue_across_a_restart_and_a_late_delivery(language: &str) {
    continues_across_a_restart_and_a_late_delivery(language, "stream").await;
}

async fn continues_across_a_restart_and_a_late_delivery(language: &str, action: &str) {
    let late_proofs = Some(LateProofs { share: 0.2, delay: NEVER });
    let feed = Feed::of(Options { events: 40, forged: 0.1, late_proofs, ..Options::default() }).await;
    let simulator = &feed.served.simulator;
    let pending: Vec<_> =
        simulator.offsets(0).into_iter().filter(|(_, honesty)| *honesty == Honesty::Pending).collect();
    let first = deliverable(simulator, 0);
    assert!(!pending.is_empty() && first.len() + pending.len() < 40, "some are pending, and some are forged");
    let count = first.len() + pending.len() + 1;

    let mut daemon = feed.served.setup.start();
    let Some(mut client) = Client::start(language, &feed.task(action, &json!({"count": count}))) else { return };
    let mut read = client.events(first.len()).await;
    daemon.until_logged("the feed is served").await;
    daemon.kill().await;
    client.until_retry("connection").await;
    for (offset, _) in &pending {
        simulator.prove(0, *offset);
    }
    let daemon = feed.served.setup.start();
    read.extend(client.events(pending.len()).await);
    feed.publish();
    read.extend(client.events(1).await);
    client.ended().await;
    assert_positions(&read, 1..=i64::try_from(count).unwrap());
    assert_eq!(sorted_offsets(&read), deliverable(simulator, 0));
    daemon.stop().await;
}

async fn deleted_events_are_an_error_with_the_oldest_position(language: &str) {
    let feed = Feed::of(ten_events()).await;
    let mut daemon = feed.served.setup.start();
    let direct = FeedClient::of(&mut daemon).await;
    direct.until(&mut daemon, "c0", 10).await;
    let Some(mut client) = Client::start(language, &feed.task("consume", &json!({}))) else { return };
    assert_positions(&client.events(4).await, 1..=4);
    feed.served.change("delete from events where position <= 7").await;
    client.answer("commit").await;
    assert_eq!(client.error().await, ("gone".to_owned(), 8));
    for action in ["events", "stream"] {
        let mut client = Client::start(language, &feed.task(action, &json!({"after": 3, "count": 1}))).unwrap();
        assert_eq!(client.error().await, ("gone".to_owned(), 8), "{action}");
        let mut client = Client::start(language, &feed.task(action, &json!({"after": 7, "count": 3}))).unwrap();
        assert_positions(&client.events(3).await, 8..=10);
    }
    // An operator can delete a row in the middle.
    feed.served.change("delete from events where position = 9").await;
    for action in ["events", "stream"] {
        let mut client = Client::start(language, &feed.task(action, &json!({"after": 8, "count": 1}))).unwrap();
        assert_eq!(client.error().await, ("gone".to_owned(), 10), "{action}");
    }
    daemon.stop().await;
}

async fn a_broken_answer_is_requested_again(language: &str) {
    let events = r#"{"events":[{"position":6,"name":"é"}],"next":6}"#.as_bytes();
    let message = "data:{\"position\":6,\"name\":\"é\"}\n\n".as_bytes();
    // Cut inside of the last character.
    let cut = |text: &[u8]| text[..=text.iter().position(|byte| !byte.is_ascii()).unwrap()].to_vec();
    for (action, whole) in [("events", events), ("stream", message)] {
        let url = answering(vec![Vec::new(), cut(whole), whole.to_vec()]);
        let task = json!({"do": action, "url": url, "after": 5, "count": 1});
        let Some(mut client) = Client::start(language, &task) else { return };
        client.until_retry("connection").await;
        client.until_retry("connection").await;
        assert_eq!(client.next("events").await, json!([{"position": 6, "name": "é"}]), "{action}");
        client.ended().await;
    }
}

/// The address of a server that sends the next of these bodies to each client, and then closes the connection.
fn answering(bodies: Vec<Vec<u8>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for body in bodies {
            let (mut connection, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            assert!(connection.read(&mut request).unwrap() > 0);
            connection.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").unwrap();
            connection.write_all(&body).unwrap();
        }
    });
    url
}
