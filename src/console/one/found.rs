//! Finds an event that was delivered to a table, or that the service shows.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use maud::html;
use tokio::task::spawn_blocking;

use super::event::{Found, created, lanes};
use super::journey::{Step, When, afterwards, at_sinks, kept};
use super::show::show;
use crate::page::{Badge, Visit, form};
use crate::state::State;
use crate::tables::{Row, Source, Table, Unread, Whole};
use crate::text::text;
use channel::span;
use net::Chain;
use net::tasks::joined;
use operator::api::{GetJourney, Journey};
use operator::verifier_of;
use proof::event::{ChannelId, EventId, Offset};

/// Shows an event of the table.
pub(crate) async fn delivered(visit: Visit, Path((channel, offset)): Path<(ChannelId, i64)>) -> Response {
    let state = &visit.state;
    let (table, whole) = match of_table(state, channel, offset).await {
        Ok(found) => found,
        Err((status, why)) => return visit.problem(status, &why).await,
    };
    let (report, mut recorded) = (state.link.lately().await, recorded(state, channel, offset).await);
    let row = &whole.row;
    // For an event whose proof came late, the row contains the time of the delivery into this table.
    recorded.delivered_late.retain(|late| late.is_asked_for || *late.sink != *table.sink);
    let sinks = || report.iter().flat_map(|report| lanes(report, channel));
    let here = sinks().filter(|lane| *lane.sink == *table.sink);
    let here = here.flat_map(|lane| afterwards(lane, &row.channel, offset, &recorded));
    let elsewhere = at_sinks(sinks().filter(|lane| *lane.sink != *table.sink), &row.channel, offset, &recorded);
    let mut journey = vec![
        if row.verification == "verified" {
            Step::new(
                When::Between,
                html! { "Verified" },
                html! { "after it was received, and before it was delivered anywhere" },
            )
        } else {
            let never = "an event of this kind never carries a proof: delivered, marked as such";
            Step::new(When::Between, html! { "Not signed" }, html! { (never) })
        },
        delivery(row, &table.sink),
    ];
    journey.extend(kept(&row.channel, offset, &recorded, false));
    journey.extend(here);
    journey.extend(elsewhere);
    let event = whole.event().map(|event| Bytes::copy_from_slice(event.as_bytes()));
    let actions = html! {
        @if !visit.visitor.read_only && event.is_some() {
            @for lane in sinks() {
                a.button href={ "/do/redeliver?" (form(&[("channel", &row.channel), ("channel_id", &row.channel_id), ("sink", &lane.sink), ("offset", &offset.to_string())])) } {
                    span { "Redeliver to " (text(&lane.sink)) "…" }
                }
            }
        }
    };
    // If the table no longer answers, the page shows only the data that was read above.
    let followed = table.followed(channel, offset).await.unwrap_or_default();
    let found = Found {
        event_id: row.event_id.clone(),
        event,
        created: row.time,
        received: row.received,
        delivered: row.delivered,
        followed,
        otherwise: "When it was delivered it was ",
        journey,
        actions,
        raw: format!("/event/{channel}/{offset}/raw"),
        ..Found::new(&row.channel, channel, offset, Bytes::from(whole.record.clone()), Badge::of(&row.verification))
    };
    show(&visit, found).await
}

/// The delivery that the row records.
fn delivery(row: &Row, sink: &str) -> Step {
    let after = row.delivered.zip(row.received);
    let after = after.map(|(delivered, received)| delivered.as_second() - received.as_second());
    let after = after.and_then(|seconds| u64::try_from(seconds).ok());
    let detail =
        html! { "as a row of this table" @if let Some(after) = after { ", " (span(after)) " after it was received" } };
    Step::new(row.delivered, html! { "Delivered to " (text(sink)) }, detail)
}

/// Asks the daemon for its records of the event. The result is empty if no daemon answers; the head of the page reports
/// that.
async fn recorded(state: &State, channel: ChannelId, offset: i64) -> Journey {
    let Some(offset) = Offset::new(offset) else { return Journey::default() };
    let asked = state.link.ask(&GetJourney { channel: channel.to_string(), offset }).await;
    asked.unwrap_or_default()
}

/// Returns only the service's event, as a file.
pub(crate) async fn delivered_raw(visit: Visit, Path((channel, offset)): Path<(ChannelId, i64)>) -> Response {
    match of_table(&visit.state, channel, offset).await {
        Ok((_, found)) => {
            let event = found.event().map_or_else(|| found.record.clone(), str::to_owned);
            let name = format!("attachment; filename=\"event-{offset}.json\"");
            ([(header::CONTENT_TYPE, "application/json"), (header::CONTENT_DISPOSITION, &*name)], event).into_response()
        }
        Err((status, why)) => (status, why).into_response(),
    }
}

/// Returns the row and its table.
pub(crate) async fn of_table(
    state: &State,
    channel: ChannelId,
    offset: i64,
) -> Result<(&Table, Whole), (StatusCode, String)> {
    let Source::Table(table) = &state.source else {
        return Err((StatusCode::NOT_FOUND, "No table could contain it.".to_owned()));
    };
    match table.whole(channel, offset).await {
        Ok(Some(found)) => Ok((table, found)),
        Ok(None) => {
            Err((StatusCode::NOT_FOUND, format!("The table does not contain event {offset} of channel {channel}.")))
        }
        Err(Unread::Failed(why)) => Err((StatusCode::SERVICE_UNAVAILABLE, why)),
        Err(Unread::Slow) => Err((StatusCode::SERVICE_UNAVAILABLE, "The table did not answer in time.".to_owned())),
    }
}

/// Shows an event as the service has it now.
pub(crate) async fn at_service(visit: Visit, Path((channel, event)): Path<(ChannelId, EventId)>) -> Response {
    let state = &visit.state;
    let raw = match state.client.event(channel, event).await {
        Ok(raw) => raw,
        Err(error) => {
            let why = format!("The service could not be asked for event {event}: {}.", Chain(&error));
            return visit.problem(StatusCode::BAD_GATEWAY, &why).await;
        }
    };
    let offset = raw.offset.get();
    let (report, recorded) = (state.link.lately().await, recorded(state, channel, offset).await);
    let verifier = verifier_of(&state.channels, &channel.to_string()).ok().map(|(_, verifier)| verifier);
    let said = match verifier {
        Some(verifier) => {
            let raw = raw.clone();
            Badge::of(joined(spawn_blocking(move || verifier.verify(raw)).await).await.name())
        }
        None => Badge::Rejected,
    };
    let known = state.channels.iter().find(|known| known.channel.id == channel);
    let name = known.map_or_else(|| channel.to_string(), |known| known.channel.name.to_string());
    let mut journey = kept(&name, offset, &recorded, said == Badge::Pending);
    let sinks = report.iter().flat_map(|report| lanes(report, channel));
    journey.extend(at_sinks(sinks, &name, offset, &recorded));
    let quarantined = recorded.quarantined.as_ref().and_then(|facts| facts.received);
    let received = recorded.late.as_ref().and_then(|late| late.received).or(quarantined);
    let found = Found {
        event_id: raw.id.map(|id| id.to_string()),
        event: Some(raw.json.clone()),
        created: created(&raw.json),
        received,
        was_read: received.is_some(),
        otherwise: "A moment ago it was ",
        journey,
        notice: html! {
            p.notice.warn { "This is the service's present answer. No table shows whether it was delivered." }
        },
        ..Found::new(&name, channel, offset, raw.json, said)
    };
    show(&visit, found).await
}
