//! The outcome of a request: what an answer means, or why there was none.

use std::time::Duration;

use reqwest::{Response, StatusCode};

use crate::SinkError;
use net::http::{self, NotPublic, find};

/// The largest body for which a connection is kept.
pub(super) const DRAINED: usize = 64 * 1024;

/// The longest time spent on a body: the answer itself is known by then.
pub(super) const DRAINING: Duration = Duration::from_secs(1);

/// Why a request did not do what it was for.
pub(super) struct Refusal {
    pub(super) error: SinkError,
    pub(super) about: About,
}

/// What a refusal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The endpoint, which asks for a pause or cannot be reached: nothing more is posted now.
    Endpoint,
    /// The request, as its address or our credentials: each one like it is refused.
    Request,
    /// What was posted: one of its events, perhaps. The others may be taken.
    Content,
    /// The size of what was posted: a part of it may be taken.
    Size,
}

/// What an answer means. `suspicion` is what may be behind a 400, as nginx answers without a client certificate.
pub(super) fn outcome(response: &Response, suspicion: Option<&str>) -> Result<(), Refusal> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    if status == StatusCode::GONE {
        let message = "answered 410: it wants no more events, and is sent none until it is resumed (channeld resume)";
        return Err(Refusal { error: SinkError::Gone(message.to_owned()), about: About::Endpoint });
    }
    let hint = if status.is_redirection() { ", and redirects are not followed: name the final URL" } else { "" };
    let retry_after = http::retry_after(response.headers());
    let about = match status {
        _ if retry_after.is_some() => About::Endpoint,
        StatusCode::TOO_MANY_REQUESTS => About::Endpoint,
        StatusCode::PAYLOAD_TOO_LARGE => About::Size,
        StatusCode::BAD_REQUEST
        | StatusCode::CONFLICT
        | StatusCode::UNSUPPORTED_MEDIA_TYPE
        | StatusCode::UNPROCESSABLE_ENTITY => About::Content,
        _ => About::Request,
    };
    // Others are about the event, or our credentials.
    let temporary = [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    let needs_attention = !(status.is_server_error() || temporary.contains(&status));
    let suspicion = suspicion.filter(|_| status == StatusCode::BAD_REQUEST);
    let suspicion = suspicion.map(|suspicion| format!("; {suspicion}")).unwrap_or_default();
    let message = format!("answered {}{hint}{suspicion}", status.as_u16());
    Err(Refusal { error: SinkError::Refused { message, retry_after, needs_attention }, about })
}

/// A word for why there was no answer.
pub(super) fn kind(error: &reqwest::Error) -> &'static str {
    match error {
        error if error.is_timeout() => "timeout",
        error if error.is_connect() => "connect",
        _ => "broken_off",
    }
}

/// Whether the connection was there, and ended before the answer.
pub(super) fn is_broken_off(error: &reqwest::Error) -> bool {
    error.is_request() && !error.is_connect() && !error.is_timeout() && find::<rustls::Error>(error).is_none()
}

/// Why there was no answer. `suspicion` is what may be behind it where the other side ends the connection.
pub(super) fn none(error: reqwest::Error, timeout: Duration, suspicion: Option<&str>) -> Refusal {
    let tls = find::<rustls::Error>(&error);
    let alert = matches!(tls, Some(rustls::Error::AlertReceived(_)));
    let suspicion = suspicion.filter(|_| alert || !(error.is_timeout() || error.is_connect()));
    let (mut message, needs_attention) = unanswered(error, timeout, "could not send the event");
    let needs_attention = needs_attention || suspicion.is_some();
    if let Some(suspicion) = suspicion {
        message = format!("{message}; {suspicion}");
    }
    Refusal { error: SinkError::Refused { message, retry_after: None, needs_attention }, about: About::Endpoint }
}

/// Why there was no answer, and whether an operator must act. `doing` is what was not done once the connection was there.
pub(super) fn unanswered(error: reqwest::Error, timeout: Duration, doing: &str) -> (String, bool) {
    // Certificates and addresses stay as they are until an operator changes them.
    let needs_attention = find::<rustls::Error>(&error).is_some() || find::<NotPublic>(&error).is_some();
    if error.is_timeout() {
        return (format!("did not answer within {timeout:?}"), needs_attention);
    }
    let doing = if error.is_connect() { "could not connect" } else { doing };
    let error = error.without_url();
    (format!("{doing}: {}{}", http::reason(&error), http::advice(&error)), needs_attention)
}

/// Reads a short body to its end, so that the connection can be used again. A long or slow one costs the connection.
pub(super) async fn drain(mut response: Response) {
    let to_the_end = async {
        let mut read = 0;
        while let Ok(Some(chunk)) = response.chunk().await {
            read += chunk.len();
            if read > DRAINED {
                break;
            }
        }
    };
    // The status is known, whatever happens to the body.
    let _ = tokio::time::timeout(DRAINING, to_the_end).await;
}
