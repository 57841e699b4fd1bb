//! The service's read endpoints (spec/wire.md, "Requests").

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::handler::Handler;
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use axum::{Router, body::Body};
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::backend::Backend;
use super::description;
use super::envelope::RequestError;
use super::gate::{Gate, pass};
use super::networks;
use super::query::{FilterCondition, InvalidQuery, Query};
use crate::channel::page::AnyEvent;
use crate::fault::Route;

/// The path that base URLs end in.
pub(crate) const BASE: &str = "/v1";

/// The default of `limit` on poll.
const POLL_LIMIT: usize = 200;

/// The default of `limit` on search.
const SEARCH_LIMIT: usize = 50;

/// The default of `limit` on the list of channels.
const CHANNELS_LIMIT: usize = 50;

type RouteResult = Result<Response, RequestError>;

/// The service over HTTP.
pub(crate) fn router(backend: Arc<Backend>) -> Router {
    let mut routes = Router::new()
        .route("/channels/{channel}", gated(channel, Route::Channel, &backend))
        .route("/channels/{channel}/events", gated(poll, Route::Poll, &backend))
        .route("/channels/{channel}/events/search", gated(search, Route::Search, &backend))
        .route("/channels/{channel}/events/search/{event}", gated(event, Route::Event, &backend))
        .route("/channels/{channel}/watchers/{watcher}", gated(watcher, Route::Watcher, &backend))
        .route("/health-check", gated(health, Route::Health, &backend));
    if backend.version.has_lists() {
        routes = routes
            .route("/channels", gated(channel_list, Route::Channels, &backend))
            .route("/networks", gated(network_list, Route::Networks, &backend));
    }
    // Answers as a gateway does, without the envelope.
    let nowhere = || async { (StatusCode::NOT_FOUND, "404 page not found\n") };
    Router::new().nest(BASE, routes).fallback(nowhere).with_state(backend)
}

fn gated<H, T>(handler: H, route: Route, backend: &Arc<Backend>) -> MethodRouter<Arc<Backend>>
where
    H: Handler<T, Arc<Backend>>,
    T: 'static,
{
    let gate = Gate { backend: Arc::clone(backend), route };
    get(handler).layer(from_fn_with_state(gate, pass))
}

async fn poll(State(backend): State<Arc<Backend>>, Path(id): Path<String>, RawQuery(query): RawQuery) -> RouteResult {
    let channel = backend.channel(&id)?;
    let mut query = Query::parse(query.as_deref());
    let request = query.paging(POLL_LIMIT)?;
    query.finish()?;
    let selection = channel.select(request, &AnyEvent);
    Ok(success(channel.page(selection).await?))
}

async fn search(State(backend): State<Arc<Backend>>, Path(id): Path<String>, RawQuery(query): RawQuery) -> RouteResult {
    let channel = Arc::clone(backend.channel(&id)?);
    let mut query = Query::parse(query.as_deref());
    let request = query.paging(SEARCH_LIMIT)?;
    let filter = query.filter()?;
    query.finish()?;
    // If a filter matches few events, all events are checked.
    let searched = Arc::clone(&channel);
    let select = move || searched.select(request, &FilterCondition { channel: &searched, filter: &filter });
    let selection = spawn_blocking(select).await?;
    Ok(success(channel.page(selection).await?))
}

async fn event(State(backend): State<Arc<Backend>>, Path((id, event)): Path<(String, String)>) -> RouteResult {
    let channel = backend.channel(&id)?;
    let record = channel.record(uuid("event_id", &event)?).await?;
    record.map(success).ok_or_else(|| RequestError::not_found("EVENT_NOT_FOUND", "the event does not exist"))
}

async fn channel(State(backend): State<Arc<Backend>>, Path(id): Path<String>) -> RouteResult {
    Ok(success(description::channel(backend.channel(&id)?)))
}

async fn channel_list(State(backend): State<Arc<Backend>>, RawQuery(query): RawQuery) -> RouteResult {
    let mut query = Query::parse(query.as_deref());
    let request = query.paging(CHANNELS_LIMIT)?;
    query.finish()?;
    Ok(success(description::channels(&backend.channels, request)))
}

async fn network_list(RawQuery(query): RawQuery) -> RouteResult {
    Query::parse(query.as_deref()).finish()?;
    Ok(success(networks::all()))
}

async fn watcher(State(backend): State<Arc<Backend>>, Path((id, watcher)): Path<(String, String)>) -> RouteResult {
    let record = description::watcher(backend.channel(&id)?, uuid("watcher_id", &watcher)?, backend.version);
    record.map(success).ok_or_else(|| RequestError::not_found("WATCHER_NOT_FOUND", "the watcher does not exist"))
}

async fn health() -> Response {
    success(r#"{"status":"ok"}"#)
}

fn uuid(name: &str, text: &str) -> Result<Uuid, InvalidQuery> {
    text.parse().map_err(|_| InvalidQuery(format!("{name}: not a UUID")))
}

fn success(body: impl Into<Body>) -> Response {
    (StatusCode::OK, [(header::CONTENT_TYPE, "application/json")], body.into()).into_response()
}
