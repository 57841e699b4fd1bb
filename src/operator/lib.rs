//! The requests of operators to a daemon: one typed API, served on two listeners.
//!
//! [`Operations`] carries out every request. A command sends its request by `ask`, over the control [`Socket`], to the
//! `Operations` of a running daemon. If no daemon runs, the command opens the state and calls its own `Operations`. The
//! admin [`Listener`] serves the reading half over TCP.
//!
//! # Invariants
//!
//! * **Nothing is delivered from here.** An event that is released from the quarantine or replayed is recorded as a late
//!   delivery, durably and in one commit. The channel verifies the event again, and a lane delivers it. A replay of a range is
//!   only recorded here: the channel reads its events.
//! * **Through the lease.** A request changes a channel in the same way as the channel's owner does. If no task of this
//!   process owns the channel, the process takes the channel's lease until the request is done.
//! * **Quarantined events and dead letters are removed only at an operator's request,** and each change is logged.
//! * **Cursors of sinks are set only while their channel does not run.** Cursors of the feed's consumers are set by the feed.
//!
//! # Cancellation
//!
//! A change is finished even if the client disconnects. Each change is one commit, with two exceptions: a retry of
//! quarantined events and a replay of dead letters use one commit for every `AT_ONCE` events.

#![forbid(unsafe_code)]

#[expect(missing_docs, reason = "the module says once what its members mean")]
pub mod api;
mod configured;
pub mod feed;
mod operations;
mod report;
mod request;
pub mod runbook;
mod serve;
#[cfg(feature = "testing")]
pub mod testing;

pub use api::Refusal;
pub use configured::{ConfiguredChannel, SignerNames, check_sink, find, names, verifier_of};
pub use operations::changes::{Changes, Difference, Reloading, Reloads};
pub use operations::hour::note_minutes;
pub use operations::tail::search_rules;
pub use operations::{Operations, Process};
pub use report::Report;
pub use report::api_keys::{ApiKeyStatus, ApiKeys, expires_soon};
pub use report::discovery::Discovery;
pub use report::instances::{ChannelOwner, Cluster, InstanceStatus};
pub use report::not_ready::{NotReady, NotReadyKind};
pub use report::rejected_config::RejectedConfig;
pub use request::Request;
pub use serve::listener::Listener;
pub use serve::router::Sources;
pub use serve::routes::answer_others;
pub use serve::socket::{Socket, ask, bind_private};
pub use serve::{liveness, server};
