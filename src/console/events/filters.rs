//! Draws the form for the filter: the search, a menu for each column, and the active filters.

use std::collections::BTreeMap;

use maud::{Markup, html};
use strum::VariantArray;

use super::query::{Query, ROWS};
use crate::page::{events, network_name, search_field};
use crate::tables::{Facet, Sample, Search};
use crate::text::{id, text};
use crate::watchers::WatcherNames;
use channel::grouped;

/// The largest number of values that a column's menu offers.
const OFFERED: usize = 40;

pub(super) fn filters(query: &Query, sample: &Sample, search: Option<Search>, watchers: &WatcherNames) -> Markup {
    let names = watchers.by_source(&sample.rows);
    html! {
        form.filters role="search" method="get" action="/" {
            div.line {
                @if search.is_some() {
                    (search_field(
                        "Search the events",
                        &query.words,
                        "Name, id, amount, address or its end",
                        Some("known"),
                    ))
                    (suggestions(sample))
                }
                button.primary type="submit" { "Search" }
                @if query.is_restricted() { a.clear href="/" { "Clear" } }
            }
            @if search == Some(Search::None) && !query.words.is_empty() {
                p.note { "The table has no search index, so only the newest events are searched. To create an index, set "
                    code { "search = \"words\"" } " in the sink's configuration." }
            }
            // On a phone, this checkbox shows and hides the filters. It has no name, so the form does not send it.
            input #fold type="checkbox";
            label.button.fold for="fold" {
                @let chosen = query.chips().len();
                "Filters" @if chosen > 0 { " " span.count { (chosen) } }
            }
            div.line.facets {
                @for facet in Facet::VARIANTS { (choices(*facet, query, sample, &names)) }
                (times(query))
            }
            @if query.rows != ROWS { input type="hidden" name="rows" value=(query.rows); }
        }
        (chips(query))
    }
}

/// The names, services and addresses of the newest events. A browser offers them while the user types.
fn suggestions(sample: &Sample) -> Markup {
    html! {
        datalist #known {
            @for facet in [Facet::Name, Facet::Service, Facet::Source] {
                @for (value, _) in sample.values(facet).into_iter().take(OFFERED) { option value=(value) {} }
            }
        }
    }
}

/// The menu of a column's values: the values in the sample and the chosen values.
fn choices(facet: Facet, query: &Query, sample: &Sample, names: &BTreeMap<&str, &str>) -> Markup {
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
                    // Only the values scroll, so that the button below them is always visible.
                    div.values { fieldset {
                        legend { (facet.heading()) }
                        @for (value, count) in &values {
                            label.choice {
                                input type="checkbox" name=(parameter) value=(value) checked[chosen.contains(value)];
                                span { (shown(facet, value, names)) }
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
                        p.note { "The numbers count the newest " (events(sample.rows.len() as u64)) "." }
                    } }
                    button.primary type="submit" { "Apply" }
                }
            }
        }
    }
}

/// A value of a column: a network is shown by its name, and an address with the name of its watcher.
fn shown(facet: Facet, value: &str, names: &BTreeMap<&str, &str>) -> Markup {
    match (facet, names.get(value)) {
        (Facet::Network, _) => network_name(value),
        (Facet::Source, Some(name)) => html! { (text(name)) " " span.sub { (id(value)) } },
        _ => text(value),
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
                        span { (what) ": " @if what == Facet::Network.heading() { (network_name(&value)) } @else { (text(&value)) } }
                        a href=(without) title="Remove this filter" { span.hidden { "Remove " (what) ": " (text(&value)) } span aria-hidden="true" { "×" } }
                    }
                }
            }
        }
    }
}
