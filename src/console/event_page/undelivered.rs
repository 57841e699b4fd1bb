//! Shows events that the daemon stores: quarantined events and dead letters.

use axum::extract::Path;
use axum::http::StatusCode;
use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use maud::html;

use super::history::{EventOrigin, HistoryStep, StepTime, sink_steps};
use super::show::show;
use super::shown_event::{ShownEvent, created, lanes};
use crate::page::{Badge, PageRequest, advice, ago, form};
use crate::text::{sentence, text};
use channel::{RejectionReason, counted};
use ledger::{DeadLetterFacts, Quarantined};
use operator::api::{ChannelEntry, DeadLetterEvent, GetJourney, QuarantinedEvent, ShowDeadLetter, ShowQuarantined};
use proof::event::{Event, Offset, Proofs};

pub(crate) async fn quarantined(request: PageRequest, Path((channel, offset)): Path<(String, i64)>) -> Response {
    let Some(offset) = Offset::new(offset) else {
        return request.problem(StatusCode::NOT_FOUND, "The offset is invalid.").await;
    };
    let shown = request.state.daemon.ask(&ShowQuarantined { channel, offset, event_id: None }).await;
    let QuarantinedEvent { entry, bytes_base64, .. } = match shown {
        Ok(shown) => shown,
        Err(why) => return request.problem(StatusCode::NOT_FOUND, &why).await,
    };
    let Ok(json) = STANDARD.decode(bytes_base64) else {
        let why = "The daemon's response is invalid: the bytes of the event are not valid base64.";
        return request.problem(StatusCode::BAD_GATEWAY, why).await;
    };
    let (json, facts) = (Bytes::from(json), &entry.facts);
    // Duplicates are verified again only if the request names their reason.
    let place = [("channel", &*entry.channel), ("offset", &offset.to_string()), ("reason", &*facts.reason)];
    let found = ShownEvent {
        event_id: facts.event_id.map(|id| id.to_string()),
        stored_verdict_intro: "A valid proof is not sufficient. For the reason above, the verdict is ",
        history: rejection(facts),
        actions: html! {
            @if !request.visitor.read_only {
                a.button href={ "/do/retry?" (form(&place)) } { "Retry…" }
                a.button.danger href={ "/do/drop?" (form(&place)) } { "Drop…" }
            }
        },
        notice: html! {
            div.notice.bad role="note" {
                p { strong { "Not delivered. " } (text(&sentence(&facts.detail))) }
                @if let Some(original) = &facts.original {
                    p { "The same proof, or the same event with different content, was delivered earlier at offset " (original.offset.get()) " of channel "
                        (text(&original.channel_id.to_string())) "." }
                }
                (advice(&facts.reason, &facts.detail))
            }
        },
        ..of_daemon(&entry, offset, json, facts.received, Badge::Rejected)
    };
    show(&request, found).await
}

fn rejection(facts: &Quarantined) -> Vec<HistoryStep> {
    let waited = (facts.reason == RejectionReason::ProofTimeout.name()).then(|| {
        let detail = "The daemon requested the event by its id until the proof timeout. No proof arrived.";
        HistoryStep::new(StepTime::NotRecorded, "Pending until the proof timeout", detail).bad()
    });
    let why = html! { (text(&facts.reason)) ": " (text(&facts.detail)) };
    let rejected = HistoryStep::new(Timestamp::from_second(facts.at).ok(), "Rejected", why).bad();
    let quarantined = HistoryStep::new(StepTime::Now, "In the quarantine", "not delivered to any sink").bad();
    waited.into_iter().chain([rejected, quarantined]).collect()
}

pub(crate) async fn dead_letter(
    request: PageRequest,
    Path((channel, sink, offset)): Path<(String, String, i64)>,
) -> Response {
    let Some(offset) = Offset::new(offset) else {
        return request.problem(StatusCode::NOT_FOUND, "The offset is invalid.").await;
    };
    let shown = request.state.daemon.ask(&ShowDeadLetter { channel, offset, event_id: None, sink: sink.clone() }).await;
    let DeadLetterEvent { entry, event } = match shown {
        Ok(shown) => shown,
        Err(why) => return request.problem(StatusCode::NOT_FOUND, &why).await,
    };
    let (json, facts) = (Bytes::copy_from_slice(event.get().as_bytes()), &entry.facts.facts);
    let signed = Event::parse(json.clone()).is_ok_and(|event| !matches!(event.proofs, Proofs::None));
    let report = request.state.daemon.recent_report().await;
    let recorded = request.state.daemon.ask(&GetJourney { channel: entry.channel_id.to_string(), offset }).await;
    let others = report.iter().flat_map(|report| lanes(report, entry.channel_id)).filter(|lane| *lane.sink != *sink);
    let mut history = refusals(facts, &sink);
    // If the daemon no longer answers, these steps are missing, and the head of the page says that the daemon is
    // unreachable.
    history.extend(sink_steps(others, &entry.channel, offset.get(), &recorded.unwrap_or_default()));
    let offset_text = offset.to_string();
    let place = [("channel", &*entry.channel), ("sink", &*sink), ("offset", &*offset_text)];
    let found = ShownEvent {
        event_id: facts.event_id.map(|id| id.to_string()),
        stored_verdict_intro: "When the event was first sent to the sink, the verdict was ",
        history,
        actions: html! {
            @if !request.visitor.read_only {
                a.button href={ "/do/redeliver-dead?" (form(&place)) } { "Replay…" }
                a.button.danger href={ "/do/drop-dead?" (form(&place)) } { "Drop…" }
            }
        },
        notice: html! {
            div.notice.bad role="note" {
                p { strong { "Sink " (text(&sink)) " refused this event for too long. " } "Last response: " (text(&facts.reason)) "." }
                (advice("ChanneldDeadLetters", &facts.reason))
            }
        },
        ..of_daemon(&entry, offset, json, facts.received, if signed { Badge::Verified } else { Badge::Unsigned })
    };
    show(&request, found).await
}

fn refusals(facts: &DeadLetterFacts, sink: &str) -> Vec<HistoryStep> {
    let since = Timestamp::from_second(facts.since).ok();
    let why = html! {
        (counted(facts.attempts.into(), "attempt")) @if let Some(since) = since { ", the first " (ago(since)) } "; last response: " (text(&facts.reason))
    };
    vec![
        HistoryStep::new(since, html! { "First refused by " (text(sink)) }, "").bad(),
        HistoryStep::new(Timestamp::from_second(facts.at).ok(), html! { "Dead letter at " (text(sink)) }, why).bad(),
    ]
}

/// A stored event with its original bytes.
fn of_daemon<T>(
    entry: &ChannelEntry<T>,
    offset: Offset,
    json: Bytes,
    received: Option<Timestamp>,
    verdict: Badge,
) -> ShownEvent {
    let origin = EventOrigin { created: created(&json), received, was_read: true, proved: None };
    let found = ShownEvent::new(&entry.channel, entry.channel_id, offset.get(), json.clone(), verdict);
    ShownEvent { list: ("/held", "Quarantine and dead letters"), origin, event: Some(json), ..found }
}
