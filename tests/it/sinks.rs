//! Each sink under production conditions.

mod files;
#[cfg(feature = "kafka")]
mod kafka;
mod logrotate;
mod nats;
mod operations;
mod receivers;
mod samples;
mod stdout;
mod streams;
mod tables;
mod webhooks;
