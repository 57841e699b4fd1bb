//! The acts of an operator: changes of the configuration while a channel runs, and requests for replays between two runs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::sleep;

use crate::Channel;
use crate::channel::settings::{LaneSettings, Plan};

use ledger::testing::{Disk, Gate, Write};
use ledger::{Change, Commit, Effects, Lease, Ledgers, Replay};
use proof::event::Offset;
use record::Filter;

use super::expect::Fate;
use super::history::{Reload, ReplayPlan};
use super::pool;
use super::sink::RecordingSink;
use super::world::World;
use super::{RETRY, sink_name};

/// Returns the settings of the lane with this number.
pub(super) fn lane_settings(world: &Arc<World>, lane: usize) -> LaneSettings {
    let settings = LaneSettings::new(&sink_name(lane), Arc::new(RecordingSink { world: world.clone(), lane }), RETRY);
    let filter = world.history.sinks[lane].min_confidence.map(|least| Arc::new(Filter::at_least(least)));
    LaneSettings { filter, ..settings }
}

/// Changes the plan of a channel.
pub(super) fn reload(world: &Arc<World>, channel: &Weak<Channel>, what: Reload) {
    let change = |change: &dyn Fn(&mut Plan)| {
        if let Some(channel) = channel.upgrade() {
            channel.plan.send_modify(change);
        }
    };
    match what {
        Reload::Anew(lane) => change(&|plan| {
            plan.lanes.retain(|lane_settings| lane_settings.name != sink_name(lane));
            plan.lanes.push(lane_settings(world, lane));
        }),
        Reload::Page(limit) => change(&|plan| Arc::make_mut(&mut plan.settings).page_limit = limit),
        Reload::Without(lane, seconds) => {
            change(&|plan| plan.lanes.retain(|lane_settings| lane_settings.name != sink_name(lane)));
            let (world, channel) = (world.clone(), channel.clone());
            tokio::spawn(async move {
                sleep(Duration::from_secs(seconds)).await;
                reload(&world, &channel, Reload::Anew(lane));
            });
        }
    }
}

/// Lets every write succeed. The model has no crash and no failure between two runs.
#[derive(Debug)]
struct BetweenRuns;

#[async_trait]
impl Gate for BetweenRuns {
    async fn before(&self, _: &[(Lease, Effects)]) -> Write {
        Write::Done
    }

    async fn after(&self, _: &[(Lease, Effects)]) {}
}

/// Requests the replays that precede the run with this number.
pub(super) async fn replay(world: &World, disk: &Arc<Disk>, run: usize) {
    for plan in world.history.replays.iter().filter(|plan| plan.run == run) {
        let ledgers = Ledgers::in_memory(disk, Arc::new(BetweenRuns));
        let (claim, _) = ledgers.claim(pool::channel(), usize::MAX).await.unwrap().expect("no other process claims it");
        let sink = sink_name(plan.sink);
        let passed = claim.ledger().cursor(&sink).and_then(|cursor| cursor.through);
        if let Some((from, to)) = world.begin_replay(*plan, passed) {
            let replay = Replay::new(vec![sink], from, to, 0);
            claim.commit(Commit(vec![Change::StartReplay(replay)])).await.unwrap();
        }
        drop(claim);
        ledgers.close().await;
    }
}

impl World {
    /// Returns the first and the last offset of a replay, for a sink that has passed the offset `passed`. Notes the events
    /// that the sink must receive again. Returns `None` if the sink has passed none of the events.
    fn begin_replay(&self, plan: ReplayPlan, passed: Option<Offset>) -> Option<(Offset, Offset)> {
        let first = plan.from.max(self.history.start.unwrap_or(0));
        let last = self.offsets.iter().take(plan.to + 1).rposition(|offset| Some(*offset) <= passed)?;
        if first > last {
            return None;
        }
        self.log(|| format!("events {first} to {last} are to be replayed to sink {}", plan.sink));
        let mut inner = self.lock();
        for at in first..=last {
            let is_delivered = self.fate(&inner, at) == Fate::Delivered && !self.is_below_limit(plan.sink, at);
            let lane = &mut inner.lanes[plan.sink];
            *lane.replaying.entry(self.offsets[at]).or_default() += 1;
            // A sink that stores each event only once skips the event.
            if is_delivered && !self.history.sinks[plan.sink].keeps {
                lane.must_repeat.insert(self.offsets[at]);
                inner.totals.replayed += 1;
            }
        }
        Some((self.offsets[first], self.offsets[last]))
    }
}
