//! The span of an HTTP request. It follows OpenTelemetry's conventions for HTTP clients.

use opentelemetry::trace::{SpanBuilder, SpanKind, Status, TraceContextExt};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::SdkTracer;
use url::Url;

/// A request within the current span. The span ends when this is dropped.
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
