//! Draws the list: its heading, the form for the filter, the rows, and the links below them.

use maud::{Markup, html};
use strum::VariantArray;

use super::query::{Query, ROWS};
use crate::page::{self, Badge, PageRequest, time};
use crate::tables::{Excerpt, Facet, OnlyWhole, Page, PagePosition, Row, Sample, Search};
use crate::text::{id, marked, or_dash, text};
use channel::grouped;
use operator::Report;

/// The largest number of values that a column's menu offers.
const OFFERED: usize = 40;

pub(super) fn heading(said: &str, request: &PageRequest, query: &Query) -> Markup {
    html! {
        div.heading {
            div {
                h1 { "Events" }
                p.sub { (said) }
            }
            div.actions {
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

pub(super) fn filters(query: &Query, sample: &Sample, search: Option<Search>) -> Markup {
    html! {
        form.filters role="search" method="get" action="/" {
            div.line {
                @if let Some(search) = search {
                    label.search {
                        span.hidden { "Search the events" }
                        svg.icon viewBox="0 0 16 16" aria-hidden="true" { circle cx="7" cy="7" r="4.500" {} path d="M10.500 10.500L14 14" {} }
                        input #search type="search" name="q" value=(query.words) autocomplete="off" spellcheck="false"
                            placeholder="Search for a name, an address, an id, an amount, or other text";
                    }
                    @if search == Search::None && !query.words.is_empty() {
                        p.note { "The table has no search index, so only the newest events are searched. To create an index, set "
                            code { "search = \"words\"" } " in the sink's configuration." }
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
    let parameter = facet.parameter();
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
                    (facet.heading())
                    @if !chosen.is_empty() { " " span.count { (chosen.len()) } }
                }
                div.panel {
                    fieldset {
                        legend { (facet.heading()) }
                        @for (value, count) in &values {
                            label.choice {
                                input type="checkbox" name=(parameter) value=(value) checked[chosen.contains(value)];
                                span { (text(value)) }
                                @if *count > 0 { span.often { (grouped(*count as u64)) } }
                            }
                        }
                        @if values.is_empty() { p.note { "No values yet." } }
                        label.other {
                            span { "Other value" }
                            input type="text" name=(parameter) autocomplete="off" spellcheck="false";
                        }
                        @if facet == Facet::Verdict {
                            p.note { "Rejected events are not delivered. They are in the " a href="/held" { "quarantine" } "." }
                        }
                        p.note { "The numbers count the newest " (grouped(sample.rows.len() as u64)) " events." }
                    }
                    button.primary type="submit" { "Apply" }
                }
            }
        }
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
            ul.chips aria-label="Active filters" {
                @for (what, value, without) in chips {
                    li {
                        span { (what) ": " (text(&value)) }
                        a href=(without) title="Remove this filter" { span.hidden { "Remove " (what) ": " (text(&value)) } span aria-hidden="true" { "×" } }
                    }
                }
            }
        }
    }
}

/// The table of events. The first column is the verdict. The other columns are the same as in the service's own
/// console.
pub(super) fn rows(rows: &[Row]) -> Markup {
    let columns = [
        ("Verdict", ""),
        ("Type", ""),
        ("Name", "name"),
        ("Source", "mono"),
        ("Service", ""),
        ("Network", "mono"),
        ("Status", ""),
        ("Time (UTC)", "time"),
    ];
    let cells = rows.iter().map(|row| {
        vec![
            Badge::of(&row.verification).show(),
            text(&row.kind),
            name(row),
            row.source.as_deref().map_or_else(|| or_dash(None), id),
            or_dash(row.service.as_deref()),
            row.network.as_deref().map_or_else(|| or_dash(None), network_name),
            status(row),
            time(row.time),
        ]
    });
    page::table("Events", "list events", &columns, cells)
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
        span.where { (text(&row.channel)) " · " (row.offset) }
        @if let Some(Excerpt { field, before, word, after }) = &row.excerpt {
            span.why {
                @if !field.is_empty() { (text(field)) ": " }
                (marked(before, word, after))
            }
        }
    }
}

/// The status or, for an event without one, the signed confidence.
fn status(row: &Row) -> Markup {
    match (&row.status, row.confidence) {
        (None, Some(confidence)) => html! { span title="Confidence: how final the block is" { (confidence.name()) } },
        (status, _) => or_dash(status.as_deref()),
    }
}

/// Returns the name of a published network. Otherwise shortens a chain selector to its first and last digits, because these digits usually identify the chain.
fn network_name(network: &str) -> Markup {
    let is_selector = network.len() > 12 && network.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(name) = record::network_name(network) {
        html! { span title=(network) { (name) } }
    } else if is_selector {
        html! { span.id title=(network) { (&network[..5]) "…" (&network[network.len() - 4..]) } }
    } else {
        text(network)
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
                    p.note { "The search finds complete words. Write an address with its 0x. The last word also matches as a prefix." }
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
pub(super) fn below(query: &Query, page: &Page) -> Markup {
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
            span.took { (page.rows.len()) " events, found in " (page.took.as_millis()) " ms" }
        }
    }
}
