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
//! gap. Each event is given a verdict by [`verify`]. A verified event becomes a [`record`] and goes to the channel's lanes;
//! an event that waits for its proof, or was rejected, goes along in the same batch. A lane delivers to its [`sink`], and
//! then commits the batch as one: its cursor, the events set aside, the events quarantined. A crash at any point repeats at
//! most what was in hand. A lane that falls behind leaves the others, reads for itself from its own cursor, and rejoins.
//! An operator's command changes the channel's ledger through the task's claim. Another configuration replaces the lanes
//! that it changes, and the plan of reading if it changes that, while the rest goes on. Where instances share a store, the
//! [`cluster`] says which channels run here.
//!
//! # Code map, in reading order
//!
//! The crate [`proof`] has [`event`] and [`verify`]: events and their verification. Every module may use it. The others are
//! here. A test compares the last column with the imports.
//!
//! | module | what it is | depends on |
//! |---|---|---|
//! | [`record`] | the one JSON object that sinks are given, its other shapes, filters; pure | memory, secret |
//! | [`secret`] | a text that shows nothing of itself | |
//! | [`http`] | TLS, proxies, headers, what all clients share | secret |
//! | [`telemetry`] | logs and traces | record, http |
//! | [`tasks`] | waiting for a newer value, joining a task, locking | |
//! | [`memory`] | the memory of all channels together, and of each | tasks |
//! | [`retry`] | waits that grow | |
//! | [`time`] | a time as an operator writes it | |
//! | [`version`] | which version this is | |
//! | [`metrics`] | what is counted, by which name | record, tasks |
//! | [`api`] | the client of the service: pages, errors by what to do next | http, memory, secret, tasks, time |
//! | [`postgres`] | reaching a PostgreSQL server: the state's database, and those that sinks write to | http, telemetry |
//! | [`ledger`] | what is remembered of a channel: pure rules, claims, and the stores that persist it | metrics, postgres, tasks, telemetry |
//! | [`cluster`] | which channels this instance works, if several share them | ledger, telemetry |
//! | [`sink`] | the trait, and one file or folder a sink | http, metrics, postgres, record, retry, secret, tasks, telemetry |
//! | [`channel`] | the loop: read, verify, deliver, commit | api, ledger, memory, metrics, record, retry, sink, tasks, telemetry |
//! | [`liveness`] | whether the process makes progress | channel, ledger |
//! | [`operator`] | what an operator sees and asks: one typed API, served on the control socket and, its reading half, over TCP | api, channel, cluster, ledger, liveness, metrics, record, tasks, telemetry, time, version |
//! | [`config`] | from the operator's text to the settings of the modules above, every mistake at once | all above |
//! | [`daemon`] | assembly, a task per channel, reload, signals, systemd: `channeld run` | all above |
//! | [`simulator`] | the service, simulated; only `cli` and the tests use it | |
//! | [`cli`] | one file a subcommand | all above |
//!
//! # Invariants
//!
//! * **Verified before delivered.** Only [`verify`] makes a [`Verified`](verify::Verified) event, and only a verified event
//!   or a notice becomes a [`Record`](record::Record): sinks accept nothing else.
//! * **Delivered before recorded, recorded before forgotten.** Cursors move after the sink has said `Ok` and never back.
//! * **One writer.** Only what shares the claim of a channel changes its ledger.
//! * **No gap is guessed away.** What the service does not show to be complete is not read past.
//! * **Everything is bounded,** and each bound has a name and is a channel's own: bodies, pages, queues, retries, waits,
//!   late events, quarantined events, dead letters.

#![forbid(unsafe_code)]

pub use proof::{event, verify};

pub mod record;

pub mod api;
pub mod ledger;
pub mod sink;

pub mod channel;
pub mod cluster;

pub mod operator;

pub mod config;
pub mod daemon;

pub mod cli;
pub mod simulator;

pub mod http;
pub mod liveness;
pub mod memory;
pub mod metrics;
pub mod postgres;
pub mod retry;
pub mod secret;
pub mod tasks;
pub mod telemetry;
pub mod time;
pub mod version;
