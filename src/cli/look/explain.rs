//! `channeld explain`: prints the runbook's text about a reason: its meaning and the remedy.
//!
//! # Invariants
//!
//! * **The runbook is the only text.** It is compiled in, so this command and the runbook cannot differ.
//! * **Needs nothing.** The command works without a configuration, a state, a daemon and a network.

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use serde::Serialize;

use crate::cli::context::{CommandError, Context, Exit};
use crate::cli::verdict_line::printable;

use operator::runbook::{self, Kind, Topic};

#[cfg(test)]
mod tests;

const WIDTH: usize = 80;

/// How many names are suggested for an unknown reason.
const PROPOSED: usize = 3;

/// Explain a reason, and the action to take, from the runbook.
///
/// A reason can be the reason of a rejected event (too-few-signatures), an alert (`ChanneldStalled`), a kind of
/// `not_ready` (`sink_blocked`), a line exactly as `channeld health --ready` prints it, the log message if channeld
/// does not start, a section of the runbook (signer-rotation), or `concepts`, which explains the words that channeld
/// uses. Without a reason, all reasons are listed. The command needs no configuration and no daemon. It exits with 64
/// if the reason is unknown.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  channeld explain
  channeld explain proof-timeout
  channeld explain ChanneldProofInTwoChannels
  channeld explain 'channel settlements: its pending events are full: reading waits'")]
pub(crate) struct Args {
    /// The reason. Several words are read as one reason.
    #[arg(value_parser = ReasonParser, hide_possible_values = true)]
    reason: Vec<String>,
    /// Print one JSON object per reason, with reason, kind and summary. If a reason was given, also its text.
    #[arg(long)]
    json: bool,
}

/// Accepts every text. Shells complete the known reasons.
#[derive(Clone)]
struct ReasonParser;

impl TypedValueParser for ReasonParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &clap::Command,
        argument: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let names = runbook::topics().into_iter().flat_map(|topic| topic.names);
        Some(Box::new(names.map(PossibleValue::new)))
    }
}

#[derive(Serialize)]
struct ExplainedReason<'a> {
    reason: &'a str,
    kind: Kind,
    summary: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

pub(crate) fn run(Args { reason, json }: &Args, cx: &mut Context<'_>) -> Result<Exit, CommandError> {
    let topics = runbook::topics();
    if reason.is_empty() {
        if !json {
            return cx.say(list(&topics).trim_end());
        }
        for topic in &topics {
            for reason in topic.listed() {
                cx.say_json(&ExplainedReason { reason, kind: topic.kind, summary: &topic.summary, text: None })?;
            }
        }
        return Ok(Exit::Done);
    }
    let asked = reason.join(" ");
    let Some((topic, reason)) = runbook::find(&topics, &asked) else {
        let (asked, nearest) = (printable(&asked), runbook::nearest(&topics, &asked, PROPOSED).join(", "));
        return Err(CommandError::usage(format!(
            "the runbook has no entry for {asked:?}; the closest are: {nearest}. `channeld explain` lists all entries"
        )));
    };
    let text = topic.text(WIDTH);
    if *json {
        let Topic { kind, summary, .. } = topic;
        return cx.say_json(&ExplainedReason { reason, kind: *kind, summary, text: Some(text) });
    }
    // The section can have a long list of messages.
    let remedy = topic.remedy_of_message(&asked).filter(|_| runbook::by_name(&topics, &asked).is_none());
    let remedy = remedy.map(|remedy| runbook::filled(&format!("for this message: {remedy}"), WIDTH) + "\n\n");
    let remedy = remedy.unwrap_or_default();
    cx.say(format!("{reason}: {}\n\n{remedy}{}", topic.kind.about(), text.trim_end()))
}

/// Every reason on a line of its own: by kind and, within a kind, in the order of the runbook.
fn list(topics: &[Topic]) -> String {
    let mut lines = Vec::new();
    for kind in Kind::ALL {
        lines.push(format!("{}:", kind.heading()));
        for topic in topics.iter().filter(|topic| topic.kind == kind) {
            if topic.names.is_empty() {
                lines.extend(topic.quotes.iter().map(|quote| format!("  {}", runbook::cut(quote, WIDTH - 2))));
            }
            let means = if kind == Kind::NotReady { topic.quotes.join(", ") } else { topic.summary.clone() };
            lines.extend(topic.names.iter().map(|name| runbook::cut(&format!("  {name:29}  {means}"), WIDTH)));
        }
        lines.push(String::new());
    }
    lines.push("`channeld explain REASON` shows what to do.".to_owned());
    lines.join("\n")
}
