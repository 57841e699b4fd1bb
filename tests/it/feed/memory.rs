//! The memory of the daemon is bounded although clients do not read their responses, wait, or never finish their requests.

use std::path::PathBuf;
use std::time::Instant;

use futures_util::future::join_all;
use simulator::Options;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::access::ask_socket;
use super::{FeedClient, Served, TOKEN};
use crate::support::{Daemon, LONGEST_WAIT, LOOK_AGAIN};

const OTHER: &str = "token-of-other-never-to-be-shown";

/// `limits.memory` of the daemon. The responses of the feed can use an eighth of this limit.
const LIMIT: u64 = 64 << 20;

/// The bound for clients that do not read. It is four times the share of the feed, because each part of a response is a copy of records,
/// and requests also use memory.
const DEAF: u64 = LIMIT / 2;

/// The size that is added to each record. A page of 1,000 events is then as large as a page can be.
const PADDING: usize = 50_000;

/// The events of the channel: 100 MB of records.
const EVENTS: usize = 2_000;

/// The clients of each consumer.
const CLIENTS: usize = 100;

/// The number of files and connections that the daemon itself may open or close in the meantime, for example of the table.
const OWN_FILES: usize = 20;

/// The bound for each request that waits or is not finished.
const EACH: u64 = 40 << 10;

/// A feed with large records and little memory. The daemon is stopped.
async fn large_records() -> Served {
    let mut served = Served::by("sqlite", Options { events: EVENTS as u64, ..Options::default() }).await.unwrap();
    served.add_consumer("other", OTHER, &["c0"]);
    served.setup.set("limits.memory", "64MiB");
    let mut daemon = served.setup.start();
    FeedClient::of(&mut daemon).await.until(&mut daemon, "c0", EVENTS).await;
    daemon.stop().await;
    let padding = "x".repeat(PADDING);
    served.change(&format!("update events set record = '{{\"padding\":\"{padding}\",' || substr(record, 2)")).await;
    served
}

fn request(token: &str, path: &str) -> String {
    format!("GET /v1/channels/c0/{path} HTTP/1.1\r\nHost: feed\r\nAuthorization: Bearer {token}\r\n\r\n")
}

/// Sends a request whose response is not read.
async fn ask(socket: &PathBuf, token: &str, path: &str) -> UnixStream {
    let mut connection = UnixStream::connect(socket).await.unwrap();
    connection.write_all(request(token, path).as_bytes()).await.unwrap();
    connection
}

async fn connect(client: &FeedClient) -> TcpStream {
    TcpStream::connect(client.address()).await.unwrap()
}

/// The number of open files and connections of the daemon.
fn open_files(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

/// Waits until the daemon has about this number of open files and connections.
async fn until_closed(daemon: &mut Daemon, files: usize) {
    let files = files + OWN_FILES;
    daemon
        .while_it_moves("the clients are disconnected", |daemon| Some(open_files(daemon)).filter(|it| *it > files))
        .await;
}

/// The socket has a small buffer, so the daemon soon has to wait for its clients.
#[tokio::test]
async fn clients_that_do_not_read_use_a_bounded_amount_of_memory() {
    let mut served = large_records().await;
    let socket = served.setup.path("feed.sock");
    served.setup.set("feed.listen", format!("unix:{}", socket.display()));
    let mut daemon = served.setup.start();
    daemon.until_logged("the feed is served").await;
    let reads = async || ask_socket(&socket, "/channels/c0/events?after=1990").await.starts_with("HTTP/1.1 200 ");
    // The first page also opens the table.
    assert!(reads().await);
    for path in ["events?after=0&limit=1000", "stream?after=0"] {
        let (before, files) = (daemon.memory("VmRSS"), open_files(&daemon));
        let mut deaf = Vec::new();
        for token in [TOKEN, OTHER] {
            deaf.extend(join_all((0..CLIENTS).map(|_| ask(&socket, token, path))).await);
        }
        // A client without a token is served meanwhile. It may have to try again.
        let deadline = Instant::now() + LONGEST_WAIT;
        while !reads().await {
            assert!(Instant::now() < deadline, "{}", daemon.log().tail());
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        until_closed(&mut daemon, files).await;
        let used = daemon.memory("VmHWM").saturating_sub(before);
        println!("{path}: {} KiB more", used >> 10);
        assert!(used < DEAF, "{path}: {used} bytes");
    }
    daemon.stop().await;
}

#[tokio::test]
async fn a_waiting_stream_uses_little_memory_after_a_large_page() {
    let served = large_records().await;
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    // The first page also opens the table.
    client.read("c0", 1_990, 5).await;
    let before = daemon.memory("RssAnon");
    let mut streams = Vec::new();
    // One after the other: all pages at once would exceed the limit of memory.
    for _ in 0..2 * CLIENTS {
        let mut stream = connect(&client).await;
        stream.write_all(request(TOKEN, "stream?after=1995").as_bytes()).await.unwrap();
        let mut read = Vec::new();
        // Less than a page remains in the buffer of the connection.
        while read.len() < 5 * PADDING {
            let count = timeout(LONGEST_WAIT, stream.read_buf(&mut read)).await.expect("the events arrive").unwrap();
            assert_ne!(count, 0, "the stream does not end");
        }
        streams.push(stream);
    }
    let limit = before + EACH * streams.len() as u64;
    daemon.until("the memory is released", |daemon| daemon.memory("RssAnon") < limit).await;
    drop(streams);
    daemon.stop().await;
}

#[tokio::test]
async fn requests_that_are_never_finished_use_a_bounded_amount_of_memory() {
    let served = Served::by("sqlite", Options { events: 5, ..Options::default() }).await.unwrap();
    let mut daemon = served.setup.start();
    let client = FeedClient::of(&mut daemon).await;
    client.until(&mut daemon, "c0", 5).await;
    let (before, files, clients) = (daemon.memory("VmRSS"), open_files(&daemon), 2 * CLIENTS);
    // The head has no end, and is just below the largest size.
    let head = format!("GET /v1/channels HTTP/1.1\r\nX: {}", "x".repeat(15 << 10));
    let unfinished = join_all((0..clients).map(async |_| {
        let mut connection = connect(&client).await;
        connection.write_all(head.as_bytes()).await.unwrap();
        connection
    }))
    .await;
    daemon.until("the clients are connected", |daemon| open_files(daemon) + OWN_FILES >= files + clients).await;
    assert_eq!(client.read("c0", 0, 5).await.len(), 5, "others are served");
    until_closed(&mut daemon, files).await;
    let used = daemon.memory("VmHWM").saturating_sub(before);
    println!("{} KiB more", used >> 10);
    assert!(used < EACH * clients as u64, "{used} bytes");
    drop(unfinished);
    daemon.stop().await;
}
