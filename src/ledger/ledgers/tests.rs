use async_trait::async_trait;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::*;
use crate::Effects;
use crate::rules::tests::{advance, at};
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
