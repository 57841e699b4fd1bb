//! Events are delivered completely, in order and once, to each sink whose filter accepts them.

mod backlog;
mod finality;
mod identity;
mod isolation;
mod routing;
mod start;
mod start_time;
mod until_caught_up;
