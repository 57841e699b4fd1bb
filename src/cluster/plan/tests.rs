use std::sync::Arc;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use ledger::store::shared::{Configured, Instance};

const LEASE: Duration = Duration::from_secs(6);

/// Instances that share one store. Each of them executes its plans.
#[derive(Debug, Default)]
struct Cluster {
    view: ClusterView,
    releasing: BTreeMap<InstanceId, BTreeSet<ChannelId>>,
    moves: usize,
}

impl Cluster {
    fn of(channels: usize, configured: &[Vec<usize>]) -> Self {
        let mut cluster = Self::default();
        for channel in 0..channels {
            cluster.view.channels.insert(id(channel), Ownership::Orphaned { since: Duration::ZERO });
        }
        for (at, channels) in configured.iter().enumerate() {
            cluster.join(at, channels);
        }
        cluster
    }

    fn join(&mut self, at: usize, channels: &[usize]) {
        let channels = channels.iter().map(|channel| id(*channel)).collect();
        let configured = Arc::new(Configured { channels, ..Configured::default() });
        self.view.instances.insert(instance(at), Instance { name: at.to_string(), joined: 0, configured });
        self.releasing.entry(instance(at)).or_default();
    }

    fn die(&mut self, at: usize) {
        self.view.instances.remove(&instance(at));
        for owner in self.view.channels.values_mut() {
            if matches!(owner, Ownership::Owned { by, .. } if *by == instance(at)) {
                *owner = Ownership::Orphaned { since: Duration::ZERO };
            }
        }
    }

    /// All instances see the same view, and act one after the other.
    fn round(&mut self) {
        let seen = self.view.clone();
        for owner in self.view.channels.values_mut() {
            if let Ownership::Orphaned { since } = owner {
                *since += LEASE / 3;
            }
        }
        for me in seen.instances.keys() {
            let releasing = self.releasing.get_mut(me).unwrap();
            // Release the channels whose release was planned in the last round.
            for channel in std::mem::take(releasing) {
                self.view.channels.insert(channel, Ownership::Orphaned { since: Duration::ZERO });
            }
            let plan = plan(&seen, *me, releasing, true, LEASE);
            assert!(plan.release.len() <= MOST_RELEASED);
            self.moves += plan.release.len() + plan.claim.len();
            releasing.extend(plan.release);
            for channel in plan.claim {
                let owner = self.view.channels.get_mut(&channel).unwrap();
                if matches!(owner, Ownership::Orphaned { .. }) {
                    *owner = Ownership::Owned { by: *me, epoch: 1 };
                }
            }
        }
    }

    fn settle(&mut self) {
        (0..60).for_each(|_| self.round());
        self.moves = 0;
        (0..12).for_each(|_| self.round());
        assert_eq!(self.moves, 0, "no channel moves any more");
    }

    fn counts(&self) -> Vec<usize> {
        self.view.instances.keys().map(|id| self.view.owned_by(*id).count()).collect()
    }
}

fn id(channel: usize) -> ChannelId {
    ChannelId(Uuid::new_v5(&Uuid::NAMESPACE_OID, &channel.to_be_bytes()))
}

fn instance(at: usize) -> InstanceId {
    Uuid::new_v5(&Uuid::NAMESPACE_DNS, &at.to_be_bytes())
}

fn everything(channels: usize, instances: usize) -> Vec<Vec<usize>> {
    vec![(0..channels).collect(); instances]
}

fn assert_even(cluster: &Cluster, channels: usize) {
    let counts = cluster.counts();
    assert_eq!(counts.iter().sum::<usize>(), channels, "each channel has an owner");
    let spread = counts.iter().max().unwrap() - counts.iter().min().unwrap();
    assert!(spread <= 1, "{counts:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn channels_are_shared_evenly_and_stay(
        channels in 0..100_usize,
        instances in 1..12_usize,
        changes in prop::collection::vec((any::<bool>(), 0..12_usize), 0..4),
    ) {
        let mut cluster = Cluster::of(channels, &everything(channels, instances));
        cluster.settle();
        assert_even(&cluster, channels);
        for (joins, at) in changes {
            if joins {
                cluster.join(at, &(0..channels).collect::<Vec<_>>());
            } else if cluster.view.instances.len() > 1 {
                cluster.die(at);
            }
            cluster.settle();
            assert_even(&cluster, channels);
        }
    }

    #[test]
    fn each_channel_has_an_owner_that_configures_it(
        configured in prop::collection::vec(prop::collection::vec(0..20_usize, 0..20), 1..6),
    ) {
        let mut cluster = Cluster::of(20, &configured);
        cluster.settle();
        for (channel, owner) in &cluster.view.channels {
            let may_own = |by: &InstanceId| cluster.view.instances[by].configured.channels.contains(channel);
            match owner {
                Ownership::Owned { by, .. } => prop_assert!(may_own(by)),
                Ownership::Orphaned { .. } => prop_assert!(!cluster.view.instances.keys().any(may_own)),
            }
        }
    }
}

#[test]
fn a_full_instance_leaves_an_orphan_to_others_for_three_leases() {
    let mut cluster = Cluster::of(4, &everything(4, 2));
    let mine: Vec<_> = cluster.view.channels.keys().copied().take(2).collect();
    for channel in mine {
        cluster.view.channels.insert(channel, Ownership::Owned { by: instance(0), epoch: 1 });
    }
    // The other instance should claim both channels, but does not.
    let claims = |cluster: &Cluster| plan(&cluster.view, instance(0), &BTreeSet::new(), true, LEASE).claim.len();
    assert_eq!(claims(&cluster), 0);
    for owner in cluster.view.channels.values_mut() {
        if let Ownership::Orphaned { since } = owner {
            *since = LEASE * ORPHANED_LEASES;
        }
    }
    assert_eq!(claims(&cluster), 2);
}

#[test]
fn nothing_is_released_while_instances_change() {
    let mut cluster = Cluster::of(4, &everything(4, 1));
    cluster.settle();
    cluster.join(1, &[0, 1, 2, 3]);
    let gives = |is_stable| plan(&cluster.view, instance(0), &BTreeSet::new(), is_stable, LEASE).release.len();
    assert_eq!((gives(false), gives(true)), (0, 2));
}

#[test]
fn an_instance_that_verifies_in_another_way_claims_only_if_no_instance_is_left_that_joined_before_it() {
    let mut cluster = Cluster::of(4, &[vec![0, 1, 2, 3], vec![0, 1, 2, 3]]);
    for (at, digest) in [(0, "a"), (1, "b")] {
        let joined = cluster.view.instances.get_mut(&instance(at)).unwrap();
        joined.joined = i64::try_from(at).unwrap();
        let settings = BTreeMap::from([("verification.min_required_signatures".to_owned(), digest.to_owned())]);
        let channels = joined.configured.channels.iter().map(|channel| (*channel, settings.clone())).collect();
        Arc::make_mut(&mut joined.configured).settings.channels = channels;
    }
    let too_long = LEASE * ORPHANED_LEASES;
    for owner in cluster.view.channels.values_mut() {
        *owner = Ownership::Orphaned { since: too_long };
    }
    let claims = |cluster: &Cluster, at| plan(&cluster.view, instance(at), &BTreeSet::new(), false, LEASE).claim.len();
    assert_eq!((claims(&cluster, 0), claims(&cluster, 1)), (4, 0));
    let first = cluster.view.instances.remove(&instance(0)).unwrap();
    assert_eq!(claims(&cluster, 1), 4, "the first instance has left");
    // After an outage of the store, the first instance may only be late.
    cluster.view.silent.insert(instance(0), first);
    assert_eq!(claims(&cluster, 1), 0);
}
