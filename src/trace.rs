//! A batch's way from the request that brought it to the record that it was dealt with.
//!
//! In logs it is known by an id. Where traces are exported (`log.otlp_endpoint`) it is a span too, with a part for each step:
//!
//! ```text
//! batch                    channel, channel_id, first_offset, last_offset, events, pending, rejected
//! ├── poll                 until the range was read
//! ├── judge                until each event had its verdict
//! ├── deliver              one a sink: sink, events; an event for each attempt, with what was offered, taken, and the error
//! └── record               one a commit of a sink's cursor: sink, offset
//! ```
//!
//! What has its proof late comes by itself, and has none of this.
//!
//! # Invariants
//!
//! * **Nobody waits for it.** A span that ends is put into a bounded queue, or lost and counted: see [`Export`].
//! * **Costs nothing where it is off:** an id is drawn for each batch, and that is all.

use std::fmt;
use std::num::NonZero;
use std::ops::Range;
use std::time::SystemTime;

use opentelemetry::trace::{FutureExt, Span, SpanBuilder, Status, TraceContextExt};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::SdkTracer;

use crate::record::ChannelRef;

mod export;

pub use export::{Export, Headers, Otlp, SetupError};

/// The id of a batch: that of a trace in the sense of W3C Trace Context, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(NonZero<u128>);

impl TraceId {
    /// One that no other batch has.
    fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Where traces begin: exported, or ids alone.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<SdkTracer>);

impl Traces {
    /// Begins that of a batch, with the request that brings it.
    #[must_use]
    pub fn begin(&self, channel: &ChannelRef, since: SystemTime) -> Trace {
        let Some(tracer) = &self.0 else { return Trace { id: TraceId::random(), exported: None } };
        let of =
            [KeyValue::new("channel", channel.name.to_string()), KeyValue::new("channel_id", channel.id.to_string())];
        let batch = SpanBuilder::from_name("batch").with_start_time(since).with_attributes(of);
        let batch = batch.start_with_context(tracer, &Context::new());
        let drawn = NonZero::new(u128::from_be_bytes(batch.span_context().trace_id().to_bytes()));
        let id = drawn.map_or_else(TraceId::random, TraceId);
        Trace { id, exported: Some(Exported { tracer: tracer.clone(), batch: Context::new().with_span(batch) }) }
    }
}

/// That of one batch. It ends with its last clone.
#[derive(Clone, Debug)]
pub struct Trace {
    id: TraceId,
    exported: Option<Exported>,
}

#[derive(Clone, Debug)]
struct Exported {
    tracer: SdkTracer,
    batch: Context,
}

impl Trace {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> TraceId {
        self.id
    }

    /// Notes something of the batch, where anybody will see it.
    pub fn note<V: Into<Value>>(&self, notes: impl FnOnce() -> Vec<(&'static str, V)>) {
        if let Some(exported) = &self.exported {
            let notes = notes().into_iter().map(|(name, value)| KeyValue::new(name, value));
            exported.batch.span().set_attributes(notes);
        }
    }

    /// Begins a part of it.
    pub fn part(&self, name: &'static str) -> Part {
        Part(self.exported.as_ref().map(|exported| {
            let part = SpanBuilder::from_name(name).start_with_context(&exported.tracer, &exported.batch);
            exported.batch.with_span(part)
        }))
    }

    /// Notes a part that is over.
    pub fn past(&self, name: &'static str, took: Range<SystemTime>) {
        if let Some(exported) = &self.exported {
            let part = SpanBuilder::from_name(name).with_start_time(took.start);
            part.start_with_context(&exported.tracer, &exported.batch).end_with_timestamp(took.end);
        }
    }
}

/// A part of a trace. It ends when it is dropped.
#[derive(Debug, Default)]
#[must_use = "it ends when it is dropped"]
pub struct Part(Option<Context>);

impl Part {
    /// Notes something of it.
    pub fn note(&self, name: &'static str, value: impl Into<Value>) {
        if let Some(part) = &self.0 {
            part.span().set_attribute(KeyValue::new(name, value));
        }
    }

    /// Notes that a batch of another trace was dealt with together.
    pub fn joins(&self, other: &Trace) {
        if let (Some(part), Some(other)) = (&self.0, &other.exported) {
            part.span().add_link(other.batch.span().span_context().clone(), Vec::new());
        }
    }

    /// Notes an attempt, and why it failed.
    pub fn attempt(&self, offered: usize, taken: usize, error: Option<&dyn fmt::Display>) {
        let Some(part) = &self.0 else { return };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut notes = vec![KeyValue::new("offered", number(offered)), KeyValue::new("taken", number(taken))];
        notes.extend(error.map(|error| KeyValue::new("error", error.to_string())));
        part.span().add_event("attempt", notes);
        part.span().set_status(error.map_or(Status::Ok, |error| Status::error(error.to_string())));
    }

    /// Does something that others may take up: see [`traceparent`].
    pub async fn around<T>(&self, doing: impl Future<Output = T>) -> T {
        match &self.0 {
            Some(part) => doing.with_context(part.clone()).await,
            None => doing.await,
        }
    }
}

/// What tells another program which trace it is part of, as a header of W3C Trace Context; `None` where nothing is
/// exported.
#[must_use]
pub fn traceparent() -> Option<String> {
    Context::map_current(|current| {
        let span = current.span();
        let at = span.span_context();
        at.is_valid().then(|| format!("00-{}-{}-{:02x}", at.trace_id(), at.span_id(), at.trace_flags().to_u8()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_of_32_digits() {
        let id = TraceId(NonZero::new(0xab).expect("it is not zero"));
        assert_eq!(id.to_string(), "000000000000000000000000000000ab");
        assert_ne!(TraceId::random(), TraceId::random());
    }
}
