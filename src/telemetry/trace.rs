//! Traces: the path of a batch from its poll to its record.
//!
//! In logs a batch has a trace id. If traces are exported (`log.otlp_endpoint`), a batch is also a span with a child
//! span for each step:
//!
//! ```text
//! batch                    channel, channel_id, first_offset, last_offset, events, pending, rejected
//! ├── poll                 until the range has been read
//! ├── verify               until each event has a verdict
//! ├── deliver              one per sink: sink, events; a span event `attempt` per attempt: offered, taken, error
//! │   └── POST             one per request of a webhook: see [`RequestSpan`]
//! └── record               one per commit of a sink's cursor: sink, offset
//! ```
//!
//! An event whose proof arrives late is delivered separately. Its span is named `late`, and has one `deliver` and one
//! `record` per sink.
//!
//! # Invariants
//!
//! * **Nothing waits for the export.** A finished span goes into a bounded queue, or is lost and counted: see
//!   [`Export`].
//! * **Almost free if export is off:** the cost is a few random ids per batch.

use std::fmt;
use std::ops::Range;
use std::time::SystemTime;

use opentelemetry::trace::{FutureExt, Span, SpanBuilder, SpanKind, Status, TraceContextExt, TracerProvider};
use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_sdk::trace::{Sampler, SdkTracer, SdkTracerProvider, TracerProviderBuilder};

use reqwest::header::HeaderMap;
use url::Url;

use net::http::Authorities;
use record::ChannelRef;

#[cfg(feature = "otlp")]
mod export;

#[cfg(not(feature = "otlp"))]
pub use absent::Export;
#[cfg(feature = "otlp")]
pub use export::Export;
pub use opentelemetry::trace::TraceId;

/// Whether this program was built with the export of traces.
pub const HAS_OTLP: bool = cfg!(feature = "otlp");

/// The settings of the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Otlp {
    /// The address, without the path for spans.
    pub endpoint: Url,
    /// Headers of each request. The values may be secrets.
    pub headers: HeaderMap,
    /// The certificate authorities that TLS trusts instead of the system's authorities.
    pub authorities: Option<Authorities>,
}

/// Starts traces. By default traces have only ids, and nothing is exported.
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

    /// Starts the trace of a `batch`, or of a `late` delivery. `since` is the time at which the events of the batch
    /// were requested.
    pub fn begin(&self, name: &'static str, channel: &ChannelRef, since: SystemTime) -> Trace {
        let batch = SpanBuilder::from_name(name).with_start_time(since);
        let batch = batch.start_with_context(&self.0, &Context::new());
        // The context contains the tracer, for requests within the batch.
        let batch = Context::new().with_value(self.0.clone()).with_span(batch);
        let trace = Trace { tracer: self.0.clone(), batch, since };
        trace.note(|| vec![("channel", channel.name.to_string()), ("channel_id", channel.id.to_string())]);
        trace
    }
}

/// The trace of one batch. It ends when its last clone is dropped.
#[derive(Clone, Debug)]
pub struct Trace {
    tracer: SdkTracer,
    batch: Context,
    /// When the trace started.
    pub since: SystemTime,
}

impl Trace {
    /// The id in the format of W3C Trace Context.
    pub fn id(&self) -> TraceId {
        self.batch.span().span_context().trace_id()
    }

    /// Sets attributes of the batch. They are computed only if traces are exported.
    pub fn note<V: Into<Value>>(&self, notes: impl FnOnce() -> Vec<(&'static str, V)>) {
        let batch = self.batch.span();
        if batch.is_recording() {
            batch.set_attributes(notes().into_iter().map(|(name, value)| KeyValue::new(name, value)));
        }
    }

    /// Starts a child span.
    pub fn part(&self, name: &'static str) -> ChildSpan {
        ChildSpan(self.batch.with_span(SpanBuilder::from_name(name).start_with_context(&self.tracer, &self.batch)))
    }

    /// Adds a child span that has already ended.
    pub fn past(&self, name: &'static str, took: Range<SystemTime>) {
        let part = SpanBuilder::from_name(name).with_start_time(took.start);
        part.start_with_context(&self.tracer, &self.batch).end_with_timestamp(took.end);
    }
}

/// A child span of a trace. It ends when it is dropped.
#[derive(Debug, Default)]
#[must_use = "it ends when it is dropped"]
pub struct ChildSpan(Context);

impl ChildSpan {
    /// Sets an attribute.
    pub fn note(&self, name: &'static str, value: impl Into<Value>) {
        self.0.span().set_attribute(KeyValue::new(name, value));
    }

    /// Links to a batch of another trace that is delivered together with this one.
    pub fn joins(&self, other: &Trace) {
        self.0.span().add_link(other.batch.span().span_context().clone(), Vec::new());
    }

    /// Adds an attempt and its error.
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

    /// Runs `doing` inside this span, so that a [`RequestSpan`] becomes its child.
    pub async fn around<T>(&self, doing: impl Future<Output = T>) -> T {
        doing.with_context(self.0.clone()).await
    }
}

/// The span of an HTTP request within the current span. It follows OpenTelemetry's conventions for HTTP clients, and ends
/// when it is dropped.
#[derive(Debug, Default)]
#[must_use = "it ends when it is dropped"]
pub struct RequestSpan(Context);

impl RequestSpan {
    /// Starts the span if traces are exported. `shown` is the address without secrets. `resends` is the number of
    /// earlier attempts.
    pub fn begin(method: &'static str, url: &Url, shown: impl FnOnce() -> String, resends: u32) -> Self {
        let current = Context::current();
        let Some(tracer) = current.get::<SdkTracer>().filter(|_| current.span().is_recording()) else {
            return Self::default();
        };
        let mut attributes = vec![
            KeyValue::new("http.request.method", method),
            KeyValue::new("server.address", url.host_str().unwrap_or_default().to_owned()),
            KeyValue::new("server.port", i64::from(url.port_or_known_default().unwrap_or_default())),
            KeyValue::new("url.full", shown()),
        ];
        if resends > 0 {
            attributes.push(KeyValue::new("http.request.resend_count", i64::from(resends)));
        }
        let span = SpanBuilder::from_name(method).with_kind(SpanKind::Client).with_attributes(attributes);
        let span = span.start_with_context(tracer, &current);
        Self(current.with_span(span))
    }

    /// The value of the `traceparent` header (W3C Trace Context). `None` if traces are not exported.
    pub fn traceparent(&self) -> Option<String> {
        let span = self.0.span();
        let at = span.span_context();
        at.is_valid().then(|| format!("00-{}-{}-{:02x}", at.trace_id(), at.span_id(), at.trace_flags().to_u8()))
    }

    /// Records the response status.
    pub fn answered(&self, status: u16) {
        self.0.span().set_attribute(KeyValue::new("http.response.status_code", i64::from(status)));
        if status >= 400 {
            self.failed(&status.to_string());
        }
    }

    /// Records a failure. `kind` is a word or a status.
    pub fn failed(&self, kind: &str) {
        let span = self.0.span();
        span.set_attribute(KeyValue::new("error.type", kind.to_owned()));
        span.set_status(Status::error(""));
    }
}

/// The export of traces in a program that was built without it: creating it returns an error.
#[cfg(not(feature = "otlp"))]
mod absent {
    use net::http::SetupError;
    use prometheus::IntCounter;
    use tokio::sync::watch;
    use tokio_util::sync::CancellationToken;

    use super::{Otlp, Traces};

    /// No value of this type can exist.
    #[derive(Debug)]
    pub enum Export {}

    impl Export {
        /// Does not export.
        ///
        /// # Errors
        /// Always: this program was built without the export of traces.
        pub fn new(_otlp: watch::Receiver<Otlp>, _lost: IntCounter) -> Result<(Traces, Self), SetupError> {
            Err("this channeld was built without the feature otlp".into())
        }

        /// Never called: `new` always fails.
        #[expect(clippy::unused_async, reason = "the same signature as the function with the feature otlp")]
        pub async fn run(self, _stop: CancellationToken) {
            match self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use proof::event::ChannelId;

    #[tokio::test]
    async fn a_trace_that_is_not_exported_has_an_id_of_32_digits_and_no_header() {
        let channel = ChannelRef { name: "a".into(), id: ChannelId(Uuid::nil()) };
        let [one, other] = [(), ()].map(|()| Traces::default().begin("batch", &channel, SystemTime::now()));
        assert_eq!(one.id().to_string().len(), 32);
        assert_ne!(one.id(), other.id());
        let url = "http://127.0.0.1/hook".parse().expect("a URL");
        let request = async { RequestSpan::begin("POST", &url, || unreachable!("nothing is exported"), 0) };
        assert_eq!(one.part("deliver").around(request).await.traceparent(), None);
    }
}
