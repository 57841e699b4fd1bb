//! Measures how long lanes without a fault need for an event.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::Lane;

/// A lane without a fault needs half a second for the poll, and milliseconds for the rest. After the failure of an instance, another
/// instance continues when the lease of 6 s has ended and the next heartbeat has shown this, after another 2 s. This bound is shorter
/// than the delay that the fault of another lane would cause: a stopped database, for example, delays its own lanes by 10 s again and
/// again.
const ON_TIME: Duration = Duration::from_secs(15);

/// The events that a lane has not delivered, and when each was published.
struct Undelivered {
    events: VecDeque<(i64, Instant)>,
    /// When the lane has recovered from its faults.
    recovered: Instant,
}

pub(crate) struct Timeliness {
    lanes: BTreeMap<Lane, Undelivered>,
    /// The longest time that a lane without a fault needed, the lane, and the offset.
    pub(crate) longest: (Duration, Option<(Lane, i64)>),
    /// The number of deliveries of lanes without a fault, and of all lanes.
    measured: (usize, usize),
}

impl Timeliness {
    /// Assumes that the backlog is already delivered.
    pub(crate) fn of(lanes: impl Iterator<Item = Lane>) -> Self {
        let now = Instant::now();
        let none = |lane| (lane, Undelivered { events: VecDeque::new(), recovered: now });
        Self { lanes: lanes.map(none).collect(), longest: (Duration::ZERO, None), measured: (0, 0) }
    }

    pub(crate) fn published(&mut self, channel: usize, offset: i64) {
        for (_, lane) in self.lanes.iter_mut().filter(|((it, _), _)| *it == channel) {
            lane.events.push_back((offset, Instant::now()));
        }
    }

    /// `recovers` returns how long a lane needs from now on to recover from its faults, if it has one.
    pub(crate) fn recover(&mut self, recovers: impl Fn(Lane) -> Option<Duration>) {
        let now = Instant::now();
        for (at, lane) in &mut self.lanes {
            if let Some(after) = recovers(*at) {
                lane.recovered = lane.recovered.max(now + after);
            }
        }
    }

    /// Compares the published events with a status that was requested at `asked`. `has_delivered` returns whether a lane has delivered
    /// an offset. Returns a lane that is late, and the offset that it should have delivered.
    pub(crate) fn check(&mut self, asked: Instant, has_delivered: impl Fn(Lane, i64) -> bool) -> Option<(Lane, i64)> {
        let now = Instant::now();
        let mut late = None;
        for (at, Undelivered { events, recovered }) in &mut self.lanes {
            while let Some((offset, published)) = events.front().copied() {
                if !has_delivered(*at, offset) {
                    if asked > *recovered && asked > published + ON_TIME {
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

    /// Prints what was measured in a run with this many deliveries.
    pub(crate) fn print(&self, deliveries: usize) {
        let (timely, measured) = self.measured;
        println!("{deliveries} deliveries; {timely} of {measured} were by a lane without a fault");
        println!("the longest wait of a lane without a fault: {:.1?}", self.longest);
    }
}
