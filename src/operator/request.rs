//! The requests of the operator API: their encoding in HTTP, and how they are sent to other instances.

use std::time::Duration;

use axum::body::Body;
use axum::http::{self, Method, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::api::Refusal;
use crate::operations::Operations;
use cluster::{Peers, Unanswered};
use ledger::store::shared::{ForwardedRequest, ForwardedResponse};
use net::Chain;

/// The maximum size of an answer in bytes.
pub(crate) const MAX_ANSWER: usize = 256 * 1024 * 1024;

/// The header that names the person who makes the request.
pub(crate) const BY: &str = "channeld-by";

/// How long to wait for another instance, so that an instance that hangs does not block the status.
const STATUS_PATIENCE: Duration = Duration::from_secs(3);

/// How long an operator's request waits for an answer of the channel's owner. Includes the time until the channel has
/// an owner.
const PATIENCE: Duration = Duration::from_secs(30);

/// The wait before a request is retried while its channel moves from one instance to another.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// The bytes that are encoded in a segment of a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// A request of the operator API.
pub trait Request: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The answer to the request.
    type Answer: Serialize + DeserializeOwned + Send + 'static;

    /// GET if the request changes nothing, otherwise POST.
    const METHOD: Method;

    /// The path of the request. A POST request can name members in braces. These members are in the path instead of the body.
    const PATH: &'static str;

    /// Carries out the request. After [`Refusal::Failed`], something may have been changed, for example if a write of the
    /// state failed. After any other error, nothing was changed.
    fn perform(&self, operations: &Operations) -> impl Future<Output = Result<Self::Answer, Refusal>> + Send;
}

/// Encodes a request as the method, path and body of an HTTP request.
pub(crate) fn asked<R: Request>(request: &R) -> ForwardedRequest {
    let (path, body) = if R::METHOD == Method::POST && R::PATH.contains('{') {
        let mut members = serde_json::to_value(request).expect("a request is JSON");
        let path = filled(R::PATH, &mut members);
        (path, members.to_string().into_bytes())
    } else if R::METHOD == Method::POST {
        (R::PATH.to_owned(), serde_json::to_vec(request).expect("a request is JSON"))
    } else {
        let members = serde_urlencoded::to_string(request).expect("the members of a GET request are plain values");
        (format!("{}?{members}", R::PATH), Vec::new())
    };
    ForwardedRequest { method: R::METHOD.to_string(), path, body }
}

/// Replaces each name in braces by the member with this name, and removes the member.
fn filled(path: &str, members: &mut Value) -> String {
    let segment = |segment: &str| match segment.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
        Some(name) => {
            let member = members.as_object_mut().and_then(|members| members.remove(name));
            utf8_percent_encode(member.as_ref().and_then(Value::as_str).unwrap_or_default(), ENCODED).to_string()
        }
        None => segment.to_owned(),
    };
    path.split('/').map(segment).collect::<Vec<_>>().join("/")
}

pub(crate) fn http_request(
    ForwardedRequest { method, path, body }: ForwardedRequest,
) -> http::Result<http::Request<Body>> {
    http::Request::builder()
        .method(&*method)
        .uri(path)
        .header(header::HOST, "channeld")
        .header(header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
}

pub(crate) fn decode<A: DeserializeOwned>(
    ForwardedResponse { status, body }: &ForwardedResponse,
) -> Result<A, Refusal> {
    let status = StatusCode::from_u16(*status).unwrap_or_default();
    let unexpected = |_| {
        let text = String::from_utf8_lossy(body);
        Refusal::Failed(format!(
            "the answer has status {status} and cannot be understood: {}: the daemon, or the instance that owns the channel, may be of another version",
            text.trim()
        ))
    };
    if status.is_success() {
        return serde_json::from_slice(body).map_err(unexpected);
    }
    Err(serde_json::from_slice(body).unwrap_or_else(unexpected))
}

impl Operations {
    /// Carries out a request. If another instance owns the channel of the request, sends the request to that instance.
    ///
    /// # Errors
    /// [`Refusal`]: why the request was not carried out.
    pub async fn carry_out<R: Request>(&self, request: &R) -> Result<R::Answer, Refusal> {
        let since = Instant::now();
        loop {
            let (channel, owner, name, peers) = match (request.perform(self).await, &self.cluster) {
                (Err(Refusal::Elsewhere { channel, owner, name }), Some(peers)) => (channel, owner, name, peers),
                (done, _) => return done,
            };
            let left = PATIENCE.saturating_sub(since.elapsed());
            let answer = peers.ask(owner, &asked(request), left).await;
            let is_over = since.elapsed() >= PATIENCE;
            match answer {
                // Another instance owns the channel by now, or will own it soon.
                Ok(ForwardedResponse { status, .. }) if status == StatusCode::MISDIRECTED_REQUEST && !is_over => {}
                Err(Unanswered::Died { taken: false }) if !is_over => {}
                Ok(answer) => return decode(&answer),
                Err(error) => {
                    let error = Chain(&error);
                    return Err(Refusal::Failed(format!("channel {channel} is owned by instance {name}: {error}")));
                }
            }
            sleep(LOOK_AGAIN).await;
        }
    }
}

/// Asks all other instances. Returns the name of each with its answer, or with the reason for a missing answer.
pub(crate) async fn ask_others<R: Request>(peers: &Peers, request: &R) -> Vec<(String, Result<R::Answer, String>)> {
    let (view, mut asking) = (peers.seen.borrow().view.clone(), JoinSet::new());
    let me = peers.membership.me();
    for (id, instance) in view.instances.iter().filter(|(id, instance)| instance.shares() && **id != me) {
        let (peers, id, name, request) = (peers.clone(), *id, instance.name.clone(), asked(request));
        asking.spawn(async move {
            let answer = match peers.ask(id, &request, STATUS_PATIENCE).await {
                Ok(answer) => decode(&answer).map_err(|refusal| refusal.to_string()),
                Err(error) => Err(format!("its status is unknown: {}", Chain(&error))),
            };
            (name, answer)
        });
    }
    let mut answers = asking.join_all().await;
    answers.sort_by(|(one, _), (other, _)| one.cmp(other));
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{ListDeadLetters, SetConsumerCursor, ShowDeadLetter};
    use proof::event::Offset;

    #[test]
    fn members_are_encoded_in_the_query() {
        let (channel, sink) = ("../a b".to_owned(), "{offset}?".to_owned());
        let offset = Offset::new(7).unwrap();
        let show = ShowDeadLetter { channel: channel.clone(), sink: sink.clone(), offset, event_id: None };
        assert_eq!(asked(&show).path, "/dead-letters/event?channel=..%2Fa+b&offset=7&sink=%7Boffset%7D%3F");
        let list = ListDeadLetters { channel: Some(channel), sink: Some(sink) };
        assert_eq!(asked(&list).path, "/dead-letters?channel=..%2Fa+b&sink=%7Boffset%7D%3F");
        assert_eq!(asked(&ListDeadLetters { channel: None, sink: None }).path, "/dead-letters?");
    }

    #[test]
    fn members_that_the_path_names_are_encoded_in_the_path() {
        let set = SetConsumerCursor { consumer: "a/b c".to_owned(), channel: "é".to_owned(), through: 7 };
        let ForwardedRequest { path, body, .. } = asked(&set);
        assert_eq!(path, "/consumers/a%2Fb%20c/%C3%A9/cursor");
        assert_eq!(body, br#"{"through":7}"#);
    }

    #[test]
    fn an_unexpected_answer_is_reported_with_its_status() {
        let decoded = |status: StatusCode, body: &[u8]| {
            decode::<Vec<Offset>>(&ForwardedResponse { status: status.as_u16(), body: body.to_vec() })
        };
        let failed = |status, body: &[u8]| decoded(status, body).unwrap_err();
        let refusal = Refusal::Usage("no such channel".to_owned());
        assert_eq!(failed(StatusCode::BAD_REQUEST, &serde_json::to_vec(&refusal).unwrap()), refusal);
        for (status, body) in [(StatusCode::NOT_FOUND, &b""[..]), (StatusCode::OK, b"{}")] {
            let said = failed(status, body).to_string();
            assert!(said.contains(status.as_str()) && said.contains("another version"), "{said}");
        }
        assert_eq!(decoded(StatusCode::OK, b"[7]"), Ok(vec![Offset::new(7).unwrap()]));
    }
}
