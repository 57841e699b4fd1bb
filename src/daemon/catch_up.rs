//! `channeld run --until-caught-up`: waits until every sink has every event that the service had at the start.
//!
//! A running replay does not keep a channel from being caught up: it delivers events that the sinks had already received.
//! Only its pending events must be settled.
//!
//! # Cancellation
//!
//! [`wait`] can be dropped at any point.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use channel::CatchUp;
use operator::Operations;
use telemetry::ALWAYS;

/// The interval between two checks.
const EVERY: Duration = Duration::from_millis(200);

/// Waits until every configured channel has caught up or is unavailable. Returns whether every channel has caught up. After a
/// channel has caught up, it is not checked again.
pub(super) async fn wait(operations: watch::Receiver<Arc<Operations>>) -> bool {
    let mut look = interval(EVERY);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut done = HashSet::new();
    loop {
        look.tick().await;
        let operations = operations.borrow().clone();
        let (mut caught_up, mut unavailable, mut is_working) = (Vec::new(), Vec::new(), false);
        for known in operations.channels.iter().filter(|known| !done.contains(&known.channel.id)) {
            match operations.handles.of(known.channel.id).catch_up(&known.sinks) {
                CatchUp::Done => {
                    info!(channel = %known.channel.name, "channel has caught up");
                    caught_up.push(known.channel.id);
                }
                CatchUp::Unavailable => unavailable.push(known.channel.name.clone()),
                CatchUp::Working => is_working = true,
            }
        }
        done.extend(caught_up);
        if !is_working {
            for channel in &unavailable {
                warn!(target: ALWAYS, %channel, "channel has not caught up: the channel or the service is unavailable");
            }
            return unavailable.is_empty();
        }
    }
}
