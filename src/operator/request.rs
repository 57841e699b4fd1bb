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
    AcknowledgeLost, CursorMove, CursorPosition, DeadLetterEntry, DeadLetterEvent, DropDeadLetters, DropQuarantined,
    GetStatus, ListCursors, ListDeadLetters, ListQuarantine, QuarantineEntry, QuarantinedEvent, Redeliver,
    RedeliverDeadLetters, Refusal, Reload, Retried, RetryQuarantined, SetCursors, SetPaused, ShowDeadLetter,
    ShowQuarantined,
};
use super::{Changes, Operations, Report};
use crate::event::Offset;
use crate::ledger::Lost;

/// A request of the operator API.
pub trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// What is answered.
    type Answer: Serialize + DeserializeOwned;

    /// GET where it changes nothing, POST otherwise.
    const METHOD: Method;

    /// Where it is served.
    const PATH: &'static str;

    /// Carries it out.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was changed or, where the state failed, it is not known whether anything was.
    fn perform(&self, operations: &Operations) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// Those of the configuration in force.
type InForce = watch::Receiver<Arc<Operations>>;

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
        pub(super) fn routes(operations: InForce) -> Router {
            Router::new()$(.route($path, route::<$request>()))*.with_state(operations)
        }

        #[cfg(test)]
        pub(super) const ALL: &[(Method, &str)] = &[$((Method::$method, $path)),*];
    };
}

requests! {
    GET "/status": GetStatus => Report, status;
    GET "/quarantine": ListQuarantine => Vec<QuarantineEntry>, list_quarantine;
    GET "/quarantine/event": ShowQuarantined => QuarantinedEvent, show_quarantined;
    GET "/dead-letters": ListDeadLetters => Vec<DeadLetterEntry>, list_dead_letters;
    GET "/dead-letters/event": ShowDeadLetter => DeadLetterEvent, show_dead_letter;
    GET "/cursors": ListCursors => Vec<CursorPosition>, list_cursors;
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

fn route<R: Request>() -> MethodRouter<InForce> {
    match R::METHOD {
        Method::POST => post(async |State(operations), Json(request): Json<R>| answer(operations, request).await),
        _ => get(async |State(operations), Query(request): Query<R>| answer(operations, request).await),
    }
}

async fn answer<R: Request>(operations: InForce, request: R) -> Result<Response, Refusal> {
    let operations = operations.borrow().clone();
    Ok(Json(request.perform(&operations).await?).into_response())
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Usage(_) => StatusCode::BAD_REQUEST,
            Self::Config(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(self)).into_response()
    }
}
