//! Applications that read the feed of an SQLite table: how fast one client reads a backlog, how soon a new event arrives, and what
//! waiting clients cost.
//!
//! The clients run in this process and parse each answer, so two cores do the work of the daemon and of its clients.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use serde::Deserialize;
use simulator::Options;

use super::daemon::{Daemon, LOOK_AGAIN, Place, TOKEN};
use super::service::Hosted;
use super::table::{Samples, Table, figure, kibibytes};

/// The number of streams that wait.
const STREAMS: usize = 200;

/// The wait before the cost of the streams is measured.
const SETTLING: Duration = Duration::from_secs(5);

/// The number of events whose latency is measured.
const SINGLE: usize = 500;

/// The wait between two checks for a new row.
const TICK: Duration = Duration::from_micros(200);

const LIMIT: usize = 1_000;

/// A client that polls. The daemon closes each connection after one answer.
struct Client {
    address: SocketAddr,
    after: i64,
}

/// The connection of one poll.
struct Poll(BufReader<TcpStream>);

/// The part of an answer that the benchmark checks.
#[derive(Deserialize)]
struct Answer {
    events: Vec<Event>,
    next: i64,
}

#[derive(Deserialize)]
struct Event {
    position: i64,
    event: Content,
}

#[derive(Deserialize)]
struct Content {
    headers: serde_json::Value,
}

pub(crate) fn run(events: u32, time: Duration) {
    eprintln!("feed: a backlog of {events} events");
    let service = Hosted::start(Options { events: events.into(), prepared: true, ..Options::default() });
    let place = Place::with_feed(service.known(), &["api.idle_wait = \"100ms\""]);
    let mut daemon = place.start();
    daemon.until_recorded(events.into());
    let address = feed(&place, &mut daemon);
    let mut table = Table::of_figures(&format!("feed: an SQLite table with {} events", figure(events.into())));

    let before = daemon.cost();
    let (mut client, began) = (Client { address, after: 0 }, Instant::now());
    let read = client.read_until(events.into());
    let took = began.elapsed().as_secs_f64();
    let cpu = daemon.cost().cpu.saturating_sub(before.cpu).as_secs_f64();
    table.figure("events a second to one client", f64::from(events) / took, "10,000 or more");
    table.figure("  MiB a second", read as f64 / took / f64::from(1 << 20), "");
    table.figure("  µs of the daemon's processor an event", cpu * 1e6 / f64::from(events), "");

    let samples = latency(&service, &place, &mut client);
    table.figure("ms from commit to client, median", samples.at(0.5), "");
    table.figure("  99th percentile", samples.at(0.99), "50 or less");
    table.figure("  longest", samples.at(1.0), "");

    let (cpu, resident) = waiting(address, &mut daemon, client.after, time);
    table.figure(&format!("{STREAMS} streams that wait, % of one core"), cpu, "3 or less");
    table.figure("  KiB resident a stream", resident, "20 or less");
    daemon.stop();
    table.print();
}

fn feed(place: &Place, daemon: &mut Daemon<'_>) -> SocketAddr {
    loop {
        if let Some(address) = place.feed() {
            return address;
        }
        daemon.must_run();
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Publishes one event after another, and measures the milliseconds from the moment at which another reader of the database sees the row
/// until the client has received the event.
fn latency(service: &Hosted, place: &Place, client: &mut Client) -> Samples {
    let database = Connection::open_with_flags(place.table(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let newest = || database.query_row("select max(position) from events", [], |row| row.get::<_, i64>(0)).unwrap();
    let mut samples = Samples::default();
    for _ in 0..SINGLE {
        let before = client.after;
        let committed = std::thread::scope(|scope| {
            let received = scope.spawn(|| {
                client.poll();
                Instant::now()
            });
            service.simulator.publish(0, 1);
            while newest() == before {
                std::thread::sleep(TICK);
            }
            let committed = Instant::now();
            (committed, received.join().unwrap())
        });
        assert_eq!(client.after, before + 1);
        samples.push(committed.1.saturating_duration_since(committed.0).as_secs_f64() * 1e3);
    }
    samples
}

/// The cost of many waiting streams: the percentage of a core, and the KiB of resident memory of each.
fn waiting(address: SocketAddr, daemon: &mut Daemon<'_>, after: i64, time: Duration) -> (f64, f64) {
    eprintln!("feed: {STREAMS} streams for {} s, and as long without them", time.as_secs());
    let cpu_during = |daemon: &mut Daemon<'_>| {
        std::thread::sleep(SETTLING);
        let (before, began) = (daemon.cost(), Instant::now());
        std::thread::sleep(time);
        daemon.must_run();
        let used = daemon.cost().cpu.saturating_sub(before.cpu).as_secs_f64();
        used / began.elapsed().as_secs_f64() * 100.0
    };
    let (without, before) = (cpu_during(daemon), daemon.cost().resident);
    let streams: Vec<_> = (0..STREAMS).map(|_| stream(address, after)).collect();
    let with = cpu_during(daemon);
    let resident = daemon.cost().resident.saturating_sub(before);
    drop(streams);
    (with - without, kibibytes(resident) / STREAMS as f64)
}

/// Opens a stream after a position, and waits for the beginning of its answer.
fn stream(address: SocketAddr, after: i64) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "GET /v1/channels/c0/stream HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nLast-Event-ID: {after}\r\n\r\n"
    )
    .unwrap();
    let mut begin = [0; 15];
    stream.read_exact(&mut begin).unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200 OK");
    stream
}

impl Client {
    /// Reads until this position. Returns the number of bytes.
    fn read_until(&mut self, position: i64) -> usize {
        let mut bytes = 0;
        while self.after < position {
            bytes += self.poll();
        }
        bytes
    }

    /// Waits for the next events, and checks that none is missing. Returns the number of bytes.
    fn poll(&mut self) -> usize {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(
            stream,
            "GET /v1/channels/c0/events?after={}&limit={LIMIT}&wait=30s HTTP/1.1\r\nHost: feed\r\nAuthorization: Bearer {TOKEN}\r\n\r\n",
            self.after
        )
        .unwrap();
        let body = Poll(BufReader::with_capacity(256 << 10, stream)).body();
        let Answer { events, next } = serde_json::from_slice(&body).unwrap();
        for event in &events {
            assert!(
                event.position == self.after + 1 && event.event.headers.is_object(),
                "the position {}",
                event.position
            );
            self.after = event.position;
        }
        assert_eq!(next, self.after);
        body.len()
    }
}

impl Poll {
    /// The body of an answer that is sent in chunks.
    fn body(&mut self) -> Vec<u8> {
        let status = self.line();
        assert_eq!(status, "HTTP/1.1 200 OK");
        let mut is_chunked = false;
        loop {
            let header = self.line().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            is_chunked |= header == "transfer-encoding: chunked";
        }
        assert!(is_chunked);
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line(), 16).unwrap();
            let start = body.len();
            body.resize(start + size, 0);
            self.0.read_exact(&mut body[start..]).unwrap();
            assert_eq!(self.line(), "");
            if size == 0 {
                return body;
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end_matches("\r\n").to_owned()
    }
}
