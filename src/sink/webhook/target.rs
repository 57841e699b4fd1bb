//! A webhook as it is configured: what is shown of it is what is set, and never a value that could be a secret.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Batching, Dispatch, Webhook, WebhookSettings};
use crate::http::{Proxy, Reach};
use crate::retry::RetryPolicy;
use crate::sink::{Sink, SinkError, Target};

impl Target for WebhookSettings {
    fn shown(&self) -> String {
        shown(self)
    }

    fn json(&self) -> Map<String, Value> {
        let (symmetric, asymmetric) = self.keys.counts();
        let connection = &self.connection;
        let decided = [
            ("url", json!(self.shown_url().as_str())),
            ("signed", json!(symmetric + asymmetric > 0)),
            ("secrets", json!({"v1": symmetric, "v1a": asymmetric})),
            ("headers", json!(names(self))),
            ("client_certificate", json!(connection.identity.is_some())),
            ("ca_file", json!(connection.authorities.is_some())),
            ("proxy", json!(proxy(&connection.proxy))),
            ("allow_private", json!(connection.reach == Reach::Anything)),
        ];
        let dispatch = match self.dispatch {
            Dispatch::Single { concurrency } => vec![("concurrency", json!(concurrency))],
            Dispatch::Batches(Batching { events, bytes, wait: _ }) => {
                vec![("batch_events", json!(events)), ("batch_bytes", json!(bytes))]
            }
        };
        decided.into_iter().chain(dispatch).map(|(key, value)| (key.to_owned(), value)).collect()
    }

    fn build(&self) -> Result<Arc<dyn Sink>, SinkError> {
        Ok(Arc::new(Webhook::new(self.clone())?))
    }

    fn retry(&self) -> RetryPolicy {
        self.retry
    }

    fn gives_up_after(&self) -> Option<Duration> {
        self.give_up_after
    }
}

/// What is set explicitly: nothing where the environment decides, an empty text where there shall be none.
fn proxy(proxy: &Proxy) -> Option<&str> {
    match proxy {
        Proxy::Environment => None,
        Proxy::Direct => Some(""),
        Proxy::Named(proxy) => Some(proxy.url.as_str()),
    }
}

fn shown(webhook: &WebhookSettings) -> String {
    let mut said = vec![signatures(webhook)];
    if !webhook.headers.is_empty() {
        said.push(format!("headers {}", names(webhook).join(" ")));
    }
    let connection = &webhook.connection;
    if connection.identity.is_some() {
        said.push("with a client certificate".to_owned());
    }
    if connection.authorities.is_some() {
        said.push("trusting ca_file alone".to_owned());
    }
    match &connection.proxy {
        Proxy::Environment => {}
        Proxy::Direct => said.push("no proxy".to_owned()),
        Proxy::Named(proxy) => said.push(format!("through {}", proxy.url)),
    }
    if connection.reach == Reach::PublicOnly {
        said.push("public addresses only".to_owned());
    }
    match webhook.dispatch {
        Dispatch::Single { concurrency: 1 } => {}
        Dispatch::Single { concurrency } => said.push(format!("{concurrency} requests at a time")),
        Dispatch::Batches(batching) => said.push(format!("batches of {} at most", batching.events)),
    }
    format!("{} ({})", webhook.shown_url(), said.join(", "))
}

fn signatures(webhook: &WebhookSettings) -> String {
    match webhook.keys.counts() {
        (0, 0) => "not signed".to_owned(),
        (symmetric, 0) => format!("signed by {} v1", secrets(symmetric)),
        (0, asymmetric) => format!("signed by {} v1a", secrets(asymmetric)),
        (symmetric, asymmetric) => format!("signed by {} v1 and {asymmetric} v1a", secrets(symmetric)),
    }
}

fn secrets(number: usize) -> String {
    if number == 1 { "1 secret".to_owned() } else { format!("{number} secrets") }
}

fn names(webhook: &WebhookSettings) -> Vec<&str> {
    let mut names: Vec<_> = webhook.headers.keys().map(reqwest::header::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}
