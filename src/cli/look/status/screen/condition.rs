//! The condition of a channel as a word and a color: the worst condition of the channel and its sinks.

use std::collections::HashMap;

use jiff::Timestamp;
use ratatui::style::{Color, Modifier, Style};

use crate::cli::look::status::text::{NOTEWORTHY, activity, problem};
use crate::cli::shown::printable;
use crate::cli::terminal::{ASIDE, BAD, PASSING};
use channel::{Activity, ChannelStatus, LaneState};
use operator::Report;

/// Columns of a progress bar.
const BAR: usize = 12;

/// The condition of a channel or a sink. The worst is first, so it compares as the least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Condition {
    /// A reason not to be ready: an operator must act.
    Bad,
    /// A problem that heals without an operator.
    Passing,
    /// It makes progress, but needs more than a moment to catch up.
    Behind,
    /// An operator has paused it, or another instance runs it.
    Aside,
    Good,
}

/// The color of the word.
pub(super) fn colour(condition: Condition) -> Style {
    match condition {
        Condition::Bad => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Condition::Passing | Condition::Behind => Style::new().fg(Color::Yellow),
        Condition::Aside => Style::new().fg(Color::Cyan),
        Condition::Good => Style::new().fg(Color::Green),
    }
}

/// A channel's condition, the word for it, and the detail text.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) condition: Condition,
    pub(super) word: String,
    pub(super) detail: String,
    /// The reasons of the verdict that name this channel, in full.
    pub(super) reasons: Vec<String>,
}

/// The reasons of a report, grouped by the channel that they name.
pub(super) fn by_channel(report: &Report) -> HashMap<&str, Vec<&str>> {
    let mut by_channel = HashMap::<_, Vec<_>>::new();
    for reason in &report.reasons {
        // `channel NAME: …` and `channel NAME, sink NAME: …`
        let named = reason.strip_prefix("channel ").and_then(|rest| rest.split([':', ',']).next());
        if let Some(channel) = named {
            by_channel.entry(channel).or_default().push(reason.as_str());
        }
    }
    by_channel
}

impl Health {
    pub(super) fn of(channel: &ChannelStatus, reasons: Option<&Vec<&str>>, now: Timestamp) -> Self {
        let (style, word, detail) = activity(&channel.activity, now);
        let own = match style {
            BAD => Condition::Bad,
            PASSING => Condition::Passing,
            ASIDE => Condition::Aside,
            _ => Condition::Good,
        };
        let reasons: Vec<_> = reasons.into_iter().flatten().map(|reason| printable(reason)).collect();
        let mut health = Self { condition: own, word, detail, reasons };
        if let Some((condition, word, detail)) = worst_lane(channel, now).filter(|(lane, ..)| *lane < own) {
            (health.condition, health.word, health.detail) = (condition, word.to_owned(), detail);
        }
        if channel.seconds_left >= Some(NOTEWORTHY) && health.condition >= Condition::Behind {
            health.condition = Condition::Behind;
        }
        if let Some(first) = health.reasons.first() {
            if health.condition != Condition::Bad {
                "not ready".clone_into(&mut health.word);
            }
            health.condition = Condition::Bad;
            let named = first.strip_prefix("channel ").and_then(|rest| rest.strip_prefix(&*channel.channel));
            health.detail = named.map_or(first.as_str(), |rest| rest.trim_start_matches([':', ',', ' '])).to_owned();
        } else if health.detail.is_empty()
            && let Some(progress) = channel.progress().filter(|_| health.condition == Condition::Behind)
        {
            let percent = progress.share() * 100.0;
            health.detail = format!("{} {percent:.0} %, {progress}", progress.bar(BAR));
        }
        health
    }
}

/// The sink in the worst condition.
fn worst_lane(channel: &ChannelStatus, now: Timestamp) -> Option<(Condition, &'static str, String)> {
    // If the channel does not run, or runs elsewhere, the state of its sinks adds nothing.
    if matches!(channel.activity, Activity::Stopped | Activity::Paused | Activity::Elsewhere { .. }) {
        return None;
    }
    let lanes = channel.lanes.iter().map(|lane| {
        let error = lane.error.as_ref().map_or_else(String::new, |error| problem(error, now));
        let detail = format!("sink {}: {error}", lane.sink);
        match lane.state {
            LaneState::Stopped => (Condition::Bad, "sink stopped", format!("sink {}", lane.sink)),
            LaneState::Blocked => (Condition::Bad, "sink blocked", detail),
            LaneState::Retrying => (Condition::Passing, "sink retrying", detail),
            LaneState::Behind => (Condition::Behind, "sink behind", String::new()),
            LaneState::Paused => (Condition::Aside, "sink paused", format!("sink {}", lane.sink)),
            LaneState::Ok => (Condition::Good, "", String::new()),
        }
    });
    lanes.min_by_key(|(condition, ..)| *condition)
}
