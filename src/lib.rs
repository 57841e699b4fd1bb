//! channeld reads the verified events of channels and hands them on: nothing forged, nothing lost.
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
//! The [`daemon`] runs one [`channel`] a task. The task claims its channel: it alone changes the channel's [`ledger`],
//! which a store persists. It asks the service for what is above the last offset read, in ranges that are shown to have no
//! gap. Each event is given a verdict by [`proof::verify`]. A verified event becomes a [`record`] and goes to the channel's lanes;
//! an event that waits for its proof, or was rejected, goes along in the same batch. A lane delivers to its [`sink`], and
//! then commits the batch as one: its cursor, the events set aside, the events quarantined. A crash at any point repeats at
//! most what was in hand. A lane that falls behind leaves the others, reads for itself from its own cursor, and rejoins.
//! An operator's command changes the channel's ledger through the task's claim. Another configuration replaces the lanes
//! that it changes, and the plan of reading if it changes that, while the rest goes on. Where instances share a store, the
//! [`cluster`] says which channels run here.
//!
//! # Crates, in reading order
//!
//! Each is a folder of `src` with its own `Cargo.toml`. A crate can use those above it that the last column names, and the compiler
//! refuses anything else.
//!
//! | crate | what it is | uses |
//! |---|---|---|
//! | [`proof`] | events and their verification: `event`, `verify`; no I/O, no clock | |
//! | [`net`] | what clients and tasks share: `secret`, `http`, `postgres`, `tasks`, `memory`, `retry`, `time` | |
//! | [`record`] | the JSON object that sinks are given, its other formats, filters; pure | proof, net |
//! | [`telemetry`] | logs, traces, `metrics` | proof, net, record |
//! | [`api`] | the client of the service: pages, errors by what to do next | proof, net |
//! | [`ledger`] | what is remembered of a channel: pure rules, claims, and the stores that persist it | proof, net, telemetry |
//! | [`cluster`] | which channels this instance works, if several share them | ledger, proof, net, telemetry |
//! | [`sink`] | the trait, and one file or folder for each sink | proof, net, record, telemetry |
//! | [`channel`] | the loop: read, verify, deliver, commit | api, ledger, sink and what they use |
//! | [`operator`] | what an operator sees and asks for: one typed API, served on the control socket and, its reading half, over TCP; `liveness` | api, channel, cluster and what they use |
//! | [`simulator`] | the service, simulated; only `cli` and the tests use it | proof |
//! | this one | [`config`]: from the operator's text to the settings of the crates above, every mistake at once. [`daemon`]: assembly, a task for each channel, reload, signals, systemd. [`cli`]: one file for each subcommand | all above |
//!
//! # Invariants
//!
//! * **Verified before delivered.** Only [`proof::verify`] makes a [`Verified`](proof::verify::Verified) event, and only a verified event
//!   or a notice becomes a [`Record`](record::Record): sinks accept nothing else.
//! * **Delivered before recorded, recorded before forgotten.** Cursors move after the sink has said `Ok` and never back.
//! * **One writer.** Only what shares the claim of a channel changes its ledger.
//! * **No gap is guessed away.** What the service does not show to be complete is not read past.
//! * **Everything is bounded,** and each bound has a name and is a channel's own: bodies, pages, queues, retries, waits,
//!   late events, quarantined events, dead letters.

#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod daemon;
pub mod version;
