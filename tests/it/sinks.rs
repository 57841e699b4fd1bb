//! Each sink in production.

mod files;
mod logrotate;
mod nats;
mod receivers;
mod samples;
mod stdout;
mod tables;
mod webhooks;
