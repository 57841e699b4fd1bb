//! Draws the list: its heading, the rows, and the links below them.

use jiff::Timestamp;
use maud::{Markup, html};

use super::query::Query;
use crate::page::{self, Badge, PageRequest, network_name, time};
use crate::tables::{Excerpt, OnlyWhole, PagePosition, Row, RowPage, Search};
use crate::text::{is_failure, marked, or_dash, text};
use crate::watchers::WatcherNames;
use operator::Report;

pub(super) fn heading(said: &str, request: &PageRequest, query: &Query) -> Markup {
    html! {
        div.heading {
            div {
                h1 { "Events" }
                p.sub { (said) }
            }
            div.actions {
                // The script shows this button, and makes it pause and continue the live list.
                button #live type="button" hidden { span.dot {} span { "Live" } }
                @if !request.visitor.read_only {
                    form method="post" action="/poll" {
                        (request.form_token())
                        input type="hidden" name="back" value=(query.without_position());
                        button type="submit" title="Poll all channels now" {
                            svg.icon viewBox="0 0 16 16" aria-hidden="true" { path d="M13 8a5 5 0 1 1-1.500-3.600M13 2v3h-3" {} }
                            "Poll now"
                        }
                    }
                }
                details.menu {
                    summary.button { "Export" }
                    div.panel {
                        a href=(query.export("jsonl")) download { "JSON Lines, the records as delivered" }
                        a href=(query.export("csv")) download { "CSV, the columns of this list" }
                    }
                }
            }
        }
    }
}

/// The table of events. The first column is the verdict. The other columns are the same as in the service's own
/// console. The class of a column decides on which screens it is shown.
pub(super) fn rows(rows: &[Row], watchers: &WatcherNames) -> Markup {
    let columns = [
        ("Verdict", "verdict-cell"),
        ("Name", "name"),
        ("Type", "type"),
        ("Channel", "where"),
        ("Offset", "number"),
        ("Source", "source mono"),
        ("Service", "service"),
        ("Network", "network"),
        ("Confidence or status", "status"),
        ("Time (UTC)", "time"),
    ];
    let today = Timestamp::now().strftime("%Y-%m-%d").to_string();
    let cells = rows.iter().map(|row| {
        vec![
            Badge::of(&row.verification).show(),
            name(row),
            text(&row.kind),
            html! { span title=(row.channel) { (text(&row.channel)) } },
            html! { (row.offset) },
            watchers.source(row),
            or_dash(row.service.as_deref()),
            row.network.as_deref().map_or_else(|| or_dash(None), network_name),
            status(row),
            list_time(row.time, &today),
        ]
    });
    page::table("Events", "list events", &columns, cells)
}

/// A date and time in UTC. A phone shows only the time if the date is the date of today.
fn list_time(at: Option<Timestamp>, today: &str) -> Markup {
    let Some(at) = at else { return time(None) };
    let date = at.strftime("%Y-%m-%d").to_string();
    html! {
        time datetime=(format!("{at:.0}")) title=(format!("{at} (UTC)")) {
            span.date.today[date == today] { (date) " " } (at.strftime("%H:%M:%S"))
        }
    }
}

/// The name of an event with a link to the event's page. After a search, also the text that matches the search. An
/// event without a name is listed by its type.
fn name(row: &Row) -> Markup {
    // The page of an event that is not in a table shows the service's current response.
    let href = match &row.event_id {
        Some(id) if row.delivered.is_none() => format!("/at-service/{}/{id}", row.channel_id),
        _ => format!("/event/{}/{}", row.channel_id, row.offset),
    };
    let named = row.name.as_deref().filter(|name| !name.is_empty());
    html! {
        a.open href=(href) {
            @if let Some(name) = named { (text(name)) } @else { (text(&row.kind)) span.hidden { " at offset " (row.offset) } }
        }
        @if let Some(Excerpt { field, before, word, after }) = &row.excerpt {
            span.why {
                @if !field.is_empty() { (text(field)) ": " }
                (marked(before, word, after))
            }
        }
    }
}

/// The status or, for an event without one, the signed confidence. A failure is red.
fn status(row: &Row) -> Markup {
    match (&row.status, row.confidence) {
        (None, Some(confidence)) => html! { span title="Confidence: how final the block is" { (confidence.name()) } },
        (status, _) => {
            html! { span.bad[status.as_deref().is_some_and(is_failure)] title=[status.as_ref().map(|_| "Status")] { (or_dash(status.as_deref())) } }
        }
    }
}

pub(super) fn nothing(query: &Query, search: Search, report: Option<&Report>) -> Markup {
    let quarantined = report.map_or(0, |report| report.quarantine.events);
    html! {
        div.empty {
            @if query.is_restricted() {
                h2 { "No event matches" }
                p { "No delivered event matches the filter. " a href="/" { "Show all events" } }
                @if search == Search::Words && !query.words.is_empty() {
                    p.note { "The search finds complete words, and longer words that begin with the last word. The end of an address, a hash or an id is found too, without 0x, if it has at least four digits." }
                }
                @if quarantined > 0 {
                    p.note { "Rejected events are not searched: " (page::events(quarantined)) " in the " a href="/held" { "quarantine" } "." }
                }
            } @else {
                h2 { "No events yet" }
                p { "Events appear here when they are delivered." }
            }
        }
    }
}

/// The link to older events, and how far the search got.
pub(super) fn below(query: &Query, page: &RowPage) -> Markup {
    let last = page.rows.last().and_then(PagePosition::of);
    let last_word = query.filter.words.last().map_or("", String::as_str);
    html! {
        @match page.only_whole {
            Some(OnlyWhole::Many) => p.note {
                "Many events contain the word “" (text(last_word)) "”, so longer words were not searched. To search for longer words with this "
                "prefix, type " code { (text(last_word)) "*" } "."
            },
            Some(OnlyWhole::Slow) => p.note {
                "Too many words start with “" (text(last_word)) "”. Only events with the exact word are shown. "
                a href=(query.patiently(None)) { "Search for longer" }
            },
            None => {},
        }
        nav.pages aria-label="Pagination" {
            @if query.below.is_some() { a.button href=(query.first_page()) { "Newest" } }
            @if let (true, Some(last)) = (page.has_more, &last) {
                a.button.primary rel="next" href=(query.below(last)) { "Older" }
            }
            @if page.is_stopped {
                p.note {
                    @match page.rows.last() {
                        Some(last) => { "The search reached its time limit: older events may exist. Searched back to " (time(last.time)) " UTC. " }
                        None => { "The search timed out before it found an event. " }
                    }
                }
                a.button href=(query.patiently(last.as_ref())) { "Search further back" }
            }
            span.took { (page::events(page.rows.len() as u64)) ", found in " (page.took.as_millis()) " ms" }
        }
    }
}
