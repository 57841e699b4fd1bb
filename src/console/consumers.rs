//! The page about the consumers of the feed: the cursor of each consumer in each of its channels, and how far it is behind.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::time::timeout;

use super::daemon_connection::DaemonConnection;
use super::page::{PageRequest, advice, form, table, time};
use super::text::{text, whole};
use channel::{grouped, span};
use operator::Refusal;
use operator::api::ListConsumers;
use operator::feed::{FeedConsumer, FeedConsumerState};

pub(super) mod set_cursor;
#[cfg(test)]
mod tests;

/// Why the consumers are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Unlisted {
    /// The daemon has no feed.
    NoFeed,
    /// The daemon has not answered, or it refused the request. The text is the reason.
    Failed(String),
}

/// The largest number of rows. Rows that need attention come first.
const LISTED: usize = 500;

/// How long the command palette waits for the consumers.
const NAMES_TIMEOUT: Duration = Duration::from_secs(1);

/// The configuration of a small feed.
const EXAMPLE: &str = r#"[feed]
listen = "127.0.0.1:9465"
sink = "local"              # a sink of type "sqlite" or "postgres"

[feed.consumers.ledger]     # the name of an application
token_file = "/etc/channeld/ledger-token"
channels = ["settlements"]"#;

/// The id of the element that shows a consumer.
pub(super) fn anchor(consumer: &str) -> String {
    format!("consumer-{consumer}")
}

pub(super) async fn show(request: PageRequest) -> Response {
    let content = current(&request).await;
    request.page("Consumers", "/consumers", &html! { div #now data-again="/consumers/now" { (content) } }).await
}

/// Returns the part of the page that the browser refreshes.
pub(super) async fn now(request: PageRequest) -> Response {
    current(&request).await.into_response()
}

/// The consumers, each with each of its channels.
async fn list(daemon: &DaemonConnection) -> Result<Vec<FeedConsumer>, Unlisted> {
    match daemon.try_ask(&ListConsumers {}, "").await.map_err(Unlisted::Failed)? {
        Ok(listed) => Ok(listed.consumers),
        Err(Refusal::NotFound(_)) => Err(Unlisted::NoFeed),
        Err(refusal) => Err(Unlisted::Failed(refusal.to_string())),
    }
}

/// The names of the consumers. Empty without a feed, or if the daemon does not answer soon.
pub(super) async fn names(daemon: &DaemonConnection) -> Vec<String> {
    let listed = timeout(NAMES_TIMEOUT, list(daemon)).await;
    let names: BTreeSet<_> = listed.into_iter().flatten().flatten().map(|entry| entry.consumer).collect();
    names.into_iter().collect()
}

async fn current(request: &PageRequest) -> Markup {
    content(&list(&request.state.daemon).await, request.visitor.read_only, Timestamp::now())
}

fn content(listed: &Result<Vec<FeedConsumer>, Unlisted>, read_only: bool, now: Timestamp) -> Markup {
    html! {
        div.heading { div {
            h1 { "Consumers" }
            p.sub { "Applications that read the events of a channel from the feed. A cursor is the position of the last event that the consumer has committed. Positions number the events of a channel in the order in which they were written, and are not offsets. The lag is the number of later events. The oldest of them has been waiting since it was written to the table." }
        } }
        @match listed {
            Err(Unlisted::Failed(why)) => p.notice.bad { (whole(why)) },
            Err(Unlisted::NoFeed) => (no_feed()),
            Ok(entries) if entries.is_empty() => div.empty {
                h2 { "No consumers" }
                p { "The feed has no consumer. A " code { "[feed.consumers.NAME]" } " table in the configuration adds one." }
            },
            Ok(entries) => {
                (deleted(entries, read_only))
                (consumers(entries, read_only, now))
            }
        }
    }
}

/// Explains how to configure a feed.
fn no_feed() -> Markup {
    html! {
        div.empty {
            h2 { "No feed" }
            p { "The daemon has no feed. With a feed, applications read verified events from channeld over HTTP, and need no broker." }
        }
        section aria-labelledby="configure" {
            h2 #configure { "Configure a feed" }
            p.sub { "Add these tables to the daemon's configuration, and restart the daemon. " code { "openssl rand -hex 32" } " creates a token." }
            pre.runbook tabindex="0" { (EXAMPLE) }
        }
    }
}

/// The consumers whose next event was deleted, each with the remedy.
fn deleted(entries: &[FeedConsumer], read_only: bool) -> Markup {
    let gone: Vec<_> = entries.iter().filter(|entry| entry.state() == FeedConsumerState::Gone).collect();
    html! {
        @if !gone.is_empty() {
            section aria-labelledby="deleted" {
                h2 #deleted { "Deleted events" }
                p.sub { "Retention deleted events before these consumers had committed them. The feed answers each request for a lease with 410 until the cursor is set." }
                ul.reasons {
                    @for entry in gone.iter().take(LISTED) {
                        @let lowest = *entry.possible_cursors().start();
                        li {
                            p { strong { "Consumer " (text(&entry.consumer)) ", channel " (text(&entry.channel)) ": " (positions(entry.through + 1, lowest)) " deleted." } }
                            p { "Read the missing events from another sink, or search for them with " code { "channeld search" } ". Then set the cursor to " (lowest) ": the consumer continues with the oldest event." }
                            @if !read_only { p { a.button.small href=(address(entry, Some(lowest))) { "Set the cursor to " (lowest) "…" } } }
                        }
                    }
                }
                (advice("ChanneldConsumerGone", ""))
            }
        }
    }
}

fn consumers(entries: &[FeedConsumer], read_only: bool, now: Timestamp) -> Markup {
    let mut columns = vec![
        ("Consumer", ""),
        ("Channel", ""),
        ("State", ""),
        ("Cursor", "number"),
        ("Newest position", "number"),
        ("Lag", "number"),
        ("Waiting", "number"),
        ("Leased until (UTC)", "time"),
    ];
    if !read_only {
        columns.push(("Actions", "change"));
    }
    let mut sorted: Vec<_> = entries.iter().collect();
    sorted.sort_by_key(|entry| !entry.gone);
    let mut seen = BTreeSet::new();
    let rows = sorted.into_iter().take(LISTED).map(|entry| {
        let state = entry.state();
        // A consumer has a row for each of its channels.
        let is_first = seen.insert(&entry.consumer);
        let waiting = entry.waiting_since.map(|_| span(entry.age_seconds(now)));
        vec![
            html! { span id=[is_first.then(|| anchor(&entry.consumer))] { (text(&entry.consumer)) } },
            text(&entry.channel),
            html! { span.pill.(class(state)) { (<&str>::from(state)) } },
            html! { (cursor_or_dash(entry)) },
            html! { (entry.newest) },
            html! { (number(entry.lag)) },
            html! { (waiting.unwrap_or_else(|| "–".to_owned())) },
            time(entry.leased_until),
            html! {
                a.button.small href=(address(entry, None)) {
                    "Set cursor…" span.hidden { " Consumer " (text(&entry.consumer)) ", channel " (text(&entry.channel)) }
                }
            },
        ]
    });
    html! {
        section aria-labelledby="consumers" {
            h2 #consumers { "Cursors" }
            (table("Cursors of consumers", "lanes", &columns, rows))
            @if entries.len() > LISTED { p.note { "Showing the first " (LISTED) " of " (grouped(entries.len() as u64)) "." } }
        }
    }
}

/// The class of the consumer's state, for its color.
fn class(state: FeedConsumerState) -> &'static str {
    match state {
        FeedConsumerState::NoCursor => "aside",
        FeedConsumerState::Gone => "bad",
        FeedConsumerState::Ahead | FeedConsumerState::Behind => "warn",
        FeedConsumerState::Ok | FeedConsumerState::Leased => "good",
    }
}

/// The cursor, or a dash if the consumer has none.
fn cursor_or_dash(entry: &FeedConsumer) -> String {
    if entry.state() == FeedConsumerState::NoCursor { "–".to_owned() } else { entry.through.to_string() }
}

/// The address of the page that sets the cursor. Without a cursor, that page asks for one.
fn address(entry: &FeedConsumer, cursor: Option<i64>) -> String {
    let cursor = cursor.map(|cursor| cursor.to_string());
    let mut members = vec![("consumer", &*entry.consumer), ("channel", &*entry.channel)];
    members.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
    format!("/do/set-cursor?{}", form(&members))
}

fn number(of: i64) -> String {
    grouped(u64::try_from(of).unwrap_or(0))
}

/// The positions of a range in words.
fn positions(first: i64, last: i64) -> String {
    if first < last { format!("positions {first} to {last}") } else { format!("position {first}") }
}
