//! Traces: the path of a batch from its poll to its record.
//!
//! In logs a batch has a trace id. Where traces are exported (`log.otlp_endpoint`) it is a span too, with a part for each step:
//!
//! ```text
//! batch                    channel, channel_id, first_offset, last_offset, events, pending, rejected
//! ├── poll                 until the range was read
//! ├── verify               until each event had its verdict
//! ├── deliver              one a sink: sink, events; an event for each attempt, with what was offered, taken, and the error
//! └── record               one a commit of a sink's cursor: sink, offset
//! ```
//!
//! An event with a late proof is delivered by itself, without a trace.
//!
//! # Invariants
//!
//! * **Nothing waits for the export.** A span that ends goes into a bounded queue, or is lost and counted: see [`Export`].
//! * **Almost free where it is off:** one random id a batch.

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

/// The id of a trace by W3C Trace Context, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(NonZero<u128>);

impl TraceId {
    fn random() -> Self {
        Self(rand::random())
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// Starts traces: exported ones, or ids alone.
#[derive(Clone, Debug, Default)]
pub struct Traces(Option<SdkTracer>);

impl Traces {
    /// Starts the trace of a batch, at the time of its request.
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

/// The trace of one batch. It ends with its last clone.
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

    /// Sets attributes of the batch. They are computed only where traces are exported.
    pub fn note<V: Into<Value>>(&self, notes: impl FnOnce() -> Vec<(&'static str, V)>) {
        if let Some(exported) = &self.exported {
            let notes = notes().into_iter().map(|(name, value)| KeyValue::new(name, value));
            exported.batch.span().set_attributes(notes);
        }
    }

    /// Starts a part.
    pub fn part(&self, name: &'static str) -> Part {
        Part(self.exported.as_ref().map(|exported| {
            let part = SpanBuilder::from_name(name).start_with_context(&exported.tracer, &exported.batch);
            exported.batch.with_span(part)
        }))
    }

    /// Adds a part that is over.
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
    /// Sets an attribute.
    pub fn note(&self, name: &'static str, value: impl Into<Value>) {
        if let Some(part) = &self.0 {
            part.span().set_attribute(KeyValue::new(name, value));
        }
    }

    /// Links a batch of another trace that is delivered together with this one.
    pub fn joins(&self, other: &Trace) {
        if let (Some(part), Some(other)) = (&self.0, &other.exported) {
            part.span().add_link(other.batch.span().span_context().clone(), Vec::new());
        }
    }

    /// Adds an attempt, and its error.
    pub fn attempt(&self, offered: usize, taken: usize, error: Option<&dyn fmt::Display>) {
        let Some(part) = &self.0 else { return };
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut notes = vec![KeyValue::new("offered", number(offered)), KeyValue::new("taken", number(taken))];
        notes.extend(error.map(|error| KeyValue::new("error", error.to_string())));
        part.span().add_event("attempt", notes);
        part.span().set_status(error.map_or(Status::Ok, |error| Status::error(error.to_string())));
    }

    /// Runs `doing` as the current span: see [`traceparent`].
    pub async fn around<T>(&self, doing: impl Future<Output = T>) -> T {
        match &self.0 {
            Some(part) => doing.with_context(part.clone()).await,
            None => doing.await,
        }
    }
}

/// The `traceparent` header of the current span (W3C Trace Context); `None` where traces are not exported.
#[must_use]
pub fn traceparent() -> Option<String> {
    Context::map_current(|current| {
        let span = current.span();
        let at = span.span_context();
        at.is_valid().then(|| format!("00-{}-{}-{:02x}", at.trace_id(), at.span_id(), at.trace_flags().to_u8()))
    })
}

#[cfg(test)]
mod tests;
