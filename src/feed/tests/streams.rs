//! Server-sent events.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use uuid::Uuid;

use super::memory_table::MemoryTable;
use super::support::{MAX_WAIT, OPEN, TOKEN, TestFeed, ask_on, request, served, settings};
use crate::{FeedChannel, Served};

const STREAM: &str = "/v1/channels/open/stream";

fn authorized(more: &str) -> String {
    request("GET", STREAM, &format!("Authorization: Bearer {TOKEN}\r\n{more}"), "")
}

/// Opens a stream.
async fn open(feed: &TestFeed, more: &str) -> TcpStream {
    let mut client = feed.connect().await;
    client.write_all(authorized(more).as_bytes()).await.unwrap();
    client
}

/// Reads a stream until it contains this text. Returns everything that was read.
async fn until(client: &mut TcpStream, expected: &str) -> String {
    let mut text = String::new();
    let read = async {
        while !text.contains(expected) {
            let mut part = [0; 4_096];
            let length = client.read(&mut part).await.unwrap();
            assert!(length > 0, "the stream ended: {text}");
            text.push_str(std::str::from_utf8(&part[..length]).unwrap());
        }
    };
    timeout(MAX_WAIT, read).await.unwrap_or_else(|_| panic!("no {expected:?}"));
    text
}

/// The ids of the messages.
fn ids(text: &str) -> Vec<i64> {
    text.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap()).collect()
}

#[tokio::test]
async fn a_stream_sends_old_and_new_events_and_resumes_after_the_last_id() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 2);
        let mut client = open(feed, "").await;
        let first = until(&mut client, "e2").await;
        assert!(first.starts_with("HTTP/1.1 200 ") && first.contains("content-type: text/event-stream\r\n"), "{first}");
        assert!(first.contains("id: 1\ndata: {\"position\":1,\"event_id\":\"e1\"}\n\n"), "{first}");
        feed.table.deliver(OPEN, 1);
        assert_eq!(ids(&until(&mut client, "e3").await), [3]);
        drop(client);

        feed.table.deliver(OPEN, 1);
        let mut resumed = open(feed, "Last-Event-ID: 2\r\n").await;
        assert_eq!(ids(&until(&mut resumed, "e4").await), [3, 4]);
    })
    .await;
}

#[tokio::test]
async fn a_stream_cannot_begin_where_events_are_missing() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 3);
        feed.table.delete_through(OPEN, 2);
        for (id, status) in [("1", 410), ("4", 400), ("-1", 400), ("x", 400), ("2\r\nLast-Event-ID: 2", 400)] {
            let request = authorized(&format!("Last-Event-ID: {id}\r\n"));
            let refused = ask_on(&mut feed.connect().await, &request).await;
            assert_eq!(refused.status, status, "{id:?}: {refused:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_stream_ends_with_a_problem_if_its_next_events_were_deleted() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 1);
        let mut client = open(feed, "").await;
        until(&mut client, "e1").await;
        feed.table.deliver_quietly(OPEN, 2);
        feed.table.delete_through(OPEN, 2);
        feed.table.deliver(OPEN, 1);
        let end = until(&mut client, "\r\n0\r\n\r\n").await;
        assert!(end.contains("event: problem\ndata: {") && end.contains("\"oldest\":3"), "{end}");
    })
    .await;
}

#[tokio::test]
async fn a_stream_ends_with_a_problem_if_its_position_does_not_exist_any_more() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 3);
        let mut client = open(feed, "").await;
        until(&mut client, "e3").await;
        feed.until(|feed| feed.operators.status().waiting == 1).await;
        feed.table.restore(OPEN, 1);
        let end = until(&mut client, "\r\n0\r\n\r\n").await;
        assert!(end.contains("event: problem\ndata: {") && end.contains("the position 3 does not exist"), "{end}");
    })
    .await;
}

#[tokio::test]
async fn a_stream_ends_with_a_problem_if_a_reload_gives_its_name_to_another_channel() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 1);
        let mut client = open(feed, "").await;
        until(&mut client, "e1").await;
        let mut renamed = settings();
        renamed.channels[0] = FeedChannel { name: "open".into(), id: Uuid::from_u128(3) };
        feed.set(renamed);
        let end = until(&mut client, "\r\n0\r\n\r\n").await;
        assert!(end.contains("event: problem\ndata: {") && end.contains("belongs to another channel"), "{end}");
    })
    .await;
}

#[tokio::test]
async fn a_stream_sends_an_event_that_was_delivered_at_the_time_of_a_reload() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 1);
        let mut client = open(feed, "").await;
        until(&mut client, "e1").await;
        feed.until(|feed| feed.operators.status().waiting == 1).await;
        feed.table.deliver(OPEN, 1);
        feed.set(settings());
        assert_eq!(ids(&until(&mut client, "e2").await), [2]);
    })
    .await;
}

#[tokio::test]
async fn streams_end_when_the_daemon_stops_or_their_token_is_removed() {
    served(settings(), async |feed| {
        let mut client = open(feed, "").await;
        until(&mut client, "retry:").await;
        let mut without = settings();
        without.consumers.remove(0);
        feed.set(without);
        feed.table.deliver(OPEN, 1);
        let end = until(&mut client, "\r\n0\r\n\r\n").await;
        assert!(end.contains("urn:channeld:feed:no-token") && ids(&end).is_empty(), "{end}");

        feed.set(settings());
        let mut client = open(feed, "Last-Event-ID: 1\r\n").await;
        until(&mut client, "retry:").await;
        feed.stop.cancel();
        until(&mut client, "0\r\n\r\n").await;
    })
    .await;
}

#[tokio::test]
async fn a_stream_continues_with_the_table_of_a_reload() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 1);
        let mut client = open(feed, "").await;
        until(&mut client, "e1").await;
        let table = Arc::<MemoryTable>::default();
        table.deliver(OPEN, 1);
        feed.served.send_replace(Arc::new(Served::new(settings(), table.clone())));
        // The old table has no request that waits for it, so only the new table can wake the stream.
        feed.until_waiting(0).await;
        table.deliver(OPEN, 1);
        assert_eq!(ids(&until(&mut client, "e2").await), [2]);
    })
    .await;
}
