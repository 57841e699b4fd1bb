//! What an operator may see and change of a daemon: how it is, what it remembers, whether it goes on.
//!
//! The same [`Operations`] answer in both cases: in the daemon, which owns the state while it runs, and in a command that
//! has opened the state of a daemon that does not. A command reaches the first by its [`Socket`].
//!
//! # Invariants
//!
//! * **Nothing is delivered from here.** What a retry acquits goes to the channel's late events, durably and in one
//!   transaction; a lane delivers it, and is given only what the verifier has made.
//! * **Evidence and dead letters go by an operator's word only,** and each change is written to the log.
//! * **Cursors are put elsewhere only while their channel stands still.**
//!
//! # Cancellation
//!
//! A change is one transaction, finished whether or not its answer is awaited. A retry is one transaction for each
//! `AT_ONCE` events.

use std::sync::Arc;

use crate::channel::Handles;
use crate::config;
use crate::event::ChannelId;
use crate::record::ChannelRef;
use crate::state::{State, StateError};
use crate::verify::Verifier;

mod cursors;
mod dead_letters;
mod pauses;
mod quarantine;
mod reload;
mod socket;
mod status;
mod words;

pub use reload::{Changes, Difference, Reloading, Reloads};
pub use socket::{Socket, ask};
pub use status::{ChannelReport, KeptReport, LaneReport, Process, Report, SignerReport};
pub use words::{
    Again, Answer, DeadSelection, Fate, Kept, Letter, Move, Paused, Position, Refusal, Request, Retried, Selection,
};

/// Quarantined events that are judged, and changed, together.
const AT_ONCE: usize = 256;

/// Answers requests about a state.
#[derive(Clone, Debug)]
pub struct Operations {
    state: Arc<State>,
    handles: Arc<Handles>,
    daemon: Option<Process>,
    reloads: Option<Reloads>,
    channels: Arc<[Known]>,
}

/// A configured channel.
#[derive(Clone, Debug)]
struct Known {
    channel: ChannelRef,
    sinks: Vec<Arc<str>>,
    verifier: Verifier,
}

impl Operations {
    /// Over the state of configured channels that no daemon runs.
    #[must_use]
    pub fn offline(state: Arc<State>, channels: &[config::Channel]) -> Self {
        let channels = channels.iter().map(Known::of).collect();
        Self { state, handles: Arc::default(), daemon: None, reloads: None, channels }
    }

    /// Over those that `daemon` runs, and that are reached by their handles. It reads its configuration again for whoever
    /// asks `reloads`.
    #[must_use]
    pub fn of_daemon(
        daemon: Process,
        state: Arc<State>,
        handles: Arc<Handles>,
        reloads: Reloads,
        channels: &[config::Channel],
    ) -> Self {
        Self { handles, daemon: Some(daemon), reloads: Some(reloads), ..Self::offline(state, channels) }
    }

    /// Does what is asked.
    ///
    /// # Errors
    /// [`Refusal`]: nothing was changed or, where the state failed, nobody knows.
    pub async fn answer(&self, request: Request) -> Result<Answer, Refusal> {
        match request {
            Request::Status => self.status().await,
            Request::Reload => self.reload().await,
            Request::QuarantineList { channel } => self.list(channel.as_deref()),
            Request::QuarantineShow { channel, offset } => self.show(&channel, offset),
            Request::QuarantineRetry { channel, which } => self.retry(&channel, &which).await,
            Request::QuarantineDrop { channel, offsets } => self.discard(&channel, offsets).await,
            Request::DeadLetterList { channel, sink } => self.dead_letters(channel.as_deref(), sink.as_deref()),
            Request::DeadLetterShow { channel, sink, offset } => self.dead_letter(&channel, &sink, offset),
            Request::DeadLetterReplay { channel, sink, which } => self.revive(&channel, &sink, &which).await,
            Request::DeadLetterDrop { channel, sink, which } => self.unbury(&channel, &sink, &which).await,
            Request::Replay { channel, sink, events } => self.replay(&channel, &sink, events).await,
            Request::Pause { channel, sink, paused } => self.pause(&channel, sink.as_deref(), paused),
            Request::CursorShow { channel } => self.cursors(channel.as_deref()),
            Request::CursorSet { channel, sink, to, apply } => {
                self.set_cursors(&channel, sink.as_deref(), to, apply).await
            }
        }
    }

    /// The channel of that configured name or, failing that, of that id.
    fn find(&self, name_or_id: &str) -> Result<ChannelRef, Refusal> {
        if let Some(known) = self.channels.iter().find(|known| &*known.channel.name == name_or_id) {
            return Ok(known.channel.clone());
        }
        let names: Vec<_> = self.channels.iter().map(|known| &*known.channel.name).collect();
        let names = names.join(", ");
        let unknown = format!("`{name_or_id}` is neither a configured channel ({names}) nor a UUID");
        name_or_id.parse().map(|id| self.channel(id)).map_err(|_| Refusal::Usage(unknown))
    }

    /// The configuration of a channel, by which its events are verified.
    fn verified(&self, channel: &ChannelRef) -> Result<&Known, Refusal> {
        self.known(channel.id).ok_or_else(|| {
            Refusal::Usage(format!("the channel {} is not configured: nothing says how to verify it", channel.name))
        })
    }

    fn known(&self, id: ChannelId) -> Option<&Known> {
        self.channels.iter().find(|known| known.channel.id == id)
    }

    /// A channel that is no longer configured goes by its id.
    fn channel(&self, id: ChannelId) -> ChannelRef {
        let unknown = || ChannelRef { name: id.to_string().into(), id };
        self.known(id).map_or_else(unknown, |known| known.channel.clone())
    }
}

impl Known {
    fn of(channel: &config::Channel) -> Self {
        Self {
            channel: channel.channel.clone(),
            sinks: channel.sinks.iter().map(|sink| sink.as_str().into()).collect(),
            verifier: channel.verification.verifier.clone(),
        }
    }
}

/// Checks that a channel, which has those sinks, has this one.
fn check_sink(channel: &ChannelRef, sink: &str, sinks: &[Arc<str>]) -> Result<(), Refusal> {
    if sinks.iter().any(|known| **known == *sink) {
        return Ok(());
    }
    let (name, sinks) = (&channel.name, sinks.join(", "));
    Err(Refusal::Usage(format!("{sink} is no sink of channel {name}, whose sinks are: {sinks}")))
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        Self::Failed(crate::telemetry::Chain(&error).to_string())
    }
}
