//! An operator's commands to the task that owns a channel.
//!
//! # Invariants
//!
//! * **Nothing is delivered from here.** An event that is released or redelivered becomes late, durably and in one commit.
//!   It is verified again, and a lane delivers it.
//! * **One way.** A command is performed on an owned channel: by the task that owns it or, where none does, by a task that
//!   claims it for the command.
//!
//! # Cancellation
//!
//! A commit is finished whether or not its answer is awaited. Many events are changed [`AT_ONCE`] to a commit.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::warn;

use crate::channel::owned::Owned;
use crate::event::{Offset, RawEvent};
use crate::ledger::{Change, Commit, CommitError, Cursor, LATE, Pending, SinkName, StateError};
use crate::record::ChannelRef;
use crate::telemetry::{ALWAYS, Chain};
use crate::verify::Verifier;

mod dead_letters;
mod quarantine;

pub use dead_letters::DeadLetterSelection;
pub(crate) use quarantine::not_quarantined;
pub use quarantine::{Fate, Retried, Selection};

/// Events that are verified, and changed, together.
const AT_ONCE: usize = 256;

/// A command.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Moves the cursors of these lanes.
    SetCursors {
        /// The lanes' sinks.
        sinks: Vec<SinkName>,
        /// The last offset that counts as dealt with; `None` is before the first event.
        to: Option<Offset>,
    },
    /// Verifies quarantined events again, and delivers those whose proof holds.
    RetryQuarantined(Selection),
    /// Drops quarantined events.
    DropQuarantined(Vec<Offset>),
    /// Delivers dead letters once more.
    RedeliverDeadLetters(SinkName, DeadLetterSelection),
    /// Drops dead letters.
    DropDeadLetters(SinkName, DeadLetterSelection),
    /// Delivers past events, given by their bytes, to one sink once more.
    Redeliver(SinkName, Vec<Bytes>),
}

/// What a command has done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Done {
    /// The cursors are moved.
    CursorsSet,
    /// What became of each event that was verified again.
    Retried(Vec<Retried>),
    /// These events were dropped.
    Dropped(Vec<Offset>),
    /// These events are on their way to the sink.
    Redelivering(Vec<Offset>),
}

/// Why a command was not performed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum CommandError {
    /// It cannot be performed. Says what to do instead.
    #[error("{0}")]
    Usage(String),
    /// It failed, or it cannot be performed now.
    #[error("{0}")]
    Failed(String),
}

impl From<CommitError> for CommandError {
    fn from(error: CommitError) -> Self {
        Self::Failed(Chain(&error).to_string())
    }
}

impl From<StateError> for CommandError {
    fn from(error: StateError) -> Self {
        Self::Failed(Chain(&error).to_string())
    }
}

/// A command on its way to the task that owns its channel.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) command: Command,
    /// The channel's configuration.
    pub(crate) channel: Configured,
    pub(crate) reply: oneshot::Sender<Result<Done, CommandError>>,
}

/// The part of a channel's configuration that commands need.
#[derive(Clone, Debug)]
pub(crate) struct Configured {
    pub(crate) channel: ChannelRef,
    pub(crate) sinks: Vec<SinkName>,
    /// `None` where the channel is no longer configured.
    pub(crate) verifier: Option<Arc<Verifier>>,
}

impl Message {
    pub(super) async fn perform(self, owned: &Owned) {
        let done = owned.perform(self.command, &self.channel).await;
        // The operator may have disconnected. What was done is in the log.
        let _ = self.reply.send(done);
    }
}

impl Owned {
    /// Performs a command.
    ///
    /// # Errors
    /// [`CommandError`]: nothing has changed beyond what was logged.
    pub(crate) async fn perform(&self, command: Command, channel: &Configured) -> Result<Done, CommandError> {
        match command {
            Command::SetCursors { sinks, to } => self.set_cursors(&channel.channel, sinks, to).await,
            Command::RetryQuarantined(which) => self.retry(channel, &which).await,
            Command::DropQuarantined(offsets) => self.drop_quarantined(&channel.channel, offsets).await,
            Command::RedeliverDeadLetters(sink, which) => {
                self.redeliver_dead_letters(&channel.channel, sink, &which).await
            }
            Command::DropDeadLetters(sink, which) => self.drop_dead_letters(&channel.channel, sink, &which).await,
            Command::Redeliver(sink, events) => self.redeliver(&channel.channel, sink, events).await,
        }
    }

    async fn set_cursors(
        &self,
        channel: &ChannelRef,
        sinks: Vec<SinkName>,
        to: Option<Offset>,
    ) -> Result<Done, CommandError> {
        let name = &channel.name;
        let _stopped = self.running.try_lock().map_err(|_| {
            CommandError::Failed(format!(
                "channel {name} is running, and moves its cursors itself: pause it as a whole (`channeld pause {name}`), or \
                 stop the daemon"
            ))
        })?;
        let to = Cursor { through: to };
        let from: Vec<_> = {
            let ledger = self.claim.ledger();
            sinks.iter().map(|sink| ledger.cursor(sink).unwrap_or_default()).collect()
        };
        let set = sinks.iter().map(|sink| Change::SetCursor { sink: sink.clone(), to });
        self.claim.commit(Commit(set.collect())).await?;
        for (sink, from) in sinks.iter().zip(from) {
            warn!(target: ALWAYS, channel = %name, %sink, %from, %to, "cursor set by an operator");
        }
        Ok(Done::CursorsSet)
    }

    /// Makes past events late for one sink. Its cursor stays where it is.
    async fn redeliver(&self, channel: &ChannelRef, sink: SinkName, events: Vec<Bytes>) -> Result<Done, CommandError> {
        self.check_room(channel, events.len())?;
        let passed = self.claim.ledger().cursor(&sink).unwrap_or_default().through;
        let since = jiff::Timestamp::now().as_second();
        let (mut changes, mut offsets) = (Vec::with_capacity(events.len()), Vec::with_capacity(events.len()));
        for json in events {
            let RawEvent { offset, id: event_id, json } = RawEvent::locate(json)
                .ok_or_else(|| CommandError::Failed("an event has no offset that can be read".to_owned()))?;
            if Some(offset) > passed {
                let name = &channel.name;
                return Err(CommandError::Usage(format!(
                    "sink {sink} of channel {name} has not come as far as {offset}: it gets that in order"
                )));
            }
            offsets.push(offset);
            let event = Pending { offset, event_id, first_seen: since, json };
            changes.push(Change::Owe { sink: sink.clone(), event });
        }
        self.claim.commit(Commit(changes)).await?;
        Ok(self.redelivering(channel, &sink, offsets))
    }

    /// Wakes the channel, if it runs, and reports what is redelivered.
    fn redelivering(&self, channel: &ChannelRef, sink: &str, offsets: Vec<Offset>) -> Done {
        self.released.notify_one();
        let (events, first, last) = summary(&offsets);
        warn!(target: ALWAYS, channel = %channel.name, sink, events, first, last, "redelivered by an operator");
        Done::Redelivering(offsets)
    }

    /// Events that wait for a proof and events that are redelivered share one bound.
    fn check_room(&self, channel: &ChannelRef, events: usize) -> Result<(), CommandError> {
        let room = LATE.events.saturating_sub(self.claim.ledger().late_room().events);
        if events as u64 <= room {
            return Ok(());
        }
        let name = &channel.name;
        Err(CommandError::Failed(format!(
            "{events} events are more than channel {name} has room for now ({room}): take fewer at a time, and see `status` \
             for what waits"
        )))
    }
}

/// The count, the first and the last.
fn summary(offsets: &[Offset]) -> (usize, Option<i64>, Option<i64>) {
    (offsets.len(), offsets.first().map(|first| first.get()), offsets.last().map(|last| last.get()))
}

impl Done {
    /// The offsets of the events concerned.
    #[must_use]
    pub fn into_offsets(self) -> Vec<Offset> {
        match self {
            Self::CursorsSet => Vec::new(),
            Self::Retried(retried) => retried.into_iter().map(|retried| retried.offset).collect(),
            Self::Dropped(offsets) | Self::Redelivering(offsets) => offsets,
        }
    }
}
