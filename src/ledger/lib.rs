//! The state of one channel: the cursor of each lane, the pending events, the quarantined events, the dead letters, the
//! proofs that were delivered recently, and the workflows that the channel has shown.
//!
//! * `rules`: a [`Ledger`] is kept in memory. It is loaded when the channel is claimed. Only [`Ledger::apply`] interprets a
//!   [`Commit`]: it returns the [`Effects`] that a [`Store`] must persist, or refuses the commit.
//! * `claim`: a [`Claim`] is the right to change a channel's ledger. The ledger cannot be changed without it.
//! * [`store`]: persists effects and does not interpret them.
//!
//! # Invariants
//!
//! * **Pure.** The ledger does no I/O and reads no clock. The bodies of events stay in the store. The ledger knows only
//!   their keys and sizes.
//! * **All or nothing.** A commit is applied completely or refused completely.
//! * **Cursors never move back** on their own. Only [`Change::SetCursor`] can move a cursor back.
//! * **Limits apply per channel.** The pending events, quarantined events and dead letters of one channel do not count
//!   toward the limits of another channel.

#![forbid(unsafe_code)]

mod claim;
mod error;
mod rules;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use claim::{Claim, Claimed, CommitError, Ledgers, PROOFS, PROOFS_OF_A_CHANNEL, Writes, proofs_each};
pub use error::StateError;
pub use rules::{
    Blocker, Change, Commit, Confirmed, Contradiction, Cursor, DEAD_LETTERS, DeadLetter, Digest, Effects, Entries,
    GivenUp, HISTORY, HeldBack, History, Key, KnownEvent, LATE, Late, Ledger, Pause, Paused, Pending, Place, Proof,
    QUARANTINE, Quarantined, QuarantinedEvent, Refusal, Room, ShownWorkflow, SinkName, Summary, Table, Value,
    WORKFLOWS, WorkflowId,
};
pub use store::{Lease, Loss, Lost, Outcome, Store};
