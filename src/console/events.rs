//! The list of events: filters, pages, the number of new events, a manual poll, and an export of the list.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Extension, RawQuery, State as Of};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::json;

use super::access::Visitor;
use super::page::{self, Badge, Shell, number};
use super::state::State;
use super::tables::{Count, MOST_NEW, MOST_ROWS, Page, Sample, Search, Source, Table, Unread};
use super::text::whole;
use operator::Report;

mod export;
mod list;
mod poll;
mod query;
mod service;

pub(super) use poll::poll;

use list::{below, filters, heading, nothing, rows};
use query::Query;

/// The largest number of rows in an export.
const EXPORTED: usize = 100_000;

/// Shows the list.
pub(super) async fn list(
    Of(state): Of<Arc<State>>,
    Extension(visitor): Extension<Visitor>,
    RawQuery(query): RawQuery,
) -> Response {
    let query = Query::parse(&query.unwrap_or_default(), Timestamp::now());
    let shell = Shell::of(&state, &visitor, "Events", "/").await;
    let content = match &state.source {
        Source::Table(table) => of_table(&state, &shell, table, &query).await,
        Source::Service(why) => service::list(&state, &shell, &query, why).await,
    };
    shell.page(&content)
}

async fn of_table(state: &State, shell: &Shell, table: &Table, query: &Query) -> Markup {
    let (sample, mark) = (table.sample().await.unwrap_or_default(), table.mark().await.unwrap_or_default());
    let page = match query.problem(table.search) {
        Some(wrong) => Err(wrong),
        None => table.page(&query.filter, query.below.as_ref(), query.rows, query.is_patient).await.map_err(|unread| {
            match unread {
                Unread::Failed(why) => why,
                Unread::Slow => "The table did not answer in time.".to_owned(),
            }
        }),
    };
    let report = state.link.lately().await;
    html! {
        (heading(&said(table, &sample, query, page.as_ref().ok()), shell, query))
        (filters(query, &sample, Some(table.search)))
        @if let Some(report) = &report { (held_back(report)) }
        @match &page {
            Err(why) => p.notice.bad role="alert" { (whole(why)) },
            Ok(page) => {
                @if query.below.is_none() {
                    p #arrived.arrived hidden aria-live="polite" data-mark=(mark) data-query=(query.without_place()) {
                        a href=(query.first_page()) { span {} " – show them" }
                    }
                }
                @if page.rows.is_empty() && page.stopped.is_none() { (nothing(query, table.search, report.as_deref())) } @else { (rows(&page.rows)) }
                (below(query, page))
            },
        }
    }
}

/// The number of events and their source, in words.
fn said(table: &Table, sample: &Sample, query: &Query, page: Option<&Page>) -> String {
    let whole = page.filter(|page| !page.has_more && page.stopped.is_none() && query.below.is_none());
    let count = match (whole, page.and_then(|page| page.count), sample.estimate(&query.filter)) {
        (Some(page), ..) => page::events(page.rows.len() as u64),
        (None, Some(Count::Exactly(count)), _) => page::events(count as u64),
        (None, Some(Count::AtLeast(count)), _) => format!("at least {}", page::events(count as u64)),
        (None, None, Some(count)) if count > 0 => format!("about {} events", number(rounded(count))),
        _ => match page.filter(|page| page.has_more && query.below.is_none()) {
            Some(page) => format!("the newest {}", page::events(page.rows.len() as u64)),
            None => "events".to_owned(),
        },
    };
    let count = if query.filter.words.is_some() { format!("{count} with these words") } else { count };
    let index = match table.search {
        Search::Words => "its words are indexed",
        Search::Trigrams => "any part of its texts is indexed",
        Search::None => "no index of words",
    };
    format!("{count} from {}, {index}", table.described())
}

/// Rounds an estimate down to two significant digits.
fn rounded(count: u64) -> u64 {
    let step = 10_u64.pow(count.max(1).ilog10().saturating_sub(1));
    count / step * step
}

/// Rejected events are not in any table: links to the page that lists them.
fn held_back(report: &Report) -> Markup {
    let count = report.quarantine.events;
    html! {
        @if count > 0 {
            p.aside {
                (Badge::Rejected.show())
                span { (page::events(count)) " did not verify and " @if count == 1 { "was" } @else { "were" } " not delivered. "
                    a href="/held" { "See why" } }
            }
        }
    }
}

/// Returns how many events have arrived since a page was made.
pub(super) async fn new_ones(Of(state): Of<Arc<State>>, RawQuery(query): RawQuery) -> Response {
    let raw = query.unwrap_or_default();
    let query = Query::parse(&raw, Timestamp::now());
    let mark = url::form_urlencoded::parse(raw.as_bytes()).find(|(name, _)| name == "mark");
    let Source::Table(table) = &state.source else { return StatusCode::NOT_FOUND.into_response() };
    let count = table.arrived(&query.filter, &mark.map(|(_, mark)| mark).unwrap_or_default()).await;
    match count {
        Ok(count) => Json(json!({ "count": count, "most": count >= MOST_NEW })).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Returns the list as a file. The pages are streamed as they are read.
pub(super) async fn export(Of(state): Of<Arc<State>>, RawQuery(query): RawQuery) -> Response {
    let raw = query.unwrap_or_default();
    let query = Query::parse(&raw, Timestamp::now());
    let is_csv = url::form_urlencoded::parse(raw.as_bytes()).any(|(name, value)| name == "as" && value == "csv");
    let Source::Table(table) = &state.source else { return service::export(&state, &query, is_csv).await };
    if let Some(wrong) = query.problem(table.search) {
        return (StatusCode::BAD_REQUEST, wrong).into_response();
    }
    let (kind, name) = export::kind(is_csv);
    let head = if is_csv { export::CSV_HEAD } else { "" };
    let begin = Some((query.below.clone(), 0));
    let pages = stream::unfold((state.clone(), query, begin), move |(state, query, at)| async move {
        let (below, count) = at?;
        let (lines, next) = export::page(&state, &query, below.as_ref(), is_csv).await;
        let count = count + MOST_ROWS;
        let next = next.filter(|_| count < EXPORTED).map(|next| (Some(next), count));
        Some((Ok::<_, std::convert::Infallible>(lines), (state, query, next)))
    });
    let body = Body::from_stream(stream::iter([Ok(head.to_owned())]).chain(pages));
    ([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], body).into_response()
}
