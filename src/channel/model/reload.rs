//! Changes the configuration while a channel runs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::time::sleep;

use crate::Channel;
use crate::channel::settings::{LaneSettings, Plan};

use record::Filter;

use super::history::Reload;
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
