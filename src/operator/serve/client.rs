//! Sends requests over the control socket to the daemon that owns a state directory.

use std::io;
use std::path::Path;

use axum::body::{Body, to_bytes};
use axum::http::{self, HeaderValue, Method, StatusCode, header};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::request::BY;
use super::socket;
use crate::{Refusal, Request};
use ledger::store::shared::Asked;

/// The maximum size of an answer in bytes.
pub(crate) const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// Sends a request to the daemon whose state is in `directory`. Returns `None` if no daemon listens. `by` names the person
/// who makes the request, for the daemon's log. If the daemon does not answer, the request may have been carried out.
///
/// # Errors
/// The refusal of the daemon, or the reason why it did not answer.
pub async fn ask<R: Request>(
    directory: &Path,
    request: &R,
    by: &str,
) -> io::Result<Option<Result<R::Answer, Refusal>>> {
    let answer = send(directory, asked(request), by).await?;
    Ok(answer.map(|(status, body)| decode(status, &body)))
}

async fn send(directory: &Path, asked: Asked, by: &str) -> io::Result<Option<(StatusCode, Bytes)>> {
    use io::ErrorKind::{ConnectionRefused, InvalidInput, NotFound};
    let daemon = match UnixStream::connect(directory.join(socket::NAME)).await {
        Ok(daemon) => daemon,
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused | InvalidInput) => return Ok(None),
        Err(error) => return Err(error),
    };
    let (mut sender, connection) = http1::handshake(TokioIo::new(daemon)).await.map_err(io::Error::other)?;
    let asking = async {
        let mut request = http_request(asked).expect("an encoded path and these headers are well formed");
        if let Some(by) = HeaderValue::from_str(by).ok().filter(|by| !by.is_empty()) {
            request.headers_mut().insert(BY, by);
        }
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let status = answer.status();
        let body = to_bytes(Body::new(answer.into_body()), MAX_ANSWER).await.map_err(io::Error::other)?;
        Ok((status, body))
    };
    tokio::select! {
        answer = asking => answer.map(Some),
        Err(error) = connection => Err(io::Error::other(error)),
    }
}

/// Converts a request to the terms of HTTP.
pub(crate) fn asked<R: Request>(request: &R) -> Asked {
    let (path, body) = match R::METHOD {
        Method::POST => (R::PATH.to_owned(), serde_json::to_vec(request).expect("a request is JSON")),
        _ => (uri(request), Vec::new()),
    };
    Asked { method: R::METHOD.to_string(), path, body }
}

pub(crate) fn http_request(Asked { method, path, body }: Asked) -> http::Result<http::Request<Body>> {
    http::Request::builder()
        .method(&*method)
        .uri(path)
        .header(header::HOST, "channeld")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
}

fn uri<R: Request>(request: &R) -> String {
    let members = serde_urlencoded::to_string(request).expect("the members of a GET request are plain values");
    format!("{}?{members}", R::PATH)
}

pub(crate) fn decode<A: DeserializeOwned>(status: StatusCode, body: &[u8]) -> Result<A, Refusal> {
    let unexpected = |_| {
        let text = String::from_utf8_lossy(body);
        Refusal::Failed(format!(
            "the running daemon answered {status}: {}: it may be of another version than this command",
            text.trim()
        ))
    };
    if status.is_success() {
        return serde_json::from_slice(body).map_err(unexpected);
    }
    Err(serde_json::from_slice(body).unwrap_or_else(unexpected))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ListDeadLetters, ShowDeadLetter};
    use proof::event::Offset;

    #[test]
    fn members_stand_in_the_query_and_what_they_say_cannot_lead_elsewhere() {
        let (channel, sink) = ("../a b".to_owned(), "{offset}?".to_owned());
        let offset = Offset::new(7).unwrap();
        let show = ShowDeadLetter { channel: channel.clone(), sink: sink.clone(), offset, event_id: None };
        assert_eq!(uri(&show), "/dead-letters/event?channel=..%2Fa+b&offset=7&sink=%7Boffset%7D%3F");
        let list = ListDeadLetters { channel: Some(channel), sink: Some(sink) };
        assert_eq!(uri(&list), "/dead-letters?channel=..%2Fa+b&sink=%7Boffset%7D%3F");
        assert_eq!(uri(&ListDeadLetters { channel: None, sink: None }), "/dead-letters?");
    }

    #[test]
    fn an_answer_that_is_not_the_expected_one_is_said_with_its_status() {
        let failed = |status, body: &[u8]| decode::<Vec<Offset>>(status, body).unwrap_err();
        let refusal = Refusal::Usage("no such channel".to_owned());
        assert_eq!(failed(StatusCode::BAD_REQUEST, &serde_json::to_vec(&refusal).unwrap()), refusal);
        for (status, body) in [(StatusCode::NOT_FOUND, &b""[..]), (StatusCode::OK, b"{}")] {
            let said = failed(status, body).to_string();
            assert!(said.contains(status.as_str()) && said.contains("another version"), "{said}");
        }
        assert_eq!(decode::<Vec<Offset>>(StatusCode::OK, b"[7]"), Ok(vec![Offset::new(7).unwrap()]));
    }
}
