//! The machine: a clock that jumps, no chance, verdicts at once, and a disk whose writes are steps.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::channel::ChannelError;
use crate::channel::clerk::{Clerk, Heard};
use crate::channel::machine::Machine;
use crate::channel::turns::Turn;
use crate::event::RawEvent;
use crate::record::Lines;
use crate::retry::{Retry, RetryPolicy};
use crate::state::Commit;
use crate::state::memory::{Gate, Write};

use super::pool;
use super::world::{Step, World};

#[async_trait]
impl Machine for World {
    fn now(&self) -> i64 {
        World::now(self)
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn retry(&self, policy: RetryPolicy) -> Retry {
        Retry::steady(policy)
    }

    async fn turn(&self) -> Turn {
        Turn::default()
    }

    async fn hear(&self, clerk: &Arc<Clerk>, events: Vec<RawEvent>) -> Result<Vec<Heard>, ChannelError> {
        let mut lines = Lines::of(events.len());
        Ok(events.into_iter().map(|raw| clerk.assemble(pool::judge(raw), &mut lines)).collect())
    }
}

#[async_trait]
impl Gate for World {
    async fn before(&self, commits: &[Commit]) -> Write {
        self.step(Step::Write, commits.len()).await;
        for commit in commits {
            self.look_at(commit);
        }
        let write = self.fate_of_write(commits.len());
        self.tell(|| format!("write ({write:?}): {}", commits.iter().map(told).collect::<Vec<_>>().join(" + ")));
        write
    }

    async fn after(&self, commits: &[Commit]) {
        self.step(Step::Written, commits.len()).await;
    }
}

impl World {
    /// Nothing is quarantined for want of its proof before its time.
    fn look_at(&self, commit: &Commit) {
        for (_, evidence) in commit.quarantined.iter().filter(|(_, evidence)| evidence.facts.reason == "proof-timeout")
        {
            let Ok(at) = self.offsets.binary_search(&evidence.facts.offset) else { continue };
            let bare = self.lock().seen[at].bare;
            let early = bare.is_none_or(|bare| evidence.facts.at - bare < self.history.proof_timeout.cast_signed());
            if early && self.history.clock.is_empty() {
                self.object(|| format!("offset {}: its time was not up", evidence.facts.offset));
            }
        }
    }
}

fn told(commit: &Commit) -> String {
    let mut parts = Vec::new();
    if let Some((lane, cursor)) = &commit.cursor {
        parts.push(format!("{} through {cursor}", lane.sink));
    }
    parts.extend(commit.pending.iter().map(|(lane, pending)| format!("{} is owed {}", lane.sink, pending.offset)));
    parts.extend(commit.settled.iter().map(|(lane, offset)| format!("{} has got {offset}", lane.sink)));
    let facts = commit.quarantined.iter().map(|(_, evidence)| &evidence.facts);
    parts.extend(facts.map(|facts| format!("quarantine {} ({})", facts.offset, facts.reason)));
    parts.join(", ")
}
