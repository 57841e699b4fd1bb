//! How fast a backlog becomes durable in tables, beside the file sink in the same run.
//!
//! As for [`backlog`](super::backlog) the clock runs from the start of the daemon's process until its durable cursor is at the
//! last event. The database server is on the same machine, and what it costs is printed too: it shares the processor with the
//! daemon and the service.

use std::time::{Duration, Instant};

use super::daemon::Place;
use super::delivered::must_be_whole;
use super::process::Cost;
use super::server::Server;
use super::service::Service;
use super::table::{Samples, Table, figure, micros};

/// Where events go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    File,
    Sqlite,
    Postgres,
}

/// Every run's figures of one target.
#[derive(Default)]
struct Figures {
    rate: Samples,
    cpu: Samples,
    server_cpu: Samples,
}

pub(crate) fn run(events: u32, runs: usize, signing: &[String]) {
    let server = Server::start();
    if server.is_none() {
        eprintln!("tables: there is no PostgreSQL here");
    }
    for signing in signing {
        eprintln!("tables, {signing}: {events} events are made and signed beforehand");
        let service = Service::start(&["--events", &events.to_string(), "--prepared", "--signing", signing]);
        let [mut file, mut sqlite, mut postgres] = [Figures::default(), Figures::default(), Figures::default()];
        for number in 1..=runs {
            file.add(&service, Target::File, None, events);
            sqlite.add(&service, Target::Sqlite, None, events);
            if let Some(server) = &server {
                postgres.add(&service, Target::Postgres, Some(server), events);
            }
            eprintln!("tables, {signing}: run {number} of {runs}");
        }
        let events = figure(events.into());
        let mut table = Table::of_runs(&format!("tables: {events} events behind, signed as {signing}, {runs} runs"));
        let ratio = |one: f64, other: f64| one / other;
        table.runs("events/s, into a file", &file.rate, "");
        table.runs("  CPU µs an event", &file.cpu, "");
        table.runs("events/s, into SQLite", &sqlite.rate, "10,000 or more");
        table.runs("  of the file's", &sqlite.rate.zip(&file.rate, ratio), "");
        table.runs("  CPU µs an event", &sqlite.cpu, "");
        if server.is_some() {
            table.runs("events/s, into PostgreSQL", &postgres.rate, "10,000 or more");
            table.runs("  of the file's", &postgres.rate.zip(&file.rate, ratio), "");
            table.runs("  CPU µs an event", &postgres.cpu, "");
            table.runs("  CPU µs an event, the server", &postgres.server_cpu, "");
        }
        table.print();
    }
}

impl Figures {
    fn add(&mut self, service: &Service, target: Target, server: Option<&Server>, events: u32) {
        let (took, cost, server_cpu) = read(service, target, server, events);
        let events = f64::from(events);
        self.rate.push(events / took.as_secs_f64());
        self.cpu.push(micros(cost.cpu) / events);
        self.server_cpu.push(micros(server_cpu) / events);
    }
}

fn read(service: &Service, target: Target, server: Option<&Server>, events: u32) -> (Duration, Cost, Duration) {
    let database = server.map(Server::new_database);
    let place = match target {
        Target::File => Place::new(service.known(), usize::MAX, &[]),
        Target::Sqlite => Place::into(service.known(), |place| {
            format!("{{type = \"sqlite\", path = \"{}\"}}", place.events(0).display())
        }),
        Target::Postgres => {
            let url = database.as_ref().map(|database| database.url.clone()).unwrap_or_default();
            Place::into(service.known(), |_| format!("{{type = \"postgres\", url = {url:?}}}"))
        }
    };
    let (before, started) = (server.map(Server::cpu).unwrap_or_default(), Instant::now());
    let mut daemon = place.start();
    daemon.until_recorded(events.into());
    let took = started.elapsed();
    let (cost, after) = (daemon.cost(), server.map(Server::cpu).unwrap_or_default());
    daemon.stop();
    let whole = format!("{events}|{events}|{events}|{events}");
    let question = "select count(*), count(distinct event_offset), max(event_offset), sum(case verification when 'verified' then 1 end) \
                    from events";
    match (target, &database) {
        (Target::File, _) => must_be_whole(&place.events(0), 1, events.into()),
        (Target::Postgres, Some(database)) => assert_eq!(database.ask(question), whole),
        _ => {
            let reader = rusqlite::Connection::open(place.events(0)).unwrap();
            let number = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, i64>(at);
            let row = reader.query_row(question, [], |row| Ok([0, 1, 2, 3].map(|at| number(row, at).unwrap())));
            assert_eq!(row.unwrap().map(|number| number.to_string()).join("|"), whole);
        }
    }
    (took, cost, after.saturating_sub(before))
}
