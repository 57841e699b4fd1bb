//! Every request of the operator API: its method, its path, its answer, and the operation that carries it out.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Query, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{MethodRouter, get, post};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::api::{
    AcknowledgeLost, CursorMove, CursorPosition, DeadLetter, DeadLetterEvent, DropDeadLetters, DropQuarantined, Entry,
    GetCluster, GetStatus, ListCursors, ListDeadLetters, ListQuarantine, QuarantinedEvent, Redeliver,
    RedeliverDeadLetters, Refusal, Reload, Retried, RetryQuarantined, SetCursors, SetPaused, ShowDeadLetter,
    ShowQuarantined, TailedDeliveries, WatchTail,
};
use super::{Changes, Cluster, Operations, Report};
use crate::event::Offset;
use crate::ledger::{Lost, Quarantined};

/// A request of the operator API.
pub(crate) trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    type Answer: Serialize + DeserializeOwned;

    /// GET where it changes nothing, POST otherwise.
    const METHOD: Method;

    const PATH: &'static str;

    /// Carries it out. Where it is refused, nothing was changed or, where the state failed, it is not known whether anything
    /// was.
    fn perform(&self, operations: &Operations) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// Those of the configuration in force.
type InForce = watch::Receiver<Arc<Operations>>;

/// What a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// An operator: another instance is asked where it owns the channel.
    Operator,
    /// Another instance. It asks the right one by itself.
    Instance,
}

type Service = (InForce, Asker);

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

        /// Serves all of them.
        pub(super) fn routes(operations: InForce, asker: Asker) -> Router {
            Router::new()$(.route($path, route::<$request>()))*.with_state((operations, asker))
        }

        #[cfg(test)]
        pub(super) const ALL: &[(Method, &str)] = &[$((Method::$method, $path)),*];
    };
}

requests! {
    GET "/status": GetStatus => Report, status;
    GET "/cluster": GetCluster => Cluster, cluster;
    GET "/tail": WatchTail => TailedDeliveries, watch_tail;
    GET "/quarantine": ListQuarantine => Vec<Entry<Quarantined>>, list_quarantine;
    GET "/quarantine/event": ShowQuarantined => QuarantinedEvent, show_quarantined;
    GET "/dead-letters": ListDeadLetters => Vec<Entry<DeadLetter>>, list_dead_letters;
    GET "/dead-letters/event": ShowDeadLetter => DeadLetterEvent, show_dead_letter;
    GET "/cursors": ListCursors => Vec<Entry<CursorPosition>>, list_cursors;
    POST "/state/acknowledge": AcknowledgeLost => Option<Lost>, acknowledge_lost;
    POST "/reload": Reload => Changes, reload;
    POST "/pause": SetPaused => bool, set_paused;
    POST "/cursors": SetCursors => Vec<CursorMove>, set_cursors;
    POST "/quarantine/retry": RetryQuarantined => Vec<Retried>, retry_quarantined;
    POST "/quarantine/drop": DropQuarantined => Vec<Offset>, drop_quarantined;
    POST "/dead-letters/redeliver": RedeliverDeadLetters => Vec<Offset>, redeliver_dead_letters;
    POST "/dead-letters/drop": DropDeadLetters => Vec<Offset>, drop_dead_letters;
    POST "/redeliver": Redeliver => Vec<Offset>, redeliver;
}

fn route<R: Request>() -> MethodRouter<Service> {
    match R::METHOD {
        Method::POST => post(async |State(service), Json(request): Json<R>| answer(service, request).await),
        _ => get(async |State(service), Query(request): Query<R>| answer(service, request).await),
    }
}

async fn answer<R: Request>((operations, asker): Service, request: R) -> Result<Response, Refusal> {
    let operations = operations.borrow().clone();
    let answer = match asker {
        Asker::Operator => operations.carry_out(&request).await?,
        Asker::Instance => request.perform(&operations).await?,
    };
    Ok(Json(answer).into_response())
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Usage(_) => StatusCode::BAD_REQUEST,
            Self::Config(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Elsewhere { .. } => {
                return (StatusCode::MISDIRECTED_REQUEST, Json(Self::Failed(self.to_string()))).into_response();
            }
        };
        (status, Json(self)).into_response()
    }
}
