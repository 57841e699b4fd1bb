//! The steps before a request is answered: it is counted, and the faults and the API key are checked.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::backend::Backend;
use super::connection::{Control, Slowness};
use super::envelope::RequestError;
use super::fault_response;
use crate::event::content::json;
use crate::fault::{Fault, Route};
use crate::keys::Admission;

/// The scheme of the `Authorization` header.
const SCHEME: &str = "Apikey ";

/// The wait before a reset. The data that was written before the reset has been sent by then.
const SENT: Duration = Duration::from_millis(50);

/// The route that a request came to.
#[derive(Clone)]
pub(crate) struct Gate {
    pub(crate) backend: Arc<Backend>,
    pub(crate) route: Route,
}

/// Counts the request, and answers it or applies a fault.
pub(crate) async fn pass(
    State(gate): State<Gate>,
    ConnectInfo(connection): ConnectInfo<Control>,
    request: Request,
    next: Next,
) -> Response {
    gate.backend.requests.count(gate.route);
    let misbehaves = || gate.backend.misbehaviour(request.uri().path())?.fault();
    let fault = gate.backend.faults.next(gate.route).or_else(misbehaves);
    let instead = |fault| fault_response::instead(fault).or_else(|| spoil(&connection, fault));
    if let Some(answer) = fault.as_ref().and_then(instead) {
        return answer;
    }
    match fault {
        Some(Fault::Hang) => pending().await,
        Some(Fault::Slow(delay)) => tokio::time::sleep(delay).await,
        _ => {}
    }
    let answer = match admission(&gate, &request) {
        Admission::Admitted => next.run(request).await,
        Admission::Unknown => RequestError::unauthorized().into_response(),
        Admission::Denied => RequestError::denied().into_response(),
    };
    spoilt(answer, fault, connection).await
}

fn admission(gate: &Gate, request: &Request) -> Admission {
    if gate.route == Route::Health {
        return Admission::Admitted;
    }
    let given = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = given.and_then(|value| value.strip_prefix(SCHEME));
    key.map_or(Admission::Unknown, |key| gate.backend.keys.admission(key, gate.route))
}

/// If the fault affects the whole connection, applies the fault and returns an answer that closes the connection
/// afterwards.
fn spoil(connection: &Control, fault: &Fault) -> Option<Response> {
    match fault {
        Fault::Reset => connection.cut(),
        Fault::SlowHead => connection.slow_down(Slowness::ByteByByte),
        Fault::Informational => connection.slow_down(Slowness::Informational),
        _ => return None,
    }
    Some([(header::CONNECTION, "close")].into_response())
}

fn changes_the_answer(fault: &Fault) -> bool {
    matches!(fault, Fault::TruncatedJson | Fault::NotDescending | Fault::WithoutOffset | Fault::ResetMidway)
}

/// Returns the answer, changed by the fault.
async fn spoilt(answer: Response, fault: Option<Fault>, connection: Control) -> Response {
    let Some(fault) = fault.filter(changes_the_answer) else { return answer };
    let (mut head, body) = answer.into_parts();
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    head.headers.remove(header::CONTENT_LENGTH);
    let body = match fault {
        Fault::TruncatedJson => Body::from(body.slice(..body.len() / 2)),
        Fault::WithoutOffset => Body::from(without_offset(&body)),
        Fault::NotDescending => Body::from(ascending(&body).unwrap_or(body)),
        _ => {
            head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            half(&body, connection)
        }
    };
    Response::from_parts(head, body)
}

fn without_offset(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).replacen(r#""offset":"#, r#""place":"#, 1)
}

/// Returns half of a body. The connection is reset after this half has been sent.
fn half(body: &Bytes, connection: Control) -> Body {
    let first = stream::iter([Ok::<_, Infallible>(body.slice(..body.len() / 2))]);
    let then = stream::once(async move {
        tokio::time::sleep(SENT).await;
        connection.cut();
        pending().await
    });
    Body::from_stream(first.chain(then))
}

/// Returns a page with its events in the wrong order. `None` if the answer is not a page.
fn ascending(page: &[u8]) -> Option<Bytes> {
    #[derive(Deserialize, Serialize)]
    struct Page<'a> {
        #[serde(borrow)]
        events: Vec<&'a RawValue>,
        has_more: bool,
    }
    let mut page: Page<'_> = serde_json::from_slice(page).ok()?;
    page.events.reverse();
    Some(json(&page).into())
}
