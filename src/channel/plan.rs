//! What a configuration says of one channel, ready to be carried out.

use std::sync::Arc;
use std::time::Duration;

use crate::config::{Ordering, Start, UnsignedPolicy};
use crate::record::{ChannelRef, Filter, Shape};
use crate::retry::RetryPolicy;
use crate::sink::Sink;
use crate::verify::Verifier;

use super::source::Source;

/// How a channel is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Which one.
    pub channel: ChannelRef,
    /// Where lanes begin that have no cursor yet.
    pub start: Start,
    /// What proves its events.
    pub verifier: Arc<Verifier>,
    /// What becomes of notices that nobody signs.
    pub unsigned: UnsignedPolicy,
    /// Whether later events wait for a late proof.
    pub ordering: Ordering,
    /// After this time without its proof an event is quarantined.
    pub proof_timeout: Duration,
    /// Events asked for at once.
    pub page_limit: u16,
    /// Waits after an error.
    pub retry: RetryPolicy,
    /// The wait when there is no more.
    pub idle_wait: Duration,
    /// How long a lane that the configuration has no more may go on with what it has in hand.
    pub grace: Duration,
}

/// A sink as one channel uses it.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Where the events go.
    pub sink: Arc<dyn Sink>,
    /// The shape that it wants them in.
    pub shape: Shape,
    /// Which of them it is given; without one, all.
    pub filter: Option<Arc<Filter>>,
    /// Waits while it refuses.
    pub retry: RetryPolicy,
    /// After this time of refusals an event becomes a dead letter; without it, never.
    pub gives_up_after: Option<Duration>,
}

impl Outlet {
    /// A sink that is given every event as a record, and that is never given up.
    #[must_use]
    pub fn new(name: &str, sink: Arc<dyn Sink>, retry: RetryPolicy) -> Self {
        Self { name: name.into(), sink, shape: Shape::default(), filter: None, retry, gives_up_after: None }
    }
}

/// Two outlets are the same where the one sink is used in the same way.
impl PartialEq for Outlet {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, sink, shape, filter, retry, gives_up_after } = self;
        Arc::ptr_eq(sink, &other.sink)
            && (name, shape, filter) == (&other.name, &other.shape, &other.filter)
            && (retry, gives_up_after) == (&other.retry, &other.gives_up_after)
    }
}

impl Eq for Outlet {}

/// All of it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) settings: Settings,
    pub(super) source: Arc<dyn Source>,
    pub(super) outlets: Vec<Outlet>,
    /// A request is answered, or given up, in this time.
    pub(super) answers_within: Duration,
}

impl Plan {
    /// Whether events are read and judged in the same way.
    pub(super) fn reads_like(&self, other: &Self) -> bool {
        self.settings == other.settings && self.source.equals(&*other.source)
    }
}
