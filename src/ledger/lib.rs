//! The state of one channel: the cursor of each lane, the pending events, the quarantined events, the dead letters, the
//! proofs that were delivered recently, the workflows that appeared in the channel's events, and the replays.
//!
//! * `rules`: a [`Ledger`] is the state in memory. It is loaded when the lease of the channel is acquired. Only
//!   [`Ledger::apply`] interprets a [`Commit`]: it returns the [`Effects`] that a [`Store`] must persist, or refuses the
//!   commit.
//! * `ledgers`: a [`LeasedLedger`] is the right to change a channel's ledger. Without this lease, the ledger cannot be
//!   changed.
//! * [`store`]: persists effects and does not interpret them.
//!
//! # Terms
//!
//! * To *claim* a channel is to acquire its lease and to load its ledger.
//! * A channel *shows* a proof or a workflow if the service returns one of the channel's events with this proof or
//!   workflow.
//! * A lane has *passed* an event if its cursor is at the offset of the event or above.
//! * In the names of items, `late` means pending. A pending event is `owed` to the lanes that have passed it.
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

mod error;
mod ledgers;
mod rules;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use error::StateError;
pub use ledgers::{
    CommitError, LeasedLedger, LedgerAndProofs, Ledgers, PROOFS, PROOFS_OF_A_CHANNEL, Writes, proofs_each,
};
pub use rules::{
    Blocker, Change, Commit, Confirmed, Contradiction, Cursor, DEAD_LETTERS, DeadLetter, DeadLetterFacts, Digest,
    Effects, Entries, EventLocation, HISTORY, History, Key, KnownEvent, LATE, LATE_DELIVERIES, LateDelivery, Ledger,
    OtherKey, Pause, Paused, Pending, PendingEvent, Proof, QUARANTINE, Quarantined, QuarantinedDuplicates,
    QuarantinedEvent, REPLAYS, Refusal, Replay, ReplayId, ReplayState, Room, ShownWorkflow, SinkName, Summary, Table,
    Value, WORKFLOWS, WorkflowId,
};
pub use store::{CommitOutcome, Lease, Loss, LostEntries, Store};
