//! Servers that the daemon connects to, with the relays, proxies and certificates in front of them.

#[cfg(feature = "kafka")]
mod kafka;
mod nats;
mod postgres;
mod proxy;
mod relay;
mod tls;

#[cfg(feature = "kafka")]
pub(crate) use kafka::{Broker, PASSWORD, Record, Topic, USER};
pub(crate) use nats::{Message as Published, Nats, Operator, STREAM};
pub(crate) use postgres::{Database, Pooler, ROLE, Server};
pub(crate) use proxy::ForwardProxy;
pub(crate) use relay::{Line, Relay};
pub(crate) use tls::{Authority, TlsListener};
