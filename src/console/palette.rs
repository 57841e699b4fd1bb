//! The command palette: the pages, channels, sinks and consumers that a user can open by typing a part of a name. The script
//! requests this list when the palette is opened, and filters it.
//!
//! # Invariants
//!
//! * **Bounded** by [`MOST`].
//! * **Never waits long.** Without an answer of the daemon, the list has the pages and the configured channels.

use maud::{Markup, html};

use super::consumers;
use super::page::{PageRequest, TABS, form, segment};
use super::tables::OpenSource;
use super::text::text;
use operator::Report;

/// The largest number of entries.
const MOST: usize = 2_000;

/// The pages without a tab.
const OTHER_PAGES: [(&str, &str); 2] = [("/concepts", "Concepts"), ("/invite", "Open in another browser")];

/// An entry of the palette.
#[derive(Debug, PartialEq, Eq)]
struct Destination {
    name: String,
    kind: String,
    href: String,
}

impl Destination {
    fn new(name: &str, kind: impl Into<String>, href: impl Into<String>) -> Self {
        Self { name: name.to_owned(), kind: kind.into(), href: href.into() }
    }
}

/// Returns the entries as options of a list box.
pub(super) async fn destinations(request: PageRequest) -> Markup {
    let state = &request.state;
    let (report, consumers) = (state.daemon.recent_report().await, consumers::names(&state.daemon).await);
    let configured: Vec<_> = state.channels.iter().map(|known| known.channel.name.to_string()).collect();
    let all = list(report.as_deref(), &configured, &consumers);
    options(&all, matches!(state.source, OpenSource::Table(_)))
}

fn list(report: Option<&Report>, configured: &[String], consumers: &[String]) -> Vec<Destination> {
    let tabs = TABS.iter().map(|(href, name)| Destination::new(name, "page", *href));
    let mut all: Vec<_> = tabs.collect();
    all.extend(OTHER_PAGES.map(|(href, name)| Destination::new(name, "page", href)));
    let events = |channel: &str| Destination::new(&format!("{channel}: events"), "channel", events_of(channel));
    let Some(report) = report else {
        all.extend(configured.iter().map(|channel| events(channel)));
        all.truncate(MOST);
        return all;
    };
    for known in &report.channels {
        let (name, href) = (&known.channel, format!("/daemon#{}", segment(&channel_anchor(&known.channel))));
        all.extend([events(name), Destination::new(&format!("{name}: status"), "channel", href)]);
    }
    for known in &report.channels {
        let sink = |sink: &str| {
            let href = format!("/daemon#{}", segment(&sink_anchor(&known.channel, sink)));
            Destination::new(sink, format!("sink of channel {}", known.channel), href)
        };
        all.extend(known.lanes.iter().map(|lane| sink(&lane.sink)));
    }
    all.extend(
        consumers.iter().map(|name| {
            Destination::new(name, "consumer", format!("/consumers#{}", segment(&consumers::anchor(name))))
        }),
    );
    all.truncate(MOST);
    all
}

fn events_of(channel: &str) -> String {
    format!("/?{}", form(&[("channel", channel)]))
}

/// The ids of the elements that show a channel and a sink on their pages.
pub(super) fn channel_anchor(channel: &str) -> String {
    format!("channel-{channel}")
}

pub(super) fn sink_anchor(channel: &str, sink: &str) -> String {
    format!("sink-{channel}-{sink}")
}

/// Draws the entries. If events can be searched, the last entry searches them for the typed text, which the script inserts.
fn options(all: &[Destination], can_search: bool) -> Markup {
    html! {
        @for (at, Destination { name, kind, href }) in all.iter().enumerate() {
            a role="option" id=(format!("destination-{at}")) href=(href) tabindex="-1" aria-selected="false" {
                span { (text(name)) } " " span.sub { (text(kind)) }
            }
        }
        @if can_search {
            a #destination-search role="option" href="/" tabindex="-1" aria-selected="false" hidden { span { "Search the events for “" bdi {} "”" } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_daemon_the_palette_has_the_pages_and_the_configured_channels() {
        let all = list(None, &["fund a".to_owned()], &[]);
        assert_eq!(all[0], Destination::new("Events", "page", "/"));
        assert!(all.iter().any(|one| one.name == "Quarantine and dead letters" && one.href == "/held"));
        assert_eq!(all.last().unwrap(), &Destination::new("fund a: events", "channel", "/?channel=fund+a"));
    }

    #[test]
    fn the_number_of_entries_is_bounded_and_names_are_only_text() {
        let many: Vec<_> = (0..2 * MOST).map(|number| format!("<b>{number}")).collect();
        let all = list(None, &many, &[]);
        assert_eq!(all.len(), MOST);
        let html = options(&all, true).into_string();
        assert!(html.contains("&lt;b&gt;0") && !html.contains("<b>"), "{html}");
        assert!(html.contains("id=\"destination-search\""));
        assert!(!options(&all, false).into_string().contains("destination-search"));
    }
}
