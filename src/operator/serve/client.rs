//! Sends requests over the control socket to the daemon that owns a state directory.

use std::io;
use std::path::Path;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, StatusCode};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;

use super::socket;
use crate::request::{BY, MAX_ANSWER, asked, decode, http_request};
use crate::{Refusal, Request};
use ledger::store::shared::Asked;

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
