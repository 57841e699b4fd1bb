use async_trait::async_trait;
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::*;
use crate::ledger::Effects;
use crate::ledger::tests::memory::{Disk, Gate, Write};
use crate::ledger::tests::{advance, at};

const CHANNEL: ChannelId = ChannelId(Uuid::from_u128(1));

/// A write waits at a door until the test lets it in.
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
async fn a_channel_is_claimed_again_only_when_what_its_last_owner_committed_is_written() {
    let door = Arc::new(Door { reached: Semaphore::new(0), open: Semaphore::new(0) });
    let ledgers = Arc::new(Ledgers::in_memory(&Arc::<Disk>::default(), door.clone()));
    let (claim, _) = ledgers.claim(CHANNEL, 0).await.unwrap().unwrap();
    let owner = tokio::spawn(async move { claim.commit(Commit(vec![advance("one", 5)])).await });
    door.reached.acquire().await.unwrap().forget();
    owner.abort();
    assert!(owner.await.unwrap_err().is_cancelled());

    assert!(ledgers.try_claim(CHANNEL, 0).await.unwrap().is_none(), "the commit is not written");
    door.open.add_permits(1);
    let (claim, _) = ledgers.claim(CHANNEL, 0).await.unwrap().unwrap();
    assert_eq!(claim.ledger().cursor("one"), Some(at(5)));
}
