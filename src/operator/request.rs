//! A request of the operator API, and how it and its answer are encoded in HTTP.

use axum::body::Body;
use axum::http::{self, Method, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::Refusal;
use crate::operations::Operations;
use ledger::store::shared::Asked;

/// The maximum size of an answer in bytes.
pub(crate) const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// The header that names the person who makes the request.
pub(crate) const BY: &str = "channeld-by";

/// A request of the operator API.
pub trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The answer to the request.
    type Answer: Serialize + DeserializeOwned;

    /// GET if the request changes nothing, otherwise POST.
    const METHOD: Method;

    /// The path of the request.
    const PATH: &'static str;

    /// Carries out the request. If it is refused, nothing was changed. The exception is a failure of the state: it is then
    /// unknown whether anything was changed.
    fn perform(&self, operations: &Operations) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
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
