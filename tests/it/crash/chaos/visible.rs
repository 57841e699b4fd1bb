//! Whether an operator sees a fault, in the part of the status that it concerns.

use serde_json::Value;

use super::fault::{Fault, Held, Kind};
use super::target::{Target, lanes};
use super::world::{CHANNELS, World, channel, lane};

/// The metric that shows whether the secrets can be read.
const RELOADED: &str = "channeld_config_last_reload_successful";

impl Fault {
    pub(super) async fn is_visible(&self, status: &Value, world: &mut World) -> bool {
        match (self.target, &self.held) {
            (Target::Channel(it), Held::Above(before)) => channel(status, it)["quarantined"].as_u64() > Some(*before),
            (Target::Channel(it), Held::Offsets(_)) => channel(status, it)["pending"].as_u64() > Some(0),
            (Target::Channel(it), _) => is_not_read(channel(status, it)),
            (Target::Process, _) => is_process_in_trouble(self.kind, status, world).await,
            // The daemon writes the lost lines again. This can be over before the next look at the status.
            (Target::Sink(sink), Held::Lost(lost)) => {
                let is_refilled = lost.is_empty() || !lost.is_disjoint(&world.places(sink));
                is_refilled || self.lanes(status).any(|lane| lane["refill"].is_object())
            }
            _ => self.lanes(status).any(|lane| lane["state"] == "retrying" || lane["state"] == "blocked"),
        }
    }

    /// The lanes that it concerns.
    fn lanes<'a>(&self, status: &'a Value) -> impl Iterator<Item = &'a Value> {
        let target = self.target;
        lanes().filter(move |at| target.covers(*at)).map(|at| lane(status, at))
    }
}

/// Whether the service does not answer, or its answers are of no use.
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
        Kind::KeyIsPipe => world.sample(RELOADED).await == 0,
        // An operator need not see these as long as they disturb nothing.
        Kind::IdleClients | Kind::LogStalls => world.admin().await.get("/livez").await.text == "ok\n",
        _ => status["daemon"].is_object(),
    }
}

impl World {
    /// Waits until the last reload was successful.
    pub(super) async fn until_reloaded(&mut self) {
        let admin = self.admin().await;
        let reloaded = format!("\n{RELOADED} 1\n");
        let is_so = |answer: &crate::support::Answered| answer.text.contains(&reloaded);
        admin.until(self.daemon.as_mut().unwrap(), "/metrics", "the configuration is read again", is_so).await;
    }
}
