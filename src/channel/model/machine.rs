//! The machine: a clock that can jump, waits without jitter, immediate verdicts, and a disk whose writes are steps.

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::run::machine::Machine;
use crate::verify::checked::{CheckParameters, Checked};
use ledger::testing::{Gate, Write};
use ledger::{Effects, Key, Lease, Quarantined};
use net::retry::{Retry, RetryPolicy};
use proof::event::RawEvent;
use record::Lines;

use super::pool;
use super::world::{Step, World};

#[async_trait]
impl Machine for World {
    fn time(&self) -> Timestamp {
        Timestamp::from_second(World::now(self)).unwrap()
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn retry(&self, policy: RetryPolicy) -> Retry {
        Retry::with_jitter(policy, 0.0)
    }

    async fn check(&self, parameters: CheckParameters, events: Vec<RawEvent>) -> Vec<Checked> {
        let CheckParameters { settings, received, .. } = parameters;
        let mut lines = Lines::of(events.len()).received(received);
        events.into_iter().map(|raw| Checked::new(&settings, pool::verdict(raw), &mut lines)).collect()
    }
}

#[async_trait]
impl Gate for World {
    async fn before(&self, group: &[(Lease, Effects)]) -> Write {
        self.step(Step::Write, group.len()).await;
        let changes = || group.iter().flat_map(|(_, effects)| &effects.changes);
        for (key, value) in changes() {
            if let (Key::Quarantined(_), Some(value)) = (key, value) {
                self.look_at(&serde_json::from_slice(value).unwrap());
            }
        }
        let write = self.outcome_of_write(group.len());
        self.log(|| {
            let logged = changes().filter(|(key, _)| {
                !matches!(key, Key::Version | Key::Summary | Key::Body(_) | Key::Proofs(_) | Key::Workflow(_))
            });
            format!("write ({write:?}): {}", logged.map(shown).collect::<Vec<_>>().join(", "))
        });
        write
    }

    async fn after(&self, group: &[(Lease, Effects)]) {
        self.step(Step::Written, group.len()).await;
    }
}

impl World {
    /// Checks that no event is quarantined for a missing proof before it times out.
    fn look_at(&self, facts: &Quarantined) {
        if facts.reason != "proof-timeout" {
            return;
        }
        let Ok(at) = self.offsets.binary_search(&facts.offset) else { return };
        let bare = self.lock().seen[at].bare;
        // The wait for a proof is measured in whole seconds, so it can appear one second too long.
        let early = bare.is_none_or(|bare| facts.at - bare + 1 < self.history.proof_timeout.cast_signed());
        if early && self.history.clock.is_empty() {
            self.fail(|| format!("offset {} was rejected before its proof timeout", facts.offset));
        }
    }
}

fn shown((key, value): &(Key, Option<bytes::Bytes>)) -> String {
    if let (Key::History, Some(value)) = (key, value) {
        return format!("History of {} bytes", value.len());
    }
    let value = value.as_ref().map_or_else(|| "removed".into(), |value| String::from_utf8_lossy(value).into_owned());
    format!("{key:?} {value}")
}
