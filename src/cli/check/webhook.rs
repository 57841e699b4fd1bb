//! What `channeld check` says of a webhook: what is set, and never a value that could be a secret.

use serde_json::{Value, json};

use crate::config::Webhook;
use crate::http::{Proxy, Reach};
use crate::sink::Dispatch;

/// For people.
pub(super) fn shown(webhook: &Webhook) -> String {
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
    format!("webhook {} ({})", webhook.shown_url(), said.join(", "))
}

fn signatures(webhook: &Webhook) -> String {
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

fn names(webhook: &Webhook) -> Vec<&str> {
    let mut names: Vec<_> = webhook.headers.keys().map(reqwest::header::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}

/// For machines.
pub(super) fn json(webhook: &Webhook) -> Value {
    let (symmetric, asymmetric) = webhook.keys.counts();
    let connection = &webhook.connection;
    let mut shown = json!({
        "type": "webhook",
        "url": webhook.shown_url().as_str(),
        "signed": symmetric + asymmetric > 0,
        "secrets": {"v1": symmetric, "v1a": asymmetric},
        "headers": names(webhook),
        "client_certificate": connection.identity.is_some(),
        "ca_file": connection.authorities.is_some(),
        "proxy": match &connection.proxy {
            Proxy::Environment => Value::Null,
            Proxy::Direct => json!(""),
            Proxy::Named(proxy) => json!(proxy.url.as_str()),
        },
        "allow_private": connection.reach == Reach::Anything,
    });
    match webhook.dispatch {
        Dispatch::Single { concurrency } => shown["concurrency"] = concurrency.into(),
        Dispatch::Batches(batching) => {
            shown["batch_events"] = batching.events.into();
            shown["batch_bytes"] = batching.bytes.into();
        }
    }
    shown
}
