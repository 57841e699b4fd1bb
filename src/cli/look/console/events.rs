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
use strum::VariantArray;

use super::access::Visitor;
use super::page::{self, Badge, Shell, number, time};
use super::tables::{
    Count, Facet, MOST_NEW, MOST_ROWS, OnlyWhole, Page, Piece, Place, Row, Sample, Search, Source, Stopped, Table,
    Unread,
};
use super::text::{id, marked, or_dash, text, whole};
use super::{State, service};
use operator::Report;

mod export;
mod poll;
mod query;

pub(super) use poll::poll;
pub(super) use query::Query;

/// The largest number of values that a column's menu offers.
const OFFERED: usize = 40;

/// The number of rows on a page, unless another number is requested.
pub(super) const ROWS: usize = 100;

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

pub(super) fn heading(said: &str, shell: &Shell, query: &Query) -> Markup {
    html! {
        div.heading {
            div {
                h1 { "Events" }
                p.sub { (said) }
            }
            div.actions {
                @if !shell.is_read_only() {
                    form method="post" action="/poll" {
                        (shell.form_token())
                        input type="hidden" name="back" value=(query.without_place());
                        button type="submit" title="Have every channel ask the service now" { (poll_icon()) "Poll now" }
                    }
                }
                details.menu {
                    summary.button { "Export" }
                    div.panel {
                        a href=(query.export("jsonl")) download { "JSON lines, as delivered" }
                        a href=(query.export("csv")) download { "CSV, the columns of this list" }
                    }
                }
            }
        }
    }
}

fn poll_icon() -> Markup {
    html! {
        svg.icon viewBox="0 0 16 16" aria-hidden="true" { path d="M13 8a5 5 0 1 1-1.500-3.600M13 2v3h-3" {} }
    }
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

/// The form for the filter.
pub(super) fn filters(query: &Query, sample: &Sample, search: Option<Search>) -> Markup {
    html! {
        form.filters role="search" method="get" action="/" {
            div.line {
                @if let Some(search) = search {
                    label.search {
                        span.hidden { "Words of an event" }
                        svg.icon viewBox="0 0 16 16" aria-hidden="true" { circle cx="7" cy="7" r="4.500" {} path d="M10.500 10.500L14 14" {} }
                        input #search type="search" name="q" value=(query.words) autocomplete="off" spellcheck="false"
                            placeholder="Search all texts: a name, an address, an id, an amount";
                    }
                    @if search == Search::None && !query.words.is_empty() {
                        p.note { "There is no index of words: the texts of the newest events are looked through. "
                            code { "search = \"words\"" } " in the sink's table of the configuration makes one." }
                    }
                }
                button.primary type="submit" { "Search" }
                @if query.is_restricted() { a.clear href="/" { "Clear" } }
            }
            div.line.facets {
                @for facet in Facet::VARIANTS { (choices(*facet, query, sample)) }
                (times(query))
            }
            @if query.rows != ROWS { input type="hidden" name="rows" value=(query.rows); }
        }
        (chips(query))
    }
}

/// The menu of a column's values: the values in the sample and the chosen values.
fn choices(facet: Facet, query: &Query, sample: &Sample) -> Markup {
    let word: &str = facet.into();
    let chosen = query.filter.chosen.get(&facet).map_or(&[][..], Vec::as_slice);
    let mut values = sample.values(facet);
    let is_single = facet == Facet::Channel && values.len() < 2 && chosen.is_empty();
    values.truncate(OFFERED);
    for value in chosen {
        if !values.iter().any(|(known, _)| known == value) {
            values.push((value.clone(), 0));
        }
    }
    html! {
        @if !is_single {
            details.menu {
                summary.button.chosen[!chosen.is_empty()] {
                    (title(facet))
                    @if !chosen.is_empty() { " " span.count { (chosen.len()) } }
                }
                div.panel {
                    fieldset {
                        legend { (title(facet)) }
                        @for (value, count) in &values {
                            label.choice {
                                input type="checkbox" name=(word) value=(value) checked[chosen.contains(value)];
                                span { (text(value)) }
                                @if *count > 0 { span.often { (number(*count as u64)) } }
                            }
                        }
                        @if values.is_empty() { p.note { "No value was seen." } }
                        label.other {
                            span { "Another value" }
                            input type="text" name=(word) autocomplete="off" spellcheck="false";
                        }
                        @if facet == Facet::Verdict {
                            p.note { "What was rejected was delivered nowhere: it is " a href="/held" { "held back" } "." }
                        }
                        p.note { "The numbers: how many of the newest " (number(sample.rows.len() as u64)) " events have it." }
                    }
                    button.primary type="submit" { "Apply" }
                }
            }
        }
    }
}

pub(super) fn title(facet: Facet) -> &'static str {
    match facet {
        Facet::Verdict => "Verdict",
        Facet::Type => "Type",
        Facet::Name => "Name",
        Facet::Source => "Source",
        Facet::Service => "Service",
        Facet::Network => "Network",
        Facet::Status => "Status",
        Facet::Channel => "Channel",
    }
}

fn times(query: &Query) -> Markup {
    let is_chosen = !query.from.is_empty() || !query.to.is_empty();
    html! {
        details.menu {
            summary.button.chosen[is_chosen] { "Time" }
            div.panel {
                fieldset {
                    legend { "Time (UTC)" }
                    p.presets {
                        @for (from, name) in [("1h", "Last hour"), ("24h", "Last day"), ("168h", "Last week")] {
                            a href=(query.since(from)) { (name) }
                        }
                    }
                    label.other { span { "From" } input type="text" name="from" value=(query.from) placeholder="1h, or 2026-05-14T12:00"; }
                    label.other { span { "To" } input type="text" name="to" value=(query.to) placeholder="2026-05-14T13:00"; }
                }
                button.primary type="submit" { "Apply" }
            }
        }
    }
}

/// The chosen values, each with a link that removes it.
fn chips(query: &Query) -> Markup {
    let chips = query.chips();
    html! {
        @if !chips.is_empty() {
            ul.chips aria-label="What is chosen" {
                @for (what, value, without) in chips {
                    li {
                        span { (what) ": " (text(&value)) }
                        a href=(without) title="Choose it no more" { span.hidden { "Without " (what) ": " (text(&value)) } span aria-hidden="true" { "×" } }
                    }
                }
            }
        }
    }
}

/// The table of events. Its columns are the columns of the service's own console, and the verdict.
pub(super) fn rows(rows: &[Row]) -> Markup {
    html! {
        div.scroll role="region" aria-label="Events" tabindex="0" {
            table.events {
                thead { tr {
                    @for name in ["Verdict", "Type", "Name", "Source", "Service", "Network", "Status", "Time (UTC)"] {
                        th scope="col" { (name) }
                    }
                } }
                tbody { @for row in rows { (line(row)) } }
            }
        }
    }
}

fn line(row: &Row) -> Markup {
    // An event that is not in a table is shown as the service has it.
    let href = match &row.event_id {
        Some(id) if row.delivered.is_none() => format!("/at-service/{}/{id}", row.channel_id),
        _ => format!("/event/{}/{}", row.channel_id, row.offset),
    };
    // An event without a name is listed by its type.
    let named = row.name.as_deref().filter(|name| !name.is_empty());
    html! {
        tr data-row {
            td data-label="Verdict" { (Badge::of(&row.verification).show()) }
            td data-label="Type" { (text(&row.kind)) }
            td.name data-label="Name" {
                a.open href=(href) {
                    @if let Some(name) = named { (text(name)) } @else { (text(&row.kind)) span.hidden { " at offset " (row.offset) } }
                }
                span.where { (text(&row.channel)) " · " (row.offset) }
                @if let Some(piece) = &row.piece { (why(piece)) }
            }
            td.mono data-label="Source" { @if let Some(source) = &row.source { (id(source)) } @else { (or_dash(None)) } }
            td data-label="Service" { (or_dash(row.service.as_deref())) }
            td.mono data-label="Network" { @if let Some(network) = &row.network { (network_name(network)) } @else { (or_dash(None)) } }
            td data-label="Status" { (or_dash(row.status.as_deref())) }
            td.time data-label="Time (UTC)" { (time(row.time)) }
        }
    }
}

/// Why a row matches the search.
fn why(piece: &Piece) -> Markup {
    let Piece { field, before, word, after } = piece;
    html! {
        span.why {
            @if !field.is_empty() { (text(field)) ": " }
            (marked(before, word, after))
        }
    }
}

/// A chain selector, shortened to its ends, which usually identify it.
fn network_name(network: &str) -> Markup {
    let is_selector = network.len() > 12 && network.bytes().all(|byte| byte.is_ascii_digit());
    if is_selector {
        html! { span.id title=(network) { (&network[..5]) "…" (&network[network.len() - 4..]) } }
    } else {
        text(network)
    }
}

fn nothing(query: &Query, search: Search, report: Option<&Report>) -> Markup {
    let held_back = report.map_or(0, |report| report.quarantine.events);
    html! {
        div.empty {
            @if query.is_restricted() {
                h2 { "No event matches" }
                p { "Nothing that was delivered into this table is like that. " a href="/" { "Show all events" } }
                @if search == Search::Words && !query.words.is_empty() {
                    p.note { "Words are looked for whole, as they are written: an address with its 0x. Of the last word the beginning is enough." }
                }
                @if held_back > 0 {
                    p.note { "What did not verify is not searched: " (page::events(held_back)) " " a href="/held" { "held back" } "." }
                }
            } @else {
                h2 { "No events yet" }
                p { "They appear here when they are delivered." }
            }
        }
    }
}

/// The link to older events, and how far the search got.
fn below(query: &Query, page: &Page) -> Markup {
    let last = page.rows.last().and_then(Place::of);
    let last_word = query.filter.words.iter().flatten().next_back().map_or("", String::as_str);
    html! {
        @match page.only_whole {
            Some(OnlyWhole::Many) => p.note {
                "Many events hold the word “" (text(last_word)) "”. Longer words that begin so were not looked for: write "
                code { (text(last_word)) "*" } " for them."
            },
            Some(OnlyWhole::Slow) => p.note {
                "So many words begin with “" (text(last_word)) "” that there was no time for them: these are the events with the \
                 whole word. " a href=(query.patiently(None)) { "Look for longer" }
            },
            None => {},
        }
        nav.pages aria-label="Further events" {
            @if query.below.is_some() { a.button href=(query.first_page()) { "Newest" } }
            @if let (true, Some(last)) = (page.has_more, &last) {
                a.button.primary rel="next" href=(query.below(last)) { "Older" }
            }
            @if let Some(Stopped { at }) = page.stopped {
                p.note {
                    @match at {
                        Some(at) => { "Looked through everything down to " (time(Some(at))) " UTC. " }
                        None => { "No row could be looked at in the time that a page takes. " }
                    }
                }
                a.button href=(query.patiently(last.as_ref())) { "Look further back" }
            }
            span.took { (page.rows.len()) " shown, found in " (page.took.as_millis()) " ms" }
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

/// Formats rows as lines of a file, and returns the content type.
pub(super) fn lines(rows: &[Row], is_csv: bool) -> (String, &'static str) {
    let (kind, _) = export::kind(is_csv);
    let lines = rows.iter().map(|row| if is_csv { export::csv(row) } else { export::plain(row) + "\n" });
    let head = if is_csv { export::CSV_HEAD } else { "" };
    (std::iter::once(head.to_owned()).chain(lines).collect(), kind)
}
