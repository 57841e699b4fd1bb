//! The number of lines of each kind, written and left out.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;
use tracing::Level;
use tracing::callsite::Identifier;

/// How long the lines of a kind are counted together.
pub(super) const WINDOW: Duration = Duration::from_secs(60);

/// Lines of a kind that are written in a window.
pub(super) const LINES: u32 = 20;

/// Kinds that are counted. Beyond them all lines of a place in the code are one kind.
pub(super) const MAX_KINDS: usize = 10_000;

/// Lines of one place in the code about one channel, one sink, or one sink of one channel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) place: Identifier,
    pub(super) channel: Option<String>,
    pub(super) sink: Option<String>,
}

#[derive(Debug)]
struct Window {
    ends: Instant,
    level: Level,
    like: String,
    written: u32,
    unwritten: u64,
}

/// The lines that were left out of a window that is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unwritten {
    pub(super) level: Level,
    /// The message of the lines.
    pub(super) like: String,
    pub(super) channel: Option<String>,
    pub(super) sink: Option<String>,
    pub(super) lines: u64,
}

/// A window for each kind, from its first line on.
#[derive(Debug, Default)]
pub(super) struct Windows {
    windows: HashMap<Kind, Window>,
}

impl Windows {
    /// Counts a line, and says whether it is written.
    pub(super) fn admits(&mut self, kind: Kind, level: Level, message: String, now: Instant) -> bool {
        let is_known = self.windows.len() < MAX_KINDS || self.windows.contains_key(&kind);
        let kind = if is_known { kind } else { Kind { channel: None, sink: None, ..kind } };
        let window = self.windows.entry(kind).or_insert_with(|| Window {
            ends: now + WINDOW,
            level,
            like: message,
            written: 0,
            unwritten: 0,
        });
        if now >= window.ends {
            // No look since: what was left out is logged at the end of this window.
            (window.ends, window.written) = (now + WINDOW, 0);
        }
        let admitted = window.written < LINES;
        if admitted {
            window.written += 1;
        } else {
            window.unwritten += 1;
        }
        admitted
    }

    /// Removes the windows that are over by `now`, and gives the lines that were left out of them.
    pub(super) fn ended(&mut self, now: Instant) -> Vec<Unwritten> {
        self.take(|window| window.ends <= now)
    }

    /// As [`ended`](Self::ended), for all windows.
    pub(super) fn end(&mut self) -> Vec<Unwritten> {
        self.take(|_| true)
    }

    fn take(&mut self, is_over: impl Fn(&Window) -> bool) -> Vec<Unwritten> {
        let over = self.windows.extract_if(|_, window| is_over(window));
        let short = over.filter(|(_, window)| window.unwritten > 0);
        let tell = |(kind, window): (Kind, Window)| Unwritten {
            level: window.level,
            like: window.like,
            channel: kind.channel,
            sink: kind.sink,
            lines: window.unwritten,
        };
        short.map(tell).collect()
    }
}
