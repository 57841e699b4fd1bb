//! What makes a sink one that can be configured: how its keys are read, how it is shown, and how it is made.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::{Sink, SinkError};
use crate::comparable::Comparable;
use crate::config::keys::{Key, Keys, Reported};
use crate::retry::RetryPolicy;

/// Waits of a sink that has no schedule of its own in the configuration.
const RETRY: RetryPolicy = RetryPolicy { wait: Duration::from_secs(1), max_wait: Duration::from_secs(60) };

/// A type of sinks.
pub(crate) struct Kind {
    /// The word for it: what `type` is set to.
    pub(crate) word: &'static str,
    /// Reads the keys that such a sink has, beside those that every sink has.
    pub(crate) read: fn(&mut Keys, &Key) -> Decided,
}

/// What an operator has decided about one sink, unless it is wrong and has been reported.
pub(crate) type Decided = Result<Arc<dyn Target>, Reported>;

/// Where events go, as an operator has decided it: checked, and nothing opened or sent yet.
pub trait Target: Any + Comparable + fmt::Debug + Send + Sync {
    /// What is decided, for people, in one line, beside the word for the type. Holds no secret.
    fn shown(&self) -> String;

    /// The same for machines: a key for each decision. Holds no secret.
    fn json(&self) -> Map<String, Value>;

    /// Makes the sink. Nothing is opened or sent yet.
    ///
    /// # Errors
    /// If it cannot be made on this machine.
    fn build(&self) -> Result<Arc<dyn Sink>, SinkError>;

    /// Waits while the sink refuses.
    fn retry(&self) -> RetryPolicy {
        RETRY
    }

    /// After this time of refusals an event becomes a dead letter; without it, never.
    fn gives_up_after(&self) -> Option<Duration> {
        None
    }

    /// Whether the sink finds out from what it holds what it has taken. Then every record must say of which channel it is.
    fn reads_back(&self) -> bool {
        false
    }

    /// What is wrong with having both this and `other`, whose table is `at`: under which key of this sink, and a sentence
    /// for its operator.
    fn conflict(&self, other: &dyn Target, at: &str) -> Option<(&'static str, String)> {
        let _ = (other, at);
        None
    }
}

impl dyn Target {
    /// This, where it is a `T`.
    pub(crate) fn downcast<T: Target>(&self) -> Option<&T> {
        (self as &dyn Any).downcast_ref()
    }
}

impl PartialEq for dyn Target {
    fn eq(&self, other: &Self) -> bool {
        self.equals(other)
    }
}

impl Eq for dyn Target {}
