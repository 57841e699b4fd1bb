//! No exit and no fault loses an event or repeats more than promised: stops, kills, failing writes, full disks, a
//! damaged state, and a clock that is stepped.

mod chaos;
mod clock;
mod disks;
#[cfg(target_arch = "x86_64")]
mod every_write;
mod kills;
mod shortages;
mod state;
mod stops;
#[cfg(target_arch = "x86_64")]
mod syncs;
mod upgrade;

#[cfg(not(target_arch = "x86_64"))]
#[test]
fn every_write() {
    crate::support::skip("an x86-64 processor: the tracer reads its registers");
}
