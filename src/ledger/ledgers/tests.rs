use async_trait::async_trait;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use uuid::Uuid;

use super::*;
use crate::Effects;
use crate::rules::tests::{advance, at, quarantine};
use crate::testing::{Disk, Gate, Write};

const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(1));

/// Each write waits at a door until the test opens it.
#[derive(Debug)]
struct Door {
    reached: Semaphore,
    open: Semaphore,
}

#[async_trait]
impl Gate for Door {
    async fn before(&self, _: &[(Lease, Effects)]) -> Write {
        self.reached.add_permits(1);
        self.open.acquire().await.unwrap().forget();
        Write::Done
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

#[tokio::test]
async fn a_channel_is_claimed_again_only_after_earlier_commits_are_written() {
    let door = Arc::new(Door { reached: Semaphore::new(0), open: Semaphore::new(0) });
    let ledgers = Arc::new(Ledgers::in_memory(&Arc::<Disk>::default(), door.clone()));
    let (claim, _) = ledgers.claim(CHANNEL, 0).await.unwrap().unwrap();
    let owner = tokio::spawn(async move { claim.commit(Commit(vec![advance("one", 5)])).await });
    door.reached.acquire().await.unwrap().forget();
    owner.abort();
    assert!(owner.await.unwrap_err().is_cancelled());

    assert!(ledgers.try_claim(CHANNEL, 0).await.unwrap().is_none(), "the earlier commit is not written yet");
    door.open.add_permits(1);
    let (claim, _) = ledgers.claim(CHANNEL, 0).await.unwrap().unwrap();
    assert_eq!(claim.ledger().cursor("one"), Some(at(5)));
}

/// A store that cannot write.
#[derive(Debug)]
struct Unreachable(Semaphore);

#[async_trait]
impl Gate for Unreachable {
    async fn before(&self, _: &[(Lease, Effects)]) -> Write {
        self.0.add_permits(1);
        Write::Unavailable
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

#[tokio::test(start_paused = true)]
async fn a_lease_lost_during_an_outage_is_not_a_store_failure() {
    let gate = Arc::new(Unreachable(Semaphore::new(0)));
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), gate.clone());
    let (claim, _) = ledgers.claim(CHANNEL, 0).await.unwrap().unwrap();
    let lose = async {
        gate.0.acquire_many(3).await.unwrap().forget();
        assert!(ledgers.writes.trouble().is_some());
        claim.lease.lost.cancel();
    };
    let (written, ()) = tokio::join!(claim.commit(Commit(vec![advance("one", 5)])), lose);
    assert!(matches!(written, Err(CommitError::Lost(_))), "{written:?}");
    assert_eq!(ledgers.writes.trouble(), None, "no commit waits, and there may be no other one for a long time");
}

/// A store in which another instance owns the channel.
#[derive(Debug)]
struct Elsewhere;

#[async_trait]
impl Gate for Elsewhere {
    async fn before(&self, _: &[(Lease, Effects)]) -> Write {
        Write::Overtaken
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

#[tokio::test]
async fn another_owner_in_the_store_ends_the_lease_without_a_commit() {
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), Arc::new(Elsewhere));
    let (claim, _) = ledgers.claim(CHANNEL, 0).await.unwrap().unwrap();
    let written = claim.commit(Commit(vec![advance("one", 5)])).await;
    assert!(matches!(written, Err(CommitError::Lost(_))), "{written:?}");
    assert!(claim.lease.lost.is_cancelled());
}

#[tokio::test]
async fn after_the_lease_is_lost_a_commit_does_nothing() {
    let gate = Arc::new(Unreachable(Semaphore::new(0)));
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), gate.clone());
    let (claim, _) = ledgers.claim(CHANNEL, 0).await.unwrap().unwrap();
    claim.lease.lost.cancel();
    let written = claim.commit(Commit(vec![advance("one", 5)])).await;
    assert!(matches!(written, Err(CommitError::Lost(_))), "{written:?}");
    assert_eq!((claim.ledger().cursor("one"), gate.0.available_permits()), (None, 0));
}

const CHANNELS: u128 = 8;

/// How long the store waits for an answer.
const DEADLINE: Duration = Duration::from_secs(10);

/// A store that answers only some writes. It executes the others later.
#[derive(Debug)]
struct SlowStore {
    /// The most channels of a write that is answered.
    most: Mutex<usize>,
    /// A channel whose writes are never answered and never executed.
    hangs: Option<ChannelId>,
    /// The channels of each write, with their versions.
    writes: Mutex<Vec<Vec<(u128, u64)>>>,
}

impl SlowStore {
    fn new(most: usize, hangs: Option<ChannelId>) -> Arc<Self> {
        Arc::new(Self { most: Mutex::new(most), hangs, writes: Mutex::default() })
    }

    /// The numbers of channels of the writes since the last call.
    fn sizes(&self) -> Vec<usize> {
        std::mem::take(&mut *lock(&self.writes)).iter().map(Vec::len).collect()
    }
}

#[async_trait]
impl Gate for SlowStore {
    async fn before(&self, group: &[(Lease, Effects)]) -> Write {
        let versions = group.iter().map(|(lease, effects)| (lease.channel.0.as_u128(), effects.summary.version));
        lock(&self.writes).push(versions.collect());
        let hangs = group.iter().any(|(lease, _)| Some(lease.channel) == self.hangs);
        if !hangs && group.len() <= *lock(&self.most) {
            return Write::Done;
        }
        sleep(DEADLINE).await;
        if hangs { Write::Unavailable } else { Write::Late }
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

async fn claim(ledgers: &Ledgers, channel: u128) -> LeasedLedger {
    ledgers.claim(ChannelId(Uuid::from_u128(channel)), 0).await.unwrap().unwrap().0
}

/// Commits to each channel at the same time, and waits until every commit is durable.
async fn commit_to_each(claims: &[Arc<LeasedLedger>], to: i64) {
    let mut commits = JoinSet::new();
    for claim in claims {
        let claim = claim.clone();
        commits.spawn(async move { claim.commit(Commit(vec![advance("one", to)])).await });
    }
    let written = timeout(DEADLINE * 10, commits.join_all()).await.expect("the commits are written at last");
    assert!(written.iter().all(Result::is_ok), "{written:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_is_too_slow_is_divided_and_writes_grow_again_with_success() {
    let store = SlowStore::new(1, None);
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), store.clone());
    let mut claims = Vec::new();
    for channel in 1..=CHANNELS {
        claims.push(Arc::new(claim(&ledgers, channel).await));
    }
    commit_to_each(&claims, 1).await;
    assert_eq!(store.sizes(), [8, 2, 1, 1, 1, 1, 1, 1, 1, 1]);

    *lock(&store.most) = claims.len();
    commit_to_each(&claims, 2).await;
    assert_eq!(store.sizes(), [1; 8], "a write grows only after many successes");
    let mut to = 3;
    while store.sizes() != [claims.len()] {
        assert!(to < 50, "the writes do not grow");
        commit_to_each(&claims, to).await;
        to += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn commits_of_a_channel_stay_in_order_and_those_that_may_be_stored_stay_together() {
    let (disk, store) = (Arc::<Disk>::default(), SlowStore::new(1, None));
    let ledgers = Ledgers::in_memory(&disk, store.clone());
    let (one, other) = (claim(&ledgers, 1).await, claim(&ledgers, 2).await);
    let later = async {
        sleep(DEADLINE / 2).await;
        one.commit(Commit(vec![advance("a", 7)])).await.unwrap();
    };
    let (first, second, of_other, ()) = tokio::join!(
        one.commit(Commit(vec![quarantine(4, b"{}"), advance("a", 5)])),
        one.commit(Commit(vec![advance("b", 5)])),
        other.commit(Commit(vec![advance("a", 5)])),
        later
    );
    assert!([first, second, of_other].iter().all(Result::is_ok));
    // The store has executed version 2 of the first channel after its deadline, so version 1 alone would be refused.
    assert_eq!(*lock(&store.writes), [vec![(1, 2), (2, 1)], vec![(1, 2)], vec![(2, 1)], vec![(1, 3)]]);
    let stored = Ledger::load(disk.entries(one.lease.channel), 0).unwrap().0;
    assert_eq!((stored.cursor("a"), stored.cursor("b"), stored.quarantined().len()), (Some(at(7)), Some(at(5)), 1));
}

#[tokio::test(start_paused = true)]
async fn a_channel_that_cannot_be_written_does_not_stop_another_and_stays_visible() {
    let store = SlowStore::new(usize::MAX, Some(CHANNEL));
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), store.clone());
    let (stuck, other) = (claim(&ledgers, 1).await, claim(&ledgers, 2).await);
    let others = async {
        for to in 1..=3 {
            other.commit(Commit(vec![advance("one", to)])).await.unwrap();
            assert!(ledgers.writes.trouble().is_some(), "the commit of the first channel still waits");
        }
    };
    tokio::select! {
        written = stuck.commit(Commit(vec![advance("one", 5)])) => panic!("{written:?}"),
        written = timeout(DEADLINE * 10, others) => written.expect("the other channel is written"),
    }
}

#[tokio::test(start_paused = true)]
async fn commits_of_lost_leases_are_answered_without_their_turn() {
    let store = SlowStore::new(0, None);
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), store.clone());
    let mut commits = JoinSet::new();
    for channel in 1..=CHANNELS {
        let claim = claim(&ledgers, channel).await;
        commits.spawn(async move {
            let committed = claim.commit(Commit(vec![advance("one", 1)]));
            let lost = async {
                sleep(DEADLINE / 2).await;
                claim.lease.lost.cancel();
            };
            tokio::join!(committed, lost).0
        });
    }
    let answers = timeout(DEADLINE * 2, commits.join_all()).await.expect("no commit waits for its turn");
    assert!(answers.iter().all(|answer| matches!(answer, Err(CommitError::Lost(_)))), "{answers:?}");
    assert_eq!(store.sizes(), [8]);
    assert_eq!(ledgers.writes.trouble(), None);
}

#[tokio::test(start_paused = true)]
async fn a_large_commit_that_cannot_be_written_does_not_keep_others_out() {
    let store = SlowStore::new(usize::MAX, Some(CHANNEL));
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), store.clone());
    let stuck = claim(&ledgers, 1).await;
    let mut others = Vec::new();
    for channel in 2..=CHANNELS {
        others.push(Arc::new(claim(&ledgers, channel).await));
    }
    tokio::select! {
        written = stuck.commit(Commit(vec![quarantine(4, &[b' '; 9 << 20])])) => panic!("{written:?}"),
        written = timeout(DEADLINE * 3, commit_to_each(&others, 1)) => written.expect("the other channels are written"),
    }
}

/// A store whose first writes fail immediately.
#[derive(Debug, Default)]
struct Refusing(Mutex<Vec<usize>>);

#[async_trait]
impl Gate for Refusing {
    async fn before(&self, group: &[(Lease, Effects)]) -> Write {
        let mut sizes = lock(&self.0);
        sizes.push(group.len());
        if sizes.len() <= 3 { Write::Unavailable } else { Write::Done }
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_immediately_is_not_divided() {
    let store = Arc::<Refusing>::default();
    let ledgers = Ledgers::in_memory(&Arc::<Disk>::default(), store.clone());
    let claims = [Arc::new(claim(&ledgers, 1).await), Arc::new(claim(&ledgers, 2).await)];
    commit_to_each(&claims, 1).await;
    assert_eq!(*lock(&store.0), [2; 4]);
}
