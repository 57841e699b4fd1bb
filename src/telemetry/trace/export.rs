//! Exports spans to a collector with OTLP over HTTP.
//!
//! # Invariants
//!
//! * **A collector that is down or slow costs only spans.** A finished span goes into a queue of [`QUEUED`] spans, or
//!   is lost if the queue is full. Lost spans are counted. The first loss is logged, and no further loss until the
//!   collector recovers.
//! * **One export at a time.** An export ends within [`TIMEOUT`], including all retries of the exporter.
//!
//! # Why not the SDK's batch processor
//!
//! `BatchSpanProcessor` of `opentelemetry_sdk` 0.33 drives the exporter on a thread without a Tokio runtime. With this
//! crate's HTTP client, the processor's worker panicked at the first export, and none of 2,000 spans was sent or
//! counted as lost. The processor's experimental variant for Tokio ignores the timeout of a shutdown. Neither variant
//! reports how many spans it lost because of a full queue.
//!
//! # Cancellation
//!
//! After `stop` fires, the export ends when the queue is empty. The export may be dropped at any point. The remaining spans
//! are then lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use opentelemetry::{Context, KeyValue, Value};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider, Span, SpanData, SpanExporter as _, SpanProcessor};
use prometheus::IntCounter;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use uuid::Uuid;

use super::{Otlp, Traces};
use net::http::{self, ConnectionSettings, SetupError};

/// The capacity of the queue: the spans of a busy minute, at about ten spans per batch.
const QUEUED: usize = 8_192;

/// The largest number of spans in a request.
const AT_ONCE: usize = 512;

/// How long a span waits for other spans of the same request.
const LINGER: Duration = Duration::from_secs(1);

/// The longest wait for a collector's answer.
const TIMEOUT: Duration = Duration::from_secs(5);

const INSTANCE: &str = "service.instance.id";

const PATH: &str = "v1/traces";

/// Exports finished spans.
#[derive(Debug)]
pub struct Export {
    exporter: SpanExporter,
    resource: Resource,
    otlp: watch::Receiver<Otlp>,
    queue: mpsc::Receiver<SpanData>,
    lost: IntCounter,
    is_failing: bool,
}

impl Export {
    /// Creates the export. It sends nothing until [`run`](Self::run) is called. Lost spans are counted in `lost`. The
    /// settings may change later.
    ///
    /// # Errors
    /// If the client of the collector cannot be made.
    pub fn new(otlp: watch::Receiver<Otlp>, lost: IntCounter) -> Result<(Traces, Self), SetupError> {
        let ((sender, queue), resource) = (mpsc::channel(QUEUED), resource());
        let queueing = Queue { sender, lost: lost.clone(), is_full: AtomicBool::new(false) };
        let provider = SdkTracerProvider::builder().with_resource(resource.clone()).with_span_processor(queueing);
        let exporter = exporter(&otlp.borrow(), &resource)?;
        Ok((
            Traces::sampled(provider, Sampler::AlwaysOn),
            Self { exporter, resource, otlp, queue, lost, is_failing: false },
        ))
    }

    /// Exports until `stop` fires, and then the rest of the queue.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut spans = Vec::with_capacity(AT_ONCE);
        while stop.run_until_cancelled(self.gather(&mut spans)).await == Some(true) {
            self.export(std::mem::take(&mut spans)).await;
        }
        self.queue.close();
        while !spans.is_empty() || self.queue.recv_many(&mut spans, AT_ONCE).await > 0 {
            self.export(std::mem::take(&mut spans)).await;
        }
    }

    /// Waits for a span, and then [`LINGER`] for more spans. Returns `false` if no more spans can arrive.
    async fn gather(&mut self, spans: &mut Vec<SpanData>) -> bool {
        self.queue.recv_many(spans, AT_ONCE).await;
        let more =
            async { while spans.len() < AT_ONCE && self.queue.recv_many(spans, AT_ONCE - spans.len()).await > 0 {} };
        let _ = timeout(LINGER, more).await;
        !spans.is_empty()
    }

    async fn export(&mut self, spans: Vec<SpanData>) {
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        self.follow_settings();
        let error = match timeout(TIMEOUT, self.exporter.export(spans)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer within {} s", TIMEOUT.as_secs())),
        };
        let Some(error) = error else {
            if std::mem::take(&mut self.is_failing) {
                info!(lost = self.lost.get(), "traces are exported again");
            }
            return;
        };
        self.lost.inc_by(count);
        let (collector, spans) = (self.otlp.borrow().endpoint.authority().to_owned(), count);
        if std::mem::replace(&mut self.is_failing, true) {
            debug!(collector, spans, error, "traces could not be exported");
        } else {
            warn!(collector, spans, error, "traces could not be exported and are lost; events are not affected");
        }
    }

    /// Applies changed headers and authorities, starting with this export.
    fn follow_settings(&mut self) {
        if !self.otlp.has_changed().unwrap_or(false) {
            return;
        }
        match exporter(&self.otlp.borrow_and_update(), &self.resource) {
            Ok(exporter) => self.exporter = exporter,
            Err(error) => warn!(%error, "traces continue with the previous headers and CAs"),
        }
    }
}

/// The attributes of this process. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` take precedence.
fn resource() -> Resource {
    let found = Resource::builder().build();
    let known = |key: &'static str| found.get(&key.into());
    let named = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty()).map(Value::from);
    // If no name is set, the SDK uses a name with this prefix.
    let is_given = |name: &Value| !name.as_str().starts_with("unknown_service");
    let name = named.or_else(|| known("service.name").filter(is_given)).unwrap_or_else(|| "channeld".into());
    let instance = known(INSTANCE).unwrap_or_else(|| Uuid::new_v4().to_string().into());
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name(name).with_attribute(version);
    resource.with_attribute(KeyValue::new(INSTANCE, instance)).build()
}

fn exporter(otlp: &Otlp, resource: &Resource) -> Result<SpanExporter, SetupError> {
    let connection = ConnectionSettings { authorities: otlp.authorities.clone(), ..ConnectionSettings::default() };
    let client = http::client_by(&otlp.endpoint, &connection, Arc::default())?;
    let client = client.timeout(TIMEOUT).default_headers(otlp.headers.clone());
    let mut exporter = SpanExporter::builder()
        .with_http()
        .with_http_client(client.build()?)
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(format!("{}/{PATH}", otlp.endpoint.as_str().trim_end_matches('/')))
        .with_timeout(TIMEOUT)
        .build()?;
    exporter.set_resource(resource);
    Ok(exporter)
}

#[derive(Debug)]
struct Queue {
    sender: mpsc::Sender<SpanData>,
    lost: IntCounter,
    is_full: AtomicBool,
}

impl SpanProcessor for Queue {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let is_lost = self.sender.try_send(span).is_err();
        if is_lost {
            self.lost.inc();
        }
        if self.is_full.swap(is_lost, Ordering::Relaxed) != is_lost && is_lost {
            warn!("traces arrive faster than they can be exported: some are lost; events are not affected");
        }
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}
