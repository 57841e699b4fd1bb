//! Checks that no instance is considered dead while it runs and reaches the database.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::fault::{Fault, Kind};
use super::world::{World, name};

/// How long an instance needs for a heartbeat after its start, or after a fault that prevents heartbeats: a statement may take
/// 10 s until it is repeated.
const LIVES_AGAIN: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(super) struct Heartbeats {
    of: BTreeMap<usize, Heartbeat>,
    /// The longest time from a start to the first heartbeat, without the time of faults of the database.
    pub(super) longest: Duration,
}

/// The heartbeats of one instance.
struct Heartbeat {
    /// When the instance started, or when the last fault that prevents heartbeats was active.
    excused: Instant,
    /// Whether a heartbeat has been seen since.
    lives: bool,
}

impl Heartbeats {
    /// Returns a text about an instance that is considered dead, although it runs and reaches the database.
    pub(super) async fn check(&mut self, world: &World, active: &[Fault]) -> Option<String> {
        let now = Instant::now();
        let is_stopped = active.iter().any(|fault| fault.kind.stops_heartbeats());
        // An instance that joins registers its channels.
        let cannot_join = active.iter().any(|fault| fault.kind == Kind::ChannelsLocked);
        let live = if is_stopped { Vec::new() } else { world.live_instances().await };
        self.of.retain(|instance, _| world.runs(*instance));
        let mut dead = None;
        for instance in world.running() {
            let of = self.of.entry(instance).or_insert(Heartbeat { excused: now, lives: false });
            if is_stopped
                || active.iter().any(|fault| fault.instance() == Some(instance) && fault.kind != Kind::Stranger)
            {
                *of = Heartbeat { excused: now, lives: false };
                continue;
            }
            if live.contains(&name(instance)) {
                if !of.lives {
                    self.longest = self.longest.max(of.excused.elapsed());
                }
                of.lives = true;
            } else if of.lives {
                dead = Some(format!("instance {instance} runs and is considered dead"));
            } else if cannot_join {
                of.excused = now;
            } else if of.excused.elapsed() > LIVES_AGAIN {
                dead = Some(format!("instance {instance} sends no heartbeat"));
            }
        }
        dead
    }
}
