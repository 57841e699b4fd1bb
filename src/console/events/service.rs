//! Lists events with the service's own search if no sink is a table: one channel, no word search, and verdicts computed
//! on each request.

use std::sync::Arc;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use maud::{Markup, html};
use tokio::task::spawn_blocking;

use super::export::line;
use super::filters::filters;
use super::list::{heading, rows};
use super::query::Query;
use crate::page::PageRequest;
use crate::state::State;
use crate::tables::{Facet, Row, Sample};
use crate::text::{text, whole};
use crate::watchers::{WatcherNames, watcher_id};
use api::{Created, Filter, FullSearch, MAX_PAGE};
use net::Chain;
use net::tasks::joined;
use operator::ConfiguredChannel;
use proof::event::{EventType, Object, RawEvent};
use proof::verify::Verdict;
use record::decode;

/// How many events are requested from the service.
const AT_ONCE: u16 = 100;

/// The list, and a notice about its limitations.
pub(super) async fn list(request: &PageRequest, query: &Query, why: &str) -> Markup {
    let state = &request.state;
    let Some(known) = channel(state, query) else { return html! { p.notice.bad { "Channel not found." } } };
    let (sample, found) = (sample(state), search(state, query, known).await);
    let watchers = WatcherNames::of(state.daemon.recent_report().await.as_deref());
    html! {
        (heading(&format!("from the service's own search, channel {}", known.channel.name), request, query))
        div.notice.warn role="note" {
            p { strong { "No table can be read: " } (why) ". This list shows the service's current response, at most " (AT_ONCE)
                " events of one channel. Without a table, the console cannot search for words, offer names and sources in the filters, combine channels, show delivery times, or update live." }
            p { "To enable these features, add a sink to a channel, for example with " code { "type = \"sqlite\"" } " and " code { "search = \"words\"" }
                ", and restart the console." }
        }
        (filters(query, &sample, None, &watchers))
        @match found {
            Err(why) => p.notice.bad role="alert" { (whole(&why)) },
            Ok(found) if found.is_empty() => div.empty { h2 { "No event matches" } p { "The service has no matching events." } },
            Ok(found) => (rows(&found, &watchers)),
        }
        p.sub { "Channel " (text(&known.channel.name)) }
    }
}

/// The lines of all matching events of the chosen channels, or of the first channel if none is chosen.
///
/// # Errors
/// If a channel is unknown or the first request fails, the reason.
pub(super) async fn export(
    state: &Arc<State>,
    query: Query,
    is_csv: bool,
) -> Result<impl Stream<Item = Result<String, String>> + use<>, String> {
    let chosen: Vec<_> = match query.filter.chosen.get(&Facet::Channel) {
        Some(names) => names.iter().map(|name| named(state, name)).collect(),
        None => vec![state.channels.first()],
    };
    let mut searches = Vec::new();
    for known in chosen {
        let known = known.ok_or("The channel is not configured.")?.clone();
        let client = state.client(known.channel.id)?.clone();
        searches.push((FullSearch::new(client, known.channel.id, filter(&query)?, MAX_PAGE), known));
    }
    let mut pages = Box::pin(stream::iter(searches).flat_map(pages));
    let first = pages.next().await.transpose()?;
    let pages = stream::iter(first.map(Ok)).chain(pages);
    let lines = pages.and_then(move |(known, events)| {
        let query = query.clone();
        async move {
            let rows = verified(&query, &known, events).await;
            Ok(stream::iter(rows).map(move |row| Ok(line(&row, is_csv))))
        }
    });
    Ok(lines.try_flatten())
}

type ChannelPage = (ConfiguredChannel, Vec<RawEvent>);

fn pages((search, known): (FullSearch, ConfiguredChannel)) -> impl Stream<Item = Result<ChannelPage, String>> {
    stream::try_unfold((search, known), async |(mut search, known)| {
        let events =
            search.next().await.map_err(|error| format!("For channel {}, {}.", known.channel.name, Chain(&error)))?;
        Ok(events.map(|events| ((known.clone(), events), (search, known))))
    })
}

/// The channel that the query names, or the first channel if it names none.
fn channel<'s>(state: &'s State, query: &Query) -> Option<&'s ConfiguredChannel> {
    match query.filter.chosen.get(&Facet::Channel).and_then(|names| names.first()) {
        Some(name) => named(state, name),
        None => state.channels.first(),
    }
}

fn named<'s>(state: &'s State, name: &str) -> Option<&'s ConfiguredChannel> {
    state.channels.iter().find(|known| *known.channel.name == *name)
}

/// The values that the filter menus offer: the event types and the configured channels.
fn sample(state: &State) -> Sample {
    let types = ["watcher.event", "watcher.status", "operation.status", "wallet.status", "query.status"];
    let of_type = types.map(|kind| Row { kind: kind.to_owned(), ..Row::default() });
    let of_channel =
        state.channels.iter().map(|known| Row { channel: known.channel.name.to_string(), ..Row::default() });
    Sample::of(of_type.into_iter().chain(of_channel).collect())
}

/// The newest events, at most [`AT_ONCE`].
async fn search(state: &State, query: &Query, known: &ConfiguredChannel) -> Result<Vec<Row>, String> {
    let page = state.client(known.channel.id)?.search(known.channel.id, &filter(query)?, AT_ONCE, None).await;
    let page = page.map_err(|error| format!("The request to the service failed: {}.", Chain(&error)))?;
    Ok(verified(query, known, page.events).await)
}

/// The filters that the service applies.
fn filter(query: &Query) -> Result<Filter, String> {
    let values = |facet| query.filter.chosen.get(&facet).cloned().unwrap_or_default();
    let filter = Filter {
        types: values(Facet::Type).iter().map(|kind| EventType::from(&**kind)).collect(),
        // The service accepts one name. Several names are compared here.
        event_name: values(Facet::Name).first().filter(|_| values(Facet::Name).len() == 1).cloned(),
        addresses: values(Facet::Source),
        chain_selectors: values(Facet::Network),
        services: values(Facet::Service),
        statuses: values(Facet::Status),
        created: Created {
            gte: query.filter.from.map(jiff::Timestamp::as_second),
            lte: query.filter.to.map(jiff::Timestamp::as_second),
            ..Created::default()
        },
        ..Filter::default()
    };
    filter.check().map_err(|misfit| format!("The service does not support this search: {misfit}."))?;
    Ok(filter)
}

/// Verifies events, and returns the rows with a chosen verdict and a chosen name.
async fn verified(query: &Query, known: &ConfiguredChannel, events: Vec<RawEvent>) -> Vec<Row> {
    let verifier = known.verifier.clone();
    let verdicts = joined(spawn_blocking(move || verifier.verify_all(events)).await).await;
    let chosen = |facet| query.filter.chosen.get(&facet);
    let (wanted, names) = (chosen(Facet::Verdict), chosen(Facet::Name).filter(|names| names.len() > 1));
    let is_wanted = |row: &Row| {
        wanted.is_none_or(|wanted| wanted.contains(&row.verification))
            && names.is_none_or(|names| row.name.as_ref().is_some_and(|name| names.contains(name)))
    };
    verdicts.iter().map(|verdict| row(known, verdict)).filter(is_wanted).collect()
}

/// The columns of a list for an event that is not in a table.
fn row(known: &ConfiguredChannel, verdict: &Verdict) -> Row {
    let (raw, event) = verdict.parts();
    let mut row = Row {
        channel: known.channel.name.to_string(),
        channel_id: known.channel.id.to_string(),
        offset: raw.offset.get(),
        event_id: raw.id.map(|id| id.to_string()),
        kind: "malformed".to_owned(),
        verification: verdict.name().to_owned(),
        ..Row::default()
    };
    let Some(event) = event else { return row };
    event.kind.as_ref().clone_into(&mut row.kind);
    if let Verdict::Verified(verified) = verdict {
        (row.confidence, _) = record::confidence_and_network(verified);
    }
    row.watcher_id = watcher_id(&raw.json);
    row.status = event.payload.status.as_deref().map(str::to_owned);
    row.time = event.payload.timestamp.and_then(|second| jiff::Timestamp::from_second(second).ok());
    let signed = event.payload.signed.as_deref().and_then(decode);
    if let Some(signed) = signed
        && let Ok(object) = Object::read(signed.get().as_bytes())
    {
        let text = |name| object.get::<String>(name).ok().flatten();
        (row.name, row.service) = (text("name"), text("service"));
        row.network = text("chain_selector");
        let chain_event = object.get::<Object<'_>>("chain_event").ok().flatten();
        row.source = chain_event.and_then(|chain_event| chain_event.get::<String>("address").ok().flatten());
    }
    row
}
