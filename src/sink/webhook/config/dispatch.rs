//! How a webhook's events go into requests: one each, several at a time, or in batches.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;

use crate::config::keys::{Key, Keys, Reported};
use crate::config::values::{duration, size_in, whole_number};
use crate::sink::{Batching, Dispatch};

/// Events in a batch. One is no batch.
const EVENTS: RangeInclusive<usize> = 1..=1_000;

/// The size of a batch's body.
const BYTES: RangeInclusive<ByteSize> = ByteSize::kib(1)..=ByteSize::mib(64);

/// The size of a batch's body where none is set.
const DEFAULT_BYTES: ByteSize = ByteSize::mib(1);

/// The longest wait for more events. What waits is not yet delivered, and is seen by nobody.
const WAIT_LIMIT: Duration = Duration::from_secs(5 * 60);

/// Requests at a time.
const CONCURRENCY: RangeInclusive<usize> = 1..=64;

pub(super) fn read(keys: &mut Keys, sink: &Key) -> Result<Dispatch, Reported> {
    let events = keys.optional(&sink.at("batch_events"), whole_number(EVENTS));
    let bytes = keys.optional(&sink.at("batch_bytes"), size_in(BYTES));
    let wait = keys.optional(&sink.at("batch_wait"), wait);
    let concurrency = keys.optional(&sink.at("concurrency"), whole_number(CONCURRENCY));
    let (events, bytes, wait) = (events?.unwrap_or(1), bytes?.unwrap_or(DEFAULT_BYTES), wait?.unwrap_or_default());
    let concurrency = concurrency?.unwrap_or(1);
    match (events, concurrency) {
        (1, _) if wait > Duration::ZERO => {
            let message = "counts only for batches; set batch_events to more than 1, or remove it";
            Err(keys.wrong(&sink.at("batch_wait"), message))
        }
        (1, concurrency) => Ok(Dispatch::Single { concurrency }),
        (events, 1) => {
            let bytes = usize::try_from(bytes.as_u64()).unwrap_or(usize::MAX);
            Ok(Dispatch::Batches(Batching { events, bytes, wait }))
        }
        _ => {
            let message = "cannot be more than 1 together with batch_events: a batch holds the events of several subjects, \
                           whose order several requests at a time would not keep";
            Err(keys.wrong(&sink.at("concurrency"), message))
        }
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        wait if wait > WAIT_LIMIT => Err("must not be longer than \"5m\"".to_owned()),
        wait => Ok(wait),
    }
}
