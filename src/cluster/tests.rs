use std::sync::Mutex;

use async_trait::async_trait;
use uuid::Uuid;

use super::*;
use ledger::StateError;
use ledger::store::shared::{
    ForwardedRequest, ForwardedResponse, Instance, LeaseTerm, Ownership, RequestId, RequestState,
};
use net::tasks::lock;

const LEASE: Duration = Duration::from_secs(6);
const ME: InstanceId = Uuid::from_u128(1);
const OTHER: InstanceId = Uuid::from_u128(2);

/// A store in which this instance owns every channel and another instance owns none.
#[derive(Debug, Default)]
struct SharedStore {
    view: Mutex<ClusterView>,
    /// The channels that this process has claimed.
    claimed: BTreeSet<ChannelId>,
    term: LeaseTerm,
    /// How many of the next heartbeats panic.
    panics: Mutex<u32>,
    /// The instances that may be forgotten, as of the last heartbeat.
    dead: Mutex<Vec<InstanceId>>,
}

impl SharedStore {
    fn new(claimed: BTreeSet<ChannelId>) -> Arc<Self> {
        let instance = |name: &str| Instance { name: name.to_owned(), joined: 0, configured: configured() };
        let owned = Ownership::Owned { by: ME, epoch: 7 };
        let view = ClusterView {
            instances: [(ME, instance("me")), (OTHER, instance("other"))].into(),
            channels: channels().iter().map(|channel| (*channel, owned.clone())).collect(),
            ..ClusterView::default()
        };
        let (term, panics, dead) = (LeaseTerm::default(), Mutex::default(), Mutex::default());
        Arc::new(Self { view: Mutex::new(view), claimed, term, panics, dead })
    }

    /// Runs the membership for some time. Returns the number of channels that this instance then owns.
    async fn owned_after(self: &Arc<Self>, time: Duration) -> usize {
        let (_configured, configured) = watch::channel(configured());
        let member = Member::new(self.clone(), configured);
        let _ = timeout(time, member.run(CancellationToken::new())).await;
        lock(&self.view).owned_by(ME).count()
    }
}

fn channels() -> BTreeSet<ChannelId> {
    (0..4).map(|channel| ChannelId(Uuid::from_u128(channel))).collect()
}

fn configured() -> Arc<Configured> {
    Arc::new(Configured { channels: channels(), ..Configured::default() })
}

#[async_trait]
impl Membership for SharedStore {
    fn me(&self) -> InstanceId {
        ME
    }

    fn lease(&self) -> Duration {
        LEASE
    }

    fn term(&self) -> &LeaseTerm {
        &self.term
    }

    async fn beat(&self, _: &Arc<Configured>, dead: &[InstanceId]) -> Result<ClusterView, StateError> {
        *lock(&self.dead) = dead.to_vec();
        let left = lock(&self.panics).checked_sub(1);
        if let Some(left) = left {
            *lock(&self.panics) = left;
            panic!("a defect");
        }
        self.term.prolong(LeaseTerm::now(), LEASE);
        Ok(lock(&self.view).clone())
    }

    fn has_claimed(&self, channel: ChannelId) -> bool {
        self.claimed.contains(&channel)
    }

    async fn give_up(&self, channels: &BTreeMap<ChannelId, u64>) -> Result<(), StateError> {
        let mut view = lock(&self.view);
        for (channel, epoch) in channels {
            let given = view.channels.insert(*channel, Ownership::Owned { by: OTHER, epoch: epoch + 1 });
            assert_eq!(given, Some(Ownership::Owned { by: ME, epoch: *epoch }));
        }
        Ok(())
    }

    fn lose_all(&self) {}

    async fn leave(&self) {}

    async fn ask(&self, _: InstanceId, _: &ForwardedRequest) -> Result<RequestId, StateError> {
        unreachable!("no request is sent")
    }

    async fn look(&self, _: RequestId, _: bool) -> Result<RequestState, StateError> {
        unreachable!("no request is sent")
    }

    async fn take(&self) -> Result<Vec<(RequestId, ForwardedRequest)>, StateError> {
        Ok(Vec::new())
    }

    async fn answer(&self, _: RequestId, _: &ForwardedResponse) -> Result<(), StateError> {
        unreachable!("no request is sent")
    }
}

#[tokio::test(start_paused = true)]
async fn the_heartbeat_releases_idle_channels_that_others_should_own() {
    // This instance lost the channels while the database was unavailable, and no task has claimed them since then.
    let shared = SharedStore::new(BTreeSet::new());
    assert_eq!(shared.owned_after(STABLE + LEASE).await, 2, "the other instance owns its share");
}

#[tokio::test(start_paused = true)]
async fn a_running_channel_is_released_by_its_own_task() {
    let shared = SharedStore::new(channels());
    assert_eq!(shared.owned_after(STABLE + LEASE).await, 4, "the heartbeat releases none of them");
}

#[tokio::test(start_paused = true)]
async fn a_heartbeat_that_panics_is_reported_and_tried_again_long_before_the_next_one_is_due() {
    let shared = SharedStore::new(channels());
    *lock(&shared.panics) = 5;
    let (_configured, configured) = watch::channel(configured());
    let member = Member::new(shared.clone(), configured);
    let (mut seen, began) = (member.seen(), Instant::now());
    let checking = async {
        let failed = seen.wait_for(|seen| seen.trouble.is_some()).await.unwrap().trouble.clone().unwrap();
        assert!(failed.contains("because of a defect"), "{failed}");
        assert!(seen.wait_for(|seen| seen.trouble.is_none()).await.is_ok());
        assert!(began.elapsed() < LEASE / BEATS, "{:?}", began.elapsed());
    };
    tokio::select! { () = checking => {}, () = member.run(CancellationToken::new()) => {} }
}

/// A silent instance decides about its channels for some time. Heartbeats of this instance that fail meanwhile say nothing about
/// the other one.
#[tokio::test(start_paused = true)]
async fn an_instance_defers_to_a_silent_one_until_its_own_heartbeats_have_succeeded_for_some_time() {
    let shared = SharedStore::new(channels());
    {
        let mut view = lock(&shared.view);
        for (joined, digest, id) in [(0, "one", OTHER), (1, "another", ME)] {
            let settings = BTreeMap::from([("verification.min_required_signatures".to_owned(), digest.to_owned())]);
            let instance = view.instances.get_mut(&id).unwrap();
            instance.joined = joined;
            let of_channels = channels().into_iter().map(|channel| (channel, settings.clone())).collect();
            Arc::make_mut(&mut instance.configured).settings.channels = of_channels;
        }
        let first = view.instances.remove(&OTHER).unwrap();
        view.silent.insert(OTHER, first);
        let orphaned = Ownership::Orphaned { since: LEASE * 10 };
        view.channels.values_mut().for_each(|owner| *owner = orphaned.clone());
    }
    let (_configured, configured) = watch::channel(configured());
    let member = Member::new(shared.clone(), configured);
    let seen = member.seen();
    let checking = async {
        // Whether channels are claimed within this time.
        let claims = async |time| timeout(time, seen.clone().wait_for(|seen| !seen.work.is_empty())).await.is_ok();
        assert!(!claims(LATE * 9 / 10).await);
        assert!(lock(&shared.dead).is_empty());
        *lock(&shared.panics) = 1;
        assert!(!claims(LATE).await, "a heartbeat has failed");
        assert!(claims(LATE).await);
        sleep(LEASE).await;
        assert_eq!(*lock(&shared.dead), [OTHER]);
    };
    tokio::select! { () = checking => {}, () = member.run(CancellationToken::new()) => {} }
}
