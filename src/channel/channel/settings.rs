//! The settings of one channel, in the form that its loop uses.

use std::sync::Arc;
use std::time::Duration;

use strum::{EnumString, IntoStaticStr, VariantNames};

use crate::read::source::Source;
use crate::verify::expect::Expect;
use net::retry::RetryPolicy;
use net::time::Time;
use proof::event::Offset;
use proof::verify::Verifier;
use record::{ChannelRef, Filter, Record, Shape};
use sink::Sink;

/// How a channel is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The channel.
    pub channel: ChannelRef,
    /// The first position of a lane without a cursor.
    pub start: Start,
    /// The requirements for the channel's events.
    pub verification: Verification,
    /// The maximum number of events in one request.
    pub page_limit: u16,
    /// The waits between attempts after an error of the service.
    pub retry: RetryPolicy,
    /// The time between two polls when the service has no more events.
    pub idle_wait: Duration,
    /// For how long after an event was read, an event with a lower offset may still become visible. Zero disables the search
    /// for such events.
    pub settle: Duration,
    /// The interval at which the sinks are compared with the service's history. `None` disables the comparison.
    pub compare: Option<Duration>,
    /// How long a lane may take to finish its batch after the configuration removed it.
    pub grace: Duration,
}

/// The requirements for the events of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verification {
    /// Verifies the proofs.
    pub verifier: Arc<Verifier>,
    /// The values that the signed fields may have.
    pub expect: Arc<Expect>,
    /// The policy for notices, which never have a proof.
    pub unsigned: UnsignedPolicy,
    /// Whether later events wait for a pending event.
    pub ordering: Ordering,
    /// After this time without a proof, a pending event is quarantined. Never zero.
    pub proof_timeout: Duration,
}

/// Where reading begins for a lane without a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// At the channel's first event.
    Earliest,
    /// After the channel's newest event.
    Latest,
    /// At the event with this offset, or at the first event after it.
    Offset(Offset),
    /// At the first event that was created at this time or later.
    Time(Time),
}

/// The policy for notices, which never have a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum UnsignedPolicy {
    /// Notices are delivered and marked as unsigned.
    Deliver,
    /// Notices are counted but not delivered.
    Drop,
}

/// Whether later events wait for a pending event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "lowercase")]
pub enum Ordering {
    /// Later events do not wait: the pending event is delivered late.
    Available,
    /// Later events wait: none of them overtakes the pending event.
    Strict,
}

/// The settings of one lane: how a channel uses a sink.
#[derive(Clone, Debug)]
pub struct LaneSettings {
    /// The sink's name in the configuration.
    pub name: Arc<str>,
    /// The sink that receives the events.
    pub sink: Arc<dyn Sink>,
    /// The shape of the messages.
    pub shape: Shape,
    /// Selects the events that the sink receives. `None` selects all.
    pub filter: Option<Arc<Filter>>,
    /// The waits between offers while the sink refuses events.
    pub retry: RetryPolicy,
    /// An event becomes a dead letter after the sink has refused it for this long. `None` disables dead letters.
    pub gives_up_after: Option<Duration>,
}

impl LaneSettings {
    /// Creates the settings of a lane that delivers every event as a record and creates no dead letters.
    pub fn new(name: &str, sink: Arc<dyn Sink>, retry: RetryPolicy) -> Self {
        Self { name: name.into(), sink, shape: Shape::default(), filter: None, retry, gives_up_after: None }
    }

    pub(crate) fn takes(&self, record: &Record) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.takes(record.facts()))
    }

    /// Whether the missing confidence of a watcher event is the only reason why the sink does not receive the event.
    pub(crate) fn misses_confidence(&self, record: &Record) -> bool {
        self.filter.as_ref().is_some_and(|filter| filter.lacks_confidence(record.facts()))
    }
}

/// The settings of two lanes are equal if they use the same sink in the same way.
impl PartialEq for LaneSettings {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, sink, shape, filter, retry, gives_up_after } = self;
        Arc::ptr_eq(sink, &other.sink)
            && (name, shape, filter) == (&other.name, &other.shape, &other.filter)
            && (retry, gives_up_after) == (&other.retry, &other.gives_up_after)
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Arc<Settings>,
    pub(crate) source: Arc<dyn Source>,
    pub(crate) lanes: Vec<LaneSettings>,
}
