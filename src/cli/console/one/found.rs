//! Where an event is found: in the table, at the service, in the quarantine, among the dead letters.

use std::sync::Arc;

use axum::extract::{Extension, Path, RawQuery, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use jiff::Timestamp;
use maud::html;
use tokio::task::spawn_blocking;

use super::{Found, Step, form, show};
use crate::cli::connect;
use crate::cli::console::State;
use crate::cli::console::access::Visitor;
use crate::cli::console::held::advice;
use crate::cli::console::page::{self, Badge, ago, span};
use crate::cli::console::tables::{Source, Unread, Whole};
use crate::cli::console::text::text;
use crate::event::{ChannelId, Event, EventId, Offset, Proofs};
use crate::operator::Report;
use crate::operator::api::{DeadLetterEvent, QuarantinedEvent, ShowDeadLetter, ShowQuarantined};
use crate::tasks::joined;
use crate::telemetry::Chain;

/// An event of the table.
pub(in crate::cli::console) async fn delivered(
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
    // What waited for its proof, or for a sink that was away, shows here.
    let after =
        row.delivered.zip(row.received).map(|(delivered, received)| delivered.as_second() - received.as_second());
    let after = after.and_then(|seconds| u64::try_from(seconds).ok());
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
        html! { "with its row in this table" @if let Some(after) = after { ", " (span(after)) " after it was read" } },
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
pub(in crate::cli::console) async fn delivered_raw(
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
pub(in crate::cli::console) async fn of_table(
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
pub(in crate::cli::console) async fn at_service(
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
pub(in crate::cli::console) async fn quarantined(
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
            (advice(&facts.reason))
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
pub(in crate::cli::console) async fn dead_letter(
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
