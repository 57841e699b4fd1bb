//! A misbehaving channel behaves as configured, and the other channels are not affected.

use std::time::{Duration, Instant};

use reqwest::Response;
use simulator::{ApiVersion, Misbehaviour, Options, Simulator};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{Client, backlog, id_of, on_each_version};

on_each_version! {
    answers_can_hang_or_arrive_a_byte_per_second,
    answers_can_be_excessively_large,
    events_can_be_large_forged_deep_or_pending_forever,
    pages_can_make_no_progress,
    a_healthy_channel_coexists_with_misbehaving_ones,
}

const MIB: usize = 1 << 20;

/// If no byte arrives within this time, the request hangs. The slow answers take longer than this.
const A_WHILE: Duration = Duration::from_millis(500);

async fn misbehaving(version: ApiVersion, how: Misbehaviour) -> (Simulator, Client) {
    let simulator = Simulator::start(backlog(version, 100)).await.unwrap();
    simulator.misbehave(0, Some(how));
    let client = Client::of(&simulator);
    (simulator, client)
}

async fn answer(client: &Client) -> Response {
    client.get(&format!("/channels/{}/events", client.channels[0])).await
}

/// The first bytes of the raw answer.
async fn bytes<const N: usize>(client: &Client) -> [u8; N] {
    let host = client.base.trim_start_matches("http://").trim_end_matches("/v1");
    let mut stream = TcpStream::connect(host).await.unwrap();
    let request = format!("GET /v1/channels/{}/events HTTP/1.1\r\nHost: {host}\r\n\r\n", client.channels[0]);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.unwrap();
    bytes
}

/// Reads at least this many bytes of the body.
async fn read(mut answer: Response, wanted: usize) -> Vec<u8> {
    let mut body = Vec::new();
    while body.len() < wanted {
        body.extend(answer.chunk().await.unwrap().expect("the body continues"));
    }
    body
}

async fn answers_can_hang_or_arrive_a_byte_per_second(version: ApiVersion) {
    let (simulator, client) = misbehaving(version, Misbehaviour::Hang).await;
    assert!(tokio::time::timeout(A_WHILE, bytes::<1>(&client)).await.is_err());

    simulator.misbehave(0, Some(Misbehaviour::SlowHead));
    let asked = Instant::now();
    assert_eq!(&bytes::<2>(&client).await, b"HT");
    assert!(asked.elapsed() > A_WHILE);

    simulator.misbehave(0, Some(Misbehaviour::Informational));
    let asked = Instant::now();
    assert_eq!(&bytes::<54>(&client).await, b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n");
    assert!(asked.elapsed() > A_WHILE);

    simulator.misbehave(0, Some(Misbehaviour::SlowBody));
    let slow = answer(&client).await;
    let asked = Instant::now();
    assert_eq!(read(slow, 2).await, br#"{""#);
    assert!(asked.elapsed() > A_WHILE);

    simulator.misbehave(0, None);
    assert_eq!(client.poll("").await.offsets.len(), 100);
}

async fn answers_can_be_excessively_large(version: ApiVersion) {
    let (simulator, client) = misbehaving(version, Misbehaviour::EndlessBody).await;
    let body = read(answer(&client).await, 70 * MIB).await;
    assert!(body.starts_with(br#"{"events":[  "#));

    simulator.misbehave(0, Some(Misbehaviour::GzipBomb));
    let plain = reqwest::Client::builder().no_proxy().no_gzip().build().unwrap();
    let url = format!("{}/channels/{}/events", client.base, client.channels[0]);
    let compressed = plain.get(url).send().await.unwrap();
    assert_eq!(compressed.headers()["content-encoding"], "gzip");
    assert!(compressed.content_length().unwrap() < 2 << 20);
    let body = read(answer(&client).await, 70 * MIB).await;
    assert!(body.starts_with(br#"{"events":[  "#) && body.ends_with(b"  "));

    simulator.misbehave(0, Some(Misbehaviour::LargeError));
    let error = answer(&client).await;
    assert_eq!(error.status(), 500);
    assert!(error.bytes().await.unwrap().len() > 10_000_000);

    simulator.misbehave(0, Some(Misbehaviour::RetryAfter));
    let limited = answer(&client).await;
    assert_eq!((limited.status().as_u16(), limited.headers()["retry-after"].to_str().unwrap()), (429, "31536000"));
}

async fn events_can_be_large_forged_deep_or_pending_forever(version: ApiVersion) {
    for (how, limit, size, verdict) in [
        (Misbehaviour::LargeNotices, 2, 6_000_000, "unsigned"),
        (Misbehaviour::LargeEvents, 2, 6_000_000, "verified"),
        (Misbehaviour::WithheldProofs, 10, 1_000_000, "pending"),
        (Misbehaviour::Forged, 90, 10_000, "rejected"),
    ] {
        let (_simulator, client) = misbehaving(version, how).await;
        let page = client.poll(&format!("limit={limit}&offset=0")).await;
        assert!(page.offsets.len() == limit && page.has_more, "{how:?}");
        for record in &page.records[..2] {
            assert!((size..size + 6000).contains(&record.len()), "{how:?}: {}", record.len());
            assert_eq!(client.verify(record).name(), verdict, "{how:?}");
        }
        let last = page.records.last().unwrap();
        assert_eq!(&client.event(&id_of(last)).await.text().await.unwrap(), last, "{how:?}");
    }
    let (simulator, client) = misbehaving(version, Misbehaviour::LargeEvents).await;
    let length = answer(&client).await.bytes().await.unwrap().len();
    assert!((60_000_000..61_000_000).contains(&length), "ten a page: {length}");

    simulator.misbehave(0, Some(Misbehaviour::DeepJson));
    let page = answer(&client).await.text().await.unwrap();
    let notices = page.matches(&"[".repeat(100_000)).count();
    assert!((20..80).contains(&notices), "{notices}");
    assert_eq!(
        page.matches("W1tbW1tbW1tb".repeat(10_000).as_str()).count() + notices,
        100,
        "the others have it signed"
    );
}

async fn pages_can_make_no_progress(version: ApiVersion) {
    let (simulator, client) = misbehaving(version, Misbehaviour::EmptyPages).await;
    let page = client.poll("").await;
    assert!(page.offsets.is_empty() && page.has_more);

    simulator.misbehave(0, Some(Misbehaviour::SamePage));
    for offset in [0, 50, 100] {
        let page = client.poll(&format!("limit=2&offset={offset}")).await;
        assert!(page.offsets == [100, 99] && page.has_more);
    }

    simulator.misbehave(0, Some(Misbehaviour::Backwards));
    for (offset, expected) in [(0, vec![100, 99]), (100, vec![99, 98]), (2, vec![1]), (1, vec![])] {
        let page = client.poll(&format!("limit=2&offset={offset}")).await;
        assert!(page.offsets == expected && page.has_more);
    }
}

async fn a_healthy_channel_coexists_with_misbehaving_ones(version: ApiVersion) {
    let misbehave = vec!["1-2:all".parse().unwrap(), "2:retry-after".parse().unwrap()];
    let simulator = Simulator::start(Options { channels: 4, misbehave, ..backlog(version, 3) }).await.unwrap();
    let client = Client::of(&simulator);
    let path = |channel: usize| format!("/channels/{}/events", client.channels[channel]);
    assert_eq!(client.poll("").await.offsets.len(), 3);
    assert!(tokio::time::timeout(A_WHILE, client.get(&path(1))).await.is_err());
    assert_eq!(client.get(&path(2)).await.status(), 429);
    assert_eq!(client.get(&path(3)).await.status(), 200);
}
