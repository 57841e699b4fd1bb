//! Runs one channel in a loop: poll, verify, order, deliver, record, always in that sequence.
//!
//! * The service **shows** an event if one of its answers contains the event. An event that fails verification is read again by
//!   its id. If the service does not return it at its offset, the event is **unconfirmed**.
//! * A **range** is a series of consecutive events, ascending, that is proven to have no gap.
//! * A **batch** is a verified range, sorted by verdict, with everything that its commit needs.
//! * A **lane** delivers batches to one sink, and records its own cursor.
//! * An **intake** turns ranges into batches. One intake serves all lanes that keep up. A lane that has fallen behind has an
//!   intake of its own.
//! * The **hub** passes each batch of the shared intake to the lanes that keep up.
//!
//! ```text
//! reader ──► verify ──► batch ──► hub ──┬─► lane ─► sink      one lane per sink, each with its own cursor
//! └──────── intake ─────────┘           └─► lane ─► sink      a lane that falls behind has its own intake
//!              ▲
//!              └── late events, read again by id until their proof arrives
//! ```
//!
//! While more events can be read, all stages work at the same time. One range is being read (`read::ahead`). The range
//! before it is being verified on every processor (`verify`, `machine`). The earlier ranges are being delivered. Batches that
//! arrive while a sink is busy are joined into one.
//!
//! # Invariants
//!
//! * **Owned.** The channel runs only while this instance has its lease. Every state change goes through its leased ledger.
//!   Only the channel's task, its lanes and operators' commands change the ledger.
//! * **A slow sink does not delay the others.** See `deliver::hub`.
//! * **Unchanged parts keep running.** A new plan (see [`Channel::become_like`]) restarts only the parts that it changes:
//!   reading, and the lanes whose sink is used differently.
//! * **Bounded.** At most two ranges are read ahead. Each lane has at most `MAX_JOINED` batches in delivery, the same number
//!   prepared, and `QUEUE_BATCHES` queued. At most [`LATE`](ledger::LATE) events wait for their proof. Reading waits at these limits.
//!   [`memory`](net::memory) limits the memory that all of these use together.
//! * **`stop` is observed** while polling or waiting, never between delivering a batch and recording it. If a batch is queued
//!   when `stop` fires, it is neither delivered nor recorded. It is read again later.
//! * **Repeatable.** Each `select!` is biased: if several branches are ready, their order is fixed, and a test history repeats
//!   exactly.

#![forbid(unsafe_code)]

mod channel;
mod comparison;
mod deliver;
mod error;
mod late;
#[cfg(test)]
mod model;
mod read;
mod run;
mod status;
mod verify;

pub use channel::controls::{Handle, Handles, LeasedChannel};
pub use channel::settings::{LaneSettings, Ordering, Settings, Start, UnsignedPolicy, Verification};
pub use channel::{Channel, SharedParts};
pub use comparison::{Accounts, Comparison, ExpectedEvent, NotCompared, Scope, SinkComparison, Tally};
pub use error::{ChannelError, ReadError};
pub use read::reader::{History, first_since};
pub use read::service::unobserved;
pub use run::machine::Processors;
pub use run::tasks::{Task, Tasks};
pub use status::deliveries::{DeliveredEvent, DeliveryPage, DeliveryTail, LateDelivery};
pub use status::hour::{GAP, HOUR, Sample};
pub use status::pace::{Progress, counted, grouped, rate, span};
pub use status::{
    Activity, ChannelStatus, Compared, Condition, FormerNames, LaneState, LaneStatus, Level, NONE_VERIFIED, NOTEWORTHY,
    POLLS_IN_VAIN, Pauses, Problem, Refill, SharedProofs, SharedWorkflow, SignerStatus, StoredEvents,
};
pub use verify::expect::{Expect, Names, NotOfChannel, SignedField, decoded};
pub use verify::reason::{RejectionReason, RejectionSeverity};
pub use verify::recent::{Alarm, RecentEvents};
