//! The quarantined events, grouped by the reason for their rejection.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use maud::{Markup, html};

use super::{Query, filter, listed};
use crate::page::{self, advice, form, segment, time};
use crate::text::text;
use channel::{RejectionReason, grouped};
use ledger::Quarantined;
use operator::api::ChannelEntry;

/// The reason and the channel of a group.
type Group<'e> = (&'e str, &'e str);

/// How many groups are shown above the events at once.
const REASONS: usize = 6;

pub(super) fn show(events: &[ChannelEntry<Quarantined>], query: &Query, read_only: bool) -> Markup {
    let is_in_group = |entry: &&ChannelEntry<Quarantined>| query.accepts_group(&entry.channel, &entry.facts.reason, "");
    let mut groups: BTreeMap<Group<'_>, u64> = BTreeMap::new();
    for ChannelEntry { channel, facts, .. } in events.iter().filter(|entry| is_in_group(entry)) {
        *groups.entry((&facts.reason, channel)).or_default() += 1;
    }
    html! {
        @if !groups.is_empty() {
            section aria-labelledby="reasons" {
                h2 #reasons { "Reasons" }
                (reasons(&groups, query, read_only))
                @if !query.reason.is_empty() { (advice(&query.reason, "")) }
            }
        }
        section aria-labelledby="events" {
            h2 #events { "Events" }
            (filter(query))
            (rejected(events, query))
        }
    }
}

fn reasons(groups: &BTreeMap<Group<'_>, u64>, query: &Query, read_only: bool) -> Markup {
    let mut columns = vec![("Reason", "name"), ("Channel", ""), ("Events", "number")];
    if !read_only {
        columns.push(("Actions", "change"));
    }
    // The most serious reasons come first, and of these the most frequent ones.
    let mut groups: Vec<_> = groups.iter().collect();
    groups.sort_by_key(|((reason, _), count)| {
        Reverse((RejectionReason::from_name(reason).map(RejectionReason::severity), **count))
    });
    let mut rows: Vec<_> = groups
        .into_iter()
        .map(|((reason, channel), count)| {
            let only = Query { reason: (*reason).to_owned(), channel: (*channel).to_owned(), ..query.all() };
            let place = form(&[("channel", channel), ("reason", reason)]);
            let whose = html! { span.hidden { " " (text(reason)) ", channel " (text(channel)) } };
            vec![
                html! { a href=(only.address()) { (text(reason)) } },
                text(channel),
                html! { (grouped(*count)) },
                html! {
                    a.button.small href={ "/do/retry?" (place) } { "Retry…" (whose) }
                    " " a.button.small.danger href={ "/do/drop?" (place) } { "Drop…" (whose) }
                },
            ]
        })
        .collect();
    let more = rows.split_off(rows.len().min(REASONS));
    let table = |label, rows: Vec<_>| page::table(label, "lanes dense", &columns, rows);
    html! {
        (table("Reasons for rejections", rows))
        @if !more.is_empty() {
            details.more { summary { (more.len()) " more" } (table("More reasons for rejections", more)) }
        }
    }
}

fn rejected(events: &[ChannelEntry<Quarantined>], query: &Query) -> Markup {
    let accepted = events.iter().filter(|ChannelEntry { channel, facts, .. }| {
        let id = facts.event_id.map(|id| id.to_string()).unwrap_or_default();
        query.accepts(channel, &facts.reason, "", [&facts.offset.to_string(), &id, &facts.detail])
    });
    let mut accepted: Vec<_> = accepted.collect();
    accepted.sort_by_key(|entry| Reverse((entry.facts.at, entry.facts.offset)));
    let (shown, count) = query.page_of(accepted.into_iter());
    let columns =
        [("Offset", "name"), ("Channel", ""), ("Reason", ""), ("Details", "details"), ("Rejected (UTC)", "time")];
    let rows = shown.into_iter().map(|ChannelEntry { channel, facts, .. }| {
        let offset = facts.offset.get();
        let link = html! { a.open href={ "/held/quarantine/" (segment(channel)) "/" (offset) } { (offset) } };
        let at = time(Timestamp::from_second(facts.at).ok());
        vec![link, text(channel), text(&facts.reason), text(&facts.detail), at]
    });
    listed("Quarantined events", &columns, rows, query, count)
}
