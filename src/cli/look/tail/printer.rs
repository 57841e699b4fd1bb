//! Prints the lines of `channeld tail`, and notes about them.

use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;
use anstream::{AutoStream, ColorChoice};

use crate::cli::context::CommandError;
use crate::cli::terminal::event_line::{EventLine, Layout};

/// Prints a note about the events to standard error.
pub(super) fn note(what: &str) {
    // The error is ignored: events are shown even if standard error is closed.
    let _ = writeln!(io::stderr(), "channeld: {what}");
}

/// Like [`note`], but only if both outputs are terminals, so a person is probably reading.
pub(super) fn hint(what: &str) {
    if io::stderr().is_terminal() && io::stdout().is_terminal() {
        note(what);
    }
}

pub(super) struct Printer {
    json: bool,
    with_colours: bool,
    layout: Layout,
    left: Option<u64>,
}

impl Printer {
    /// Creates a printer that prints `events` events or, without a number, all of them.
    pub(super) fn new(json: bool, events: Option<u64>, layout: Layout) -> Self {
        let with_colours = AutoStream::choice(&io::stdout()) != ColorChoice::Never;
        Self { json, with_colours, layout, left: events }
    }

    /// Prints events, each given with its JSON. Returns `true` when the requested number is reached.
    pub(super) fn print(
        &mut self,
        out: &mut dyn Write,
        events: impl IntoIterator<Item = (EventLine, String)>,
    ) -> Result<bool, CommandError> {
        self.layout.follow_terminal();
        for (event, json) in events {
            if self.left == Some(0) {
                break;
            }
            let line = if self.json { json } else { self.layout.lines(&event) };
            let line = if self.with_colours { line } else { strip_str(&line).to_string() };
            writeln!(out, "{line}").map_err(CommandError::output)?;
            self.left = self.left.map(|left| left - 1);
        }
        out.flush().map_err(CommandError::output)?;
        Ok(self.left == Some(0))
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;
    use proof::event::Offset;
    use record::Readable;

    fn event(offset: i64) -> (EventLine, String) {
        let parts = Readable {
            verdict: Cow::Borrowed("verified"),
            channel: "settlements".to_owned(),
            offset: Offset::new(offset).unwrap(),
            time: "2026-05-14T12:00:15Z".to_owned(),
            kind: "watcher.event".to_owned(),
            what: "dvp.Transfer".to_owned(),
            proof: "4 of 4 signatures".to_owned(),
            confidence: "finalized".to_owned(),
        };
        (EventLine { parts, position: None, is_late: false }, format!(r#"{{"offset":{offset}}}"#))
    }

    fn printer(json: bool, with_colours: bool, left: Option<u64>) -> Printer {
        Printer { json, with_colours, layout: Layout::of(None, ["settlements"]), left }
    }

    #[test]
    fn at_most_the_requested_number_of_events_is_printed() {
        let mut out = Vec::new();
        let mut printer = printer(true, false, Some(3));
        assert!(!printer.print(&mut out, [event(1), event(2)]).unwrap());
        assert!(printer.print(&mut out, [event(3), event(4)]).unwrap());
        assert_eq!(String::from_utf8(out).unwrap(), "{\"offset\":1}\n{\"offset\":2}\n{\"offset\":3}\n");
    }

    #[test]
    fn colors_are_written_only_if_wanted() {
        for with_colours in [true, false] {
            let mut out = Vec::new();
            printer(false, with_colours, None).print(&mut out, [event(1)]).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.contains('\u{1b}'), with_colours, "{text:?}");
            assert!(text.contains("settlements") && text.contains("dvp.Transfer"), "{text}");
        }
    }
}
