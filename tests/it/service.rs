//! Whatever the service answers, no event is lost and no resource grows without a bound.

mod accounts;
mod discovered;
mod faults;
mod gone;
mod hostile;
mod keys;
mod limits;
mod memory;
mod window;
