//! What an operator sees and asks of a daemon: one typed API, served on two listeners.
//!
//! [`Operations`] carries out every request. A command reaches those of a running daemon by [`ask`], over the control
//! [`Socket`]; where no daemon runs, it opens the state and calls its own. The admin [`Listener`] serves the reading half
//! over TCP.
//!
//! # Invariants
//!
//! * **Nothing is delivered from here.** What is to be delivered is owed to a lane, durably and in one transaction; the lane
//!   verifies it again and delivers it.
//! * **Quarantined events and dead letters go at an operator's request only,** and each change is logged.
//! * **Cursors are set only while their channel stands still.**
//!
//! # Cancellation
//!
//! A change is one transaction, finished whether or not its answer is awaited. A retry is one transaction for each
//! `AT_ONCE` events.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use crate::channel::{Command, CommandError, Configured, Done, Handles, Message, Owned, RecentEvents, SharedParts};
use crate::event::ChannelId;
use crate::ledger::{Ledger, Ledgers, StateError};
use crate::record::ChannelRef;
use crate::verify::Verifier;

#[expect(missing_docs, reason = "the module says once what its members mean")]
pub mod api;
mod client;
mod cursors;
mod dead_letters;
mod exposition;
mod listener;
mod pauses;
mod quarantine;
mod reload;
mod report;
mod request;
mod router;
mod server;
mod socket;
mod state;

pub use api::Refusal;
pub use client::ask;
pub use listener::{ListenError, Listener};
pub use reload::{Changes, Difference, Reloading, Reloads};
pub use report::{Process, Report};
pub use request::Request;
pub use router::Sources;
pub use socket::Socket;

/// How long a channel may be on its way from one owner to another.
const OWNERLESS: Duration = Duration::from_secs(40);

/// Between two looks whether it has an owner.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Carries out what an operator asks.
#[derive(Clone, Debug)]
pub struct Operations {
    ledgers: Arc<Ledgers>,
    handles: Arc<Handles>,
    recent: Arc<RecentEvents>,
    daemon: Option<Process>,
    reloads: Option<Reloads>,
    channels: Arc<[ConfiguredChannel]>,
}

/// A channel of the configuration.
#[derive(Clone, Debug)]
pub struct ConfiguredChannel {
    /// Its name and id.
    pub channel: ChannelRef,
    /// Its sinks, in the operator's order.
    pub sinks: Vec<Arc<str>>,
    /// By which its events are verified.
    pub verifier: Verifier,
}

impl Operations {
    /// Over the ledgers of configured channels that no daemon runs.
    #[must_use]
    pub fn offline(ledgers: Arc<Ledgers>, channels: impl IntoIterator<Item = ConfiguredChannel>) -> Self {
        let channels = channels.into_iter().collect();
        let (handles, recent) = (Arc::default(), Arc::default());
        Self { ledgers, handles, recent, daemon: None, reloads: None, channels }
    }

    /// Over those that `daemon` runs. It reads its configuration again where `reloads` asks it to.
    #[must_use]
    pub fn of_daemon(
        daemon: Process,
        parts: &SharedParts,
        reloads: Reloads,
        channels: impl IntoIterator<Item = ConfiguredChannel>,
    ) -> Self {
        let (handles, recent) = (parts.handles.clone(), parts.recent.clone());
        let offline = Self::offline(parts.ledgers.clone(), channels);
        Self { handles, recent, daemon: Some(daemon), reloads: Some(reloads), ..offline }
    }

    /// A channel's ledger, to be read: that of its owner or, where it has none, as it was recorded.
    async fn ledger(&self, channel: &ChannelRef) -> Result<Arc<Mutex<Ledger>>, Refusal> {
        let (handle, since) = (self.handles.of(channel.id), Instant::now());
        loop {
            if let Some(ledger) = handle.board.ledger() {
                return Ok(ledger);
            }
            if let Some(owned) = Owned::try_claim(channel, &self.ledgers, &self.recent).await? {
                owned.show_on(&handle.board);
            } else {
                self.wait_for_owner(channel, since).await?;
            }
        }
    }

    /// Has a command performed: by the task that owns the channel or, where none does, here.
    async fn perform(&self, channel: &ChannelRef, command: Command) -> Result<Done, Refusal> {
        let (handle, since) = (self.handles.of(channel.id), Instant::now());
        let known = self.known(channel.id);
        let configured = Configured {
            channel: channel.clone(),
            sinks: known.map_or_else(Vec::new, |known| known.sinks.clone()),
            verifier: known.map(|known| Arc::new(known.verifier.clone())),
        };
        loop {
            if let Some(owner) = handle.controls.owner() {
                let (reply, answer) = oneshot::channel();
                let message = Message { command: command.clone(), channel: configured.clone(), reply };
                // Where the owner ends before it has begun the command, the answer is that there is none.
                if owner.send(message).await.is_ok()
                    && let Ok(done) = answer.await
                {
                    return Ok(done?);
                }
            }
            if let Some(owned) = Owned::try_claim(channel, &self.ledgers, &self.recent).await? {
                owned.show_on(&handle.board);
                return Ok(owned.perform(command, &configured).await?);
            }
            self.wait_for_owner(channel, since).await?;
        }
    }

    async fn wait_for_owner(&self, channel: &ChannelRef, since: Instant) -> Result<(), Refusal> {
        if since.elapsed() > OWNERLESS {
            return Err(Refusal::Failed(format!("channel {} is ending, and has not ended: try again", channel.name)));
        }
        sleep(LOOK_AGAIN).await;
        Ok(())
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

    /// The channel of that name or id; without one, every channel that is configured or of which anything is kept.
    async fn selected(&self, channel: Option<&str>) -> Result<Vec<ChannelRef>, Refusal> {
        if let Some(channel) = channel {
            return Ok(vec![self.find(channel)?]);
        }
        let mut ids = self.ledgers.channels().await?;
        ids.extend(self.channels.iter().map(|known| known.channel.id));
        Ok(ids.into_iter().map(|id| self.channel(id)).collect())
    }

    fn configured(&self, channel: &ChannelRef) -> Result<&ConfiguredChannel, Refusal> {
        self.known(channel.id).ok_or_else(|| {
            Refusal::Usage(format!("the channel {} is not configured: nothing says how to verify it", channel.name))
        })
    }

    fn known(&self, id: ChannelId) -> Option<&ConfiguredChannel> {
        self.channels.iter().find(|known| known.channel.id == id)
    }

    /// A channel that is no longer configured goes by its id.
    fn channel(&self, id: ChannelId) -> ChannelRef {
        let unknown = || ChannelRef { name: id.to_string().into(), id };
        self.known(id).map_or_else(unknown, |known| known.channel.clone())
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

/// Looks something up in a ledger.
fn look<T>(ledger: &Mutex<Ledger>, look: impl FnOnce(&Ledger) -> T) -> T {
    look(&ledger.lock().unwrap_or_else(PoisonError::into_inner))
}

impl From<CommandError> for Refusal {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Usage(message) => Self::Usage(message),
            CommandError::Failed(message) => Self::Failed(message),
        }
    }
}

impl From<StateError> for Refusal {
    fn from(error: StateError) -> Self {
        Self::Failed(crate::telemetry::Chain(&error).to_string())
    }
}
