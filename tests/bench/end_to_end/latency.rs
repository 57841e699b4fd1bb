//! The time from the publication of an event until its line is in the file.
//!
//! The service runs in this process, so the time of each publication is known. A line counts when this process can read
//! it. The latency includes the wait between polls, `api.idle_wait`. It is shorter than its default, so that more
//! events fit into the measurement, and the title of the table shows it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rand::Rng;
use simulator::{EventSpec, Options, Tampering};

use super::daemon::{Daemon, Place};
use super::delivered::{Record, arrived};
use super::process::Cost;
use super::service::Hosted;
use super::table::{Samples, Table, figure};

/// The wait between two checks for new lines and due publications.
const TICK: Duration = Duration::from_millis(1);

/// The number of quiet channels.
const QUIET_CHANNELS: usize = 10;

/// The mean time between two events of a quiet channel, as a multiple of `api.idle_wait`.
const QUIET_SPACING: f64 = 1.0;

/// Events per second of a busy channel.
const BUSY_RATE: f64 = 500.0;

/// The backlog of the other channel. With two channels, the simulator keeps at most this many records of each.
const FAR_BEHIND: u32 = 100_000;

/// The number of channels with a backlog, the events of each, and the distance between two forged events.
const CROWD: usize = 999;
const CROWD_EVENTS: u64 = 1_000;
const GENUINE: u64 = 5;

/// Events per second of the channel beside them.
const BESIDE_CROWD_RATE: f64 = 20.0;

/// How much longer than `api.idle_wait` the last event may take.
const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    /// How long events are published.
    pub(crate) time: Duration,
    pub(crate) idle_wait: Duration,
}

pub(crate) fn run(wanted: Wanted) {
    let idle_ms = millis(wanted.idle_wait);
    let title = format!("latency: ms from publication to a line, idle_wait {idle_ms:.0} ms");
    let mut table = Table::new(&title, &["", "events", "50th percentile", "99th", "longest", "99th should be"]);
    eprintln!("latency: quiet");
    let quiet = Hosted::start(Options { channels: QUIET_CHANNELS, ..Options::default() });
    let spacing = wanted.idle_wait.mul_f64(QUIET_SPACING);
    row(&mut table, "quiet", &Course::of(&quiet, wanted).run(QUIET_CHANNELS, spacing), idle_ms + 100.0);

    eprintln!("latency: busy");
    let busy = Hosted::start(Options::default());
    let spacing = Duration::from_secs_f64(BUSY_RATE.recip());
    row(&mut table, "500 events/s", &Course::of(&busy, wanted).run(1, spacing), idle_ms + 250.0);

    eprintln!("latency: busy beside a channel that is far behind");
    let beside = Hosted::start(Options { channels: 2, ..Options::default() });
    beside.simulator.publish(1, FAR_BEHIND.into());
    // The simulator creates records when they are read first, and keeps them. Read them before the measurement.
    beside.known().pages(1, FAR_BEHIND).for_each(drop);
    let samples = Course::of(&beside, wanted).until_recorded(FAR_BEHIND.into()).run(1, spacing);
    row(&mut table, "500 events/s beside a backlog", &samples, idle_ms + 250.0);

    eprintln!("latency: beside {CROWD} channels that are behind, with forged events");
    let crowd = Hosted::start(Options { channels: 1 + CROWD, ..Options::default() });
    for channel in 1..=CROWD {
        for _ in 0..CROWD_EVENTS / GENUINE {
            crowd.simulator.publish(channel, GENUINE - 1);
            crowd.simulator.publish_one(channel, EventSpec::Forged(Tampering::ContentChanged));
        }
    }
    let spacing = Duration::from_secs_f64(BESIDE_CROWD_RATE.recip());
    row(&mut table, "20 events/s beside a crowd", &Course::of(&crowd, wanted).run(1, spacing), idle_ms + 1000.0);
    table.print();
}

fn row(table: &mut Table, name: &str, samples: &Samples, wanted: f64) {
    let [middle, late, longest] = [0.5, 0.99, 1.0].map(|share| figure(samples.at(share)));
    table.add(&[name, &figure(samples.len() as f64), &middle, &late, &longest, &format!("{wanted:.0} or less")]);
}

/// Publishes events and measures when they arrive.
pub(crate) struct Course<'a> {
    service: &'a Hosted,
    wanted: Wanted,
    /// The course also ends when this many events of the other channels are recorded.
    recorded: Option<u64>,
    /// The publication time of each event, by channel name.
    published: BTreeMap<String, Vec<Instant>>,
    samples: Samples,
    /// The latencies from the `received` time in the record.
    read: Samples,
}

/// The results of a course.
pub(crate) struct Measured {
    /// Milliseconds from the publication of an event until its line is in the file.
    pub(crate) published: Samples,
    /// Milliseconds from the `received` time in the record, when the daemon had read the page, until the line is in the
    /// file.
    pub(crate) read: Samples,
    pub(crate) cost: Cost,
}

impl<'a> Course<'a> {
    pub(crate) fn of(service: &'a Hosted, wanted: Wanted) -> Self {
        let (samples, read) = Default::default();
        Self { service, wanted, recorded: None, published: BTreeMap::new(), samples, read }
    }

    /// Also ends the course when this many events of the other channels are recorded.
    fn until_recorded(mut self, events: u64) -> Self {
        self.recorded = Some(events);
        self
    }

    /// Publishes in the first channels, at random intervals with this mean.
    fn run(self, channels: usize, spacing: Duration) -> Samples {
        let place = self.place(channels);
        self.run_in(&place, channels, spacing, |_| ()).published
    }

    /// A directory in which the measured channels have their own file.
    pub(crate) fn place(&self, channels: usize) -> Place {
        let idle_wait = format!("api.idle_wait = \"{}ms\"", self.wanted.idle_wait.as_millis());
        Place::new(self.service.known(), channels, &[&idle_wait])
    }

    /// Like `run`, in this directory. Calls `after` with the running daemon after the measurement.
    pub(crate) fn run_in(
        mut self,
        place: &Place,
        channels: usize,
        spacing: Duration,
        after: impl FnOnce(&mut Daemon<'_>),
    ) -> Measured {
        let polls = || self.service.simulator.requests().poll;
        let before = polls();
        let mut daemon = place.start();
        while polls() < before + channels as u64 {
            daemon.must_run();
            std::thread::sleep(TICK);
        }
        self.publish(place, &mut daemon, channels, spacing);
        let cost = daemon.cost();
        after(&mut daemon);
        daemon.stop();
        let sent = self.published.iter().map(|(name, times)| (name.clone(), times.len() as u64));
        assert_eq!(arrived(&place.events(0)), sent.collect(), "exactly the published events must arrive");
        Measured { published: self.samples, read: self.read, cost }
    }

    fn publish(&mut self, place: &Place, daemon: &mut Daemon<'_>, channels: usize, spacing: Duration) {
        let mut rng = rand::rng();
        let mut arrivals = Arrivals::of(place);
        let began = Instant::now();
        let mut due: Vec<_> = (0..channels).map(|_| began + spacing.mul_f64(rng.random_range(0.0..2.0))).collect();
        let mut last = began;
        while self.goes_on(place, began) {
            for (channel, due) in due.iter_mut().enumerate() {
                while *due <= Instant::now() {
                    last = self.publish_one(channel);
                    *due += spacing.mul_f64(rng.random_range(0.0..2.0));
                }
            }
            self.note(&mut arrivals);
            daemon.must_run();
            std::thread::sleep(TICK);
        }
        while self.samples.len() < self.published.values().map(Vec::len).sum() {
            assert!(last.elapsed() < self.wanted.idle_wait + PATIENCE, "not everything that was published arrives");
            self.note(&mut arrivals);
            daemon.must_run();
            std::thread::sleep(TICK);
        }
    }

    fn goes_on(&self, place: &Place, began: Instant) -> bool {
        let own: usize = self.published.values().map(Vec::len).sum();
        let reached = |events: u64| place.recorded() >= events + own as u64;
        began.elapsed() < self.wanted.time && !self.recorded.is_some_and(reached)
    }

    fn publish_one(&mut self, channel: usize) -> Instant {
        let now = Instant::now();
        self.published.entry(format!("c{channel}")).or_default().push(now);
        self.service.simulator.publish(channel, 1);
        now
    }

    fn note(&mut self, arrivals: &mut Arrivals) {
        let (published, samples, read) = (&self.published, &mut self.samples, &mut self.read);
        let time = Timestamp::now();
        arrivals.each(|record, now| {
            let place = usize::try_from(record.offset).unwrap() - 1;
            samples.push(millis(now - published[record.channel][place]));
            read.push(time.duration_since(record.received).as_secs_f64() * 1e3);
        });
    }
}

/// Reads the lines of a file as they are written.
struct Arrivals {
    path: std::path::PathBuf,
    file: Option<File>,
    /// The start of an incomplete line.
    rest: Vec<u8>,
}

impl Arrivals {
    fn of(place: &Place) -> Self {
        Self { path: place.events(0), file: None, rest: Vec::new() }
    }

    fn each(&mut self, mut arrived: impl FnMut(&Record<'_>, Instant)) {
        if self.file.is_none() {
            // The daemon creates the file.
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return };
        file.read_to_end(&mut self.rest).unwrap();
        let now = Instant::now();
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in std::str::from_utf8(&lines).unwrap().lines() {
            arrived(&Record::of(line), now);
        }
    }
}

pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
