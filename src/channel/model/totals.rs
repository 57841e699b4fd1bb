//! Counts what the histories that were run contain.

use std::fmt;

/// Counts over all histories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) histories: u64,
    pub(super) events: u64,
    pub(super) runs: u64,
    pub(super) crashes: u64,
    pub(super) failed_writes: u64,
    pub(super) reloads: u64,
    pub(super) steps: u64,
    pub(super) requests: u64,
    pub(super) searches: u64,
    pub(super) commits: u64,
    pub(super) deliveries: u64,
    pub(super) duplicates: u64,
    pub(super) late: u64,
    pub(super) lost: u64,
    pub(super) restored: u64,
    pub(super) quarantined: u64,
    /// The events that were to be replayed.
    pub(super) replayed: u64,
    /// The events that a sink must not receive, because they have less confidence than the sink demands.
    pub(super) below_limit: u64,
    /// A digest of the time and the kind of every step.
    pub(super) digest: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { histories, events, runs, crashes, failed_writes, reloads, steps, .. } = self;
        let Self { requests, searches, commits, deliveries, duplicates, late, lost, restored, quarantined, .. } = self;
        let (below_limit, replayed) = (self.below_limit, self.replayed);
        write!(
            f,
            "{histories} histories, {events} events, {runs} runs, {crashes} crashes, {failed_writes} failed writes, \
             {reloads} reloads, {steps} steps, {requests} requests ({searches} searches), {commits} commits, \
             {deliveries} deliveries \
             ({late} late, {duplicates} duplicates), {lost} lost by sinks, {restored} services restored, \
             {quarantined} quarantined, {replayed} replayed, {below_limit} below the limit of a sink"
        )
    }
}

impl Totals {
    pub(super) fn add(&mut self, other: &Self) {
        self.histories += other.histories;
        self.events += other.events;
        self.runs += other.runs;
        self.crashes += other.crashes;
        self.failed_writes += other.failed_writes;
        self.reloads += other.reloads;
        self.steps += other.steps;
        self.requests += other.requests;
        self.searches += other.searches;
        self.commits += other.commits;
        self.deliveries += other.deliveries;
        self.duplicates += other.duplicates;
        self.late += other.late;
        self.lost += other.lost;
        self.restored += other.restored;
        self.quarantined += other.quarantined;
        self.replayed += other.replayed;
        self.below_limit += other.below_limit;
    }
}
