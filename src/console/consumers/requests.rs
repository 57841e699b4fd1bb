//! The requests of the operator API about consumers.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use crate::daemon_connection::DaemonConnection;
use crate::page::segment;
use ledger::store::shared::{ForwardedRequest, ForwardedResponse};

/// A consumer in one of its channels. All numbers except the lag are positions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ConsumerEntry {
    pub(super) consumer: String,
    /// The name of the channel.
    pub(super) channel: String,
    /// The cursor: the last event that the consumer has committed.
    #[serde(rename = "through")]
    pub(super) cursor: i64,
    /// The newest event.
    pub(super) newest: i64,
    /// The oldest event that was not deleted. `None` if the channel never had an event.
    pub(super) oldest: Option<i64>,
    /// How many events the consumer has not committed.
    pub(super) lag: i64,
    /// When the oldest of these events was delivered.
    pub(super) waiting_since: Option<Timestamp>,
    /// The end of the consumer's lease, if it has one.
    pub(super) leased_until: Option<Timestamp>,
    /// Whether the event after the cursor was deleted.
    pub(super) gone: bool,
}

impl ConsumerEntry {
    /// The lowest cursor with which the consumer can read.
    pub(super) fn lowest(&self) -> i64 {
        self.oldest.map_or(0, |oldest| oldest - 1)
    }
}

/// Why the consumers are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Unlisted {
    /// The daemon has no feed.
    NoFeed,
    /// The daemon has not answered, or it refused the request. The text is the reason.
    Failed(String),
}

/// The consumers, each with each of its channels.
pub(super) async fn list(daemon: &DaemonConnection) -> Result<Vec<ConsumerEntry>, Unlisted> {
    let request = ForwardedRequest { method: "GET".to_owned(), path: "/consumers".to_owned(), body: Vec::new() };
    decode(&daemon.send(request, None).await.map_err(Unlisted::Failed)?)
}

/// Sets a cursor, on behalf of a browser.
pub(super) async fn set_cursor(
    daemon: &DaemonConnection,
    browser: u64,
    consumer: &str,
    channel: &str,
    cursor: i64,
) -> Result<(), String> {
    let path = format!("/consumers/{}/{}/cursor", segment(consumer), segment(channel));
    let body = json!({ "through": cursor }).to_string().into_bytes();
    let request = ForwardedRequest { method: "POST".to_owned(), path, body };
    let answer = daemon.send(request, Some(browser)).await?;
    if status(&answer).is_success() { Ok(()) } else { Err(refusal(&answer).unwrap_or_else(|| unexpected(&answer))) }
}

/// The body of the list.
#[derive(Deserialize)]
struct Listed {
    consumers: Vec<ConsumerEntry>,
}

fn decode(answer: &ForwardedResponse) -> Result<Vec<ConsumerEntry>, Unlisted> {
    let failed = || Unlisted::Failed(unexpected(answer));
    if status(answer).is_success() {
        let listed: Listed = serde_json::from_slice(&answer.body).map_err(|_| failed())?;
        return Ok(listed.consumers);
    }
    // A daemon that does not know the request answers with the same status, but without a refusal.
    let why = refusal(answer).ok_or_else(failed)?;
    Err(if status(answer) == StatusCode::NOT_FOUND { Unlisted::NoFeed } else { Unlisted::Failed(why) })
}

fn status(answer: &ForwardedResponse) -> StatusCode {
    StatusCode::from_u16(answer.status).unwrap_or(StatusCode::BAD_GATEWAY)
}

/// The text of a refusal, whatever its kind.
fn refusal(answer: &ForwardedResponse) -> Option<String> {
    let refusal: BTreeMap<String, String> = serde_json::from_slice(&answer.body).ok()?;
    refusal.into_values().next()
}

fn unexpected(answer: &ForwardedResponse) -> String {
    let status = status(answer);
    format!(
        "The daemon's answer has status {status} and cannot be understood. The daemon may be of another version than the console."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::Refusal;

    fn decoded(status: u16, body: &str) -> Result<Vec<ConsumerEntry>, Unlisted> {
        decode(&ForwardedResponse { status, body: body.as_bytes().to_vec() })
    }

    #[test]
    fn the_list_is_read_with_and_without_optional_members() {
        let listed = decoded(
            200,
            r#"{"consumers":[
                {"consumer":"ledger","channel":"c0","channel_id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","through":12,"newest":40,
                 "oldest":3,"lag":28,"waiting_since":"2026-11-26T12:00:00Z","leased_until":"2026-11-26T12:00:30Z","gone":false},
                {"consumer":"ledger","channel":"c1","channel_id":"7c9e6679-7425-40de-944b-e07fc1f90ae8","through":0,"newest":0,
                 "oldest":null,"lag":0,"waiting_since":null,"leased_until":null,"gone":false}]}"#,
        );
        let [behind, empty] = &listed.unwrap()[..] else { panic!("two entries") };
        assert_eq!((behind.cursor, behind.newest, behind.lowest(), behind.lag), (12, 40, 2, 28));
        assert!(behind.waiting_since < behind.leased_until);
        assert_eq!((empty.lowest(), empty.waiting_since, empty.leased_until), (0, None, None));
    }

    #[test]
    fn a_missing_feed_is_not_mistaken_for_an_older_daemon() {
        let refusal = serde_json::to_string(&Refusal::Usage("no feed is configured".to_owned())).unwrap();
        assert_eq!(decoded(404, &refusal), Err(Unlisted::NoFeed));
        assert_eq!(decoded(500, &refusal), Err(Unlisted::Failed("no feed is configured".to_owned())));
        for (status, body) in [(404, ""), (200, "[]"), (500, "oops")] {
            let Err(Unlisted::Failed(why)) = decoded(status, body) else { panic!("{status} {body}") };
            assert!(why.contains(&status.to_string()) && why.contains("another version"), "{why}");
        }
    }
}
