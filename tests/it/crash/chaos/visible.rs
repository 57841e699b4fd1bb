//! Checks that an operator sees a fault in the part of the status that it affects.

use std::time::Instant;

use serde_json::Value;

use super::VISIBLE;
use super::fault::{Fault, Held, Kind};
use super::target::{Target, lanes};
use super::world::{CHANNELS, GIVE_UP, World, channel, lane};

impl Fault {
    pub(super) async fn is_visible(&self, status: &Value, world: &mut World) -> bool {
        match (self.target, &self.held) {
            (Target::Channel(it), Held::Above(before)) => channel(status, it)["quarantined"].as_u64() > Some(*before),
            (Target::Channel(it), Held::Offsets(_)) => channel(status, it)["pending"].as_u64() > Some(0),
            (Target::Channel(it), _) => is_not_read(channel(status, it)),
            (Target::Process, _) => is_process_in_trouble(self.kind, status, world).await,
            // The daemon writes the lost lines again. It can finish before the next request for the status.
            (Target::Sink(sink), Held::Lost(lost)) => {
                let is_refilled = lost.is_empty() || !lost.is_disjoint(&world.places(sink));
                is_refilled || self.lanes(status).any(|lane| lane["refill"].is_object())
            }
            _ if self.lanes(status).any(|lane| lane["state"] == "retrying" || lane["state"] == "blocked") => true,
            // Between two requests for the status, the event can become a dead letter.
            (Target::Lane(it, sink), Held::Offsets(refused)) if GIVE_UP.contains(&sink) => {
                let dead = world.dead_letters().await;
                refused.iter().any(|offset| dead.contains(&(format!("c{it}"), sink.to_owned(), *offset)))
            }
            _ => false,
        }
    }

    /// The lanes that the fault affects.
    fn lanes<'a>(&self, status: &'a Value) -> impl Iterator<Item = &'a Value> {
        let target = self.target;
        lanes().filter(move |at| target.covers(*at)).map(|at| lane(status, at))
    }
}

/// Whether the service does not answer, or its answers are useless.
fn is_not_read(channel: &Value) -> bool {
    ["waiting", "in_doubt", "awaiting_turn"].iter().any(|state| channel["state"] == *state)
        || channel["unanswered_seconds"].is_u64()
        || channel["polls_in_vain"].as_u64() > Some(0)
}

async fn is_process_in_trouble(kind: Kind, status: &Value, world: &mut World) -> bool {
    match kind {
        Kind::Kill => status["daemon"].is_null() && status["ready"] == false,
        Kind::KeyWrong => {
            let refused = |it: &usize| channel(status, *it)["error"]["needs_attention"] == true;
            (0..CHANNELS).filter(refused).count() > CHANNELS / 2
        }
        Kind::KeyIsPipe => {
            status["rejected_config"]["error"].as_str().is_some_and(|error| error.contains("is not a regular file"))
        }
        // An operator need not see these as long as they disturb nothing.
        Kind::IdleClients | Kind::LogStalls => world.admin().await.get("/livez").await.text == "ok\n",
        _ => status["daemon"].is_object(),
    }
}

impl World {
    /// Waits until the status shows no rejected configuration.
    pub(super) async fn until_accepted(&mut self) {
        let since = Instant::now();
        loop {
            let status = self.status().await;
            if status["rejected_config"].is_null() {
                return;
            }
            assert!(since.elapsed() < VISIBLE, "still rejected: {status:#}\n{}", self.log());
        }
    }
}
