//! The events that a search has found: their lines, and the summary.

use std::io::{self, IsTerminal};

use super::Args;
use crate::cli::look::tail::verdict_event::event_line;
use crate::cli::terminal::event_line::Layout;
use crate::cli::terminal::for_stdout;
use crate::cli::verdict_line;
use channel::{counted, grouped};
use proof::verify::Verdict;
use record::ChannelRef;

/// Formats the events that are found, and counts them.
pub(super) struct Found<'a> {
    args: &'a Args,
    channel: &'a ChannelRef,
    /// The layout of lines on a terminal. A program gets a table with the ids of the events.
    layout: Option<Layout>,
    /// How many events have each of these verdicts.
    counts: [(&'static str, u64); 4],
}

impl<'a> Found<'a> {
    pub(super) fn none(args: &'a Args, channel: &'a ChannelRef) -> Self {
        let layout = io::stdout().is_terminal().then(|| Layout::of_stdout([]));
        Self { args, channel, layout, counts: ["verified", "unsigned", "pending", "rejected"].map(|name| (name, 0)) }
    }

    /// Whether the lines go through a pager.
    pub(super) fn is_paged(&self) -> bool {
        self.layout.is_some() && self.args.is_list()
    }

    pub(super) fn total(&self) -> u64 {
        self.counts.iter().map(|(_, count)| count).sum()
    }

    /// The lines of the wanted events. The heading of the table precedes the first one.
    pub(super) fn lines(&mut self, verdicts: &[Verdict]) -> Vec<String> {
        let mut lines = Vec::new();
        for verdict in verdicts.iter().filter(|verdict| self.args.is_wanted(verdict)) {
            if self.total() == 0 && !self.args.json && self.layout.is_none() {
                lines.push(verdict_line::heading());
            }
            let count = self.counts.iter_mut().find(|(name, _)| *name == verdict.name());
            count.expect("every verdict has one of the names").1 += 1;
            lines.push(match &mut self.layout {
                Some(layout) if !self.args.json => for_stdout(&layout.lines(&event_line(self.channel, verdict))),
                _ => verdict_line::formatted(self.args.json, self.channel, verdict),
            });
        }
        lines
    }

    /// `50 events: 48 verified, 2 rejected`, and how to see more. `has_more` says whether older events can match.
    pub(super) fn summary(&self, has_more: bool) -> String {
        let counts = self.counts.iter().filter(|(_, count)| *count > 0);
        let counts = counts.map(|(name, count)| format!("{} {name}", grouped(*count))).collect::<Vec<_>>().join(", ");
        let total = if self.total() == 0 { "No event matches".to_owned() } else { counted(self.total(), "event") };
        let more = if has_more { " Older events were not searched: add --all." } else { "" };
        let rejected = self.counts.iter().any(|(name, count)| *name == "rejected" && *count > 0);
        let explain = if rejected { "\n`channeld explain REASON` says why an event was rejected." } else { "" };
        let between = if counts.is_empty() { "" } else { ": " };
        format!("{total}{between}{counts}.{more}{explain}")
    }
}
