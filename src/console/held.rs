//! Lists quarantined events and dead letters, and offers every change that an operator can request. Each change has a
//! page that describes it first.
//!
//! # Invariants
//!
//! * **Described before it is made.** A GET describes a change and changes nothing. The form on the page makes the change.
//! * **Made by the daemon.** The daemon makes the change under the channel's lease and logs who requested it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use maud::{Markup, html};

use super::page::{self, Badge, Visit, advice, form, segment, time};
use super::text::{text, whole};
use channel::{RejectionReason, RejectionSeverity, grouped};
use ledger::Quarantined;
use operator::api::{ChannelEntry, DeadLetter, ListDeadLetters, ListQuarantine};

mod action;

use action::Action;

/// The largest number of rows in a list.
const LISTED: usize = 500;

/// Lists the quarantine and the dead letters.
pub(super) async fn list(visit: Visit) -> Response {
    let (link, read_only) = (&visit.state.link, visit.visitor.read_only);
    let quarantine = link.ask(&ListQuarantine { channel: None }).await;
    let dead = link.ask(&ListDeadLetters { channel: None, sink: None }).await;
    let content = html! {
        div.heading { div {
            h1 { "Held back" }
            p.sub { "Rejected events, and events that a sink refused for too long. They are kept until you decide." }
        } }
        section aria-labelledby="quarantine" {
            h2 #quarantine { "Quarantine" }
            p.sub { "Events whose proofs do not verify. They were not delivered." }
            @match &quarantine {
                Err(why) => p.notice.bad { (whole(why)) },
                Ok(events) if events.is_empty() => div.empty { p { "The quarantine is empty." } },
                Ok(events) => (rejected(events, read_only)),
            }
        }
        section aria-labelledby="dead" {
            h2 #dead { "Dead letters" }
            p.sub { "Verified events that a sink has refused for longer than its " code { "give_up_after" } "." }
            @match &dead {
                Err(why) => p.notice.bad { (whole(why)) },
                Ok(letters) if letters.is_empty() => div.empty { p { "No dead letters." } },
                Ok(letters) => (given_up(letters, read_only)),
            }
        }
    };
    visit.page("Held back", "/held", &content).await
}

fn rejected(events: &[ChannelEntry<Quarantined>], read_only: bool) -> Markup {
    // The most serious reasons come first.
    let mut groups: BTreeMap<(Reverse<Option<RejectionSeverity>>, &str, &str), u64> = BTreeMap::new();
    for ChannelEntry { channel, facts, .. } in events {
        let severity = RejectionReason::from_name(&facts.reason).map(RejectionReason::severity);
        *groups.entry((Reverse(severity), channel, &facts.reason)).or_default() += 1;
    }
    let columns = [("Channel", ""), ("Offset", "number"), ("Reason", ""), ("In words", ""), ("Rejected (UTC)", "time")];
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
                            a.button href={ "/do/retry?" (form(&[("channel", channel), ("reason", reason)])) } { "Verify all…" }
                            a.button.danger href={ "/do/drop?" (form(&[("channel", channel), ("reason", reason)])) } { "Drop all…" }
                        }
                    }
                }
            }
        }
        (page::table("Quarantined events", "list", &columns, rows))
        (more(events.len()))
    }
}

fn given_up(letters: &[ChannelEntry<DeadLetter>], read_only: bool) -> Markup {
    let mut groups: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for letter in letters {
        *groups.entry((&letter.channel, &letter.facts.sink)).or_default() += 1;
    }
    let columns = [
        ("Channel", ""),
        ("Sink", ""),
        ("Offset", "number"),
        ("Last answer", ""),
        ("Attempts", "number"),
        ("Given up (UTC)", "time"),
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
                            a.button href={ "/do/redeliver-dead?" (form(&place)) } { "Redeliver all…" }
                            a.button.danger href={ "/do/drop-dead?" (form(&place)) } { "Drop all…" }
                        }
                    }
                }
            }
        }
        (page::table("Dead letters", "list", &columns, rows))
        (more(letters.len()))
    }
}

fn more(count: usize) -> Markup {
    html! {
        @if count > LISTED {
            p.note { "The first " (LISTED) " of " (grouped(count as u64)) " are listed. The commands of " code { "channeld" } " list all." }
        }
    }
}

/// Describes a change and asks for confirmation.
pub(super) async fn confirm(visit: Visit, Path(what): Path<String>) -> Response {
    let Some(action) = Action::parse(&what, visit.query.as_bytes()) else {
        return visit.problem(StatusCode::NOT_FOUND, "This change is unknown or incomplete.").await;
    };
    if visit.visitor.read_only {
        let why = "This console was started with --read-only and cannot change anything.";
        return visit.problem(StatusCode::FORBIDDEN, why).await;
    }
    let content = html! {
        div.confirm {
            h1 { (action.title()) "?" }
            @for said in action.will() { p { (said) } }
            form method="post" action={ "/do/" (what) } {
                (visit.form_token())
                @for (name, value) in action.members() { input type="hidden" name=(name) value=(value); }
                @if action.takes_time() {
                    label.other { span { "Until" }
                        select name="for" {
                            option value="" { "it is resumed" }
                            @for (value, name) in [("15m", "after 15 minutes"), ("1h", "after an hour"), ("4h", "after four hours"), ("24h", "after a day")] {
                                option value=(value) { (name) }
                            }
                        }
                    }
                }
                div.actions {
                    button.primary.danger[action.is_final()] type="submit" { (action.title()) }
                    a.button href=(action.back()) { "Leave it" }
                }
            }
            p.note { "The daemon logs the change with the name of the user who runs this console." }
        }
    };
    visit.page(action.title(), "", &content).await
}

/// Makes the change.
pub(super) async fn carry_out(visit: Visit, Path(what): Path<String>, body: String) -> Response {
    let Some(action) = Action::parse(&what, body.as_bytes()) else {
        return visit.problem(StatusCode::BAD_REQUEST, "The form is incomplete.").await;
    };
    let Visit { state, visitor, .. } = &visit;
    let result = action.carry_out(state, visitor.number).await;
    tracing::info!(browser = visitor.number, what, done = result.is_ok(), "a change was requested");
    state.access.notify(visitor, result);
    Redirect::to(&action.back()).into_response()
}
