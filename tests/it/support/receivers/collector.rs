//! An OpenTelemetry collector: receives traces by OTLP over HTTP, and returns the received spans.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::serve::Listener;
use opentelemetry_proto::tonic::collector::trace::v1::{ExportTraceServiceRequest, ExportTraceServiceResponse};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use prost::Message;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::support::{Authority, TlsListener};

/// How the collector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Takes,
    /// 503.
    Refuses,
    /// No answer.
    Hangs,
}

/// A received span.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty if the span has no parent.
    pub(crate) parent: String,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) events: Vec<(String, BTreeMap<String, String>)>,
    pub(crate) links: usize,
    pub(crate) is_client: bool,
    pub(crate) nanoseconds: u64,
    pub(crate) resource: BTreeMap<String, String>,
}

/// A running collector with a port of its own. It ends when it is dropped.
pub(crate) struct Collector {
    inner: Arc<Inner>,
    url: String,
    serving: JoinHandle<()>,
}

struct Inner {
    manner: Mutex<Manner>,
    spans: Mutex<Vec<Span>>,
    headers: Mutex<Vec<HeaderMap>>,
}

impl Collector {
    pub(crate) async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self::serve(listener, url, manner)
    }

    /// A collector with a certificate of this authority.
    pub(crate) async fn start_tls(authority: &Authority) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://localhost:{}", tcp.local_addr().unwrap().port());
        Self::serve(TlsListener { tcp, tls: authority.open_server().into() }, url, Manner::Takes)
    }

    fn serve(listener: impl Listener<Addr = SocketAddr>, url: String, manner: Manner) -> Self {
        let inner = Inner { manner: Mutex::new(manner), spans: Mutex::default(), headers: Mutex::default() };
        let inner = Arc::new(inner);
        let routes = Router::new().route("/v1/traces", post(take)).with_state(inner.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { inner, url, serving }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    pub(crate) fn becomes(&self, manner: Manner) {
        *self.inner.manner.lock().unwrap() = manner;
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        self.inner.spans.lock().unwrap().clone()
    }

    /// The headers of each request, whatever the answer was.
    pub(crate) fn headers(&self) -> Vec<HeaderMap> {
        self.inner.headers.lock().unwrap().clone()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    inner.headers.lock().unwrap().push(headers);
    let manner = *inner.manner.lock().unwrap();
    match manner {
        Manner::Takes => {}
        Manner::Refuses => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Manner::Hangs => std::future::pending().await,
    }
    let request = ExportTraceServiceRequest::decode(body).unwrap();
    inner.spans.lock().unwrap().extend(spans(request));
    ExportTraceServiceResponse::default().encode_to_vec().into_response()
}

fn spans(request: ExportTraceServiceRequest) -> impl Iterator<Item = Span> {
    request.resource_spans.into_iter().flat_map(|of_resource| {
        let resource = shown(of_resource.resource.unwrap().attributes);
        let spans = of_resource.scope_spans.into_iter().flat_map(|of_scope| of_scope.spans);
        spans.map(move |span| Span {
            name: span.name,
            trace: hex::encode(span.trace_id),
            id: hex::encode(span.span_id),
            parent: hex::encode(span.parent_span_id),
            attributes: shown(span.attributes),
            events: span.events.into_iter().map(|event| (event.name, shown(event.attributes))).collect(),
            links: span.links.len(),
            is_client: span.kind == SpanKind::Client as i32,
            nanoseconds: span.end_time_unix_nano.checked_sub(span.start_time_unix_nano).unwrap(),
            resource: resource.clone(),
        })
    })
}

fn shown(attributes: Vec<KeyValue>) -> BTreeMap<String, String> {
    let shown = |value| match value {
        Value::StringValue(text) => text,
        Value::IntValue(number) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.into_iter().map(|pair| (pair.key, shown(pair.value.unwrap().value.unwrap()))).collect()
}
