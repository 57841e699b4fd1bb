//! Two instances run two channels that show the same proof. One of the channels delivers the event, and both are not
//! ready.

use std::collections::BTreeSet;
use std::time::Instant;

use simulator::{EventSpec, Kind, Options, ReplayedId, Simulator, Steal};

use super::{LOOK_AGAIN, instance, offsets, until, until_status};
use crate::support::{Admin, Daemon, Database, LONGEST_WAIT, Receiver, Setup};

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);

/// Two instances that own one channel each.
struct Pair {
    database: Database,
    simulator: Simulator,
    receiver: Receiver,
    setups: [Setup; 2],
    daemons: Vec<Daemon>,
    admins: Vec<Admin>,
}

impl Pair {
    async fn start(options: Options, change: impl Fn(&Simulator, &mut Setup)) -> Option<Self> {
        let database = Database::new().await?;
        let simulator = Simulator::start(Options { channels: 2, ..options }).await.unwrap();
        let receiver = Receiver::start().await;
        let setups = ["a", "b"].map(|name| {
            let mut setup = instance(name, &simulator, &database, &receiver).with_admin();
            change(&simulator, &mut setup);
            setup
        });
        let mut daemons: Vec<_> = setups.iter().map(Setup::start).collect();
        let mut admins = Vec::new();
        for daemon in &mut daemons {
            admins.push(Admin::of(daemon).await);
        }
        let pair = Self { database, simulator, receiver, setups, daemons, admins };
        let shares = "select count(*) from channeld.channels where owner is not null group by owner";
        until(&pair.database, "each instance owns one channel", shares, &[1, 1]).await;
        Some(pair)
    }

    /// Copies events of the first channel into the second one, with new ids and the same proofs.
    fn steal(&self, offsets: std::ops::RangeInclusive<i64>) {
        for offset in offsets {
            self.simulator.replay(0, offset, 1, ReplayedId::New);
        }
    }

    fn publish(&self, events: i64) {
        for _ in 0..events {
            self.simulator.publish_one(0, PROVED);
        }
    }

    fn delivered(&self) -> [Vec<i64>; 2] {
        ["c0", "c1"].map(|channel| offsets(&self.receiver, channel))
    }

    async fn until_delivered(&mut self, expected: [Vec<i64>; 2]) {
        let receiver = &self.receiver;
        let all = |_: &_| ["c0", "c1"].map(|channel| offsets(receiver, channel)) == expected;
        self.daemons[0].until("both channels have delivered these events", all).await;
    }

    /// Waits until `holds` accepts the `/readyz` answers of all instances, concatenated into one text.
    async fn until_reasons(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + LONGEST_WAIT;
        loop {
            let mut said = String::new();
            for admin in &self.admins {
                said += &admin.get("/readyz").await.text;
            }
            if holds(&said) {
                return;
            }
            assert!(Instant::now() < deadline, "{what}: not within {LONGEST_WAIT:?}, but {said}");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until each of the two channels reports the shared proofs exactly once.
    async fn until_shared_proofs_are_reported(&self) {
        let held_back = "of its events have a proof that appeared in channel c0 before";
        let first = "of its events have a proof that also appeared in channel c1";
        self.until_reasons_of_both([("c1", held_back), ("c0", first)]).await;
    }

    /// Waits until each of these channels reports its reason exactly once.
    async fn until_reasons_of_both(&self, reasons: [(&str, &str); 2]) {
        let says = |said: &str, (channel, why): (&str, &str)| {
            said.lines().filter(|line| line.contains(&format!("channel {channel}: ")) && line.contains(why)).count()
                == 1
        };
        self.until_reasons("both channels report the shared proofs", |said| {
            reasons.iter().all(|reason| says(said, *reason))
        })
        .await;
    }

    async fn until_ready(&self) {
        self.until_reasons("no channel reports a reason", |said| !said.contains("channel c")).await;
    }

    async fn tell(&self, arguments: &[&str]) -> Option<i32> {
        self.setups[0].tell(arguments).await.code
    }

    async fn stop(self) {
        for daemon in self.daemons {
            daemon.stop().await;
        }
    }
}

#[tokio::test]
async fn events_delivered_by_another_instances_channel_are_quarantined_until_acknowledged() {
    let Some(mut pair) = Pair::start(Options::default(), |_, _| {}).await else { return };
    pair.publish(5);
    pair.until_delivered([(1..=5).collect(), vec![]]).await;
    pair.steal(1..=5);
    pair.simulator.publish_one(1, PROVED);
    pair.until_delivered([(1..=5).collect(), vec![6]]).await;
    pair.until_shared_proofs_are_reported().await;
    until_status(&pair.setups[0], "each channel names the other", |status| {
        [0, 1].map(|at| status["channels"][at]["shared_proofs"][0]["other"].as_str()) == [Some("c1"), Some("c0")]
    })
    .await;
    assert_eq!(
        pair.tell(&["quarantine", "retry", "c1", "--all"]).await,
        Some(1),
        "the proofs belong to another channel"
    );
    assert_eq!(pair.tell(&["quarantine", "drop", "c1", "--reason", "proof-of-channel", "--yes"]).await, Some(0));
    pair.until_ready().await;
    assert_eq!(pair.delivered(), [(1..=5).collect(), vec![6]]);
    pair.stop().await;
}

#[tokio::test]
async fn events_first_seen_by_another_instance_are_delivered_once_a_pin_decides() {
    let Some(mut pair) = Pair::start(Options::default(), |_, _| {}).await else { return };
    assert_eq!(pair.tell(&["pause", "c0"]).await, Some(0));
    pair.publish(5);
    pair.steal(1..=5);
    pair.until_delivered([vec![], (1..=5).collect()]).await;
    assert_eq!(pair.tell(&["resume", "c0"]).await, Some(0));
    pair.publish(1);
    pair.until_delivered([vec![6], (1..=5).collect()]).await;
    let held_back = "5 of its events have a proof that appeared in channel c1 before";
    let first = "5 of its events have a proof that also appeared in channel c0";
    pair.until_reasons_of_both([("c0", held_back), ("c1", first)]).await;
    assert_eq!(
        pair.tell(&["quarantine", "retry", "c0", "--all"]).await,
        Some(1),
        "no list assigns the proofs to a channel"
    );

    let workflows: Vec<_> = pair.simulator.workflow_ids(0).iter().map(ToString::to_string).collect();
    for setup in &mut pair.setups {
        setup.set("channels.c0.expect.workflow_id", workflows.clone());
        setup.write();
        assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    }
    assert_eq!(pair.tell(&["quarantine", "retry", "c0", "--all"]).await, Some(0));
    pair.until_delivered([[6].into_iter().chain(1..=5).collect(), (1..=5).collect()]).await;
    pair.until_ready().await;
    pair.stop().await;
}

#[tokio::test]
async fn two_instances_reading_at_once_deliver_each_event_once() {
    let options = Options { events: 200, steal: Some(Steal { from: 0, into: 1 }), ..Options::default() };
    let Some(mut pair) = Pair::start(options, |_, _| {}).await else { return };
    pair.simulator.publish_one(0, PROVED);
    pair.simulator.publish_one(1, PROVED);
    let receiver = &pair.receiver;
    let is_last = |channel: &str| offsets(receiver, channel).last() == Some(&201);
    pair.daemons[0].until("both have read everything", |_| is_last("c0") && is_last("c1")).await;
    let delivered = pair.receiver.delivered();
    let digests: BTreeSet<_> = delivered.iter().map(|record| record.verification["digest"].to_string()).collect();
    assert_eq!(digests.len(), delivered.len(), "no proof is delivered twice");
    pair.stop().await;
}

#[tokio::test]
async fn a_pinned_channel_accepts_nothing_of_another_instances_channel() {
    let pin = |simulator: &Simulator, setup: &mut Setup| {
        let own: Vec<_> = simulator.workflow_ids(1).iter().map(ToString::to_string).collect();
        setup.set("channels.c1.expect.workflow_id", own);
    };
    let Some(mut pair) = Pair::start(Options::default(), pin).await else { return };
    assert_eq!(pair.tell(&["pause", "c0"]).await, Some(0));
    pair.publish(5);
    pair.steal(1..=5);
    pair.simulator.publish_one(1, PROVED);
    pair.until_delivered([vec![], vec![6]]).await;
    assert_eq!(pair.tell(&["resume", "c0"]).await, Some(0));
    pair.until_delivered([(1..=5).collect(), vec![6]]).await;
    pair.until_ready().await;
    pair.stop().await;
}

#[tokio::test]
async fn a_takeover_keeps_the_quarantine() {
    let Some(mut pair) = Pair::start(Options::default(), |_, _| {}).await else { return };
    pair.publish(3);
    pair.until_delivered([(1..=3).collect(), vec![]]).await;
    pair.steal(1..=3);
    pair.until_shared_proofs_are_reported().await;
    pair.daemons.pop().unwrap().kill().await;
    pair.admins.pop();
    pair.until_shared_proofs_are_reported().await;
    pair.until_reasons("the remaining instance reports both channels", |said| {
        said.lines().filter(|line| line.contains("channel c")).count() == 2
    })
    .await;
    assert_eq!(pair.tell(&["quarantine", "retry", "c1", "--all"]).await, Some(1));
    assert_eq!(pair.tell(&["quarantine", "drop", "c1", "--reason", "proof-of-channel", "--yes"]).await, Some(0));
    pair.until_ready().await;
    assert_eq!(pair.delivered(), [(1..=3).collect(), vec![]]);
    pair.stop().await;
}
