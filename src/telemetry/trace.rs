//! Traces: the path of a batch from its poll to its record.
//!
//! In logs a batch has a trace id. Where traces are exported (`log.otlp_endpoint`) it is a span too, with a part for each step:
//!
//! ```text
//! batch                    channel, channel_id, first_offset, last_offset, events, pending, rejected
//! ├── poll                 until the range was read
//! ├── verify               until each event had its verdict
//! ├── deliver              one a sink: sink, events; an event for each attempt, with what was offered, taken, and the error
//! │   └── POST             one a request of a webhook: see [`RequestSpan`]
//! └── record               one a commit of a sink's cursor: sink, offset
//! ```
//!
//! An event whose proof comes late is delivered by itself: its span is named `late`, and has one `deliver` and one `record` a
//! sink.
//!
//! # Invariants
//!
//! * **Nothing waits for the export.** A span that ends goes into a bounded queue, or is lost and counted: see [`Export`].
//! * **Almost free where it is off:** a few random ids a batch.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use opentelemetry::trace::{FutureExt, Span, SpanBuilder, Status, TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, TracerProviderBuilder};

use record::ChannelRef;

mod export;
mod request;

pub use export::{Export, Otlp, SetupError};
pub use opentelemetry::trace::TraceId;
pub use request::RequestSpan;

/// Starts traces. By default they have ids alone, and nothing is exported.
#[derive(Clone, Debug)]
pub struct Traces(SdkTracer);

impl Default for Traces {
    fn default() -> Self {
        Self::sampled(SdkTracerProvider::builder(), Sampler::AlwaysOff)
    }
}

impl Traces {
    fn sampled(provider: TracerProviderBuilder, sampler: Sampler) -> Self {
        Self(provider.with_sampler(sampler).build().tracer("channeld"))
    }

    /// Starts the trace of a batch, at the time of its request.
    pub fn begin(&self, channel: &ChannelRef, since: SystemTime) -> Trace {
        self.start("batch", channel, since)
    }

    /// Starts the trace of a late event, at the time at which its proof was asked for.
    pub fn begin_late(&self, channel: &ChannelRef, since: SystemTime) -> Trace {
        self.start("late", channel, since)
    }

    fn start(&self, name: &'static str, channel: &ChannelRef, since: SystemTime) -> Trace {
        let batch = SpanBuilder::from_name(name).with_start_time(since);
        let batch = batch.start_with_context(&self.0, &Context::new());
        // With the tracer, for requests within it.
        let batch = Context::new().with_value(self.0.clone()).with_span(batch);
        let trace = Trace { tracer: self.0.clone(), batch, since };
        trace.note(|| vec![("channel", channel.name.to_string()), ("channel_id", channel.id.to_string())]);
        trace
    }
}

/// The trace of one batch. It ends with its last clone.
#[derive(Clone, Debug)]
pub struct Trace {
    tracer: SdkTracer,
    batch: Context,
    since: SystemTime,
}

impl Trace {
    /// Its id by W3C Trace Context.
    pub fn id(&self) -> TraceId {
        self.batch.span().span_context().trace_id()
    }

    /// When it began.
    pub fn since(&self) -> SystemTime {
        self.since
    }

    /// Sets attributes of the batch. They are computed only where traces are exported.
    pub fn note<V: Into<Value>>(&self, notes: impl FnOnce() -> Vec<(&'static str, V)>) {
        let batch = self.batch.span();
        if batch.is_recording() {
            batch.set_attributes(notes().into_iter().map(|(name, value)| KeyValue::new(name, value)));
        }
    }

    /// Starts a part.
    pub fn part(&self, name: &'static str) -> Part {
        Part(self.batch.with_span(SpanBuilder::from_name(name).start_with_context(&self.tracer, &self.batch)))
    }

    /// Adds a part that is over.
    pub fn past(&self, name: &'static str, took: Range<SystemTime>) {
        let part = SpanBuilder::from_name(name).with_start_time(took.start);
        part.start_with_context(&self.tracer, &self.batch).end_with_timestamp(took.end);
    }
}

/// A part of a trace. It ends when it is dropped.
#[derive(Debug, Default)]
#[must_use = "it ends when it is dropped"]
pub struct Part(Context);

impl Part {
    /// Sets an attribute.
    pub fn note(&self, name: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(name, value));
    }

    /// Links a batch of another trace that is delivered together with this one.
    pub fn joins(&self, other: &Trace) {
        self.0.span().add_link(other.batch.span().span_context().clone(), Vec::new());
    }

    /// Adds an attempt, and its error.
    pub fn attempt(&self, offered: usize, taken: usize, error: Option<&dyn fmt::Display>) {
        let part = self.0.span();
        if !part.is_recording() {
            return;
        }
        let number = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let mut notes = vec![KeyValue::new("offered", number(offered)), KeyValue::new("taken", number(taken))];
        notes.extend(error.map(|error| KeyValue::new("error", error.to_string())));
        part.add_event("attempt", notes);
        part.set_status(error.map_or(Status::Ok, |error| Status::error(error.to_string())));
    }

    /// Runs `doing` as the current span, which a [`RequestSpan`] is a part of.
    pub async fn around<T>(&self, doing: impl Future<Output = T>) -> T {
        doing.with_context(self.0.clone()).await
    }
}

#[cfg(test)]
mod tests;
