//! The settings of one channel, as its loop uses them.

use std::sync::Arc;
use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::read::source::Source;
use crate::verify::expect::Expect;
use net::retry::RetryPolicy;
use proof::event::Offset;
use proof::verify::Verifier;
use record::{ChannelRef, Filter, Record, Shape};
use sink::Sink;

/// How a channel is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The channel.
    pub channel: ChannelRef,
    /// Where lanes begin that have no cursor yet.
    pub start: Start,
    /// What its events must satisfy.
    pub verification: Verification,
    /// The most events requested at once.
    pub page_limit: u16,
    /// Waits after an error.
    pub retry: RetryPolicy,
    /// The time between two polls, once everything is read.
    pub idle_wait: Duration,
    /// How long an event may become visible below one that was read; zero: it is not looked for.
    pub settle: Duration,
    /// How often its sinks are compared with the service's history; `None`: never.
    pub compare: Option<Duration>,
    /// How long a lane that the configuration removes may take to finish its batch.
    pub grace: Duration,
}

/// What the events of a channel must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Verifies the proofs.
    pub verifier: Arc<Verifier>,
    /// What they may be about.
    pub expect: Arc<Expect>,
    /// What happens to notices, which never carry a proof.
    pub unsigned: UnsignedPolicy,
    /// Whether later events wait for a late proof.
    pub ordering: Ordering,
    /// An event without its proof is quarantined after this time. Never zero.
    pub proof_timeout: Duration,
}

/// Where reading begins as long as there is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the channel's first event.
    Earliest,
    /// After its newest event.
    Latest,
    /// With the event at this offset, or else the first after it.
    Offset(Offset),
}

/// What happens to notices, which never carry a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum UnsignedPolicy {
    /// They are delivered, marked as unsigned.
    Deliver,
    /// They are counted and not delivered.
    Drop,
}

/// Whether later events wait for an event whose proof is late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Ordering {
    /// They do not: the event is delivered late.
    Available,
    /// They do: no event overtakes it.
    Strict,
}

/// A sink as one channel uses it.
#[derive(Clone, Debug)]
pub struct Outlet {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// Where the events go.
    pub sink: Arc<dyn Sink>,
    /// Their shape.
    pub shape: Shape,
    /// Which of them it is given; `None`: all.
    pub filter: Option<Arc<Filter>>,
    /// Waits while the sink refuses.
    pub retry: RetryPolicy,
    /// An event that is refused for this long becomes a dead letter; `None`: never.
    pub gives_up_after: Option<Duration>,
}

impl Outlet {
    /// A sink that is given every event as a record; no event is given up.
    pub fn new(name: &str, sink: Arc<dyn Sink>, retry: RetryPolicy) -> Self {
        Self { name: name.into(), sink, shape: Shape::default(), filter: None, retry, gives_up_after: None }
    }

    /// Whether the sink is given an event.
    pub(super) fn takes(&self, record: &Record) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.takes(record.facts()))
    }
}

/// Equal where the same sink is used in the same way.
impl PartialEq for Outlet {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, sink, shape, filter, retry, gives_up_after } = self;
        Arc::ptr_eq(sink, &other.sink)
            && (name, shape, filter) == (&other.name, &other.shape, &other.filter)
            && (retry, gives_up_after) == (&other.retry, &other.gives_up_after)
    }
}

impl Eq for Outlet {}

/// Everything that a configuration says of one channel.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) settings: Arc<Settings>,
    pub(super) source: Arc<dyn Source>,
    pub(super) outlets: Vec<Outlet>,
}
