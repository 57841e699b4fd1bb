//! Faults: the failures of a service, a proxy or a network.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;

use crate::random::{Purpose, draw};

/// The delay in [`Fault::Slow`] when this fault is chosen by chance.
const SLOW: Duration = Duration::from_millis(1500);

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The events of a channel.
    Poll,
    /// The events of a channel that match filters.
    Search,
    /// One event.
    Event,
    /// A channel itself.
    Channel,
    /// One watcher.
    Watcher,
    /// The channels of the organization.
    Channels,
    /// The supported networks.
    Networks,
    /// The health check. It fails only if a test requests a fault for this route.
    Health,
}

/// A failure instead of the normal answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// 429, with this `Retry-After` header.
    RateLimited {
        /// Seconds, an HTTP date, or nonsense.
        retry_after: Option<String>,
    },
    /// This status with the matching error envelope.
    Status(u16),
    /// This status with a proxy's HTML page.
    Html(u16),
    /// 200 with no body.
    EmptyBody,
    /// 200 with the first half of the answer. The headers do not show that the rest is missing.
    TruncatedJson,
    /// 200 with JSON of the wrong shape.
    WrongShape,
    /// The answer with its events in ascending order.
    NotDescending,
    /// The answer, but the first record has no offset.
    WithoutOffset,
    /// The connection is reset instead of answered.
    Reset,
    /// The connection is reset in the middle of the answer.
    ResetMidway,
    /// The normal answer, after this delay.
    Slow(Duration),
    /// No answer.
    Hang,
    /// An answer that arrives at one byte per second.
    SlowHead,
    /// One 1xx answer per second, without end.
    Informational,
    /// 200 with a body that arrives at one byte per second, without end.
    SlowBody,
    /// 200 with an endless body.
    EndlessBody,
    /// 500 with an error envelope of 10 MB.
    LargeError,
    /// 200 with a body of 1 MB that expands to 1 GiB.
    GzipBomb,
    /// 200 with an empty page whose `has_more` is true.
    EmptyPage,
}

impl Fault {
    /// The faults that can be chosen by chance are used in turn. Returns the fault with this number.
    fn nth(number: u64) -> Self {
        match number % 11 {
            0 => Self::RateLimited { retry_after: Some("1".to_owned()) },
            1 => Self::Status(500),
            2 => Self::Html(502),
            3 => Self::Reset,
            4 => Self::TruncatedJson,
            5 => Self::RateLimited { retry_after: None },
            6 => Self::Status(503),
            7 => Self::WrongShape,
            8 => Self::Slow(SLOW),
            9 => Self::ResetMidway,
            _ => Self::EmptyBody,
        }
    }
}

/// Decides which requests fail, and how.
pub(crate) struct Faults {
    seed: u64,
    share: f64,
    script: Mutex<VecDeque<ScriptedFault>>,
    requests: AtomicU64,
    given: AtomicU64,
}

/// A fault that a test requested for the next requests.
struct ScriptedFault {
    /// The route whose requests get the fault. `None` means every route except the health check, the networks and the watchers. A
    /// client can request the last two in the background.
    route: Option<Route>,
    fault: Fault,
    times: usize,
}

impl Faults {
    /// `share` is the share of requests that fail by chance.
    pub(crate) fn new(seed: u64, share: f64) -> Self {
        Self { seed, share, script: Mutex::default(), requests: AtomicU64::new(0), given: AtomicU64::new(0) }
    }

    /// Adds faults after the faults that are already queued.
    pub(crate) fn add(&self, route: Option<Route>, fault: Fault, times: usize) {
        if times > 0 {
            let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
            script.push_back(ScriptedFault { route, fault, times });
        }
    }

    /// Returns the fault of the next request, if it has one. Requested faults come first, then faults by chance.
    pub(crate) fn next(&self, route: Route) -> Option<Fault> {
        self.scripted(route).or_else(|| self.by_chance(route))
    }

    fn scripted(&self, route: Route) -> Option<Fault> {
        let is_aside = matches!(route, Route::Health | Route::Networks | Route::Watcher);
        let mut script = self.script.lock().unwrap_or_else(PoisonError::into_inner);
        let meant = |scripted: &ScriptedFault| scripted.route.map_or(!is_aside, |only| only == route);
        let at = script.iter().position(meant)?;
        let scripted = script.get_mut(at)?;
        scripted.times -= 1;
        let fault = scripted.fault.clone();
        if scripted.times == 0 {
            script.remove(at);
        }
        Some(fault)
    }

    fn by_chance(&self, route: Route) -> Option<Fault> {
        if route == Route::Health || self.share <= 0.0 {
            return None;
        }
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let chance: f64 = draw(self.seed, Purpose::Fault, 0, number).random();
        (chance < self.share).then(|| Fault::nth(self.given.fetch_add(1, Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripted_faults_occur_in_order_on_their_route() {
        let faults = Faults::new(0, 0.0);
        faults.add(Some(Route::Event), Fault::Html(502), 1);
        faults.add(None, Fault::Reset, 2);
        assert_eq!(faults.next(Route::Health), None);
        assert_eq!(faults.next(Route::Poll), Some(Fault::Reset));
        assert_eq!(faults.next(Route::Event), Some(Fault::Html(502)));
        assert_eq!(faults.next(Route::Event), Some(Fault::Reset));
        assert_eq!(faults.next(Route::Poll), None);
    }

    #[test]
    fn random_faults_occur_at_about_their_rate() {
        let faults = Faults::new(0, 0.5);
        let given: Vec<_> = (0..400).filter_map(|_| faults.next(Route::Poll)).collect();
        assert!((150..250).contains(&given.len()), "{}", given.len());
        assert!((0..11).all(|number| given.contains(&Fault::nth(number))));
    }
}
