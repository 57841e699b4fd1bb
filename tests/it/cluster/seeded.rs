//! Three instances share twelve channels while faults that are drawn from a seed hit them and their database. No event
//! is lost, no forged event is delivered, and each change of owner repeats at most one batch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use simulator::Options;
use strum::IntoEnumIterator;

use super::faults::{Fault, Kind, RUNNING};
use super::instances::Instances;
use crate::support::{Database, Files, Server, deliverable, everything, random, skip};

const CHANNELS: usize = 12;

/// The time between two events of a channel.
const ONE_EVENT: Duration = Duration::from_millis(500);

/// The duration of the run and the lease: an hour with the default lease, or each kind of fault once with the shortest
/// lease.
const FULL: (Duration, Duration) = (Duration::from_secs(60 * 60), Duration::from_secs(6));
const SAMPLE: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(3));

/// Counts all faults, and measures faults that do not overlap with another fault.
#[derive(Default)]
struct Measured {
    faults: BTreeMap<Kind, usize>,
    /// The time from a kill to the next delivery, for each channel that the killed instance owned.
    failovers: Vec<Duration>,
    /// The longest time without an event of a channel, for each rolling restart.
    restarts: Vec<Duration>,
}

struct Run {
    instances: Instances,
    lease: Duration,
    random: StdRng,
    active: Vec<Fault>,
    /// The kinds of fault that are left in this cycle. Each kind occurs once per cycle.
    next: Vec<Kind>,
    measured: Measured,
}

impl Run {
    async fn new(server: Server, lease: Duration) -> Self {
        let options = Options { channels: CHANNELS, events: 10, unsigned: 0.2, forged: 0.03, ..Options::default() };
        let database = Database::on(Arc::new(server)).await;
        let mut instances = Instances::new(database, RUNNING + 1, options).await;
        instances = instances.with("cluster.lease", format!("{}s", lease.as_secs()));
        for instance in 0..=RUNNING {
            let setup = &mut instances.get(instance).setup;
            setup.set("sinks.file.type", "file");
            setup.set("sinks.file.path", setup.path("events.jsonl").display().to_string());
            setup.set("sinks.file.per_instance", true);
            (0..CHANNELS).for_each(|channel| setup.set(&format!("channels.c{channel}.sinks"), vec!["hook", "file"]));
        }
        let (active, next, measured) = (Vec::new(), Vec::new(), Measured::default());
        Self { instances, lease, random: random(0x1616), active, next, measured }
    }

    /// Runs the next fault, sometimes together with a second one, and waits until every channel delivers again.
    async fn round(&mut self) {
        if self.next.is_empty() {
            self.next = Kind::iter().collect();
            self.next.shuffle(&mut self.random);
        }
        let first = self.begin().await;
        if self.random.random_bool(0.3) {
            self.begin().await;
        }
        let is_alone = self.active.len() == 1;
        while let Some(next) = self.active.iter().map(|fault| fault.until).min() {
            self.instances
                .go_on_for(next.saturating_duration_since(Instant::now()).min(Duration::from_millis(100)))
                .await;
            for fault in &self.active {
                fault.go_on(&mut self.instances).await;
            }
            while let Some(over) = self.active.iter().position(|fault| fault.until <= Instant::now()) {
                self.active.remove(over).end(&mut self.instances).await;
            }
        }
        self.recover().await;
        if let Some((kind, began, owned)) = first.filter(|_| is_alone) {
            self.measure(kind, began, &owned);
        }
    }

    async fn begin(&mut self) -> Option<(Kind, Instant, Vec<usize>)> {
        let kind = self.next.pop()?;
        let fault = Fault::begin(kind, &mut self.instances, &self.active, &mut self.random, self.lease).await;
        let Some(fault) = fault else {
            self.next.insert(0, kind);
            return None;
        };
        *self.measured.faults.entry(kind).or_default() += 1;
        let begun = (kind, fault.began, fault.owned.clone());
        self.active.push(fault);
        Some(begun)
    }

    /// Waits until every channel delivers again.
    async fn recover(&mut self) {
        let since = Instant::now();
        self.instances
            .until("every channel delivers", |arrivals| {
                (0..CHANNELS).all(|channel| arrivals.next_after(channel, since).is_some())
            })
            .await;
    }

    fn measure(&mut self, kind: Kind, began: Instant, owned: &[usize]) {
        let arrivals = &self.instances.arrivals;
        match kind {
            Kind::Kill => {
                let next = owned.iter().filter_map(|channel| arrivals.next_after(*channel, began));
                self.measured.failovers.extend(next);
            }
            Kind::RollingRestart => self.measured.restarts.push(arrivals.longest_gap(began, Instant::now())),
            _ => {}
        }
    }

    /// Asserts that the files of all instances together contain every deliverable event, and no other.
    fn assert_files(&self) {
        let files: Vec<_> = self.instances.iter().map(|it| Files::of(it.setup.path("events.jsonl"))).collect();
        for channel in 0..CHANNELS {
            let of = files.iter().flat_map(|file| file.offsets_of(&format!("c{channel}"))).collect::<BTreeSet<_>>();
            let expected: BTreeSet<_> = deliverable(&self.instances.simulator, channel).into_iter().collect();
            assert_eq!(of, expected, "c{channel} in the files");
        }
    }

    async fn print(&mut self, took: Duration) {
        let claims =
            "select count(distinct (channel, epoch)) - count(distinct channel) from audit.channels where epoch > 0";
        let changes = self.instances.database.number(claims).await;
        let arrivals = &self.instances.arrivals;
        let Measured { faults, failovers, restarts } = &mut self.measured;
        failovers.sort_unstable();
        let long_ago = Instant::now().checked_sub(took).unwrap();
        println!(
            "{} faults in {took:.0?}: {faults:?}\n{} events, {changes} times a channel changed hands or was claimed again, {} \
             repeats\nlongest without an event of a channel: {:.1?}\nfrom a kill to the next delivery, {} channels: median \
             {:.1?}, worst {:.1?}\na rolling restart held a channel up for {restarts:.1?}",
            faults.values().sum::<usize>(),
            arrivals.total(),
            arrivals.repeats(),
            arrivals.longest_gap(long_ago, Instant::now()),
            failovers.len(),
            failovers.get(failovers.len() / 2),
            failovers.last(),
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_failures_lose_nothing_and_a_failover_repeats_one_batch_at_most() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let (length, lease) = if everything() { FULL } else { SAMPLE };
    let mut run = Run::new(server, lease).await;
    let began = Instant::now();
    let publishing = run.instances.publish_every(ONE_EVENT);
    (0..RUNNING).for_each(|instance| run.instances.start(instance));
    run.recover().await;
    loop {
        run.round().await;
        if run.next.is_empty() && began.elapsed() >= length {
            break;
        }
    }
    drop(publishing);
    run.instances.until_all_arrived().await;
    run.instances.stop_all().await;
    run.print(began.elapsed()).await;
    run.instances.assert_whole().await;
    run.assert_files();
}
