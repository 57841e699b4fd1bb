//! Lists quarantined events and dead letters, and offers every change that an operator can request. Each change has a
//! page that describes it first.
//!
//! # Invariants
//!
//! * **Described before it is made.** A GET describes a change and changes nothing. The form on the page makes the change.
//! * **Made by the daemon.** The daemon makes the change under the channel's lease and logs who requested it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::{Extension, Path, RawQuery, State as Of};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use maud::{Markup, html};

use super::access::Visitor;
use super::page::{self, Badge, Shell, advice, form, number, segment, time};
use super::state::State;
use super::text::{text, whole};
use channel::{RejectionReason, RejectionSeverity};
use ledger::Quarantined;
use operator::api::{DeadLetter, Entry, ListDeadLetters, ListQuarantine};

mod action;

use action::Action;

/// The largest number of rows in a list.
const LISTED: usize = 500;

/// Lists the quarantine and the dead letters.
pub(super) async fn list(Of(state): Of<Arc<State>>, Extension(visitor): Extension<Visitor>) -> Response {
    let quarantine = state.link.ask(&ListQuarantine { channel: None }).await;
    let dead = state.link.ask(&ListDeadLetters { channel: None, sink: None }).await;
    let shell = Shell::of(&state, &visitor, "Held back", "/held").await;
    shell.page(&html! {
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
                Ok(events) => (rejected(events, visitor.read_only)),
            }
        }
        section aria-labelledby="dead" {
            h2 #dead { "Dead letters" }
            p.sub { "Verified events that a sink has refused for longer than its " code { "give_up_after" } "." }
            @match &dead {
                Err(why) => p.notice.bad { (whole(why)) },
                Ok(letters) if letters.is_empty() => div.empty { p { "No dead letters." } },
                Ok(letters) => (given_up(letters, visitor.read_only)),
            }
        }
    })
}

fn rejected(events: &[Entry<Quarantined>], read_only: bool) -> Markup {
    // The most serious reasons come first.
    let mut groups: BTreeMap<(Reverse<Option<RejectionSeverity>>, &str, &str), u64> = BTreeMap::new();
    for Entry { channel, facts, .. } in events {
        let severity = RejectionReason::from_name(&facts.reason).map(RejectionReason::severity);
        *groups.entry((Reverse(severity), channel, &facts.reason)).or_default() += 1;
    }
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
        div.scroll role="region" aria-label="Quarantined events" tabindex="0" {
            table {
                thead { tr { th scope="col" { "Channel" } th scope="col" { "Offset" } th scope="col" { "Reason" } th scope="col" { "In words" } th scope="col" { "Rejected (UTC)" } } }
                tbody {
                    @for Entry { channel, facts, .. } in events.iter().take(LISTED) {
                        tr data-row {
                            td data-label="Channel" { (text(channel)) }
                            td.number data-label="Offset" {
                                a.open href={ "/held/quarantine/" (segment(channel)) "/" (facts.offset.get()) } { (facts.offset.get()) }
                            }
                            td data-label="Reason" { (text(&facts.reason)) }
                            td data-label="In words" { (text(&facts.detail)) }
                            td.time data-label="Rejected (UTC)" { (time(Timestamp::from_second(facts.at).ok())) }
                        }
                    }
                }
            }
        }
        (more(events.len()))
    }
}

fn given_up(letters: &[Entry<DeadLetter>], read_only: bool) -> Markup {
    let mut groups: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for letter in letters {
        *groups.entry((&letter.channel, &letter.facts.sink)).or_default() += 1;
    }
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
        div.scroll role="region" aria-label="Dead letters" tabindex="0" {
            table {
                thead { tr { th scope="col" { "Channel" } th scope="col" { "Sink" } th scope="col" { "Offset" } th scope="col" { "Last answer" } th scope="col" { "Attempts" } th scope="col" { "Given up (UTC)" } } }
                tbody {
                    @for Entry { channel, facts: DeadLetter { sink, facts }, .. } in letters.iter().take(LISTED) {
                        tr data-row {
                            td data-label="Channel" { (text(channel)) }
                            td data-label="Sink" { (text(sink)) }
                            td.number data-label="Offset" {
                                a.open href={ "/held/dead/" (segment(channel)) "/" (segment(sink)) "/" (facts.offset.get()) } { (facts.offset.get()) }
                            }
                            td data-label="Last answer" { (text(&facts.reason)) }
                            td.number data-label="Attempts" { (facts.attempts) }
                            td.time data-label="Given up (UTC)" { (time(Timestamp::from_second(facts.at).ok())) }
                        }
                    }
                }
            }
        }
        (more(letters.len()))
    }
}

fn more(count: usize) -> Markup {
    html! {
        @if count > LISTED {
            p.note { "The first " (LISTED) " of " (number(count as u64)) " are listed. The commands of " code { "channeld" } " list all." }
        }
    }
}

/// Describes a change and asks for confirmation.
pub(super) async fn confirm(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    Path(what): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = query.unwrap_or_default();
    let Some(action) = Action::parse(&what, query.as_bytes()) else {
        return page::problem(&state, &visitor, StatusCode::NOT_FOUND, "This change is unknown or incomplete.").await;
    };
    if visitor.read_only {
        let why = "This console was started with --read-only and cannot change anything.";
        return page::problem(&state, &visitor, StatusCode::FORBIDDEN, why).await;
    }
    let shell = Shell::of(&state, &visitor, action.title(), "").await;
    shell.page(&html! {
        div.confirm {
            h1 { (action.title()) "?" }
            @for said in action.will() { p { (said) } }
            form method="post" action={ "/do/" (what) } {
                (shell.form_token())
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
    })
}

/// Makes the change.
pub(super) async fn carry_out(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    Path(what): Path<String>,
    body: String,
) -> Response {
    let Some(action) = Action::parse(&what, body.as_bytes()) else {
        return page::problem(&state, &visitor, StatusCode::BAD_REQUEST, "The form is incomplete.").await;
    };
    let (is_good, said) = match action.carry_out(&state, visitor.number).await {
        Ok(said) => (true, said),
        Err(why) => (false, why),
    };
    tracing::info!(browser = visitor.number, what, done = is_good, "a change was requested");
    state.access.notify(&visitor, is_good, said);
    Redirect::to(&action.back()).into_response()
}
