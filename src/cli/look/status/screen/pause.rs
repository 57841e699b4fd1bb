//! Pauses and resumes a channel or one of its sinks by key. A first key asks, and a second key confirms.

use std::sync::Arc;

use ledger::SinkName;
use operator::api::SetPaused;

use channel::ChannelStatus;

/// The keys that choose a sink. Further sinks can only be paused on the command line.
const KEYS_OF_SINKS: [char; 9] = ['1', '2', '3', '4', '5', '6', '7', '8', '9'];

/// The key that chooses the channel.
const KEY_OF_CHANNEL: char = 'y';

/// The question that the bottom line shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Question {
    channel: Arc<str>,
    choices: Vec<Choice>,
}

/// A channel or sink that a key pauses or, if it is paused, resumes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Choice {
    key: char,
    sink: Option<SinkName>,
    is_paused: bool,
}

impl Question {
    pub(super) fn about(channel: &ChannelStatus) -> Self {
        let whole = Choice { key: KEY_OF_CHANNEL, sink: None, is_paused: channel.paused.is_some() };
        let sinks = KEYS_OF_SINKS.into_iter().zip(&channel.lanes);
        let sinks =
            sinks.map(|(key, lane)| Choice { key, sink: Some(lane.sink.clone()), is_paused: lane.paused.is_some() });
        Self { channel: channel.channel.clone(), choices: [whole].into_iter().chain(sinks).collect() }
    }

    /// The request that this key confirms. Every other key cancels.
    pub(super) fn confirmed(&self, key: char) -> Option<SetPaused> {
        let Choice { sink, is_paused, .. } = self.choices.iter().find(|choice| choice.key == key)?;
        let sink = sink.as_ref().map(ToString::to_string);
        Some(SetPaused { channel: self.channel.to_string(), sink, paused: !is_paused, ..SetPaused::default() })
    }

    /// The keys and their effects, such as `y pause settlements  1 resume sink ledger  esc cancel`.
    pub(super) fn text(&self) -> String {
        let choice = |Choice { key, sink, is_paused }: &Choice| {
            let verb = if *is_paused { "resume" } else { "pause" };
            let what = sink.as_ref().map_or_else(|| self.channel.to_string(), |sink| format!("sink {sink}"));
            format!("{key} {verb} {what}  ")
        };
        self.choices.iter().map(choice).collect::<String>() + "esc cancel"
    }
}
