//! The list of the organization's channels.
//!
//! # Invariants
//!
//! * **Complete, or an error.** The list is read to its last page. A page that adds no channel but announces more pages is an
//!   error, because the rest of the list cannot be reached.

use std::collections::BTreeSet;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::page::parse;
use super::{ApiError, Client, InvalidResponse};
use proof::event::ChannelId;

/// How many channels are requested at once.
const PAGE: usize = 100;

/// A list with more channels than this is refused.
const MAX_CHANNELS: usize = 10_000;

/// A channel as the service lists it. Only its id is required: all other fields may be missing.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct ListedChannel {
    /// The id.
    pub channel_id: Uuid,
    /// The name that the organization gave the channel. It need not be unique.
    #[serde(default)]
    pub name: Option<String>,
    /// The description, for people.
    #[serde(default)]
    pub description: Option<String>,
    /// The status, such as `active` or `archived`. New values can appear.
    #[serde(default)]
    pub status: Option<String>,
    /// When the channel was created, as the service writes it.
    #[serde(default)]
    pub created_at: Option<Value>,
}

impl ListedChannel {
    /// The id.
    pub fn id(&self) -> ChannelId {
        ChannelId(self.channel_id)
    }

    /// Whether the organization has archived the channel, or is archiving it.
    pub fn is_archived(&self) -> bool {
        matches!(self.status.as_deref(), Some("archived" | "archiving"))
    }
}

#[derive(Deserialize)]
struct Wire {
    channels: Vec<ListedChannel>,
    has_more: bool,
}

impl Client {
    /// Lists the organization's channels, in the order of the service.
    ///
    /// # Errors
    /// [`ApiError`]. A key without the scope for channels, and a service without a list, are [`ApiError::Refused`].
    pub async fn channels(&self) -> Result<Vec<ListedChannel>, ApiError> {
        let (mut all, mut known, mut offset) = (Vec::new(), BTreeSet::new(), 0);
        loop {
            let request = self.get(&["channels"]).query(&[("limit", PAGE), ("offset", offset)]);
            let body = self.send(request, ApiError::Refused, self.memory.exceed(0)).await?;
            let Wire { channels, has_more } = read(&body)?;
            let (listed, before) = (channels.len(), all.len());
            // If a channel is created during the reading, the other channels move down, and the next page repeats some of them.
            all.extend(channels.into_iter().filter(|channel| known.insert(channel.channel_id)));
            if !has_more {
                return Ok(all);
            }
            if all.len() == before {
                return Err(InvalidResponse("a page of the list of channels repeats the page before it".into()).into());
            }
            if all.len() > MAX_CHANNELS {
                return Err(InvalidResponse("the list of channels is too long".into()).into());
            }
            offset += listed;
        }
    }
}

fn read(body: &Bytes) -> Result<Wire, InvalidResponse> {
    parse(&String::from_utf8_lossy(body))
}

#[cfg(test)]
mod tests {
    use axum::response::Response;

    use super::*;
    use crate::testing::{KEY, Scripted};

    fn id(number: usize) -> Uuid {
        Uuid::from_u128(number as u128)
    }

    /// A service with this number of channels and pages of this length.
    async fn service(channels: usize, page: usize) -> Scripted {
        Scripted::start(move |path| {
            let query = path.split_once('?').expect("a query").1;
            let offset = query.split("offset=").nth(1).expect("an offset").parse::<usize>().expect("a number");
            let end = (offset + page).min(channels);
            let listed: Vec<_> = (offset..end).map(|number| format!(r#"{{"channel_id":"{}"}}"#, id(number))).collect();
            let body = format!(r#"{{"channels":[{}],"has_more":{}}}"#, listed.join(","), end < channels);
            Response::new(body.into())
        })
        .await
    }

    fn answering(status: u16, body: &'static str) -> impl Future<Output = Scripted> {
        Scripted::start(move |_| Response::builder().status(status).body(body.into()).unwrap())
    }

    #[tokio::test]
    async fn the_list_is_read_to_its_end_whatever_the_length_of_the_pages() {
        for (channels, page, requests) in [(0, 100, 1), (7, 100, 1), (200, 100, 2), (250, 100, 3), (9, 4, 3)] {
            let (client, server) = service(channels, page).await.client_and_server();
            let listed: Vec<_> = client.channels().await.unwrap().iter().map(|channel| channel.channel_id).collect();
            assert_eq!(listed, (0..channels).map(id).collect::<Vec<_>>());
            let asked = server.asked();
            assert_eq!((asked.len(), asked[0].0.as_str()), (requests, "/v1/channels?limit=100&offset=0"));
            assert_eq!(asked[0].1["authorization"], format!("Apikey {KEY}"));
        }
    }

    #[tokio::test]
    async fn unknown_and_missing_fields_are_accepted() {
        let body = r#"{"channels":[{"channel_id":"7c9e6679-7425-40de-944b-e07fc1f90ae7","name":"a","status":"new",
            "created_at":1716000000,"owner":{}}],"has_more":false,"total":1}"#;
        let (client, _server) = answering(200, body).await.client_and_server();
        let [channel] = &client.channels().await.unwrap()[..] else { panic!("one channel is listed") };
        assert_eq!((channel.name.as_deref(), channel.status.as_deref()), (Some("a"), Some("new")));
        assert_eq!((&channel.description, &channel.created_at), (&None, &Some(1_716_000_000.into())));
    }

    #[tokio::test]
    async fn a_list_that_is_not_complete_is_an_error() {
        let repeated = r#"{"channels":[{"channel_id":"7c9e6679-7425-40de-944b-e07fc1f90ae7"}],"has_more":true}"#;
        for (status, body, kind) in [
            (200, repeated, "malformed"),
            (200, r#"{"channels":[],"has_more":true}"#, "malformed"),
            (200, r#"{"channels":[]}"#, "malformed"),
            (200, r#"{"channels":[{"name":"a"}],"has_more":false}"#, "malformed"),
            (403, r#"{"type":"PERMISSION_DENIED","message":"no"}"#, "refused"),
            (404, r#"{"type":"NOT_FOUND"}"#, "refused"),
            (404, "<html>", "malformed"),
            (503, "", "transient"),
        ] {
            let (client, _server) = answering(status, body).await.client_and_server();
            assert_eq!(client.channels().await.unwrap_err().kind(), kind, "{status} {body}");
        }
    }
}
