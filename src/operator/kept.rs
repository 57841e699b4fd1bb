//! The events that were not delivered and are kept: the quarantine and the dead letters. Lists, shows and drops them, and
//! verifies or delivers them again.

mod dead_letters;
mod quarantine;
mod redeliver;
mod retry;

/// The number of events that are changed in one commit.
const AT_ONCE: usize = 256;
