//! How fast a backlog becomes durable in tables and streams, compared with a file in the same run.
//!
//! As in [`backlog`](super::backlog), the time is measured from the start of the daemon's process until its durable
//! cursor is at the last event. The servers share the processor with the daemon and the service, so their cost is
//! printed too.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::daemon::Place;
use super::delivered::must_be_whole;
#[cfg(feature = "kafka")]
use super::kafka::Kafka;
use super::machine::binary;
use super::process::Cost;
use super::server::{Database, Server};
use super::service::Service;
use super::stream::Nats;
use super::table::{Samples, Table, figure, micros};

/// Selects the number of events and of distinct offsets, the highest offset, and the number of verified events.
const QUESTION: &str = "select count(*), count(distinct event_offset), max(event_offset), \
                        sum(case verification when 'verified' then 1 end) from events";

/// The servers that are installed on this machine.
struct Servers {
    postgres: Option<Server>,
    nats: Option<Nats>,
    #[cfg(feature = "kafka")]
    kafka: Option<Kafka>,
}

#[derive(Clone, Copy)]
enum Target<'a> {
    File,
    Sqlite,
    Postgres(&'a Server),
    JetStream(&'a Nats),
    #[cfg(feature = "kafka")]
    Kafka(&'a Kafka),
}

/// The destination of one run.
enum Destination<'a> {
    File,
    Sqlite,
    Postgres(Database<'a>),
    JetStream(&'a Nats, String),
    #[cfg(feature = "kafka")]
    Kafka(&'a Kafka, String),
}

/// The figures of all runs for one target.
#[derive(Default)]
struct Figures {
    rate: Samples,
    cpu: Samples,
    server_cpu: Samples,
}

/// With `against`, each run measures this build and the other one, and the table contains the ratios of both.
pub(crate) fn run(events: u32, runs: usize, signing: &[String], against: Option<&Path>) {
    let program = binary();
    let servers = Servers {
        postgres: Server::start(),
        nats: Nats::start(),
        #[cfg(feature = "kafka")]
        kafka: Kafka::start(),
    };
    for signing in signing {
        eprintln!("tables, {signing}: {events} events are made and signed beforehand");
        let service = Service::start(&["--events", &events.to_string(), "--prepared", "--signing", signing]);
        let start = |target| (target, Figures::default(), Figures::default());
        let mut all: Vec<_> = servers.targets().into_iter().map(start).collect();
        for number in 1..=runs {
            for (target, figures, others) in &mut all {
                let mut builds: Vec<_> = against.map(|other| (other, others)).into_iter().collect();
                // Each build is the first one in half of the runs.
                builds.insert(number % 2 * builds.len(), (&program, figures));
                for (program, figures) in builds {
                    figures.add(&service, program, *target, events);
                }
            }
            eprintln!("tables, {signing}: run {number} of {runs}");
        }
        let events = figure(events.into());
        let mut table = Table::of_runs(&format!("tables: {events} events behind, signed as {signing}, {runs} runs"));
        let file = all[0].1.rate.clone();
        for (target, figures, others) in &all {
            target.add_to(&mut table, figures, &file, against.and(Some(others)));
        }
        table.print();
    }
}

impl Servers {
    /// The file is first, because all other targets are compared to it.
    fn targets(&self) -> Vec<Target<'_>> {
        let postgres = self.postgres.as_ref().map(Target::Postgres);
        let nats = self.nats.as_ref().map(Target::JetStream);
        for (is_there, name) in [(postgres.is_some(), "PostgreSQL"), (nats.is_some(), "nats-server")] {
            if !is_there {
                eprintln!("tables: {name} is not installed");
            }
        }
        let all = [Target::File, Target::Sqlite].into_iter().chain(postgres).chain(nats);
        #[cfg(feature = "kafka")]
        let all = all.chain(self.kafka.as_ref().map(Target::Kafka));
        all.collect()
    }
}

impl<'a> Target<'a> {
    fn add_to(self, table: &mut Table, figures: &Figures, file: &Samples, others: Option<&Figures>) {
        let ratio = |one: f64, other: f64| one / other;
        let compare = |table: &mut Table, samples: &Samples, of_others: fn(&Figures) -> &Samples| {
            if let Some(others) = others {
                table.runs("    of the other build's", &samples.zip(of_others(others), ratio), "");
            }
        };
        let (name, wanted) = match self {
            Self::File => ("a file", ""),
            Self::Sqlite => ("SQLite", "10,000 or more"),
            Self::Postgres(_) => ("PostgreSQL", "10,000 or more"),
            Self::JetStream(_) => ("JetStream", "15,000 or more"),
            #[cfg(feature = "kafka")]
            Self::Kafka(_) => ("Kafka", ""),
        };
        table.runs(&format!("events/s, into {name}"), &figures.rate, wanted);
        compare(table, &figures.rate, |others| &others.rate);
        if !matches!(self, Self::File) {
            table.runs("  of the file's", &figures.rate.zip(file, ratio), "");
        }
        table.runs("  CPU µs an event", &figures.cpu, "");
        compare(table, &figures.cpu, |others| &others.cpu);
        if self.server_cpu().is_some() {
            table.runs("  CPU µs an event, the server", &figures.server_cpu, "");
            compare(table, &figures.server_cpu, |others| &others.server_cpu);
        }
    }

    /// The processor time of the target's server since its start. `None` if the target has no server.
    fn server_cpu(self) -> Option<Duration> {
        match self {
            Self::File | Self::Sqlite => None,
            Self::Postgres(server) => Some(server.cpu()),
            Self::JetStream(nats) => Some(nats.cost().cpu),
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => Some(kafka.cost().cpu),
        }
    }

    /// A new, empty destination.
    fn new_destination(self) -> Destination<'a> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        match self {
            Self::File => Destination::File,
            Self::Sqlite => Destination::Sqlite,
            Self::Postgres(server) => Destination::Postgres(server.new_database()),
            Self::JetStream(nats) => {
                Destination::JetStream(nats, format!("run-{}", NUMBER.fetch_add(1, Ordering::Relaxed)))
            }
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka) => Destination::Kafka(kafka, format!("run-{}", NUMBER.fetch_add(1, Ordering::Relaxed))),
        }
    }
}

impl Destination<'_> {
    fn place(&self, service: &Service) -> Place {
        Place::into(service.known(), |place| match self {
            Self::File => format!("{{type = \"file\", path = \"{}\"}}", place.events(0).display()),
            Self::Sqlite => format!("{{type = \"sqlite\", path = \"{}\"}}", place.events(0).display()),
            Self::Postgres(database) => format!("{{type = \"postgres\", url = {:?}}}", database.url),
            Self::JetStream(nats, stream) => nats.sink(stream),
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka, topic) => kafka.sink(topic),
        })
    }

    /// Ends the benchmark unless the destination contains every event once.
    fn must_be_whole(&self, place: &Place, events: u32) {
        let whole = format!("{events}|{events}|{events}|{events}");
        match self {
            Self::File => must_be_whole(&place.events(0), 1, events.into()),
            Self::Sqlite => {
                let reader = rusqlite::Connection::open(place.events(0)).unwrap();
                let number = |row: &rusqlite::Row<'_>, at: usize| row.get::<_, i64>(at);
                let row = reader.query_row(QUESTION, [], |row| Ok([0, 1, 2, 3].map(|at| number(row, at).unwrap())));
                assert_eq!(row.unwrap().map(|number| number.to_string()).join("|"), whole);
            }
            Self::Postgres(database) => assert_eq!(database.ask(QUESTION), whole),
            Self::JetStream(nats, stream) => assert_eq!(nats.count(stream), usize::try_from(events).unwrap()),
            #[cfg(feature = "kafka")]
            Self::Kafka(kafka, topic) => assert_eq!(kafka.count(topic), usize::try_from(events).unwrap()),
        }
    }
}

impl Figures {
    fn add(&mut self, service: &Service, program: &Path, target: Target<'_>, events: u32) {
        let (took, cost, server_cpu) = read(service, program, target, events);
        let events = f64::from(events);
        self.rate.push(events / took.as_secs_f64());
        self.cpu.push(micros(cost.cpu) / events);
        self.server_cpu.push(micros(server_cpu) / events);
    }
}

fn read(service: &Service, program: &Path, target: Target<'_>, events: u32) -> (Duration, Cost, Duration) {
    // Otherwise the disk may still write data of the previous run.
    rustix::fs::sync();
    let destination = target.new_destination();
    let place = destination.place(service);
    let (before, started) = (target.server_cpu().unwrap_or_default(), Instant::now());
    let mut daemon = place.start_build(program);
    daemon.until_recorded(events.into());
    let took = started.elapsed();
    let (cost, after) = (daemon.cost(), target.server_cpu().unwrap_or_default());
    daemon.stop();
    destination.must_be_whole(&place, events);
    (took, cost, after.saturating_sub(before))
}
