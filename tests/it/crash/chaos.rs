//! Plants random faults, derived from a seed, in the service, in every kind of sink, in the process and in the work of its
//! operator. Several faults are active at a time.
//!
//! Without root, PostgreSQL or `nats-server`, the run is skipped.
//!
//! Throughout the run, channels and sinks without a fault deliver on time, and `channeld status` shows each fault in the
//! part that it affects. At the end, no event is lost, no forged event was delivered, and each lane has kept its order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use strum::IntoEnumIterator;
use tokio::time::Interval;

use self::fault::{Fault, Kind};
use self::target::lanes;
use self::world::{World, lane};
use crate::support::{
    AT_ONCE, Database, LASTS, LONGEST_WAIT, Nats, Seen, Server, Timeliness, length, random, skip, ticks,
};

mod fault;
mod outcome;
mod plant;
mod target;
mod visible;
mod world;

/// The number of kinds in a cycle that delay every lane. With more, few lanes would be without a fault.
const OF_ALL: usize = 2;

/// How long faults are planted by default.
const LENGTH: Duration = Duration::from_secs(5 * 60);

/// A longer wait of a lane without a fault is printed.
const NOTEWORTHY: Duration = Duration::from_secs(2);

struct Run {
    world: World,
    timeliness: Timeliness,
    random: StdRng,
    ticks: Interval,
    active: Vec<Fault>,
    /// The kinds that are left in this cycle. Each kind occurs once per cycle, but only some of the kinds
    /// that delay every lane.
    next: Vec<Kind>,
    seen: Seen<Kind>,
}

impl Run {
    fn new(world: World) -> Self {
        let (timeliness, random) = (Timeliness::of(lanes()), random(0x000c_4a05));
        let (active, next, seen) = (Vec::new(), Vec::new(), Seen::new());
        Self { world, timeliness, random, ticks: ticks(), active, next, seen }
    }

    /// Publishes events, may plant a fault, checks the status, and removes the faults that have lasted long enough.
    async fn step(&mut self) {
        self.ticks.tick().await;
        for (channel, offset) in self.world.publish(&mut self.random) {
            self.timeliness.published(channel, offset);
        }
        if self.active.len() < AT_ONCE && self.random.random_bool(0.7) {
            self.plant().await;
        }
        self.look().await;
        while let Some(over) = self.active.iter().position(Fault::is_over) {
            let over = self.active.remove(over);
            let hid_others = over.hides_others();
            let recovers: BTreeMap<_, _> = lanes().map(|lane| (lane, over.recovers(lane))).collect();
            over.remove(&mut self.world).await;
            self.timeliness.recover(|lane| recovers[&lane]);
            if hid_others {
                // Faults that the status has not shown can have an effect only from now on.
                self.active.iter_mut().filter(|fault| !fault.is_seen).for_each(Fault::begin_again);
            }
        }
    }

    /// Plants the next fault, unless it would hide an active fault, or be hidden by it.
    async fn plant(&mut self) {
        if self.next.is_empty() {
            let (mut of_all, others): (Vec<_>, Vec<_>) = Kind::iter().partition(|kind| kind.delays_everything());
            of_all.shuffle(&mut self.random);
            of_all.truncate(OF_ALL);
            self.next = [of_all, others].concat();
            self.next.shuffle(&mut self.random);
        }
        let Some(kind) = self.next.pop() else { return };
        let target = kind.draw(&mut self.random);
        if self.active.iter().any(|fault| fault.kind == kind || fault.target.overlaps(&target)) {
            self.next.insert(0, kind);
            return;
        }
        let lasts = self.random.random_range(LASTS);
        println!("{:.1?} {kind:?} at {target:?} for {lasts:.1?}", self.world.age());
        self.active.push(Fault::plant(kind, target, lasts, &mut self.world, &mut self.random).await);
    }

    /// Checks that the status shows each fault, and that lanes without a fault deliver on time.
    async fn look(&mut self) {
        let asked = Instant::now();
        let status = self.world.status().await;
        let hides = self.active.iter().any(Fault::hides_others);
        for fault in &mut self.active {
            if fault.is_seen {
                continue;
            }
            if fault.is_visible(&status, &mut self.world).await {
                fault.see(&mut self.seen);
            } else if hides && !fault.hides_others() {
                // This fault may have no effect yet.
                fault.begin_again();
            }
            assert!(!fault.is_late(asked), "not in the status: {fault:?}\n{status:#}\n{}", self.world.log());
        }
        let active = &self.active;
        let before = self.timeliness.longest.0;
        self.timeliness.recover(|lane| active.iter().filter_map(|fault| fault.recovers(lane)).max());
        let has_delivered = |at, offset| lane(&status, at)["cursor"].as_i64() >= Some(offset);
        let late = self.timeliness.check(asked, has_delivered);
        assert!(late.is_none(), "{late:?} without a fault; active: {active:?}\n{status:#}\n{}", self.world.log());
        if self.timeliness.longest.0 > before.max(NOTEWORTHY) {
            println!("{:.1?} the longest wait so far: {:.1?}", self.world.age(), self.timeliness.longest);
        }
    }

    /// Removes all faults, and waits until every event is delivered or has become a dead letter.
    async fn settle(&mut self) {
        for fault in self.active.drain(..) {
            fault.remove(&mut self.world).await;
        }
        // A lane notices a restored file with its next write.
        self.world.publish_everywhere();
        let (mut left, mut since) = (usize::MAX, Instant::now());
        while left > 0 {
            self.ticks.tick().await;
            let status = self.world.status().await;
            let now = self.world.undelivered(&status);
            if now < left {
                (left, since) = (now, Instant::now());
            }
            assert!(since.elapsed() < LONGEST_WAIT, "{now} do not arrive: {status:#}\n{}", self.world.log());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_faults_lose_nothing_are_visible_and_leave_everything_else_on_time() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let Some(nats) = Nats::start() else { return };
    let Some(world) = World::new(Database::on(Arc::new(server)).await, nats, length(LENGTH)).await else { return };
    let mut run = Run::new(world);
    let began = Instant::now();
    while began.elapsed() < length(LENGTH) {
        run.step().await;
    }
    run.settle().await;
    println!("{:.1?} everything is delivered", run.world.age());
    let events = outcome::check(run.world).await;
    run.timeliness.print(events);
    println!("how often each fault was planted, and the longest time until it was visible:\n{:.1?}", run.seen);
}
