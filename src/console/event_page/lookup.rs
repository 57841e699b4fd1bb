//! Finds an event that was delivered to a table, or that the service shows.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::history::{EventOrigin, HistoryStep, ledger_steps, sink_steps, steps_after_cursor};
use super::show::show;
use super::shown_event::{ShownEvent, created, lanes};
use crate::page::{Badge, PageRequest, form};
use crate::state::State;
use crate::tables::{FullRow, OpenSource, Row, Table};
use crate::text::text;
use net::Chain;
use net::tasks::joined;
use operator::api::{GetJourney, Journey};
use operator::verifier_of;
use proof::event::{ChannelId, EventId, Offset};

pub(crate) async fn delivered(request: PageRequest, Path((channel, offset)): Path<(ChannelId, i64)>) -> Response {
    let state = &request.state;
    let (table, full_row) = match of_table(state, channel, offset).await {
        Ok(found) => found,
        Err((status, why)) => return request.problem(status, &why).await,
    };
    let (report, mut recorded) = (state.daemon.recent_report().await, recorded(state, channel, offset).await);
    let row = &full_row.row;
    // The row already shows the first delivery to this table, even if it was late. A late delivery to this table therefore
    // becomes a step of the history only if an operator requested it. Every late delivery to another sink becomes a step.
    recorded.delivered_late.retain(|late| late.is_asked_for || *late.sink != *table.sink);
    let sinks = || report.iter().flat_map(|report| lanes(report, channel));
    let here = sinks().filter(|lane| *lane.sink == *table.sink);
    let here = here.flat_map(|lane| steps_after_cursor(lane, &row.channel, offset, &recorded));
    let elsewhere = sink_steps(sinks().filter(|lane| *lane.sink != *table.sink), &row.channel, offset, &recorded);
    let mut history = vec![delivery(row, &table.sink)];
    history.extend(ledger_steps(&row.channel, offset, &recorded, false));
    history.extend(here);
    history.extend(elsewhere);
    let event = full_row.event().map(|event| Bytes::copy_from_slice(event.as_bytes()));
    let actions = html! {
        @if !request.visitor.read_only && event.is_some() {
            // A sink that has not reached the event gets it in order.
            @for lane in sinks().filter(|lane| lane.cursor.is_some_and(|cursor| cursor.get() >= offset)) {
                a.button href={ "/do/redeliver?" (form(&[("channel", &row.channel), ("channel_id", &row.channel_id), ("sink", &lane.sink), ("offset", &offset.to_string())])) } {
                    span { "Replay to " (text(&lane.sink)) "…" }
                }
            }
        }
    };
    // If the table no longer answers, the page shows only the data that was read above.
    let followed = table.followed(channel, offset).await.unwrap_or_default();
    let found = ShownEvent {
        event_id: row.event_id.clone(),
        event,
        origin: EventOrigin { created: row.time, received: row.received, was_read: true, proved: None },
        delivered: row.delivered,
        followed,
        stored_verdict_intro: "At delivery, the verdict was ",
        history,
        actions,
        neighbors: neighbors(table, channel, offset).await,
        raw: format!("/event/{channel}/{offset}/raw"),
        ..ShownEvent::new(
            &row.channel,
            channel,
            offset,
            Bytes::from(full_row.record.clone()),
            Badge::of(&row.verification),
        )
    };
    show(&request, found).await
}

/// The delivery that the row records.
fn delivery(row: &Row, sink: &str) -> HistoryStep {
    let detail = if row.verification == "verified" {
        "as a row of this table, after its verification"
    } else {
        "as a row of this table, marked as unsigned"
    };
    HistoryStep::new(row.delivered, html! { "Delivered to " (text(sink)) }, detail)
}

/// Links to the events of the same channel with the next lower and the next higher offset.
async fn neighbors(table: &Table, channel: ChannelId, offset: i64) -> Markup {
    // If the table no longer answers, the page shows no links.
    let [lower, higher] = table.neighbors(channel, offset).await.unwrap_or_default();
    html! {
        span.neighbors {
            @if let Some(higher) = higher { a rel="next" data-key="k" href=(format!("/event/{channel}/{higher}")) { "Newer event" } }
            @if let Some(lower) = lower { a rel="prev" data-key="j" href=(format!("/event/{channel}/{lower}")) { "Older event" } }
        }
    }
}

/// Asks the daemon for its records of the event. The result is empty if no daemon answers. The head of the page then
/// says that the daemon is unreachable.
async fn recorded(state: &State, channel: ChannelId, offset: i64) -> Journey {
    let Some(offset) = Offset::new(offset) else { return Journey::default() };
    let asked = state.daemon.ask(&GetJourney { channel: channel.to_string(), offset }).await;
    asked.unwrap_or_default()
}

/// Returns only the service's event, as a file.
pub(crate) async fn delivered_raw(
    request: PageRequest,
    Path((channel, offset)): Path<(ChannelId, i64)>,
) -> Result<Response, (StatusCode, String)> {
    let (_, found) = of_table(&request.state, channel, offset).await?;
    let event = found.event().map_or_else(|| found.record.clone(), str::to_owned);
    let name = format!("attachment; filename=\"event-{offset}.json\"");
    Ok(([(header::CONTENT_TYPE, "application/json"), (header::CONTENT_DISPOSITION, &*name)], event).into_response())
}

pub(crate) async fn of_table(
    state: &State,
    channel: ChannelId,
    offset: i64,
) -> Result<(&Table, FullRow), (StatusCode, String)> {
    let OpenSource::Table(table) = &state.source else {
        return Err((StatusCode::NOT_FOUND, "The console has no table to read this event from.".to_owned()));
    };
    match table.full_row(channel, offset).await {
        Ok(Some(found)) => Ok((&**table, found)),
        Ok(None) => {
            Err((StatusCode::NOT_FOUND, format!("The table does not contain event {offset} of channel {channel}.")))
        }
        Err(error) => Err((StatusCode::SERVICE_UNAVAILABLE, error.to_string())),
    }
}

/// Shows an event as the service has it now.
pub(crate) async fn at_service(request: PageRequest, Path((channel, event)): Path<(ChannelId, EventId)>) -> Response {
    let state = &request.state;
    let read = match state.client(channel) {
        Ok(client) => client.event(channel, event).await.map_err(|error| Chain(&error).to_string()),
        Err(why) => Err(why),
    };
    let raw = match read {
        Ok(raw) => raw,
        Err(error) => {
            let why = format!("Event {event} could not be read from the service: {error}.");
            return request.problem(StatusCode::BAD_GATEWAY, &why).await;
        }
    };
    let offset = raw.offset.get();
    let (report, recorded) = (state.daemon.recent_report().await, recorded(state, channel, offset).await);
    let (name, verdict) = match verifier_of(&state.channels, &channel.to_string()) {
        Ok((known, verifier)) => {
            let raw = raw.clone();
            let verdict = joined(spawn_blocking(move || verifier.verify(raw)).await).await;
            (known.name.to_string(), Badge::of(verdict.name()))
        }
        Err(_) => (channel.to_string(), Badge::Rejected),
    };
    let mut history = ledger_steps(&name, offset, &recorded, verdict == Badge::Pending);
    let sinks = report.iter().flat_map(|report| lanes(report, channel));
    history.extend(sink_steps(sinks, &name, offset, &recorded));
    let quarantined = recorded.quarantined.as_ref().and_then(|facts| facts.received);
    let received = recorded.late.as_ref().and_then(|late| late.received).or(quarantined);
    let found = ShownEvent {
        event_id: raw.id.map(|id| id.to_string()),
        event: Some(raw.json.clone()),
        origin: EventOrigin { created: created(&raw.json), received, was_read: received.is_some(), proved: None },
        stored_verdict_intro: "A moment ago, the verdict was ",
        history,
        notice: html! {
            p.notice.warn { "This is the service's current response. Without a table, the console cannot show whether the event was delivered." }
        },
        ..ShownEvent::new(&name, channel, offset, raw.json, verdict)
    };
    show(&request, found).await
}
