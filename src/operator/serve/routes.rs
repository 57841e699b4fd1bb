//! The table of all requests: the method and the path of each request, the type of its answer, and the operation that
//! carries it out.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tracing::info;

use crate::api::{
    AcknowledgeLost, ChannelEntry, ConsumerCursorMove, ConsumerList, CursorMove, CursorPosition, DeadLetter,
    DeadLetterEvent, DropDeadLetters, DropQuarantined, GetAccounts, GetCluster, GetJourney, GetLastHour, GetStatus,
    Journey, LastHour, ListConsumers, ListCursors, ListDeadLetters, ListQuarantine, ListReplays, PollNow,
    QuarantinedEvent, Refusal, Reload, ReplayDeadLetters, ReplayEvents, RetriedEvent, RetryQuarantined,
    SetConsumerCursor, SetCursors, SetPaused, SetReplay, ShowDeadLetter, ShowQuarantined, StartReplay,
    TailedDeliveries, WatchTail,
};
use crate::request::{BY, MAX_ANSWER, Request, http_request};
use crate::{Changes, Cluster, Operations, Report};
use channel::{Accounts, ReplayStatus};
use ledger::store::shared::{ForwardedRequest, ForwardedResponse};
use ledger::{LostEntries, Quarantined};
use proof::event::Offset;
use telemetry::ALWAYS;

type CurrentOperations = watch::Receiver<Arc<Operations>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestSender {
    /// An operator. If another instance owns the channel, the request is forwarded to that instance.
    Operator,
    /// Another instance. The request is not forwarded again: that instance finds the channel's owner for its operators
    /// itself.
    Instance,
}

type RouteState = (CurrentOperations, RequestSender);

macro_rules! requests {
    ($($method:ident $path:literal: $request:ident => $answer:ty, $operation:ident;)*) => {
        $(
            impl Request for $request {
                type Answer = $answer;
                const METHOD: Method = Method::$method;
                const PATH: &'static str = $path;

                async fn perform(&self, operations: &Operations) -> Result<$answer, Refusal> {
                    operations.$operation(self).await
                }
            }
        )*

        pub(crate) fn routes(operations: CurrentOperations, sender: RequestSender) -> Router {
            Router::new()$(.route($path, route::<$request>()))*.with_state((operations, sender))
        }

        #[cfg(any(test, feature = "testing"))]
        pub(crate) const ALL: &[(Method, &str)] = &[$((Method::$method, $path)),*];
    };
}

requests! {
    GET "/status": GetStatus => Report, status;
    GET "/cluster": GetCluster => Cluster, cluster;
    GET "/hour": GetLastHour => Vec<ChannelEntry<LastHour>>, last_hour;
    GET "/journey": GetJourney => Journey, journey;
    GET "/accounts": GetAccounts => Accounts, accounts;
    GET "/tail": WatchTail => TailedDeliveries, watch_tail;
    GET "/quarantine": ListQuarantine => Vec<ChannelEntry<Quarantined>>, list_quarantine;
    GET "/quarantine/event": ShowQuarantined => QuarantinedEvent, show_quarantined;
    GET "/dead-letters": ListDeadLetters => Vec<ChannelEntry<DeadLetter>>, list_dead_letters;
    GET "/dead-letters/event": ShowDeadLetter => DeadLetterEvent, show_dead_letter;
    GET "/cursors": ListCursors => Vec<ChannelEntry<CursorPosition>>, list_cursors;
    POST "/state/acknowledge": AcknowledgeLost => Option<LostEntries>, acknowledge_lost;
    POST "/reload": Reload => Changes, reload;
    POST "/poll": PollNow => Timestamp, poll_now;
    POST "/pause": SetPaused => bool, set_paused;
    POST "/cursors": SetCursors => Vec<CursorMove>, set_cursors;
    POST "/quarantine/retry": RetryQuarantined => Vec<RetriedEvent>, retry_quarantined;
    POST "/quarantine/drop": DropQuarantined => Vec<Offset>, drop_quarantined;
    POST "/dead-letters/redeliver": ReplayDeadLetters => Vec<Offset>, replay_dead_letters;
    POST "/dead-letters/drop": DropDeadLetters => Vec<Offset>, drop_dead_letters;
    POST "/redeliver": ReplayEvents => Vec<Offset>, replay_events;
    GET "/replays": ListReplays => Vec<ChannelEntry<ReplayStatus>>, list_replays;
    POST "/replays/start": StartReplay => Vec<ChannelEntry<ReplayStatus>>, start_replay;
    POST "/replays/set": SetReplay => ChannelEntry<ReplayStatus>, set_replay;
    GET "/consumers": ListConsumers => ConsumerList, list_consumers;
    POST "/consumers/{consumer}/{channel}/cursor": SetConsumerCursor => ConsumerCursorMove, set_consumer_cursor;
}

fn route<R: Request>() -> MethodRouter<RouteState> {
    match R::METHOD {
        Method::POST if R::PATH.contains('{') => post(
            async |State(service),
                   Path(names): Path<Vec<(String, String)>>,
                   headers: HeaderMap,
                   Json(body): Json<Map<String, Value>>| {
                let mut members = body;
                members.extend(names.into_iter().map(|(name, value)| (name, value.into())));
                let request: R = serde_json::from_value(Value::Object(members))
                    .map_err(|error| Refusal::Usage(format!("the body is not as expected: {error}")))?;
                note(&headers, &request);
                answer(service, request).await
            },
        ),
        Method::POST => post(async |State(service), headers: HeaderMap, Json(request): Json<R>| {
            note(&headers, &request);
            answer(service, request).await
        }),
        _ => get(async |State(service), Query(request): Query<R>| answer(service, request).await),
    }
}

/// Logs who requests a change, if the request names a person. The operation then logs the change itself. Bodies of events
/// are not logged.
fn note<R: Request>(headers: &HeaderMap, request: &R) {
    let Some(by) = headers.get(BY).and_then(|by| by.to_str().ok()) else { return };
    let said = serde_json::to_value(request).unwrap_or_default();
    let said = said.get("which").unwrap_or(&said);
    let text = |member| said.get(member).and_then(Value::as_str);
    info!(target: ALWAYS, by, request = R::PATH, channel = text("channel"), sink = text("sink"), consumer = text("consumer"), "requested by an operator");
}

async fn answer<R: Request>((operations, sender): RouteState, request: R) -> Result<Response, Refusal> {
    let operations = operations.borrow().clone();
    let answer = match sender {
        RequestSender::Operator => operations.carry_out(&request).await?,
        RequestSender::Instance => request.perform(&operations).await?,
    };
    Ok(Json(answer).into_response())
}

/// Answers the requests of other instances, until it is dropped.
pub async fn answer_others(operations: CurrentOperations) -> Infallible {
    let membership = operations.borrow().cluster.as_ref().map(|peers| peers.membership.clone());
    let Some(membership) = membership else { return pending().await };
    let router = TowerToHyperService::new(routes(operations, RequestSender::Instance));
    cluster::answer(membership, |request| answer_instance(router.clone(), request)).await
}

async fn answer_instance(router: TowerToHyperService<Router>, request: ForwardedRequest) -> ForwardedResponse {
    let failed =
        |status: StatusCode, what: String| ForwardedResponse { status: status.as_u16(), body: what.into_bytes() };
    let request = match http_request(request) {
        Ok(request) => request,
        Err(error) => return failed(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let answer = router.call(request).await.unwrap_or_else(|never| match never {});
    let status = answer.status();
    match to_bytes(answer.into_body(), MAX_ANSWER).await {
        Ok(body) => ForwardedResponse { status: status.as_u16(), body: body.into() },
        Err(error) => failed(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Usage(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Config(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Unreadable(why) => return Self::Failed(why).into_response(),
            Self::Elsewhere { .. } => {
                return (StatusCode::MISDIRECTED_REQUEST, Json(Self::Failed(self.to_string()))).into_response();
            }
        };
        (status, Json(self)).into_response()
    }
}
