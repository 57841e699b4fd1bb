//! channeld reads the verified events of channels and hands them on: nothing forged, nothing lost.
//!
//! # Bird's-eye view
//!
//! ```text
//!             one task per channel                                one lane per (channel, sink)
//!  service ──► reader ──► judge ──► batch ──► hub ──┬─► lane ─► sink: stdout
//!    ▲           ranges      verdicts,              ├─► lane ─► sink: file
//!    │           without     sorted                 └─► lane ─► sink: webhook
//!    │           a gap                                    │ recorded once delivered
//!    └──── late proofs ◄──── state (sled): cursors, late proofs, quarantine ◄──┘
//! ```
//!
//! A [`supervisor`] runs one [`channel`] a task. A channel's reader asks the service for what is above the last offset
//! read and yields ranges that are shown to have no gap. Each event is given a verdict by [`verify`]. What holds becomes a
//! [`record`] and goes to the channel's lanes; what waits for its proof, or was rejected, goes along in the same batch. A
//! lane delivers to its [`sink`], and then records the batch in [`state`] as one transaction: its cursor, the events set
//! aside, the events quarantined. A crash at any point repeats at most what was in hand. A lane that falls behind leaves
//! the others, reads for itself from its own cursor, and rejoins. Another configuration replaces the lanes that it changes,
//! and the way of reading if it changes that, while the rest goes on. Each sink has its filter and its shape; what it gives up
//! on is kept as a dead letter.
//!
//! # Code map, in reading order
//!
//! | module | what it is | depends on |
//! |---|---|---|
//! | [`event`] | ids, offsets, events as the service writes them; no I/O | |
//! | [`verify`] | report, signatures, signer set, owner: verdicts; pure | event |
//! | [`record`] | the one JSON object that sinks are given, its other shapes, filters; pure | event, verify |
//! | [`api`] | the client of the service: pages, errors by what to do next | event, [`http`] |
//! | [`sink`] | the trait, and one file a sink: what can be set of it, and what it does | record, [`http`], the keys of config |
//! | [`state`] | sled behind the few operations that the rest needs, and its readable mirror | event |
//! | [`channel`] | the loop: poll, verify, order, deliver, record | all above |
//! | [`supervisor`] | a task per channel; restart, drain, outcome; another configuration | channel |
//! | [`config`] | from the operator's text to a checked `Config`, every mistake at once | event, record, sink, verify |
//! | [`assembly`] | from a `Config` to the parts that run | all above |
//! | [`control`] | what an operator sees and changes: status, quarantine, dead letters, cursors, pauses, reloads | channel, config, state |
//! | [`admin`] | health, metrics and status over HTTP, on a thread of its own | control, [`liveness`], [`metrics`] |
//! | [`cli`] | one file a subcommand | all |
//! | [`simulator`] | the service, simulated; only `cli` and the tests use it | event, verify |
//!
//! [`metrics`], what is counted by which name, and [`liveness`], whether anything stands still, are the process's own.
//! [`retry`], [`telemetry`], [`trace`], [`signals`], [`systemd`], [`version`], [`http`], [`comparable`], `grace`, `joined`
//! and `newer` are small and stand beside.
//!
//! # Invariants
//!
//! * **Verified before delivered.** Only [`verify`] makes a [`Verified`](verify::Verified) event, and only a judged event
//!   becomes a [`Record`](record::Record): sinks accept nothing else.
//! * **Delivered before recorded, recorded before forgotten.** Cursors move after the sink has said `Ok` and never back.
//! * **No gap is guessed away.** What the service does not show to be complete is not read past.
//! * **Everything is bounded,** and each bound has a name: bodies, pages, queues, retries, waits, what waits for a proof.

pub mod event;
pub mod verify;

pub mod record;

pub mod api;
pub mod sink;
pub mod state;

pub mod channel;
pub mod supervisor;

pub mod admin;
pub mod control;

pub mod assembly;
pub mod config;

pub mod cli;
pub mod simulator;

pub mod comparable;
pub(crate) mod grace;
pub mod http;
pub(crate) mod joined;
pub mod liveness;
pub mod metrics;
pub(crate) mod newer;
pub mod retry;
pub mod signals;
pub mod systemd;
pub mod telemetry;
pub mod trace;
pub mod version;
