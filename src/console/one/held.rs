//! Shows events that the daemon stores: quarantined events and dead letters.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use maud::html;

use super::event::{Found, created, lanes};
use super::journey::{Step, When, at_sinks, attempts};
use super::show::show;
use crate::page::{Badge, Visit, advice, form};
use crate::text::text;
use channel::RejectionReason;
use ledger::{DeadLetterFacts, Quarantined};
use operator::api::{ChannelEntry, DeadLetterEvent, GetJourney, QuarantinedEvent, ShowDeadLetter, ShowQuarantined};
use proof::event::{Event, Offset, Proofs};

/// Shows a quarantined event.
pub(crate) async fn quarantined(visit: Visit, Path((channel, offset)): Path<(String, i64)>) -> Response {
    let Some(offset) = Offset::new(offset) else {
        return visit.problem(StatusCode::NOT_FOUND, "This offset does not exist.").await;
    };
    let shown = visit.state.link.ask(&ShowQuarantined { channel, offset, event_id: None }).await;
    let QuarantinedEvent { entry, bytes_base64, .. } = match shown {
        Ok(shown) => shown,
        Err(why) => return visit.problem(StatusCode::NOT_FOUND, &why).await,
    };
    let Ok(json) = STANDARD.decode(bytes_base64) else {
        let why = "The daemon's answer cannot be read: the bytes of the event are not in base64.";
        return visit.problem(StatusCode::BAD_GATEWAY, why).await;
    };
    let (json, facts) = (Bytes::from(json), &entry.facts);
    // Duplicates are verified again only if the request names their reason.
    let place = [("channel", &*entry.channel), ("offset", &offset.to_string()), ("reason", &*facts.reason)];
    let found = Found {
        event_id: facts.event_id.map(|id| id.to_string()),
        received: facts.received,
        otherwise: "Its proof alone does not decide. For the reason above it is ",
        journey: rejection(facts),
        actions: html! {
            @if !visit.visitor.read_only {
                a.button href={ "/do/retry?" (form(&place)) } { "Verify and deliver…" }
                a.button.danger href={ "/do/drop?" (form(&place)) } { "Drop…" }
            }
        },
        notice: html! {
            div.notice.bad role="note" {
                p { strong { "Not delivered. " } (text(&facts.detail)) "." }
                @if let Some(original) = &facts.original {
                    p { "Its proof, or different content, was delivered earlier, at offset " (original.offset.get()) " of channel "
                        (text(&original.channel_id.to_string())) "." }
                }
                (advice(&facts.reason))
            }
        },
        ..of_daemon(&entry, offset, json, Badge::Rejected)
    };
    show(&visit, found).await
}

fn rejection(facts: &Quarantined) -> Vec<Step> {
    let waited = (facts.reason == RejectionReason::ProofTimeout.name()).then(|| {
        let detail = html! { "It was set aside and asked for by its id. No proof came in time." };
        Step::new(When::NotRecorded, html! { "Waited for its proof" }, detail).bad()
    });
    let why = html! { (text(&facts.reason)) ": " (text(&facts.detail)) };
    let rejected = Step::new(Timestamp::from_second(facts.at).ok(), html! { "Rejected" }, why).bad();
    let quarantined = Step::new(When::Now, html! { "Kept in the quarantine" }, html! { "delivered nowhere" }).bad();
    waited.into_iter().chain([rejected, quarantined]).collect()
}

/// Shows a dead letter.
pub(crate) async fn dead_letter(visit: Visit, Path((channel, sink, offset)): Path<(String, String, i64)>) -> Response {
    let Some(offset) = Offset::new(offset) else {
        return visit.problem(StatusCode::NOT_FOUND, "This offset does not exist.").await;
    };
    let shown = visit.state.link.ask(&ShowDeadLetter { channel, offset, event_id: None, sink: sink.clone() }).await;
    let DeadLetterEvent { entry, event } = match shown {
        Ok(shown) => shown,
        Err(why) => return visit.problem(StatusCode::NOT_FOUND, &why).await,
    };
    let (json, facts) = (Bytes::copy_from_slice(event.get().as_bytes()), &entry.facts.facts);
    let signed = Event::parse(json.clone()).is_ok_and(|event| !matches!(event.proofs, Proofs::None));
    let report = visit.state.link.lately().await;
    let recorded = visit.state.link.ask(&GetJourney { channel: entry.channel_id.to_string(), offset }).await;
    let others = report.iter().flat_map(|report| lanes(report, entry.channel_id)).filter(|lane| *lane.sink != *sink);
    let mut journey = refusals(facts, &sink);
    // If the daemon no longer answers, the head of the page says so.
    journey.extend(at_sinks(others, &entry.channel, offset.get(), &recorded.unwrap_or_default()));
    let offset_text = offset.to_string();
    let place = [("channel", &*entry.channel), ("sink", &*sink), ("offset", &*offset_text)];
    let found = Found {
        event_id: facts.event_id.map(|id| id.to_string()),
        received: facts.received,
        otherwise: "When it was offered it was ",
        journey,
        actions: html! {
            @if !visit.visitor.read_only {
                a.button href={ "/do/redeliver-dead?" (form(&place)) } { "Redeliver…" }
                a.button.danger href={ "/do/drop-dead?" (form(&place)) } { "Drop…" }
            }
        },
        notice: html! {
            div.notice.bad role="note" {
                p { strong { "Sink " (text(&sink)) " has given it up. " } "Its last answer: " (text(&facts.reason)) "." }
            }
        },
        ..of_daemon(&entry, offset, json, if signed { Badge::Verified } else { Badge::Unsigned })
    };
    show(&visit, found).await
}

fn refusals(facts: &DeadLetterFacts, sink: &str) -> Vec<Step> {
    let since = Timestamp::from_second(facts.since).ok();
    let tried = attempts(facts.attempts, since);
    let why = html! { (tried) "; its last answer: " (text(&facts.reason)) };
    vec![
        Step::new(since, html! { "First refused by " (text(sink)) }, html! {}).bad(),
        Step::new(Timestamp::from_second(facts.at).ok(), html! { "Given up by " (text(sink)) }, why).bad(),
    ]
}

/// A stored event with its original bytes.
fn of_daemon<T>(entry: &ChannelEntry<T>, offset: Offset, json: Bytes, said: Badge) -> Found {
    let found = Found::new(&entry.channel, entry.channel_id, offset.get(), json.clone(), said);
    Found { list: ("/held", "Held back"), created: created(&json), event: Some(json), ..found }
}
