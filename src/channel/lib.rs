//! Runs one channel in a loop with a fixed sequence: poll, verify, order, deliver, record.
//!
//! * The service **shows** an event if one of its answers contains the event. An event that fails verification is read again
//!   by its id. If this second answer does not contain the event at the same offset, the event is **unconfirmed**.
//! * A **range** is a series of consecutive events, ascending, that is proven to have no gap.
//! * A **batch** is a verified range, with its events sorted by verdict, and all data that the commit of the batch needs.
//! * A **lane** delivers batches to one sink, and records its own cursor.
//! * An **intake** turns ranges into batches. One intake serves all lanes that keep up. A lane that has fallen behind has an
//!   intake of its own.
//! * The **hub** passes each batch of the shared intake to the lanes that keep up.
//!
//! ```text
//! reader ──► verify ──► batch ──► hub ──┬─► lane ─► sink      one lane per sink, each with its own cursor
//! └──────── intake ─────────┘           └─► lane ─► sink      a lane that falls behind has its own intake
//!              ▲
//!              └── late events, read again by id until their proof arrives, and past events that an operator replays
//! ```
//!
//! While more events can be read, all stages work at the same time. One range is being read (`read::ahead`). The previous
//! range is being verified on every processor (`verify`, `machine`). The ranges before that are being delivered. Batches that
//! arrive while a sink is busy are joined into one batch.
//!
//! # Invariants
//!
//! * **Owned.** The channel runs only while this instance has the channel's lease. Every state change goes through the leased
//!   ledger. Only the channel's task, its lanes and operators' commands change the ledger.
//! * **A slow sink does not delay the others.** See `deliver::hub`.
//! * **Unchanged parts keep running.** A new plan (see [`Channel::become_like`]) restarts only the parts whose settings
//!   change: reading, and each lane with changed settings.
//! * **Bounded.** At most two ranges are read ahead. Each lane has at most `MAX_JOINED` batches in delivery, the same number
//!   prepared, and `QUEUE_BATCHES` queued. At most [`LATE`](ledger::LATE) events wait for their proof. Reading waits at these
//!   limits. [`memory`](net::memory) limits the total memory of these ranges, batches and events.
//! * **`stop` is observed** while polling or waiting, never between delivering a batch and recording it. A batch that is
//!   still queued when `stop` fires is neither delivered nor recorded. The next run reads the batch again.
//! * **Repeatable.** Each `select!` is biased: if several branches are ready, the first of them runs. A test history
//!   therefore repeats exactly.

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

pub use channel::account_turns::AccountTurns;
pub use channel::controls::{Handle, Handles, LeasedChannel};
pub use channel::settings::{LaneSettings, Ordering, Settings, Start, UnsignedPolicy, Verification};
pub use channel::{Channel, SharedParts};
pub use comparison::{Accounts, Comparison, ExpectedEvent, NotCompared, Scope, SinkComparison, Tally};
pub use error::{ChannelError, ReadError};
pub use read::first_event::{FirstEvent, OffsetOrTime, last_until};
pub use read::reader::{History, first_since};
pub use read::service::unobserved;
pub use run::machine::Processors;
pub use run::tasks::{Task, Tasks};
pub use status::catch_up::CatchUp;
pub use status::deliveries::{DeliveredEvent, DeliveryPage, DeliveryTail, LateDelivery};
pub use status::hour::{GAP, HOUR, Sample};
pub use status::pace::{Progress, counted, grouped, grouped_digits, rate, span};
pub use status::watchers::{WatcherStatus, Watchers};
pub use status::{
    Activity, ChannelStatus, Compared, Condition, FormerNames, LaneState, LaneStatus, Level, NONE_VERIFIED, NOTEWORTHY,
    POLLS_IN_VAIN, Pauses, Problem, Refill, ReplayStatus, SharedProofs, SharedWorkflow, SignerStatus, StoredEvents,
    UnknownValueStatus,
};
pub use verify::expect::{Expect, Names, NotOfChannel, SignedField, decoded};
pub use verify::reason::{RejectionReason, RejectionSeverity};
pub use verify::recent::{Alarm, RecentEvents};
