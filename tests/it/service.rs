//! Whatever the service answers, nothing is lost, and nothing grows without end.

mod faults;
mod gone;
mod hostile;
mod memory;
mod window;
