//! Warnings about the daemon's process.

use channel::counted;
use net::shortage::Shortage;
use telemetry::{LogQueue, LogStall};

/// Returns a warning if nothing reads the log, and one if no descriptor is free. The client that asks for the status then has the
/// descriptor that is kept for it.
pub(super) fn warnings(log: Option<&LogQueue>) -> Vec<String> {
    let stall = log.and_then(LogQueue::stall).map(|LogStall { lasts, lines }| {
        let lines = counted(lines, "line");
        format!(
            "the log is not read: standard error has accepted no line for {} s, and {lines} wait; further lines are lost when its queue is full: check the program that reads it",
            lasts.as_secs()
        )
    });
    let shortage = Shortage::of_descriptors_now();
    let shortage = shortage.map(|shortage| format!("no file or connection can be opened{}", shortage.advice()));
    stall.into_iter().chain(shortage).collect()
}
