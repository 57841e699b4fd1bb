//! What the tests of the whole daemon stand on.

mod admin;
mod browser;
mod clock;
mod collector;
mod command;
mod console;
mod daemon;
mod files;
#[cfg(feature = "kafka")]
mod kafka;
mod mount;
mod nats;
mod network;
mod postgres;
mod programs;
mod prometheus;
mod proxy;
mod ptrace;
mod quarantine;
mod random;
mod receiver;
mod records;
mod relay;
mod scripted;
mod service;
mod setup;
mod signed;
mod skip;
mod tables;
mod tls;
#[cfg(target_arch = "x86_64")]
mod tracer;
mod wait;

pub(crate) use admin::{Admin, Answered, value};
pub(crate) use browser::Browser;
pub(crate) use clock::Clock;
pub(crate) use collector::{Collector, Manner, Span};
pub(crate) use command::{Told, signal};
pub(crate) use console::{Answer, Console, Visitor};
pub(crate) use daemon::{Daemon, Log};
pub(crate) use files::{Files, place};
#[cfg(feature = "kafka")]
pub(crate) use kafka::{Broker, PASSWORD, Record, Topic, USER};
pub(crate) use mount::{Mount, fill};
pub(crate) use nats::{Message as Published, Nats, Operator, STREAM};
pub(crate) use network::Network;
pub(crate) use postgres::{Database, Pooler, ROLE, Server};
pub(crate) use programs::{programs, run};
pub(crate) use prometheus::Prometheus;
pub(crate) use proxy::ForwardProxy;
pub(crate) use ptrace::can_trace;
pub(crate) use quarantine::{FILLER, fill_quarantine};
pub(crate) use random::random;
pub(crate) use receiver::{Post, Receiver, Reply};
pub(crate) use records::{Delivered, offsets};
pub(crate) use relay::{Line, Relay};
pub(crate) use scripted::Scripted;
pub(crate) use service::{crowded_second, deliverable, records};
pub(crate) use setup::Setup;
pub(crate) use signed::{serving, signed};
pub(crate) use skip::skip;
pub(crate) use tables::{Tables, rows_of, sqlite};
pub(crate) use tls::Authority;
#[cfg(target_arch = "x86_64")]
pub(crate) use tracer::{Change, Strike, Traced, Traces};
pub(crate) use wait::{LONGEST_WAIT, eventually, everything};
