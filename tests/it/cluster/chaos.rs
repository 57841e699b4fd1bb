//! Plants random faults, derived from a seed, in three instances that share their state in PostgreSQL: in the instances, in
//! their database, in its rows, in the service and in the sinks. Several faults are active at a time.
//!
//! Throughout the run, `channeld status` shows each fault, every instance that reaches the database keeps its lease, the
//! server has few waiting processes, and lanes without a fault deliver on time, also after the failure of an instance. At the
//! end, no event is lost, no forged event was delivered, no table contains an event twice, and each channel has one owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use serde_json::Value;
use strum::IntoEnumIterator;
use tokio::time::Interval;

use self::fault::{Fault, Kind};
use self::heartbeats::Heartbeats;
use self::target::{Target, lanes};
use self::world::World;
use crate::support::{AT_ONCE, Database, LASTS, LONGEST_WAIT, Seen, Server, Timeliness, length, random, skip, ticks};

mod fault;
mod heartbeats;
mod observe;
mod outcome;
mod plant;
mod rows;
mod target;
mod visible;
mod world;

/// How long faults are planted by default.
const LENGTH: Duration = Duration::from_secs(2 * 60);

/// How much longer than a lease an instance is stopped.
const FROZEN: std::ops::Range<Duration> = Duration::from_millis(500)..Duration::from_secs(4);

/// The time between two faults that stop everything. Without a pause, no lane would ever be without a fault.
const PAUSE: Duration = Duration::from_secs(30);

struct Run {
    world: World,
    timeliness: Timeliness,
    heartbeats: Heartbeats,
    random: StdRng,
    ticks: Interval,
    active: Vec<Fault>,
    /// The kinds that are left in this cycle. Each kind occurs once per cycle.
    next: Vec<Kind>,
    seen: Seen<Kind>,
    /// When the last fault that stopped everything was active.
    stopped: Option<Instant>,
    /// The largest number of server processes that waited for a lock, by role.
    waiting: BTreeMap<String, i64>,
}

impl Run {
    async fn new(database: Database) -> Self {
        let world = World::new(database).await;
        let (timeliness, heartbeats) = (Timeliness::of(lanes()), Heartbeats::default());
        let (active, next, seen, waiting) = (Vec::new(), Vec::new(), Seen::new(), BTreeMap::new());
        Self {
            world,
            timeliness,
            heartbeats,
            random: random(0x000c_4a16),
            ticks: ticks(),
            active,
            next,
            seen,
            stopped: None,
            waiting,
        }
    }

    /// Publishes events, may plant a fault, checks everything, and removes the faults that have lasted long enough.
    async fn step(&mut self) {
        self.ticks.tick().await;
        for (channel, offset) in self.world.publish(&mut self.random) {
            self.timeliness.published(channel, offset);
        }
        while self.active.len() < AT_ONCE && self.random.random_bool(0.7) {
            self.plant().await;
        }
        for fault in &self.active {
            fault.repeat(&mut self.world).await;
        }
        self.look().await;
        while let Some(over) = self.active.iter().position(Fault::is_over) {
            let over = self.active.remove(over);
            let recovers: BTreeMap<_, _> = lanes().map(|lane| (lane, over.recovers(lane))).collect();
            over.remove(&mut self.world).await;
            self.timeliness.recover(|lane| recovers[&lane]);
        }
    }

    /// Plants the next fault, unless an active fault excludes it.
    async fn plant(&mut self) {
        if self.next.is_empty() {
            self.next = Kind::iter().collect();
            self.next.shuffle(&mut self.random);
        }
        let Some(kind) = self.next.pop() else { return };
        let target = kind.draw(&mut self.random);
        let is_too_soon = target == Target::State && self.stopped.is_some_and(|stopped| stopped.elapsed() < PAUSE);
        if is_too_soon || self.active.iter().any(|fault| fault.excludes(kind, target)) {
            self.next.insert(0, kind);
            return;
        }
        let lasts = self.random.random_range(LASTS);
        let lasts = if kind == Kind::Freeze { world::LEASE + self.random.random_range(FROZEN) } else { lasts };
        println!("{:.1?} {kind:?} at {target:?} for {lasts:.1?}", self.world.age());
        self.active.push(Fault::plant(kind, target, lasts, &mut self.world, &mut self.random).await);
    }

    /// Checks that the status shows each fault, that instances live, and that lanes without a fault deliver on time.
    async fn look(&mut self) {
        let asked = Instant::now();
        self.world.gather().await;
        let statuses = self.world.statuses().await;
        self.look_for_faults(asked, &statuses);
        if let Some(dead) = self.heartbeats.check(&self.world, &self.active).await {
            panic!("{dead}; active: {:?}\n{}", self.active, self.world.shown(&statuses));
        }
        for (role, count) in self.world.waiting_processes().await {
            let most = self.waiting.entry(role.clone()).or_default();
            *most = count.max(*most);
            let bound = observe::max_waiting(&role);
            assert!(count <= bound, "{count} server processes of {role} wait for locks; active: {:?}", self.active);
        }
        self.timeliness.recover(|lane| self.active.iter().filter_map(|fault| fault.recovers(lane)).max());
        let late = self.timeliness.check(asked, |lane, offset| self.world.has_delivered(lane, offset));
        let shown = |world: &World| world.shown(&statuses);
        assert!(late.is_none(), "{late:?} without a fault; active: {:?}\n{}", self.active, shown(&self.world));
    }

    fn look_for_faults(&mut self, asked: Instant, statuses: &[Value]) {
        let hides = self.active.iter().any(Fault::stops_everything);
        self.stopped = if hides { Some(Instant::now()) } else { self.stopped };
        let is_instance_away = self.active.iter().any(|fault| fault.instance().is_some());
        for fault in self.active.iter_mut().filter(|fault| !fault.is_seen) {
            if fault.is_visible(statuses) {
                fault.see(&mut self.seen);
            } else if (hides && !fault.stops_everything()) || (is_instance_away && fault.is_elsewhere(statuses)) {
                // While another fault stops every delivery, this fault has no effect yet. While the owner of the channel does
                // not answer, no status contains the channel.
                fault.begin_again();
            }
            assert!(!fault.is_late(asked), "not in the status: {fault:?}\n{}", self.world.shown(statuses));
        }
    }

    /// Removes all faults, and waits until every event is delivered.
    async fn settle(&mut self) {
        for fault in self.active.drain(..) {
            fault.remove(&mut self.world).await;
        }
        self.world.publish_everywhere();
        let (mut left, mut since) = (usize::MAX, Instant::now());
        while left > 0 {
            self.ticks.tick().await;
            self.world.gather_again().await;
            let now = self.world.undelivered();
            if now < left {
                (left, since) = (now, Instant::now());
            }
            let statuses = self.world.statuses().await;
            assert!(since.elapsed() < LONGEST_WAIT, "{now} do not arrive: {}", self.world.shown(&statuses));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_of_several_instances_lose_nothing_are_visible_and_leave_everything_else_on_time() {
    // The roles belong to the whole server, and the server is killed.
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let mut run = Run::new(Database::on(Arc::new(server)).await).await;
    let began = Instant::now();
    while began.elapsed() < length(LENGTH) {
        run.step().await;
    }
    run.settle().await;
    println!("{:.1?} everything is delivered", run.world.age());
    let deliveries = outcome::check(run.world).await;
    run.timeliness.print(deliveries);
    println!("the longest time from the start of an instance to its first heartbeat: {:.1?}", run.heartbeats.longest);
    println!("the most server processes that waited for a lock, by role: {:?}", run.waiting);
    println!("how often each fault was planted, and the longest time until it was visible:\n{:.1?}", run.seen);
}
