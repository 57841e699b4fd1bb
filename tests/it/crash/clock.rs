//! The system clock is stepped back or forward while the daemon runs. The proof timeout does not depend on this clock, so
//! no event is rejected, lost or delivered twice.

use std::time::SystemTime;

use jiff::{SignedDuration, Timestamp};
use proof::event::Offset;
use simulator::{EventSpec, Kind, Options, Simulator};

use crate::support::{Clock, Daemon, Receiver, Setup, deliverable, offsets};

const HOUR: i64 = 60 * 60;
const DAY: i64 = 24 * HOUR;
const LATE: EventSpec = EventSpec::Late(Kind::WatcherEvent);
const REJECTED: &str = "event rejected: not delivered";

/// A service, and a setup that delivers its events to a file and a webhook.
struct Rig {
    simulator: Simulator,
    receiver: Receiver,
    setup: Setup,
    clock: Clock,
    late: Vec<i64>,
}

impl Rig {
    async fn new() -> Option<Self> {
        let simulator = Simulator::start(Options { unsigned: 0.2, ..Options::default() }).await.unwrap();
        let receiver = Receiver::start().await;
        let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("api.page_limit", 5);
        let mut setup = setup.with("verification.proof_timeout", "12h");
        let clock = Clock::of(&mut setup)?;
        Some(Self { simulator, receiver, setup, clock, late: Vec::new() })
    }

    /// Publishes events. One of them gets its proof later.
    fn publish(&mut self) {
        self.simulator.publish(0, 4);
        self.late.push(self.simulator.publish_one(0, LATE));
        self.simulator.publish(0, 4);
    }

    fn prove(&self, number: usize) {
        self.simulator.prove(0, self.late[number]);
    }

    /// Waits until both sinks have every deliverable event and both cursors are committed.
    async fn until_all(&self, daemon: &mut Daemon, what: &str) {
        let all = deliverable(&self.simulator, 0).len();
        daemon.until(what, |_| self.setup.lines() >= all && self.receiver.received() >= all).await;
        let last = self.simulator.offsets(0).last().unwrap().0;
        let recorded = |mirror: &str| ["file", "hook"].iter().all(|s| mirror.contains(&format!(r#""{s}": {last}"#)));
        let mirror = self.setup.path("state/cursors.json");
        daemon
            .until("both cursors are recorded", |_| recorded(&std::fs::read_to_string(&mirror).unwrap_or_default()))
            .await;
    }

    /// Waits until the daemon's log shows a clock that is this number of seconds ahead of the system clock.
    async fn until_clock(&self, daemon: &mut Daemon, seconds: i64) {
        let shows = |daemon: &Daemon| {
            let log = daemon.log().0;
            let last = log.lines().rev().find_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            let Some(last) = last else { return false };
            let shown: Timestamp = last["timestamp"].as_str().unwrap().parse().unwrap();
            let ahead = shown.duration_since(Timestamp::try_from(SystemTime::now()).unwrap());
            (ahead - SignedDuration::from_secs(seconds)).abs() < SignedDuration::from_secs(60)
        };
        daemon.until("its clock is stepped", shows).await;
    }

    /// Asserts that both sinks have every deliverable event exactly once, and that no event is pending or quarantined.
    async fn assert_whole(&self) {
        let expected = deliverable(&self.simulator, 0);
        for mut delivered in [self.setup.offsets("c0"), offsets(&self.receiver.delivered())] {
            assert!(delivered.iter().filter(|offset| !self.late.contains(offset)).is_sorted(), "{delivered:?}");
            delivered.sort_unstable();
            assert_eq!(delivered, expected, "each event exactly once");
        }
        let ledger = self.setup.ledger(self.simulator.announcement().channels[0]).await;
        assert!(ledger.late().is_empty() && ledger.quarantined().is_empty());
        let last = expected.last().copied();
        let cursors = ledger.cursors();
        assert!(cursors.len() == 2 && cursors.values().all(|cursor| cursor.through.map(Offset::get) == last));
    }
}

#[tokio::test]
async fn a_clock_set_back_by_a_day_loses_nothing_and_times_nothing_out() {
    let Some(mut rig) = Rig::new().await else { return };
    rig.publish();
    rig.publish();
    let mut daemon = rig.setup.start();
    rig.until_all(&mut daemon, "the first events arrive").await;

    rig.clock.set(-DAY);
    rig.publish();
    rig.until_all(&mut daemon, "events arrive after the step").await;
    rig.until_clock(&mut daemon, -DAY).await;
    rig.prove(0);
    rig.until_all(&mut daemon, "the event whose proof arrives after the step is delivered").await;
    let log = daemon.stop().await;
    assert_eq!(log.lines(REJECTED), [] as [serde_json::Value; 0]);

    let mut daemon = rig.setup.start();
    rig.publish();
    rig.until_all(&mut daemon, "events arrive after a restart").await;
    rig.until_clock(&mut daemon, -DAY).await;
    for number in 1..rig.late.len() {
        rig.prove(number);
    }
    rig.until_all(&mut daemon, "the events whose proofs arrive after a restart are delivered").await;
    let log = daemon.stop().await;
    assert_eq!(log.lines(REJECTED), [] as [serde_json::Value; 0]);
    rig.assert_whole().await;
}

#[tokio::test]
async fn a_clock_set_forward_by_two_days_times_nothing_out() {
    let Some(mut rig) = Rig::new().await else { return };
    rig.publish();
    let mut daemon = rig.setup.start();
    rig.until_all(&mut daemon, "the first events arrive").await;

    rig.clock.set(2 * DAY);
    rig.publish();
    rig.until_all(&mut daemon, "events arrive after the step").await;
    rig.until_clock(&mut daemon, 2 * DAY).await;
    rig.prove(0);
    rig.until_all(&mut daemon, "the event whose proof arrives after the step is delivered").await;
    assert!(daemon.stop().await.lines(REJECTED).is_empty());

    // The other late event was first seen when the clock was two days ahead.
    rig.clock.set(0);
    let mut daemon = rig.setup.start();
    rig.publish();
    rig.until_all(&mut daemon, "events arrive after the clock was corrected").await;
    rig.until_clock(&mut daemon, 0).await;
    for number in 1..rig.late.len() {
        rig.prove(number);
    }
    rig.until_all(&mut daemon, "the events whose proofs arrive are delivered").await;
    assert!(daemon.stop().await.lines(REJECTED).is_empty());
    rig.assert_whole().await;
}
