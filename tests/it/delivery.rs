//! What the service has arrives: complete, in order, once, at the sinks that want it.

mod backlog;
mod identity;
mod isolation;
mod routing;
mod start;
