//! Lists the events that need an operator: the quarantine and the dead letters.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::response::Response;
use jiff::Timestamp;
use maud::{Markup, html};

use super::page::{self, Badge, PageRequest, advice, form, segment, time};
use super::text::{text, whole};
use channel::{RejectionReason, RejectionSeverity, grouped};
use ledger::Quarantined;
use operator::api::{ChannelEntry, DeadLetter, ListDeadLetters, ListQuarantine};

/// The largest number of rows in a list.
const LISTED: usize = 500;

pub(super) async fn list(request: PageRequest) -> Response {
    let (daemon, read_only) = (&request.state.daemon, request.visitor.read_only);
    let quarantine = daemon.ask(&ListQuarantine { channel: None }).await;
    let dead = daemon.ask(&ListDeadLetters { channel: None, sink: None }).await;
    let content = html! {
        div.heading { div {
            h1 { "Quarantine and dead letters" }
            p.sub { "Rejected events, and events that a sink refused for too long. The daemon stores them until an operator retries, replays, or drops them." }
        } }
        section aria-labelledby="quarantine" {
            h2 #quarantine { "Quarantine" }
            p.sub { "Events that failed verification. They were not delivered to any sink." }
            @match &quarantine {
                Err(why) => p.notice.bad { (whole(why)) },
                Ok(events) if events.is_empty() => div.empty { p { "The quarantine is empty." } },
                Ok(events) => (rejected(events, read_only)),
            }
        }
        section aria-labelledby="dead" {
            h2 #dead { "Dead letters" }
            p.sub { "Events that a sink refused for longer than its " code { "give_up_after" } " setting." }
            @match &dead {
                Err(why) => p.notice.bad { (whole(why)) },
                Ok(letters) if letters.is_empty() => div.empty { p { "No dead letters." } },
                Ok(letters) => (dead_letters(letters, read_only)),
            }
        }
    };
    request.page("Quarantine and dead letters", "/held", &content).await
}

fn rejected(events: &[ChannelEntry<Quarantined>], read_only: bool) -> Markup {
    // The most serious reasons come first.
    let mut groups: BTreeMap<(Reverse<Option<RejectionSeverity>>, &str, &str), u64> = BTreeMap::new();
    for ChannelEntry { channel, facts, .. } in events {
        let severity = RejectionReason::from_name(&facts.reason).map(RejectionReason::severity);
        *groups.entry((Reverse(severity), channel, &facts.reason)).or_default() += 1;
    }
    let columns = [("Channel", ""), ("Offset", "number"), ("Reason", ""), ("Details", ""), ("Rejected (UTC)", "time")];
    let rows = events.iter().take(LISTED).map(|ChannelEntry { channel, facts, .. }| {
        let offset = facts.offset.get();
        let link = html! { a.open href={ "/held/quarantine/" (segment(channel)) "/" (offset) } { (offset) } };
        let at = time(Timestamp::from_second(facts.at).ok());
        vec![text(channel), link, text(&facts.reason), text(&facts.detail), at]
    });
    html! {
        ul.groups {
            @for ((_, channel, reason), count) in &groups {
                li {
                    div {
                        p { (Badge::Rejected.show()) " " strong { (text(reason)) } " " span.sub { (page::events(*count)) " of channel " (text(channel)) } }
                        (advice(reason))
                    }
                    @if !read_only {
                        div.actions {
                            a.button href={ "/do/retry?" (form(&[("channel", channel), ("reason", reason)])) } { "Retry all…" }
                            a.button.danger href={ "/do/drop?" (form(&[("channel", channel), ("reason", reason)])) } { "Drop all…" }
                        }
                    }
                }
            }
        }
        (page::table("Quarantined events", "list", &columns, rows))
        (more(events.len(), "channeld quarantine list"))
    }
}

fn dead_letters(letters: &[ChannelEntry<DeadLetter>], read_only: bool) -> Markup {
    let mut groups: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for letter in letters {
        *groups.entry((&letter.channel, &letter.facts.sink)).or_default() += 1;
    }
    let columns = [
        ("Channel", ""),
        ("Sink", ""),
        ("Offset", "number"),
        ("Last response", ""),
        ("Attempts", "number"),
        ("Dead letter since (UTC)", "time"),
    ];
    let rows =
        letters.iter().take(LISTED).map(|ChannelEntry { channel, facts: DeadLetter { sink, facts }, .. }| {
            let offset = facts.offset.get();
            let address = format!("/held/dead/{}/{}/{offset}", segment(channel), segment(sink));
            let link = html! { a.open href=(address) { (offset) } };
            let (attempts, at) = (html! { (facts.attempts) }, time(Timestamp::from_second(facts.at).ok()));
            vec![text(channel), text(sink), link, text(&facts.reason), attempts, at]
        });
    html! {
        ul.groups {
            @for ((channel, sink), count) in &groups {
                li {
                    p { strong { "Sink " (text(sink)) } " " span.sub { (page::events(*count)) " of channel " (text(channel)) } }
                    @if !read_only {
                        @let place = [("channel", *channel), ("sink", *sink)];
                        div.actions {
                            a.button href={ "/do/redeliver-dead?" (form(&place)) } { "Replay all…" }
                            a.button.danger href={ "/do/drop-dead?" (form(&place)) } { "Drop all…" }
                        }
                    }
                }
            }
        }
        (page::table("Dead letters", "list", &columns, rows))
        (more(letters.len(), "channeld dead-letters list"))
    }
}

fn more(count: usize, command: &str) -> Markup {
    html! {
        @if count > LISTED {
            p.note { "Showing the first " (LISTED) " of " (grouped(count as u64)) ". " code { (command) } " lists all of them." }
        }
    }
}
