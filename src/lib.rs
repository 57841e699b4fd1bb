//! channeld reads the verified events of channels and delivers them. No event is forged, and no event is lost.
//!
//! # Bird's-eye view
//!
//! ```text
//!             one task per channel, which owns it                 one lane per (channel, sink)
//!  service ──► read ──► verify ──► batch ──► hub ──┬─► lane ─► sink: stdout
//!    ▲          gap-free    verdicts,              ├─► lane ─► sink: file, table
//!    │          ranges      sorted                 └─► lane ─► sink: webhook
//!    │                                                   │ committed once delivered
//!    └──── late proofs ◄──── ledger: cursors, late, quarantined, dead letters, proofs ◄──┘
//!                               │ effects
//!                             store: sled | PostgreSQL
//! ```
//!
//! The [`daemon`] runs one task per [`channel`]. The task takes the lease of its channel: only this task changes the
//! channel's [`ledger`], which a store persists. It requests the events above the last offset that it read, in ranges
//! that are proven to have no gap. [`proof::verify`] gives each event a verdict. A verified event becomes a
//! [`record`] and goes to the channel's lanes. An event that is pending or rejected travels in the same batch. A lane
//! delivers to its [`sink`], and then commits the whole batch at once: the lane's cursor, the pending events, and the
//! rejected events, which are quarantined. A crash at any point repeats at most the current batch. A lane that falls
//! behind leaves the other lanes, reads alone from its own cursor, and rejoins them when it has caught up. An
//! operator's command changes the channel's ledger through the task's lease. A new configuration replaces only what
//! it changes: the lanes whose settings differ, and the plan for reading if the settings for reading differ.
//! Everything else keeps running. If instances share a store, the [`cluster`] decides which channels run here.
//!
//! # Crates, in reading order
//!
//! Each crate is a folder of `src` with its own `Cargo.toml`. A crate can use the crates above it that the last column
//! names. The compiler refuses anything else.
//!
//! | crate | contents | uses |
//! |---|---|---|
//! | [`proof`] | events and their verification: `event`, `verify`; no I/O, no clock | |
//! | [`net`] | code that clients and tasks share: `secret`, `http`, `postgres`, `tasks`, `memory`, `retry`, `shortage`, `time`, `turns` | |
//! | [`record`] | the JSON object that sinks receive, its other formats, filters, and its verification by a receiver; pure | proof, net |
//! | [`telemetry`] | logs, traces, `metrics` | proof, net, record |
//! | [`api`] | the client of the service: pages, errors grouped by the next action | proof, net |
//! | [`ledger`] | the recorded state of a channel: pure rules, leases, and the stores that persist it | proof, net, telemetry |
//! | [`cluster`] | which channels this instance runs, if several instances share them | ledger, proof, net, telemetry |
//! | [`sink`] | the trait, and one file or folder for each sink | proof, net, record, telemetry |
//! | [`channel`] | the loop: read, verify, deliver, commit | api, ledger, sink and their dependencies |
//! | [`operator`] | the view and the requests of an operator, as one typed API. The control socket serves the whole API, and TCP serves only the half that reads. Modules: `operations`, `report`, `feed`, `serve`, `liveness`, `runbook` | api, channel, cluster and their dependencies |
//! | [`feed`] | applications read the events of a table over HTTP: long poll, server-sent events, leases and commits | operator, sink and their dependencies |
//! | [`console`] | events, their proofs and the daemon, in a browser | api, operator, sink and their dependencies |
//! | [`simulator`] | the service, simulated; only `cli` and the tests use it | proof |
//! | this one | [`config`]: turns the operator's text into the settings of the crates above, and reports every mistake at once. [`daemon`]: assembly, a task for each channel, reload, signals, systemd. [`cli`]: one file for each subcommand, in a folder for each purpose: `look`, `act`, `prove`, `trial`, `package` | all above |
//!
//! # Invariants
//!
//! * **Verified before delivered.** Only [`proof::verify`] makes a [`Verified`](proof::verify::Verified) event, and only a
//!   verified event or a notice becomes a [`Record`](record::Record): sinks accept nothing else.
//! * **Delivered before recorded.** A delivery moves a cursor only after the sink has returned `Ok`, and never back.
//! * **One writer.** Only code that shares the lease of a channel changes the channel's ledger.
//! * **No gap is guessed away.** The channel never reads past a range that the service has not shown to be complete.
//! * **Everything is bounded,** and each bound has a name and belongs to one channel: bodies, pages, queues, retries, waits,
//!   late events, quarantined events, dead letters.

#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod daemon;
pub mod version;
