//! A channel's condition with its cause, as the list and the channel's page show it.

use jiff::Timestamp;
use ratatui::style::{Color, Modifier, Style};

use crate::cli::look::status::text::{activity, problem, reading};
use crate::cli::shown::printable;
use channel::{ChannelStatus, Condition, LaneStatus, Level};
use operator::NotReady;

/// Columns of a progress bar.
const BAR: usize = 12;

/// A channel's condition, its cause, and the reasons not to be ready.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) condition: Condition,
    pub(super) detail: String,
    /// The sentences of the reasons that are about this channel.
    pub(super) reasons: Vec<String>,
}

impl Health {
    pub(super) fn of(channel: &ChannelStatus, reasons: &[&NotReady], now: Timestamp) -> Self {
        let condition = channel.condition;
        let detail = match (reasons.first(), channel.progress()) {
            (Some(first), _) => printable(&first.in_channel()),
            (None, Some(progress)) if condition == Condition::Behind => {
                let percent = progress.share() * 100.0;
                format!("{} {percent:.0} %, {progress}", progress.bar(BAR))
            }
            _ => cause(channel, now),
        };
        let reasons = reasons.iter().map(|reason| printable(&reason.to_string())).collect();
        Self { condition, detail, reasons }
    }
}

/// The sink or the activity that the condition comes from.
fn cause(channel: &ChannelStatus, now: Timestamp) -> String {
    let own = activity(&channel.activity, now).0 == channel.condition.name();
    let lane = channel.lanes.iter().find(|lane| lane.condition == channel.condition);
    let lane = lane.filter(|_| !own && channel.condition > Condition::Ok);
    lane.map_or_else(|| reading(channel, now), |lane| of_sink(lane, now))
}

fn of_sink(lane: &LaneStatus, now: Timestamp) -> String {
    let why = match (&lane.error, &lane.reading) {
        (Some(error), _) => problem(error, now),
        (None, Some(reading)) => activity(reading, now).1,
        (None, None) => String::new(),
    };
    let sink = format!("sink {}", lane.sink);
    if why.is_empty() { sink } else { format!("{sink}: {why}") }
}

pub(super) fn colour(level: Level) -> Style {
    match level {
        Level::NeedsAction => Style::new().fg(Color::Red).add_modifier(Modifier::BOLD),
        Level::Passing | Level::Behind => Style::new().fg(Color::Yellow),
        Level::Aside => Style::new().fg(Color::Cyan),
        Level::Good => Style::new().fg(Color::Green),
    }
}
