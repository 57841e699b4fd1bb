//! Interprets the outcome of a request: a response, or the error if no response arrived.

use std::time::Duration;

use reqwest::{Response, StatusCode};

use crate::{Fault, SinkError};
use net::http::{self, NotPublic, RequestError, find};
use net::shortage::Shortage;

/// The largest response body that is read, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// The longest time spent on reading a body whose content is not needed.
pub(super) const DRAINING: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub(super) struct RequestRefusal {
    pub(super) error: SinkError,
    pub(super) about: RefusalScope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefusalScope {
    /// The endpoint: it asks for a pause or cannot be reached. Nothing more is posted now.
    Endpoint,
    /// The time that the endpoint needs: it may answer a smaller body in time. Nothing more is posted now.
    Time,
    /// The request, for example its URL or our credentials: every similar request is refused.
    Request,
    /// Perhaps the posted content, or a single event in the content. The endpoint may accept the other events.
    Content,
    /// The size of the posted body: the endpoint may accept a smaller body.
    Size,
}

/// Interprets a response. `hint` is a possible reason for its status.
pub(super) fn outcome(response: &Response, hint: Option<&str>) -> Result<(), RequestRefusal> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    if status == StatusCode::GONE {
        let message =
            "answered 410: it accepts no more events, and receives none until it is resumed (channeld resume)";
        return Err(RequestRefusal { error: SinkError::Gone(message.to_owned()), about: RefusalScope::Endpoint });
    }
    let redirection = if status.is_redirection() { ", and redirects are not followed: name the final URL" } else { "" };
    let retry_after = http::retry_after(response.headers());
    let about = match status {
        _ if retry_after.is_some() || status == StatusCode::TOO_MANY_REQUESTS => RefusalScope::Endpoint,
        // A proxy also sends these statuses if the endpoint needs too long for a batch.
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => RefusalScope::Time,
        StatusCode::PAYLOAD_TOO_LARGE => RefusalScope::Size,
        // A firewall, a router or a handler may answer one event with any of these statuses, and accept the others.
        StatusCode::INTERNAL_SERVER_ERROR => RefusalScope::Content,
        _ if status.is_client_error() && status != StatusCode::TOO_EARLY => RefusalScope::Content,
        _ => RefusalScope::Request,
    };
    let fault = match status {
        // By definition, the content of the request is the cause.
        StatusCode::CONFLICT | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNPROCESSABLE_ENTITY
            if retry_after.is_none() =>
        {
            Fault::Event
        }
        // After these statuses, a later request may succeed without an operator.
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => Fault::Target,
        _ if status.is_server_error() => Fault::Target,
        // The event or the configuration. The lane finds out which before an event becomes a dead letter. For example, nginx
        // answers 400 if a client certificate is missing, and an endpoint may answer 415 to every compressed body.
        _ => Fault::Operator,
    };
    let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
    let message = format!("answered {}{redirection}{hint}", status.as_u16());
    Err(RequestRefusal { error: SinkError::Refused { message, retry_after, fault }, about })
}

/// A short name for the reason why no response arrived.
pub(super) fn kind(error: &RequestError) -> &'static str {
    match error {
        error if error.is_timeout() => "timeout",
        error if error.is_connect() => "connect",
        _ => "broken_off",
    }
}

/// Whether the endpoint itself may have ended the connection.
pub(super) fn is_perhaps_refused(error: &RequestError) -> bool {
    let is_alert = matches!(find::<rustls::Error>(error), Some(rustls::Error::AlertReceived(_)));
    is_alert || !(error.is_timeout() || error.is_connect())
}

/// Explains why no response arrived. `doing` describes the failure if the connection was established. A shortage of this
/// machine is no refusal by the endpoint, so it turns no event into a dead letter.
pub(super) fn unanswered(error: &RequestError, timeout: Duration, doing: &str) -> SinkError {
    // The error of a failed lookup of the host's name does not contain the system's error.
    let shortage =
        Shortage::of(error).or_else(|| if error.is_connect() { Shortage::of_descriptors_now() } else { None });
    // Problems with certificates and addresses last until an operator fixes them.
    let is_lasting = find::<rustls::Error>(error).is_some() || find::<NotPublic>(error).is_some();
    let fault = if is_lasting { Fault::Operator } else { Fault::Target };
    let refused = |message| SinkError::Refused { message, retry_after: None, fault };
    if error.is_timeout() {
        return refused(format!("did not answer within {timeout:?}"));
    }
    let doing = if error.is_connect() { "could not connect" } else { doing };
    let reason = http::reason(error);
    match shortage {
        Some(shortage) => SinkError::away(format!("{doing}: {reason}{}", shortage.advice())),
        None => refused(format!("{doing}: {reason}{}", http::advice(error))),
    }
}

/// Reads a short body to its end, so that the connection can be reused. Otherwise the connection is closed.
pub(super) async fn drain(response: Response) {
    // Errors are ignored: the status is already known.
    let _ = tokio::time::timeout(DRAINING, body(response)).await;
}

/// Reads a response body. Returns `None` if the body is too large or cannot be read.
pub(super) async fn body(mut response: Response) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.ok()? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_BODY {
            return None;
        }
    }
    Some(body)
}
