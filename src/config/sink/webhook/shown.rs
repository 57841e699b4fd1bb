//! The settings of a webhook, for people and for machines. They contain no value that could be a secret.

use serde_json::{Value, json};

use ::sink::{Dispatch, Rate, WebhookSettings};
use net::http::Proxy;

pub(in crate::config::sink) fn json(webhook: &WebhookSettings) -> Value {
    let (symmetric, asymmetric) = webhook.keys.counts();
    let connection = &webhook.connection;
    // The configured address: `None` if the environment decides, empty if no proxy is to be used.
    let proxy = match &connection.proxy {
        Proxy::Environment => None,
        Proxy::Direct => Some(""),
        Proxy::Named { url, .. } => Some(url.as_str()),
    };
    let mut shown = json!({
        "url": webhook.shown_url(),
        "signed": symmetric + asymmetric > 0,
        "secrets": {"v1": symmetric, "v1a": asymmetric},
        "headers": names(webhook),
        "oauth2": webhook.oauth2.as_ref().map(|oauth2| oauth2.token_url.origin().ascii_serialization()),
        "compress": webhook.compression.map_or("none", <&str>::from),
        "rate_limit": webhook.rate.map(rate),
        "client_certificate": connection.identity.is_some(),
        "ca_file": connection.authorities.is_some(),
        "proxy": proxy,
        "allow_private": !connection.public_only,
    });
    match webhook.dispatch {
        Dispatch::Single { concurrency } => shown["concurrency"] = concurrency.into(),
        Dispatch::Batches { events, bytes, .. } => {
            shown["batch_events"] = events.into();
            shown["batch_bytes"] = bytes.into();
        }
    }
    shown
}

pub(in crate::config::sink) fn line(webhook: &WebhookSettings) -> String {
    let mut parts = vec![signatures(webhook)];
    if !webhook.headers.is_empty() {
        parts.push(format!("headers {}", names(webhook).join(" ")));
    }
    if let Some(oauth2) = &webhook.oauth2 {
        parts.push(format!("access tokens from {}", oauth2.token_url.origin().ascii_serialization()));
    }
    if let Some(compression) = webhook.compression {
        parts.push(format!("compressed with {}", <&str>::from(compression)));
    }
    if let Some(limit) = webhook.rate {
        parts.push(format!("{} at most", rate(limit)));
    }
    let connection = &webhook.connection;
    if connection.identity.is_some() {
        parts.push("with a client certificate".to_owned());
    }
    if connection.authorities.is_some() {
        parts.push("trusting ca_file alone".to_owned());
    }
    match &connection.proxy {
        Proxy::Environment => {}
        Proxy::Direct => parts.push("no proxy".to_owned()),
        Proxy::Named { url, .. } => parts.push(format!("through {url}")),
    }
    if connection.public_only {
        parts.push("public addresses only".to_owned());
    }
    match webhook.dispatch {
        Dispatch::Single { concurrency: 1 } => {}
        Dispatch::Single { concurrency } => parts.push(format!("{concurrency} requests at a time")),
        Dispatch::Batches { events, .. } => parts.push(format!("batches of {events} at most")),
    }
    format!("{} ({})", webhook.shown_url(), parts.join(", "))
}

/// The rate as it is configured.
fn rate(Rate { requests, per }: Rate) -> String {
    let unit = match per.as_secs() {
        1 => "s",
        60 => "m",
        _ => "h",
    };
    format!("{requests}/{unit}")
}

fn signatures(webhook: &WebhookSettings) -> String {
    let secrets = |number| if number == 1 { "1 secret".to_owned() } else { format!("{number} secrets") };
    match webhook.keys.counts() {
        (0, 0) => "not signed".to_owned(),
        (symmetric, 0) => format!("signed by {} v1", secrets(symmetric)),
        (0, asymmetric) => format!("signed by {} v1a", secrets(asymmetric)),
        (symmetric, asymmetric) => format!("signed by {} v1 and {asymmetric} v1a", secrets(symmetric)),
    }
}

fn names(webhook: &WebhookSettings) -> Vec<&str> {
    let mut names: Vec<_> = webhook.headers.keys().map(reqwest::header::HeaderName::as_str).collect();
    names.sort_unstable();
    names
}
