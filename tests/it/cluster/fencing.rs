//! An instance that lost a channel commits nothing more for the channel. A lost answer neither loses nor repeats an event.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ledger::store::shared::Membership;
use ledger::store::{PostgresSettings, Store};
use ledger::{Change, Commit, CommitOutcome, Cursor, Effects, Key, Lease, Ledger, Loss, Value};
use proof::event::{ChannelId, Offset};
use rand::Rng;
use tempfile::TempDir;
use tokio::time::sleep;
use uuid::Uuid;

use super::{instance, offsets, service};
use crate::support::{Database, LONGEST_WAIT, Line, Receiver, Relay, deliverable, random};

pub(super) const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(7));

/// The store of an instance without a daemon. It sends no heartbeat unless the test calls [`beat`](Self::beat).
pub(super) struct Instance {
    pub(super) store: Arc<dyn Store>,
    pub(super) members: Arc<dyn Membership>,
    _directory: TempDir,
}

impl Instance {
    pub(super) fn on(database: &Database, name: &str) -> Self {
        Self::by(&database.url(), name, Duration::from_secs(2))
    }

    pub(super) fn by(url: &str, name: &str, lease: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let settings = PostgresSettings {
            server: url.parse().unwrap(),
            schema: "channeld".to_owned(),
            instance: name.to_owned(),
            lease,
        };
        let store = settings.open(Some(&directory.path().join("state"))).unwrap();
        Self { members: store.clone().membership().unwrap(), store, _directory: directory }
    }

    pub(super) async fn beat(&self) {
        self.members.beat(&Arc::default(), &[]).await.unwrap();
    }

    /// Sends heartbeats and tries to claim the channel until it succeeds. On a busy machine, a claim can wait too long for a lock.
    pub(super) async fn claim(&self) -> (Lease, Ledger) {
        let began = Instant::now();
        loop {
            self.beat().await;
            let claimed = self.store.claim(CHANNEL).await;
            match claimed {
                Ok(Some((lease, entries))) => return (lease, Ledger::load(entries, 100).unwrap().0),
                Ok(None) => {}
                Err(error) => assert!(error.may_pass() && began.elapsed() < LONGEST_WAIT, "{error:?}"),
            }
        }
    }

    pub(super) async fn advance(&self, lease: &Lease, ledger: &mut Ledger, to: i64) -> CommitOutcome {
        let effects = advance(ledger, to);
        self.store.commit(Arc::new(vec![(lease.clone(), effects)])).await.remove(0)
    }

    pub(super) async fn recorded(&self) -> Option<Value> {
        self.store.entries(CHANNEL).await.unwrap().remove(&Key::Cursor("sink".into()))
    }
}

pub(super) fn advance(ledger: &mut Ledger, to: i64) -> Effects {
    let to = Cursor { through: Offset::new(to) };
    ledger.apply(Commit(vec![Change::Advance { sink: "sink".into(), to }])).unwrap()
}

pub(super) fn cursor(at: &'static str) -> Value {
    Value::Bytes(Bytes::from_static(at.as_bytes()))
}

#[tokio::test]
async fn a_channel_has_one_owner_and_the_previous_owner_commits_nothing() {
    let Some(database) = Database::new().await else { return };
    let (old, new) = (Instance::on(&database, "old"), Instance::on(&database, "new"));
    let (lease, mut ledger) = old.claim().await;
    assert!(matches!(old.advance(&lease, &mut ledger, 1).await, CommitOutcome::Ok));
    old.beat().await;
    new.beat().await;
    assert!(new.store.claim(CHANNEL).await.unwrap().is_none(), "the owner is alive");

    let (newer, mut loaded) = new.claim().await;
    assert!(newer.epoch > lease.epoch);
    assert_eq!(loaded.cursor("sink").unwrap().through, Offset::new(1), "the new owner continues at the cursor");
    assert!(matches!(old.advance(&lease, &mut ledger, 9).await, CommitOutcome::Lost(Loss::Overtaken)));
    assert_eq!(old.recorded().await, Some(cursor("1")));
    assert!(matches!(new.advance(&newer, &mut loaded, 2).await, CommitOutcome::Ok));
    assert!(matches!(old.advance(&lease, &mut ledger, 10).await, CommitOutcome::Lost(Loss::Overtaken)));
    old.beat().await;
    assert!(lease.lost.is_cancelled(), "the old owner notices the loss");
    old.store.release(lease).await;
    assert!(
        matches!(new.advance(&newer, &mut loaded, 3).await, CommitOutcome::Ok),
        "an instance releases only its own lease"
    );
    assert_eq!(new.recorded().await, Some(cursor("3")));
}

#[tokio::test]
async fn a_group_commit_refuses_only_the_lost_channels() {
    let Some(database) = Database::new().await else { return };
    let (one, other) = (Instance::on(&database, "one"), Instance::on(&database, "other"));
    one.beat().await;
    let second = ChannelId(Uuid::from_u128(8));
    let (first_lease, entries) = one.store.claim(CHANNEL).await.unwrap().unwrap();
    let mut first = Ledger::load(entries, 100).unwrap().0;
    let (overtaken, mut newer) = other.claim().await;
    one.beat().await;
    let (second_lease, entries) = one.store.claim(second).await.unwrap().unwrap();
    let mut loaded = Ledger::load(entries, 100).unwrap().0;
    let group = vec![(first_lease, advance(&mut first, 5)), (second_lease, advance(&mut loaded, 5))];
    let outcomes = one.store.commit(Arc::new(group)).await;
    assert!(matches!(outcomes[..], [CommitOutcome::Lost(Loss::Ended), CommitOutcome::Ok]), "{outcomes:?}");
    assert!(matches!(other.advance(&overtaken, &mut newer, 6).await, CommitOutcome::Ok));
    assert_eq!(one.recorded().await, Some(cursor("6")));
}

#[tokio::test]
async fn commits_lost_in_a_failover_are_noticed_and_the_channel_is_reloaded() {
    let Some(database) = Database::new().await else { return };
    let instance = Instance::on(&database, "only");
    let (lease, mut ledger) = instance.claim().await;
    assert!(matches!(instance.advance(&lease, &mut ledger, 1).await, CommitOutcome::Ok));
    let before = ledger.clone();
    assert!(matches!(instance.advance(&lease, &mut ledger, 2).await, CommitOutcome::Ok));
    // As if a standby without the last commit had been promoted.
    database.query("update channeld.channels set version = version - 1").await;
    database.query("update channeld.entries set value = '1' where kind = 'cursors'").await;
    assert!(matches!(
        instance.advance(&lease, &mut ledger, 3).await,
        CommitOutcome::Lost(Loss::Behind { stored: 1, recorded: 2 })
    ));
    let (lease, mut ledger) = instance.claim().await;
    assert_eq!(ledger.cursor("sink"), before.cursor("sink"));
    assert!(matches!(instance.advance(&lease, &mut ledger, 2).await, CommitOutcome::Ok));
}

#[tokio::test]
async fn lost_answers_and_connections_lose_and_repeat_nothing() {
    let Some(database) = Database::new().await else { return };
    let relay = Relay::before(database.server.socket()).await;
    let (simulator, receiver) = (service(2, 300).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with("state.url", database.url_by(relay.address()));
    // Longer than the connection is ever interrupted, because an expired lease would repeat events.
    let setup = setup.with("cluster.lease", "60s");
    let mut daemon = setup.start();
    let (mut random, mut cuts) = (random(0x16), 0);
    let expected = [deliverable(&simulator, 0), deliverable(&simulator, 1)];
    let all = |receiver: &Receiver| {
        expected
            .iter()
            .enumerate()
            .all(|(channel, expected)| offsets(receiver, &format!("c{channel}")).len() >= expected.len())
    };
    while !all(&receiver) {
        daemon.until("the daemon runs", |_| true).await;
        relay.becomes(if random.random() { Line::CutsAnswers } else { Line::Good });
        sleep(Duration::from_millis(random.random_range(0..50))).await;
        relay.becomes(Line::Good);
        relay.cut();
        cuts += 1;
        let seen = receiver.received();
        daemon.until("delivery continues", |_| receiver.received() > seen || all(&receiver)).await;
    }
    let log = daemon.stop().await;
    assert!(cuts > 5, "{cuts}");
    let reported: Vec<_> = log.0.lines().filter(|line| !line.contains("\"DEBUG\"")).collect();
    for (channel, expected) in expected.iter().enumerate() {
        let arrived = offsets(&receiver, &format!("c{channel}"));
        assert_eq!(&arrived, expected, "channel c{channel}\n{}", reported.join("\n"));
    }
}
