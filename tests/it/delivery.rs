//! Every event of the service arrives: complete, in order, once, and at each sink that is configured for it.

mod backlog;
mod identity;
mod isolation;
mod routing;
mod start;
