//! Each sink in production.

mod files;
mod logrotate;
mod receivers;
mod stdout;
mod webhooks;
