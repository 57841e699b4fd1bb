//! Lists the events that need an operator, in two tabs: the quarantine and the dead letters. Each tab groups its events,
//! and lists them in pages.

use axum::response::Response;
use maud::{Markup, html};

use super::page::{self, PageRequest, form, member, search_field};
use super::text::{text, whole};
use channel::grouped;
use operator::api::{ListDeadLetters, ListQuarantine};

mod dead_letters;
mod quarantine;

/// The number of rows on a page.
const ROWS: usize = 50;

/// The part of the address after `?`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Query {
    /// Whether the dead letters are listed. `None` if the address does not say it.
    dead: Option<bool>,
    channel: String,
    reason: String,
    sink: String,
    /// A text that an offset, an event id or a detail contains.
    words: String,
    /// The number of the page. The first page is 0.
    page: usize,
}

impl Query {
    fn parse(query: &str) -> Self {
        let member = |name| member(query.as_bytes(), name).unwrap_or_default();
        Self {
            dead: Some(member("list")).filter(|list| !list.is_empty()).map(|list| list == "dead"),
            channel: member("channel"),
            reason: member("reason"),
            sink: member("sink"),
            words: member("q"),
            page: member("page").parse().unwrap_or_default(),
        }
    }

    fn address(&self) -> String {
        let page = self.page.to_string();
        let members = [
            ("list", if self.dead == Some(true) { "dead" } else { "quarantine" }),
            ("channel", &*self.channel),
            ("reason", &*self.reason),
            ("sink", &*self.sink),
            ("q", &*self.words),
            ("page", if self.page == 0 { "" } else { &*page }),
        ];
        let members: Vec<_> = members.into_iter().filter(|(_, value)| !value.is_empty()).collect();
        format!("/held?{}", form(&members))
    }

    fn is_restricted(&self) -> bool {
        [&self.channel, &self.reason, &self.sink, &self.words].iter().any(|part| !part.is_empty())
    }

    /// The same list without a filter.
    fn all(&self) -> Self {
        Self { dead: self.dead, ..Self::default() }
    }

    /// Whether an event passes the filter. `texts` are searched for the words.
    fn accepts(&self, channel: &str, reason: &str, sink: &str, texts: [&str; 3]) -> bool {
        let words = self.words.to_lowercase();
        let has_words = words.is_empty() || texts.iter().any(|text| text.to_lowercase().contains(&words));
        self.accepts_group(channel, reason, sink) && has_words
    }

    /// Whether a group can have events that pass the filter.
    fn accepts_group(&self, channel: &str, reason: &str, sink: &str) -> bool {
        let is = |part: &str, value: &str| part.is_empty() || part == value;
        is(&self.channel, channel) && is(&self.reason, reason) && is(&self.sink, sink)
    }

    /// Selects the accepted rows of this page, and returns them with the number of all accepted rows.
    fn page_of<T>(&self, accepted: impl Iterator<Item = T>) -> (Vec<T>, usize) {
        let mut accepted: Vec<_> = accepted.collect();
        let count = accepted.len();
        accepted.drain(..self.page.saturating_mul(ROWS).min(count));
        accepted.truncate(ROWS);
        (accepted, count)
    }
}

pub(super) async fn list(request: PageRequest) -> Response {
    let (daemon, read_only) = (&request.state.daemon, request.visitor.read_only);
    let quarantine = daemon.ask(&ListQuarantine { channel: None }).await;
    let dead = daemon.ask(&ListDeadLetters { channel: None, sink: None }).await;
    let counts = [quarantine.as_ref().map(Vec::len), dead.as_ref().map(Vec::len)].map(|count| count.unwrap_or(0));
    let mut query = Query::parse(&request.query);
    // The dead letters come first only if the quarantine is empty.
    let is_dead = *query.dead.get_or_insert(counts[0] == 0 && counts[1] > 0);
    let content = html! {
        div.heading { div {
            h1 { "Quarantine and dead letters" }
            p.sub { @if is_dead { "Events that a sink refused for longer than its " code { "give_up_after" } " setting. The daemon stores them until an operator replays or drops them." }
                @else { "Events that failed verification. They were not delivered to any sink. The daemon stores them until a retry succeeds, or until an operator drops them." } }
        } }
        (tabs(is_dead, counts))
        @match (is_dead, &quarantine, &dead) {
            (true, _, Err(why)) | (false, Err(why), _) => p.notice.bad { (whole(why)) },
            (false, Ok(events), _) if events.is_empty() => div.empty { p { "The quarantine is empty." } },
            (true, _, Ok(letters)) if letters.is_empty() => div.empty { p { "No dead letters." } },
            (false, Ok(events), _) => (quarantine::show(events, &query, read_only)),
            (true, _, Ok(letters)) => (dead_letters::show(letters, &query, read_only)),
        }
    };
    request.page("Quarantine and dead letters", "/held", &content).await
}

fn tabs(is_dead: bool, [quarantined, dead]: [usize; 2]) -> Markup {
    html! {
        nav.tabs aria-label="Lists" {
            a href="/held?list=quarantine" aria-current=[(!is_dead).then_some("page")] { "Quarantine " span.count { (grouped(quarantined as u64)) } }
            a href="/held?list=dead" aria-current=[is_dead.then_some("page")] { "Dead letters " span.count { (grouped(dead as u64)) } }
        }
    }
}

/// The field for the filter and, if a filter is active, its parts with a link that removes them.
fn filter(query: &Query) -> Markup {
    let parts = [("Reason", &query.reason), ("Channel", &query.channel), ("Sink", &query.sink), ("Text", &query.words)];
    html! {
        // The list can be below a long table of groups.
        form.filters role="search" method="get" action="/held#events" {
            div.line {
                (search_field("Filter the list", &query.words, "Offset, event id or detail", None))
                @for (name, value) in [("list", if query.dead == Some(true) { "dead" } else { "" }), ("reason", &*query.reason), ("channel", &*query.channel), ("sink", &*query.sink)] {
                    @if !value.is_empty() { input type="hidden" name=(name) value=(value); }
                }
                button type="submit" { "Filter" }
            }
            @if query.is_restricted() {
                p.line {
                    @for (name, value) in parts.into_iter().filter(|(_, value)| !value.is_empty()) { span.pill.aside { (name) ": " (text(value)) } }
                    a.clear href=(query.all().address()) { "Show all" }
                }
            }
        }
    }
}

/// One page of a list of events, of which `count` match the query.
fn listed(
    label: &str,
    columns: &[(&str, &str)],
    rows: impl Iterator<Item = Vec<Markup>>,
    query: &Query,
    count: usize,
) -> Markup {
    html! {
        @if count == 0 { div.empty { p { "No event matches." } } }
        @else {
            (page::table(label, "list dense", columns, rows))
            (pages(query, count))
        }
    }
}

/// The links between the pages.
fn pages(query: &Query, count: usize) -> Markup {
    let at = |page| Query { page, ..query.clone() }.address();
    let first = query.page.saturating_mul(ROWS);
    html! {
        nav.pages aria-label="Pagination" {
            @if query.page > 0 { a.button rel="prev" href=(at(query.page - 1)) { "Previous" } }
            @if first.saturating_add(ROWS) < count { a.button.primary rel="next" href=(at(query.page + 1)) { "Next" } }
            span.took {
                @if first < count { (grouped(first as u64 + 1)) " to " (grouped(first.saturating_add(ROWS).min(count) as u64)) " of " (grouped(count as u64)) }
                @else { "This page has no events" }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_contains_the_whole_query() {
        for query in ["list=dead&channel=c0&reason=answered+422&sink=hook&q=7&page=2", "list=quarantine"] {
            assert_eq!(Query::parse(query).address(), format!("/held?{query}"));
        }
        let wrong = Query::parse("page=-1&list=&reason=");
        assert_eq!((wrong.page, wrong.dead, wrong.is_restricted()), (0, None, false));
    }

    #[test]
    fn every_row_is_on_one_page() {
        let query = Query::parse("");
        let mut rows = Vec::new();
        for page in 0..4 {
            let (some, count) = Query { page, ..query.clone() }.page_of(0..120);
            assert_eq!(count, 120);
            rows.extend(some);
        }
        assert_eq!(rows, (0..120).collect::<Vec<_>>());
        let last = Query { page: usize::MAX, ..query };
        assert_eq!(last.page_of(0..120).0, [0; 0]);
        assert!(pages(&last, 120).into_string().contains("This page has no events"));
    }

    #[test]
    fn a_filter_accepts_rows_with_all_its_parts() {
        let query = Query::parse("reason=a&channel=c&q=0xAB");
        assert!(query.accepts("c", "a", "", ["7", "", "the hash 0xabc"]));
        for (channel, reason, text) in [("d", "a", "0xab"), ("c", "b", "0xab"), ("c", "a", "0xa")] {
            assert!(!query.accepts(channel, reason, "", [text, "", ""]));
        }
    }
}
