//! One event: what was signed beside what was not, who signed it, what the report binds, and the way that it went.

use std::sync::Arc;

use axum::extract::{Extension, Path, RawQuery, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::State;
use super::access::Visitor;
use super::page::{self, Badge, Shell, ago, time};
use super::tables::{Source, Unread, Whole};
use super::text::{Json, text, whole};
use crate::cli::connect;
use crate::cli::verify::Outcome;
use crate::event::{ChannelId, Event, EventId, Object, Offset, Proofs};
use crate::operator::Report;
use crate::operator::api::{DeadLetterEvent, QuarantinedEvent, ShowDeadLetter, ShowQuarantined};
use crate::record::decode;
use crate::tasks::joined;
use crate::telemetry::Chain;
use crate::verify::{Dissected, Verdict, Verifier};

mod proof;

pub(super) use proof::operator;

/// An event as it is shown, wherever it was found.
struct Found {
    channel: String,
    channel_id: ChannelId,
    offset: i64,
    event_id: Option<String>,
    /// What the verifier is given: a record, or the service's event alone.
    json: Bytes,
    /// The service's event alone, where it is there.
    event: Option<Bytes>,
    /// What its finder says of its proof, and what is to be said where the verifier says something else.
    said: Badge,
    otherwise: &'static str,
    journey: Vec<Step>,
    /// What may be done with it.
    actions: Markup,
    /// What must be known of it first.
    notice: Markup,
}

/// A step of an event's way: when, what, and in which words.
struct Step {
    at: Option<Timestamp>,
    what: Markup,
    detail: Markup,
    is_good: bool,
}

/// What the verifier has found.
struct Examined {
    outcome: Outcome,
    verdict: Option<Verdict>,
    event: Option<Event>,
    dissected: Option<Dissected>,
    verifier: Verifier,
    took: std::time::Duration,
}

impl Step {
    fn new(at: Option<Timestamp>, what: Markup, detail: Markup) -> Self {
        Self { at, what, detail, is_good: true }
    }

    fn bad(self) -> Self {
        Self { is_good: false, ..self }
    }
}

/// An event of the table.
pub(super) async fn delivered(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    Path((channel, offset)): Path<(ChannelId, i64)>,
    RawQuery(query): RawQuery,
) -> Response {
    let (table, found) = match of_table(&state, channel, offset).await {
        Ok(found) => found,
        Err((status, why)) => return page::problem(&state, &visitor, status, &why).await,
    };
    let report = state.link.lately().await;
    let Whole { row, .. } = &found;
    let mut journey = vec![Step::new(row.time, html! { "Created" }, html! { "by the service's own word" })];
    journey.push(Step::new(row.received, html! { "Read" }, html! { "by channeld, from the service" }));
    journey.push(match row.verification.as_str() {
        "verified" => Step::new(None, html! { "Verified" }, html! { "before it was delivered anywhere" }),
        _ => Step::new(
            None,
            html! { "Not signed" },
            html! { "an event of this kind never carries a proof: delivered, marked as such" },
        ),
    });
    journey.push(Step::new(
        row.delivered,
        html! { "Delivered to " (text(table)) },
        html! { "with its row in this table" },
    ));
    journey.extend(report.iter().flat_map(|report| others(report, &row.channel_id, table, offset)));
    let event = found.event().map(|event| Bytes::copy_from_slice(event.as_bytes()));
    let actions = html! {
        @if !visitor.read_only && event.is_some() {
            @for sink in report.iter().flat_map(|report| sinks(report, &row.channel_id)) {
                a.button href={ "/do/redeliver?" (form(&[("channel", &row.channel), ("channel_id", &row.channel_id), ("sink", &sink), ("offset", &offset.to_string())])) } {
                    span { "Redeliver to " (text(&sink)) "…" }
                }
            }
        }
    };
    let found = Found {
        channel: row.channel.clone(),
        channel_id: channel,
        offset,
        event_id: row.event_id.clone(),
        json: Bytes::from(found.record.clone()),
        event,
        said: Badge::of(&row.verification),
        otherwise: "When it was delivered it was ",
        journey,
        actions,
        notice: html! {},
    };
    let raw = format!("/event/{channel}/{offset}/raw");
    show(&state, &visitor, found, &raw, query.as_deref()).await
}

/// The service's event alone, as a file.
pub(super) async fn delivered_raw(
    Of(state): Of<Arc<State>>,
    Path((channel, offset)): Path<(ChannelId, i64)>,
) -> Response {
    match of_table(&state, channel, offset).await {
        Ok((_, found)) => {
            let event = found.event().map_or_else(|| found.record.clone(), str::to_owned);
            let name = format!("attachment; filename=\"event-{offset}.json\"");
            ([(header::CONTENT_TYPE, "application/json"), (header::CONTENT_DISPOSITION, &*name)], event).into_response()
        }
        Err((status, why)) => (status, why).into_response(),
    }
}

/// The row, and the name of the sink that has written it.
pub(super) async fn of_table(
    state: &State,
    channel: ChannelId,
    offset: i64,
) -> Result<(&str, Whole), (StatusCode, String)> {
    let Source::Table(table) = &state.source else {
        return Err((StatusCode::NOT_FOUND, "There is no table that it could be in.".to_owned()));
    };
    match table.whole(channel, offset).await {
        Ok(Some(found)) => Ok((&table.sink, found)),
        Ok(None) => {
            Err((StatusCode::NOT_FOUND, format!("There is no event {offset} of channel {channel} in the table.")))
        }
        Err(Unread::Failed(why)) => Err((StatusCode::SERVICE_UNAVAILABLE, why)),
        Err(Unread::Slow) => Err((StatusCode::SERVICE_UNAVAILABLE, "The table did not answer in time.".to_owned())),
    }
}

/// An event as the service has it now.
pub(super) async fn at_service(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    Path((channel, event)): Path<(ChannelId, EventId)>,
    RawQuery(query): RawQuery,
) -> Response {
    let raw = match state.client.event(channel, event).await {
        Ok(raw) => raw,
        Err(error) => {
            let why = format!("The service could not be asked for event {event}: {}.", Chain(&error));
            return page::problem(&state, &visitor, StatusCode::BAD_GATEWAY, &why).await;
        }
    };
    let known = state.channels.iter().find(|known| known.channel.id == channel);
    let report = state.link.lately().await;
    let parsed = Event::parse(raw.json.clone()).ok();
    let created = parsed.as_ref().and_then(|event| event.payload.timestamp);
    let mut journey = vec![Step::new(
        created.and_then(|second| Timestamp::from_second(second).ok()),
        html! { "Created" },
        html! { "by the service's own word" },
    )];
    let (channel_id, offset) = (channel.to_string(), raw.offset.get());
    journey.extend(report.iter().flat_map(|report| others(report, &channel_id, "", offset)));
    let verifier = connect::channel(&state.channels, &channel_id).ok().map(|(_, verifier)| verifier);
    let said = match &verifier {
        Some(verifier) => {
            let (verifier, raw) = (verifier.clone(), raw.clone());
            Badge::of(joined(spawn_blocking(move || verifier.verify(raw)).await).await.name())
        }
        None => Badge::Rejected,
    };
    let found = Found {
        channel: known.map_or_else(|| channel_id.clone(), |known| known.channel.name.to_string()),
        channel_id: channel,
        offset,
        event_id: raw.id.map(|id| id.to_string()),
        json: raw.json.clone(),
        event: Some(raw.json),
        said,
        otherwise: "A moment ago it was ",
        journey,
        actions: html! {},
        notice: html! {
            p.notice.warn { "This is what the service shows now. There is no table that says what was delivered." }
        },
    };
    show(&state, &visitor, found, "", query.as_deref()).await
}

/// An event of the quarantine.
pub(super) async fn quarantined(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    Path((channel, offset)): Path<(String, i64)>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(at) = Offset::new(offset) else {
        return page::problem(&state, &visitor, StatusCode::NOT_FOUND, "There is no such offset.").await;
    };
    let shown = state.link.ask(&ShowQuarantined { channel: channel.clone(), offset: at }).await;
    let QuarantinedEvent { entry, bytes_base64, .. } = match shown {
        Ok(shown) => shown,
        Err(why) => return page::problem(&state, &visitor, StatusCode::NOT_FOUND, &why).await,
    };
    let json = Bytes::from(STANDARD.decode(bytes_base64).unwrap_or_default());
    let facts = &entry.facts;
    let created = Event::parse(json.clone()).ok().and_then(|event| event.payload.timestamp);
    let second = |second: i64| Timestamp::from_second(second).ok();
    let journey = vec![
        Step::new(created.and_then(second), html! { "Created" }, html! { "by the service's own word" }),
        Step::new(facts.received, html! { "Read" }, html! { "by channeld, from the service; and once more by its id" }),
        Step::new(second(facts.at), html! { "Rejected" }, html! { (text(&facts.reason)) ": " (text(&facts.detail)) })
            .bad(),
        Step::new(None, html! { "Kept in the quarantine" }, html! { "delivered nowhere" }).bad(),
    ];
    // Duplicates are verified again only where their reason is named.
    let place = [("channel", &*entry.channel), ("offset", &offset.to_string()), ("reason", &*facts.reason)];
    let notice = html! {
        div.notice.bad role="note" {
            p { strong { "Not delivered. " } (text(&facts.detail)) "." }
            @if let Some(original) = &facts.original {
                p { "Its proof, or other content of it, was delivered before, at offset " (original.offset.get()) " of channel "
                    (text(&original.channel_id.to_string())) "." }
            }
            (super::held::advice(&facts.reason))
        }
    };
    let actions = html! {
        @if !visitor.read_only {
            a.button href={ "/do/retry?" (form(&place)) } { "Verify and deliver…" }
            a.button.danger href={ "/do/drop?" (form(&place)) } { "Drop…" }
        }
    };
    let found = Found {
        channel: entry.channel.clone(),
        channel_id: entry.channel_id,
        offset,
        event_id: facts.event_id.map(|id| id.to_string()),
        event: Some(json.clone()),
        json,
        said: Badge::Rejected,
        otherwise: "Its proof alone does not decide. For the reason above it is ",
        journey,
        actions,
        notice,
    };
    show(&state, &visitor, found, "", query.as_deref()).await
}

/// An event that a sink has given up.
pub(super) async fn dead_letter(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    Path((channel, sink, offset)): Path<(String, String, i64)>,
    RawQuery(query): RawQuery,
) -> Response {
    let Some(at) = Offset::new(offset) else {
        return page::problem(&state, &visitor, StatusCode::NOT_FOUND, "There is no such offset.").await;
    };
    let shown = state.link.ask(&ShowDeadLetter { channel: channel.clone(), offset: at, sink: sink.clone() }).await;
    let DeadLetterEvent { entry, event } = match shown {
        Ok(shown) => shown,
        Err(why) => return page::problem(&state, &visitor, StatusCode::NOT_FOUND, &why).await,
    };
    let json = Bytes::copy_from_slice(event.get().as_bytes());
    let facts = &entry.facts.facts;
    let parsed = Event::parse(json.clone()).ok();
    let created = parsed.as_ref().and_then(|event| event.payload.timestamp);
    let second = |second: i64| Timestamp::from_second(second).ok();
    let attempts = format!("{} attempts since {}", facts.attempts, second(facts.since).map_or_else(String::new, ago));
    let journey = vec![
        Step::new(created.and_then(second), html! { "Created" }, html! { "by the service's own word" }),
        Step::new(facts.received, html! { "Read" }, html! { "by channeld, from the service" }),
        Step::new(second(facts.since), html! { "First refused by " (text(&sink)) }, html! {}).bad(),
        Step::new(
            second(facts.at),
            html! { "Given up" },
            html! { (attempts) "; its last answer: " (text(&facts.reason)) },
        )
        .bad(),
    ];
    let offset_text = offset.to_string();
    let place = [("channel", &*entry.channel), ("sink", &*sink), ("offset", &*offset_text)];
    let actions = html! {
        @if !visitor.read_only {
            a.button href={ "/do/redeliver-dead?" (form(&place)) } { "Redeliver…" }
            a.button.danger href={ "/do/drop-dead?" (form(&place)) } { "Drop…" }
        }
    };
    let is_signed = parsed.as_ref().is_some_and(|event| !matches!(event.proofs, Proofs::None));
    let found = Found {
        channel: entry.channel.clone(),
        channel_id: entry.channel_id,
        offset,
        event_id: facts.event_id.map(|id| id.to_string()),
        event: Some(json.clone()),
        json,
        said: if is_signed { Badge::Verified } else { Badge::Unsigned },
        otherwise: "When it was offered it was ",
        journey,
        actions,
        notice: html! {
            div.notice.bad role="note" {
                p { strong { "Sink " (text(&sink)) " has given it up. " } "Its last answer: " (text(&facts.reason)) "." }
            }
        },
    };
    show(&state, &visitor, found, "", query.as_deref()).await
}

/// What the other lanes of its channel have done with it, as far as their cursors say.
fn others(report: &Report, channel: &str, but: &str, offset: i64) -> Vec<Step> {
    let known = report.channels.iter().find(|known| known.channel_id.to_string() == channel);
    let lanes = known.into_iter().flat_map(|known| &known.lanes).filter(|lane| *lane.sink != *but);
    lanes
        .map(|lane| match lane.cursor {
            Some(cursor) if cursor.get() >= offset => Step::new(
                None,
                html! { "Dealt with by " (text(&lane.sink)) },
                html! { "its cursor is at " (cursor.get()) ": delivered, or left out by its filter" },
            ),
            _ => {
                Step::new(None, html! { "Not yet at " (text(&lane.sink)) }, html! { "its cursor has not come so far" })
                    .bad()
            }
        })
        .collect()
}

fn sinks(report: &Report, channel: &str) -> Vec<String> {
    let known = report.channels.iter().find(|known| known.channel_id.to_string() == channel);
    known.into_iter().flat_map(|known| &known.lanes).map(|lane| lane.sink.to_string()).collect()
}

/// Members of an address.
pub(super) fn form(members: &[(&str, &str)]) -> String {
    url::form_urlencoded::Serializer::new(String::new()).extend_pairs(members).finish()
}

async fn show(state: &State, visitor: &Visitor, found: Found, raw: &str, query: Option<&str>) -> Response {
    let is_again = query.is_some_and(|query| query.split('&').any(|member| member == "verify=1"));
    let verifier = connect::channel(&state.channels, &found.channel_id.to_string()).map(|(_, verifier)| verifier);
    let examined = match verifier {
        Err(_) => None,
        Ok(verifier) => {
            let json = found.json.clone();
            Some(joined(spawn_blocking(move || examine(&json, verifier)).await).await)
        }
    };
    let event = examined.as_ref().and_then(|examined| examined.event.as_ref());
    let signed = event.and_then(|event| event.payload.signed.as_deref());
    let decoded = signed.and_then(decode);
    let named =
        decoded.as_ref().and_then(|decoded| Object::read(decoded.get().as_bytes()).ok()?.get::<String>("name").ok()?);
    let kind = event.map_or_else(|| "malformed".to_owned(), |event| event.kind.as_ref().to_owned());
    let heading = named.clone().unwrap_or_else(|| kind.clone());
    let title = super::super::shown::printable(&heading);
    let shell = Shell::of(state, visitor, &title, "").await;
    let verdict = examined.as_ref().map_or(found.said, |examined| Badge::of(examined.outcome.status));
    // Also who asked for nothing is told where the two differ.
    let differs = examined.is_some() && verdict != found.said;
    shell.page(&html! {
        nav.crumbs aria-label="Where this is" { a href="/" { "Events" } " / " (text(&found.channel)) " / " (found.offset) }
        div.heading {
            div {
                h1 { (text(&heading)) " " (verdict.show()) }
                p.sub { (text(&kind)) " · channel " (text(&found.channel)) " · offset " (found.offset)
                    @if let Some(event_id) = &found.event_id { " · event " span.mono { (text(event_id)) } } }
            }
            div.actions {
                a.button href="?verify=1#verdict" { "Verify again" }
                (found.actions)
            }
        }
        (found.notice)
        @match &examined {
            None => p.notice.warn { "Nothing says how to verify this channel's events: it is not configured." },
            Some(examined) => (said(examined, is_again, differs.then_some((found.otherwise, found.said)))),
        }
        (side_by_side(&found, verdict, decoded.as_deref().map(serde_json::value::RawValue::get)))
        @if let Some(examined) = &examined { (proof::show(examined)) }
        section aria-labelledby="journey" {
            h2 #journey { "The way it went" }
            ol.journey {
                @for step in &found.journey {
                    li.bad[!step.is_good] {
                        span.when { @if step.at.is_some() { (time(step.at)) } }
                        div { strong { (step.what) } " " span.sub { (step.detail) } }
                    }
                }
            }
        }
        (bytes(&found, raw))
    })
}

fn examine(json: &Bytes, verifier: Verifier) -> Examined {
    let began = std::time::Instant::now();
    let (outcome, verdict) = Outcome::examine(json, &verifier);
    let event = verdict.as_ref().and_then(|verdict| verdict.parts().1);
    let dissected = event.as_ref().and_then(|event| match &event.proofs {
        Proofs::One(ocr) => Dissected::of(ocr, proof::MOST_SIGNATURES),
        _ => None,
    });
    Examined { outcome, verdict, event, dissected, verifier, took: began.elapsed() }
}

/// What the verifier says, in a sentence.
fn said(examined: &Examined, is_again: bool, otherwise: Option<(&str, Badge)>) -> Markup {
    let (badge, sentence) = match (&examined.verdict, examined.outcome.reason) {
        (Some(Verdict::Verified(verified)), None) => {
            let proof = verified.proof();
            (
                Badge::Verified,
                format!(
                    "The proof holds: {} of {} required members of the oracle network signed this content, for your workflow owner.",
                    proof.signers.len(),
                    proof.required
                ),
            )
        }
        (Some(Verdict::Unsigned(_)), None) => (
            Badge::Unsigned,
            "Nobody signs an event of this kind: all of it is the service's word, and nothing of it can be proved."
                .to_owned(),
        ),
        (Some(Verdict::Pending(_)), None) => {
            (Badge::Pending, "A proof is due for this event, and has not come with it.".to_owned())
        }
        (Some(Verdict::Rejected(_, reason)), _) => (Badge::Rejected, format!("The proof does not hold: {reason}.")),
        (_, Some("record-mismatch")) => (
            Badge::Rejected,
            "The record's own fields differ from the event inside it: the row was changed after it was delivered."
                .to_owned(),
        ),
        (_, reason) => {
            (Badge::Rejected, format!("It cannot be verified: {}.", reason.unwrap_or("there is no event in it")))
        }
    };
    html! {
        div #verdict .verdict.{ (examined.outcome.status) } role=[is_again.then_some("status")] {
            (badge.show())
            div {
                p { strong { @if is_again { "Verified again at " (time(Some(Timestamp::now()))) " UTC. " } } (whole(&sentence)) }
                @if is_again { p.sub { "Checked with the signers that are configured now, in " (examined.took.as_micros() / 1000) " ms." } }
                @if let Some((otherwise, before)) = otherwise { p.bad { (otherwise) (before.show()) "." } }
            }
        }
    }
}

/// What was signed on the one side, everything else on the other.
fn side_by_side(found: &Found, verdict: Badge, decoded: Option<&str>) -> Markup {
    let rest = found.event.as_ref().map(without_proof);
    html! {
        div.sides {
            section.side.signed.claimed[verdict != Badge::Verified] aria-labelledby="signed" {
                header {
                    h2 #signed { @if verdict == Badge::Verified || decoded.is_none() { "Signed by the network" } @else { "Claims to be signed" } }
                    p { @match (verdict, decoded) {
                        (_, None) => "Nothing of this event is signed.",
                        (Badge::Verified, _) => "Every character of this is covered by the signatures.",
                        (Badge::Pending, _) => "No proof has come for this yet.",
                        _ => "The signatures do not cover this: do not act on it.",
                    } }
                }
                @match decoded {
                    Some(decoded) => (Json(decoded)),
                    None => div.blank { "–" },
                }
            }
            section.side.unsigned aria-labelledby="unsigned" {
                header {
                    h2 #unsigned { "Not signed" }
                    p { "The service's own word: offset, id, times, and what it repeats of the content." }
                }
                @match &rest {
                    Some(rest) => (Json(rest)),
                    None => div.blank { "The service's event is not in this sink's format." },
                }
            }
        }
    }
}

/// The service's event, less the proof and the text that it is about: those are shown on their own.
fn without_proof(event: &Bytes) -> String {
    fn walk(json: &str, depth: usize) -> Option<String> {
        let object = Object::read(json.as_bytes()).ok().filter(|_| depth < 3)?;
        let members = object.members().map(|(name, value)| {
            let shown = match name {
                "proofs" => "\"shown below\"".to_owned(),
                "verifiable_event" | "verifiable_result" => "\"shown beside, decoded\"".to_owned(),
                "headers" | "payload" => walk(value.get(), depth + 1).unwrap_or_else(|| value.get().to_owned()),
                _ => value.get().to_owned(),
            };
            format!("{}:{shown}", serde_json::Value::from(name))
        });
        Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
    }
    let text = String::from_utf8_lossy(event);
    walk(&text, 0).unwrap_or_else(|| text.into_owned())
}

fn bytes(found: &Found, raw: &str) -> Markup {
    const SHOWN: usize = 100_000;
    let Some(event) = &found.event else { return html! {} };
    let text = String::from_utf8_lossy(event);
    html! {
        section aria-labelledby="bytes" {
            h2 #bytes { "Raw bytes" }
            p.sub { "The service's event as it came, " (page::number(event.len() as u64)) " bytes. "
                code { "channeld verify" } " takes it as it is." }
            div.actions {
                @if event.len() <= SHOWN { button type="button" data-copy-from="raw" { "Copy" } }
                @if !raw.is_empty() { a.button href=(raw) download { "Download" } }
            }
            details {
                summary { "Show" }
                // What is copied is this text: characters that do not show stay what they are.
                textarea #raw readonly rows="12" spellcheck="false" dir="ltr" aria-label="Raw bytes" {
                    (text.chars().take(SHOWN).collect::<String>())
                }
            }
        }
    }
}
