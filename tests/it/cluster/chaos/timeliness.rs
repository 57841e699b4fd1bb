//! Measures how long lanes without a fault need for an event.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::target::{Lane, lanes};
use super::world::World;

/// A lane without a fault needs half a second for the poll. After the failure of an instance, another instance continues when
/// the lease of 6 s has ended and the next heartbeat has shown this, after another 2 s.
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

    /// Compares the deliveries with the published events. `recovers` returns how long a lane needs after the end of its faults,
    /// if it has one. Returns a lane that is late, and the offset that it should have delivered.
    pub(super) fn check(&mut self, world: &World, recovers: impl Fn(Lane) -> Option<Duration>) -> Option<(Lane, i64)> {
        let now = Instant::now();
        let mut late = None;
        for (at, Undelivered { events, recovered }) in &mut self.lanes {
            if let Some(after) = recovers(*at) {
                *recovered = (*recovered).max(now + after);
            }
            while let Some((offset, published)) = events.front().copied() {
                if !world.has_delivered(*at, offset) {
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
