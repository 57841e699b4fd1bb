//! The list of events: filters, pages, the number of new events, a manual poll, and an export of the list.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::json;

use super::page::{self, Badge, PageRequest};
use super::tables::{HitCount, MOST_NEW, OpenSource, RowPage, Sample, Search, Table};
use super::text::whole;
use super::watchers::WatcherNames;
use operator::Report;

mod export;
mod filters;
mod histogram;
mod list;
mod poll;
pub(super) mod query;
mod service;

pub(super) use poll::poll;

use filters::filters;
use histogram::histogram;
use list::{below, heading, nothing, rows};
use query::Query;

pub(super) async fn list(request: PageRequest) -> Response {
    let query = Query::parse(&request.query, Timestamp::now());
    let content = match &request.state.source {
        OpenSource::Table(table) => of_table(&request, table, &query).await,
        OpenSource::Service(why) => service::list(&request, &query, why).await,
    };
    request.page("Events", "/", &content).await
}

async fn of_table(request: &PageRequest, table: &Table, query: &Query) -> Markup {
    let (sample, mark) = (table.sample().await.unwrap_or_default(), table.mark().await.unwrap_or_default());
    let page = match query.problem(table.search) {
        Some(wrong) => Err(wrong),
        None => table
            .page(&query.filter, query.below.as_ref(), query.rows, query.is_patient)
            .await
            .map_err(|error| error.to_string()),
    };
    let report = request.state.daemon.recent_report().await;
    let watchers = WatcherNames::of(report.as_deref());
    html! {
        (heading(&said(table, &sample, query, page.as_ref().ok()), request, query))
        (filters(query, &sample, Some(table.search), &watchers))
        @match &page {
            Err(why) => p.notice.bad role="alert" { (whole(why)) },
            Ok(page) => {
                // While the page is live, the script replaces the content of this element.
                div #list data-mark=[query.below.is_none().then_some(mark)] data-query=(query.without_position()) {
                    @if query.below.is_none() { (histogram(&sample, &query.filter, Timestamp::now())) }
                    @if let Some(report) = &report { (quarantined(report)) }
                    @if page.rows.is_empty() && !page.is_stopped { (nothing(query, table.search, report.as_deref())) } @else { (rows(&page.rows, &watchers)) }
                    (below(query, page))
                }
                p #arrived.arrived hidden aria-live="polite" { a href=(query.first_page()) { span {} " – show" } }
            },
        }
    }
}

/// The number of events and their source, in words.
fn said(table: &Table, sample: &Sample, query: &Query, page: Option<&RowPage>) -> String {
    let whole = page.filter(|page| !page.has_more && !page.is_stopped && query.below.is_none());
    let count = match (whole, page.and_then(|page| page.count)) {
        (Some(page), _) => page::events(page.rows.len() as u64),
        (None, Some(HitCount::Exactly(count))) => page::events(count as u64),
        (None, Some(HitCount::AtLeast(count))) => format!("at least {}", page::events(count as u64)),
        _ if !query.is_restricted() && sample.total > 0 => format!("about {}", page::events(rounded(sample.total))),
        _ => match page.filter(|page| page.has_more && query.below.is_none()) {
            Some(page) => format!("the newest {}", page::events(page.rows.len() as u64)),
            None => "events".to_owned(),
        },
    };
    let has_words = !query.filter.words.is_empty();
    let count = if has_words { format!("{count} with these words") } else { count };
    let index = match table.search {
        Search::Words if has_words && table.finds_last_written_first() => "the last written first",
        Search::Words => "with a word index",
        Search::Trigrams => "with a trigram index",
        Search::None => "without a search index",
    };
    format!("{count} from {}, {index}", table.described())
}

/// Rounds an estimate down to two significant digits.
fn rounded(count: u64) -> u64 {
    let step = 10_u64.pow(count.max(1).ilog10().saturating_sub(1));
    count / step * step
}

/// A link to the quarantine, because no table contains rejected events.
fn quarantined(report: &Report) -> Markup {
    let count = report.quarantine.events;
    html! {
        @if count > 0 {
            p.aside {
                (Badge::Rejected.show())
                span { (page::events(count)) " failed verification and " @if count == 1 { "was" } @else { "were" } " not delivered. "
                    a href="/held" { "Show the quarantine" } }
            }
        }
    }
}

/// Returns how many events have arrived since a page was made.
pub(super) async fn new_ones(request: PageRequest) -> Response {
    let query = Query::parse(&request.query, Timestamp::now());
    let OpenSource::Table(table) = &request.state.source else { return StatusCode::NOT_FOUND.into_response() };
    let count = table.arrived(&query.filter, &page::member(request.query.as_bytes(), "mark").unwrap_or_default()).await;
    match count {
        Ok(count) => Json(json!({ "count": count, "most": count >= MOST_NEW })).into_response(),
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

/// Returns the list as a file.
pub(super) async fn export(PageRequest { state, query, .. }: PageRequest) -> Response {
    let is_csv = page::member(query.as_bytes(), "as").is_some_and(|kind| kind == "csv");
    let query = Query::parse(&query, Timestamp::now());
    let (kind, name, head) = if is_csv {
        ("text/csv; charset=utf-8", "attachment; filename=\"events.csv\"", export::CSV_HEAD)
    } else {
        ("application/x-ndjson", "attachment; filename=\"events.jsonl\"", "")
    };
    let lines = match &state.source {
        OpenSource::Service(_) => match service::export(&state, query, is_csv).await {
            Ok(lines) => lines.left_stream(),
            Err(why) => return (StatusCode::BAD_GATEWAY, why).into_response(),
        },
        OpenSource::Table(table) => match query.problem(table.search) {
            Some(wrong) => return (StatusCode::BAD_REQUEST, wrong).into_response(),
            None => export::lines(table.clone(), query, is_csv).right_stream(),
        },
    };
    let lines = stream::iter([Ok(head.to_owned())]).chain(lines);
    let body = Body::from_stream(export::aborted(lines, is_csv));
    ([(header::CONTENT_TYPE, kind), (header::CONTENT_DISPOSITION, name)], body).into_response()
}
