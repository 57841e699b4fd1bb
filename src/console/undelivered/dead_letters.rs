//! The dead letters, grouped by their sink and the sink's last response.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};

use super::{Query, filter, listed};
use crate::page::{self, form, segment, time};
use crate::text::text;
use channel::grouped;
use operator::api::{ChannelEntry, DeadLetter};

/// How many different responses of a sink are shown.
const RESPONSES: usize = 5;

pub(super) fn show(letters: &[ChannelEntry<DeadLetter>], query: &Query, read_only: bool) -> Markup {
    // The number of letters for each response of each channel and sink.
    let mut groups: BTreeMap<(&str, &str), BTreeMap<&str, u64>> = BTreeMap::new();
    for ChannelEntry { channel, facts: DeadLetter { sink, facts }, .. } in letters {
        // A response is a part of the row of its sink.
        if !query.accepts_group(channel, &query.reason, sink) {
            continue;
        }
        *groups.entry((channel, sink)).or_default().entry(&facts.reason).or_default() += 1;
    }
    html! {
        @if !groups.is_empty() {
            section aria-labelledby="sinks" {
                h2 #sinks { "Sinks" }
                (sinks(&groups, query, read_only))
            }
        }
        section aria-labelledby="events" {
            h2 #events { "Events" }
            (filter(query))
            (given_up(letters, query))
        }
    }
}

fn sinks(groups: &BTreeMap<(&str, &str), BTreeMap<&str, u64>>, query: &Query, read_only: bool) -> Markup {
    let mut columns = vec![("Sink", "name"), ("Channel", ""), ("Last responses", "details"), ("Events", "number")];
    if !read_only {
        columns.push(("Actions", "change"));
    }
    let rows = groups.iter().map(|((channel, sink), responses)| {
        let only = Query { sink: (*sink).to_owned(), channel: (*channel).to_owned(), ..query.all() };
        let place = form(&[("channel", channel), ("sink", sink)]);
        let whose = html! { span.hidden { " Sink " (text(sink)) ", channel " (text(channel)) } };
        let responses_of = |reason: &str| Query { reason: reason.to_owned(), ..only.clone() }.address();
        vec![
            html! { a href=(only.address()) { (text(sink)) } },
            text(channel),
            html! {
                @for (reason, count) in responses.iter().take(RESPONSES) {
                    p { a href=(responses_of(reason)) { (text(reason)) } @if responses.len() > 1 { " (" (grouped(*count)) ")" } }
                }
                @if responses.len() > RESPONSES { p.note { "and " (responses.len() - RESPONSES) " more" } }
            },
            html! { (grouped(responses.values().sum())) },
            html! {
                a.button.small href={ "/do/redeliver-dead?" (place) } { "Replay…" (whose) }
                " " a.button.small.danger href={ "/do/drop-dead?" (place) } { "Drop…" (whose) }
            },
        ]
    });
    page::table("Sinks with dead letters", "lanes dense", &columns, rows)
}

fn given_up(letters: &[ChannelEntry<DeadLetter>], query: &Query) -> Markup {
    let accepted = letters.iter().filter(|ChannelEntry { channel, facts: DeadLetter { sink, facts }, .. }| {
        let id = facts.event_id.map(|id| id.to_string()).unwrap_or_default();
        query.accepts(channel, &facts.reason, sink, [&facts.offset.to_string(), &id, &facts.reason])
    });
    let mut accepted: Vec<_> = accepted.collect();
    accepted.sort_by_key(|entry| Reverse((entry.facts.facts.at, entry.facts.facts.offset)));
    let (shown, count) = query.page_of(accepted.into_iter());
    let columns = [
        ("Offset", "name"),
        ("Channel", ""),
        ("Sink", ""),
        ("Last response", "details"),
        ("Attempts", "number"),
        ("Dead letter since (UTC)", "time"),
    ];
    let rows = shown.into_iter().map(|ChannelEntry { channel, facts: DeadLetter { sink, facts }, .. }| {
        let offset = facts.offset.get();
        let address = format!("/held/dead/{}/{}/{offset}", segment(channel), segment(sink));
        let link = html! { a.open href=(address) { (offset) } };
        let (attempts, at) = (html! { (facts.attempts) }, time(Timestamp::from_second(facts.at).ok()));
        vec![link, text(channel), text(sink), text(&facts.reason), attempts, at]
    });
    listed("Dead letters", &columns, rows, query, count)
}
