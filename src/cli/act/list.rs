//! Prints a list of stored events, and a summary of their reasons.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;

use jiff::Timestamp;
use serde::Serialize;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::terminal::{Cell, Table, for_stdout, shortened, width_of, wrapped};
use crate::cli::verdict_line::{printable, time};
use channel::{counted, grouped, span};

/// The number of reasons that the summary names, beginning with the most frequent one.
const REASONS: usize = 5;

/// The columns of a reason in the summary. The reason of a dead letter is the answer of its sink, which can be long.
const REASON: usize = 48;

/// From this width on, a terminal shows complete times.
const WIDE: usize = 120;

// The arguments of a list. The help text is the doc comment of the request, as for `Printed`.
#[derive(Debug, clap::Args)]
pub(crate) struct Listed<R: clap::Args> {
    #[command(flatten)]
    pub(super) request: R,
    #[command(flatten)]
    pub(super) selection: Selection,
}

// Selects the entries to print. A doc comment would replace the help text of the subcommand.
#[derive(Debug, clap::Args)]
pub(crate) struct Selection {
    /// Only events whose reason contains this text, such as `too-few-signatures`.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print at most this many events, the first ones.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: Option<u32>,
    /// Print one JSON object per line.
    #[arg(long)]
    pub(super) json: bool,
}

/// An event of a list.
pub(super) trait ListedEvent: Serialize {
    /// The name of one event, for counts.
    const NOUN: &'static str;
    /// The line for an empty list.
    const NONE: &'static str;
    /// The action to take, as a sentence.
    const ADVICE: &'static str;

    fn reason(&self) -> &str;

    /// The heading of the table: its cells, and the name of the text at the end of each line.
    fn heading(ages: &Ages) -> (Vec<Cell>, String);

    /// The row of the event: a cell for each cell of the heading, and the text at the end of the line.
    fn row(&self, ages: &Ages) -> (Vec<Cell>, String);
}

/// How the times of entries are shown: in full, or as an age on a narrow terminal.
pub(super) struct Ages {
    now: Timestamp,
    width: Option<usize>,
}

impl Ages {
    fn are_short(&self) -> bool {
        self.width.is_some_and(|width| width < WIDE)
    }

    /// The heading of the column, which has this name if times are complete.
    pub(super) fn heading(&self, name: &str) -> Cell {
        if self.are_short() { Cell::quantity(Some("AGE")) } else { Cell::text(name) }
    }

    pub(super) fn cell(&self, unix_seconds: i64) -> Cell {
        if self.are_short() {
            let age = self.now.as_second().saturating_sub(unix_seconds);
            return Cell::quantity(Some(span(u64::try_from(age).unwrap_or_default())));
        }
        Cell::text(time(Some(unix_seconds)))
    }
}

/// Prints the selected events. On a terminal, no line is wider than the terminal.
pub(super) fn say<T: ListedEvent>(
    cx: &mut Context<'_>,
    selection: &Selection,
    all: &[T],
) -> Result<Exit, CommandError> {
    let chosen = Chosen::of(selection, all);
    if selection.json {
        return cx.say_each(true, &chosen.shown, |_| String::new());
    }
    if all.is_empty() {
        return cx.say(T::NONE);
    }
    let ages = Ages { now: Timestamp::now(), width: width_of(&io::stdout()) };
    cx.say(for_stdout(&chosen.text(&ages)))
}

/// The events that are printed, and the reasons of all events with a matching reason.
struct Chosen<'a, T> {
    shown: Vec<&'a T>,
    reasons: BTreeMap<&'a str, u64>,
    all: u64,
}

impl<'a, T: ListedEvent> Chosen<'a, T> {
    fn of(Selection { reason, limit, .. }: &Selection, all: &'a [T]) -> Self {
        let wanted = reason.as_deref().unwrap_or_default().to_lowercase();
        let matching: Vec<_> = all.iter().filter(|one| one.reason().to_lowercase().contains(&wanted)).collect();
        let mut reasons = BTreeMap::new();
        for one in &matching {
            *reasons.entry(one.reason()).or_default() += 1;
        }
        let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        Self { shown: matching.into_iter().take(limit).collect(), reasons, all: all.len() as u64 }
    }

    /// The table and the summary.
    fn text(&self, ages: &Ages) -> String {
        let (summary, width) = (self.summary(), ages.width.unwrap_or(usize::MAX));
        let summary = wrapped(&summary, width).join("\n");
        if self.shown.is_empty() {
            return summary;
        }
        let rows = self.shown.iter().map(|one| one.row(ages));
        let table = Table([T::heading(ages)].into_iter().chain(rows).collect());
        format!("{}\n{summary}", table.fitted(width, &["EVENT"]))
    }

    /// How many events are shown and exist, the reasons of the events, and the advice.
    fn summary(&self) -> String {
        let (shown, all) = (self.shown.len() as u64, counted(self.all, T::NOUN));
        if shown == 0 {
            return format!("None of {all} has such a reason.");
        }
        let of = if shown == self.all { String::new() } else { format!("{} of ", grouped(shown)) };
        let mut reasons: Vec<_> = self.reasons.iter().collect();
        reasons.sort_by_key(|(_, count)| Reverse(**count));
        let named =
            |(reason, count): &(&&str, &u64)| format!("{} {}", grouped(**count), shortened(&printable(reason), REASON));
        let named = reasons.iter().take(REASONS).map(named).collect::<Vec<_>>().join(", ");
        let more = reasons.len().saturating_sub(REASONS) as u64;
        let more = if more > 0 { format!(", and {} more", counted(more, "reason")) } else { String::new() };
        format!("{of}{all}: {named}{more}. {}", T::ADVICE)
    }
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr;

    use super::*;

    #[derive(Serialize)]
    struct Rejected(&'static str);

    impl ListedEvent for Rejected {
        const NOUN: &'static str = "rejected event";
        const NONE: &'static str = "None.";
        const ADVICE: &'static str = "See the runbook.";

        fn reason(&self) -> &str {
            self.0
        }

        fn heading(ages: &Ages) -> (Vec<Cell>, String) {
            (vec![Cell::text("CHANNEL"), ages.heading("SINCE"), Cell::text("EVENT")], "DETAIL".to_owned())
        }

        fn row(&self, ages: &Ages) -> (Vec<Cell>, String) {
            let cells =
                vec![Cell::text("settlements"), ages.cell(0), Cell::text("7c9e6679-7425-40de-944b-e07fc1f90ae7")];
            (cells, "a proof that has too few signatures for this channel".to_owned())
        }
    }

    fn text(width: Option<usize>, reason: Option<&str>, limit: Option<u32>) -> String {
        let selection = Selection { reason: reason.map(str::to_owned), limit, json: false };
        let all = ["too-few-signatures", "proof-timeout", "too-few-signatures"].map(Rejected);
        let now = Timestamp::from_second(7_200).unwrap();
        anstream::adapter::strip_str(&Chosen::of(&selection, &all).text(&Ages { now, width })).to_string()
    }

    #[test]
    fn a_list_ends_with_a_summary_of_its_reasons() {
        let last = |reason, limit| text(None, reason, limit).lines().last().unwrap().to_owned();
        let reasons = "2 too-few-signatures, 1 proof-timeout. See the runbook.";
        assert_eq!(last(None, None), format!("3 rejected events: {reasons}"));
        assert_eq!(last(None, Some(1)), format!("1 of 3 rejected events: {reasons}"));
        let matching = "2 of 3 rejected events: 2 too-few-signatures. See the runbook.";
        assert_eq!(last(Some("FEW"), Some(5)), matching);
        assert_eq!(text(None, Some("nonsense"), None), "None of 3 rejected events has such a reason.");
    }

    #[test]
    fn a_list_fits_a_terminal_and_is_complete_for_a_program() {
        let (narrow, full) = (text(Some(79), None, None), text(None, None, None));
        assert!(narrow.lines().all(|line| line.width() <= 79), "{narrow}");
        let row = narrow.lines().nth(1).unwrap();
        assert_eq!(row, "settlements  2 h  a proof that has too few signatures for this channel");
        let row = full.lines().nth(1).unwrap();
        assert!(row.contains("1970-01-01T00:00:00Z") && row.contains("7c9e6679") && row.ends_with("channel"), "{row}");
    }
}
