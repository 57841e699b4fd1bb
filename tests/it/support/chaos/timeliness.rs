//! Measures how long lanes without a fault need for an event.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::target::{Lane, lanes};
use super::world::lane;

/// A lane without a fault needs half a second for the poll, and milliseconds for the rest. This bound holds even on a machine
/// that is twenty times slower. It is shorter than the delay that the fault of another lane would cause: a stopped database,
/// for example, delays its own lanes by 10 s again and again.
const ON_TIME: Duration = Duration::from_secs(15);

/// The events that a lane has not delivered, and when each was published.
struct Undelivered {
    events: VecDeque<(i64, Instant)>,
    /// When the lane has recovered from its faults.
    recovered: Instant,
}

pub(super) struct Timeliness {
    lanes: BTreeMap<Lane, Undelivered>,
    /// The longest time that a lane without a fault needed, the lane, and the offset.
    pub(super) longest: (Duration, Option<(Lane, i64)>),
    /// The number of deliveries of lanes without a fault, and of all lanes.
    pub(super) measured: (usize, usize),
}

impl Timeliness {
    /// Assumes that the backlog is already delivered.
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let none = |lane| (lane, Undelivered { events: VecDeque::new(), recovered: now });
        Self { lanes: lanes().map(none).collect(), longest: (Duration::ZERO, None), measured: (0, 0) }
    }

    pub(super) fn published(&mut self, channel: usize, offset: i64) {
        for (_, lane) in self.lanes.iter_mut().filter(|((it, _), _)| *it == channel) {
            lane.events.push_back((offset, Instant::now()));
        }
    }

    /// Compares the cursors in the status with the published events. `recovers` returns how long a lane needs after the end of
    /// its faults, if it has one. Returns a lane that is late, and the offset that it should have delivered.
    pub(super) fn check(&mut self, status: &Value, recovers: impl Fn(Lane) -> Option<Duration>) -> Option<(Lane, i64)> {
        let now = Instant::now();
        let mut late = None;
        for (at, Undelivered { events, recovered }) in &mut self.lanes {
            let cursor = lane(status, *at)["cursor"].as_i64().unwrap_or(0);
            if let Some(after) = recovers(*at) {
                *recovered = (*recovered).max(now + after);
            }
            while let Some((offset, published)) = events.front().copied() {
                if cursor < offset {
                    if now > *recovered && now > published + ON_TIME {
                        late = Some((*at, offset));
                    }
                    break;
                }
                self.measured.1 += 1;
                if *recovered <= published {
                    self.measured.0 += 1;
                    self.longest = self.longest.max((now - published, Some((*at, offset))));
                }
                events.pop_front();
            }
        }
        late
    }
}
