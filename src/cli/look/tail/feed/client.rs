//! Sends requests to a feed, and explains its problems.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;
use url::Url;

use super::FeedArgs;
use super::address::FeedAddress;
use crate::cli::context::{CommandError, Exit};
use crate::cli::verdict_line::printable;
use crate::config::{read_named, read_secret};
use net::http::{self, Authorities, ConnectionSettings, Proxy};
use net::secret::Secret;
use proof::event::ChannelId;

/// How long the feed waits for an event before it sends an answer without events.
const WAIT: Duration = Duration::from_secs(30);

/// The longest wait for a connection.
const CONNECTING: Duration = Duration::from_secs(10);

/// The longest wait for a complete answer, in addition to the wait for an event.
const ANSWERING: Duration = Duration::from_secs(30);

/// The largest answer, in bytes. The records of an answer have at most 4 MiB, unless a single record is larger.
const MAX_ANSWER: usize = 64 << 20;

/// The largest description of a problem, in bytes.
const MAX_PROBLEM: usize = 16 << 10;

/// The largest file with certificates, in bytes.
const MAX_CERTIFICATES: usize = 1 << 20;

/// The media type of a problem.
const PROBLEM_JSON: &str = "application/problem+json";

/// A channel that the token may read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ListedChannel {
    pub(super) name: String,
    pub(super) id: ChannelId,
    /// The newest position.
    pub(super) position: i64,
}

#[derive(Deserialize)]
struct ChannelList {
    channels: Vec<ListedChannel>,
}

#[derive(Deserialize)]
struct EventPage {
    events: Vec<Box<RawValue>>,
}

/// Why the feed did not answer as requested.
#[derive(Debug)]
pub(super) enum FeedFailure {
    /// The feed cannot answer now. The same request can succeed later.
    Unavailable(String),
    /// The events directly after the position were deleted.
    Gone { oldest: i64 },
    /// The same request cannot succeed. The text contains the remedy.
    Refused(String),
}

impl FeedFailure {
    fn refused(why: impl Into<String>) -> Self {
        Self::Refused(why.into())
    }

    /// Converts the failure into the error with which the command ends. `gone` is the message for deleted events.
    pub(super) fn into_error(self, gone: impl FnOnce(i64) -> String) -> CommandError {
        match self {
            Self::Unavailable(why) => CommandError(Exit::Unavailable, why),
            Self::Gone { oldest } => CommandError::failed(gone(oldest)),
            Self::Refused(why) => CommandError::failed(why),
        }
    }
}

/// A client of one feed.
pub(super) struct FeedClient {
    pub(super) address: FeedAddress,
    http: reqwest::Client,
    token_file: Option<String>,
}

impl FeedClient {
    pub(super) fn of(address: &FeedAddress, args: &FeedArgs) -> Result<Self, CommandError> {
        let token_file = args.token_file.clone();
        if token_file.is_none() && address.socket().is_none() {
            return Err(CommandError::usage(
                "the feed needs the token of a consumer: name the file that contains it with --token-file",
            ));
        }
        let proxy = if address.is_local() { Proxy::Direct } else { Proxy::Environment };
        let authorities = args.ca_file.as_deref().map(authorities).transpose()?;
        let connection = ConnectionSettings { authorities, proxy, ..ConnectionSettings::default() };
        let client = http::client_by(&address.url(&[]), &connection, Arc::default());
        let mut client = client.map_err(|error| CommandError::by(&*error))?.connect_timeout(CONNECTING);
        if let Some(socket) = address.socket() {
            client = client.unix_socket(socket.clone());
        }
        let http = client.build().map_err(|error| CommandError::by(&error.without_url()))?;
        Ok(Self { address: address.clone(), http, token_file })
    }

    /// The channels that the token may read.
    pub(super) async fn channels(&self) -> Result<Vec<ListedChannel>, FeedFailure> {
        let list: ChannelList = self.get(self.address.url(&["channels"]), None).await?;
        Ok(list.channels)
    }

    /// The events of a channel after a position. Waits a while for the first of them.
    pub(super) async fn events(&self, channel: &str, after: i64) -> Result<Vec<Box<RawValue>>, FeedFailure> {
        let mut url = self.address.url(&["channels", channel, "events"]);
        url.set_query(Some(&format!("after={after}&wait={}s", WAIT.as_secs())));
        let page: EventPage = self.get(url, Some(channel)).await?;
        Ok(page.events)
    }

    async fn get<T: DeserializeOwned>(&self, url: Url, channel: Option<&str>) -> Result<T, FeedFailure> {
        let (token, authorization) = self.authorization().await?.unzip();
        let mut request = self.http.get(url).timeout(WAIT + ANSWERING);
        if let Some(authorization) = authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let response = request.send().await.map_err(|error| self.no_answer(error))?;
        if response.status() != StatusCode::OK {
            return Err(self.problem(response, token.as_ref(), channel).await);
        }
        let answer = self.body(response, MAX_ANSWER).await?;
        let is_other =
            |_| FeedFailure::refused(format!("{} is not the address of a feed: see feed.listen", self.address));
        serde_json::from_slice(&answer).map_err(is_other)
    }

    /// Reads the token, so that a new token in the file is used from the next request on.
    async fn authorization(&self) -> Result<Option<(Secret, HeaderValue)>, FeedFailure> {
        let Some(path) = self.token_file.clone() else { return Ok(None) };
        let read = spawn_blocking(move || read_secret(&path)).await.expect("reading a file does not panic");
        let token = read.map_err(|why| FeedFailure::refused(format!("--token-file: {why}")))?;
        let header = http::sensitive(&format!("Bearer {token}"));
        let header = header.ok_or_else(|| FeedFailure::refused("--token-file: the file does not contain a token"))?;
        Ok(Some((Secret::new(token), header)))
    }

    fn no_answer(&self, error: reqwest::Error) -> FeedFailure {
        let error = error.without_url();
        let (reason, advice) = (http::reason(&error), http::advice(&error));
        FeedFailure::Unavailable(format!("{} did not answer: {reason}{advice}", self.address))
    }

    async fn body(&self, mut response: Response, limit: usize) -> Result<Vec<u8>, FeedFailure> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.no_answer(error))? {
            body.extend_from_slice(&chunk);
            if body.len() > limit {
                let why = format!("the answer of {} is larger than {} KiB", self.address, limit >> 10);
                return Err(FeedFailure::Refused(why));
            }
        }
        Ok(body)
    }

    /// Reads the problem in a response.
    async fn problem(&self, response: Response, token: Option<&Secret>, channel: Option<&str>) -> FeedFailure {
        let status = response.status();
        let is_problem = response.headers().get(CONTENT_TYPE).is_some_and(|kind| kind == PROBLEM_JSON);
        let problem = if is_problem {
            let body = match self.body(response, MAX_PROBLEM).await {
                Ok(body) => body,
                Err(failure) => return failure,
            };
            serde_json::from_slice(&body).unwrap_or_default()
        } else {
            let secrets: Vec<_> = token.map(Secret::expose).into_iter().collect();
            FeedProblem { detail: http::excerpt(response, &secrets).await, oldest: None }
        };
        self.explained(status, channel, &problem)
    }

    /// Groups a problem by the next action, and describes the remedy.
    fn explained(&self, status: StatusCode, channel: Option<&str>, problem: &FeedProblem) -> FeedFailure {
        let (feed, code, detail) = (&self.address, status.as_u16(), printable(&problem.detail));
        let channel = printable(channel.unwrap_or_default());
        let may_pass =
            status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
        match (status, problem.oldest) {
            (StatusCode::UNAUTHORIZED, _) if self.token_file.is_some() => FeedFailure::refused(format!(
                "{feed} refuses the token ({code}): --token-file must name a file with the token of a consumer: see token_file of [feed.consumers.NAME]"
            )),
            (StatusCode::UNAUTHORIZED, _) => FeedFailure::refused(format!(
                "{feed} requires a token ({code}): name the file that contains it with --token-file"
            )),
            (StatusCode::FORBIDDEN, _) => FeedFailure::refused(format!(
                "the token may not read channel {channel} ({code}): add the channel to its consumer in [feed.consumers.NAME], or use the token of another consumer"
            )),
            (StatusCode::GONE, Some(oldest)) => FeedFailure::Gone { oldest },
            _ if may_pass => FeedFailure::Unavailable(format!("{feed} cannot answer now ({code}): {detail}")),
            _ => FeedFailure::refused(format!("{feed} refuses the request ({code}): {detail}")),
        }
    }
}

fn authorities(path: &str) -> Result<Authorities, CommandError> {
    let read = read_named(path, MAX_CERTIFICATES);
    let read = read.and_then(|pem| Authorities::from_pem(&pem).map_err(|why| format!("the file {path:?} {why}")));
    read.map_err(|why| CommandError::usage(format!("--ca-file: {why}")))
}

/// The members of a problem that this command uses.
#[derive(Default, Deserialize)]
struct FeedProblem {
    #[serde(default)]
    detail: String,
    oldest: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exit code and the message if the command does not try again.
    fn explained(status: u16, has_token: bool, oldest: Option<i64>) -> (Exit, String) {
        let address = FeedAddress::parse("unix:/run/feed.sock").unwrap();
        let token_file = has_token.then(|| "/etc/token".to_owned());
        let args = FeedArgs { feed: Some(address.clone()), token_file, ca_file: None, after: None };
        let client = FeedClient::of(&address, &args).unwrap();
        let problem = FeedProblem { detail: "the\ndetail".to_owned(), oldest };
        let failure = client.explained(StatusCode::from_u16(status).unwrap(), Some("settlements"), &problem);
        let CommandError(exit, message) = failure.into_error(|oldest| format!("gone before {oldest}"));
        (exit, message)
    }

    #[test]
    fn each_problem_says_what_to_do() {
        for (status, has_token, oldest, exit, message) in [
            (401, true, None, Exit::Failed, "refuses the token (401): --token-file must name"),
            (401, false, None, Exit::Failed, "requires a token (401): name the file"),
            (403, true, None, Exit::Failed, "may not read channel settlements (403): add the channel"),
            (410, true, Some(7), Exit::Failed, "gone before 7"),
            (410, true, None, Exit::Failed, "refuses the request (410)"),
            (400, true, None, Exit::Failed, "refuses the request (400): the\u{fffd}detail"),
            (429, true, None, Exit::Unavailable, "cannot answer now (429)"),
            (503, true, None, Exit::Unavailable, "cannot answer now (503)"),
        ] {
            let (code, said) = explained(status, has_token, oldest);
            assert_eq!(code, exit, "{status}");
            assert!(said.contains(message), "{status}: {said}");
        }
    }
}
