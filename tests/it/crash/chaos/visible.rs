//! Checks that an operator sees a fault in the part of the status that it affects.

use std::time::Instant;

use serde_json::Value;

use super::fault::{Fault, Held, Kind};
use super::plant::process::use_up_descriptors;
use super::target::{Target, lanes};
use super::world::{CHANNELS, GIVE_UP, World, channel, lane};
use crate::support::VISIBLE;

/// An event that has waited for this number of seconds is visible. Without a fault, an event waits for less than a second.
const WAITS: u64 = 5;

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
            // After a timeout, the next statement has more time. A new connection tries the second host without an error. In both
            // cases the events only wait.
            _ if matches!(self.kind, Kind::WarehouseSlow | Kind::FirstHostSilent)
                && self.lanes(status).any(|lane| lane["oldest_undelivered_seconds"].as_u64() >= Some(WAITS)) =>
            {
                true
            }
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
        Kind::NoDescriptors => {
            // If the shortage has ended, it was the reason why the status was not answered.
            let is_named = has_warning(status, "no file or connection can be opened") || !world.has_shortage;
            if !is_named {
                // The daemon has closed a connection in the meantime, so a descriptor is free.
                use_up_descriptors(world).await;
            }
            is_named
        }
        Kind::LogStalls => has_warning(status, "the log is not read"),
        // The status does not show these clients, because nothing waits for them: the listener answers others meanwhile.
        Kind::IdleClients => world.admin().await.get("/livez").await.text == "ok\n",
        _ => status["daemon"].is_object(),
    }
}

fn has_warning(status: &Value, words: &str) -> bool {
    let warnings = status["warnings"].as_array();
    warnings.into_iter().flatten().any(|warning| warning.as_str().unwrap().contains(words))
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
