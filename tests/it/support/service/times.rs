//! A channel whose events have known times.

use simulator::{Options, Simulator, Window};

use crate::support::Setup;

/// The Unix second of the last event of the backlog. Four events happen in each second.
pub(crate) const LAST_SECOND: i64 = 1_760_000_000;

/// A service with this many past events.
pub(crate) async fn past_events(events: u64, window: Window) -> Simulator {
    Simulator::start(Options { events, window, ends_at: Some(LAST_SECOND), ..Options::default() }).await.unwrap()
}

/// The offsets of the events of `c0` that a search with a bound of creation finds, in ascending order. The configuration must
/// have been written.
pub(crate) async fn created(setup: &Setup, bound: &str, time: &str) -> Vec<i64> {
    let found = setup.tell(&["search", "c0", "--all", "--json", bound, time]).await.each("offset");
    let mut offsets: Vec<_> = found.iter().map(|offset| offset.as_i64().unwrap()).collect();
    offsets.sort_unstable();
    offsets
}
