//! Checks that an operator sees a fault in the part of the status that it affects.

use serde_json::Value;

use super::fault::{Fault, Held, Kind};
use super::observe::{channel, lane};
use super::target::{Target, lanes};
use super::world::name;

impl Fault {
    /// Whether the status of any instance shows the fault.
    pub(super) fn is_visible(&self, statuses: &[Value]) -> bool {
        statuses.iter().any(|status| self.is_in(status))
    }

    /// Whether the fault concerns a channel whose owner has not answered.
    pub(super) fn is_elsewhere(&self, statuses: &[Value]) -> bool {
        let (Target::Channel(it) | Target::Lane(it, _)) = self.target else { return false };
        statuses.iter().all(|status| channel(status, it)["state"] == "elsewhere")
    }

    fn is_in(&self, status: &Value) -> bool {
        let says =
            |kind: &str, text: &str| reasons(status, kind).any(|reason| text_of(reason, "detail").contains(text));
        match self.kind {
            Kind::Kill | Kind::Freeze => is_missing(status, &name(self.instance().unwrap())),
            Kind::Silence | Kind::CutAnswers => {
                let its = name(self.instance().unwrap());
                let own = |reason: &&Value| reason["instance"].is_null() || reason["instance"] == *its;
                is_missing(status, &its) || reasons(status, "heartbeat_failing").any(|reason| own(&reason))
            }
            Kind::Stranger => says("instances_differ", &format!("instance {} ", name(self.instance().unwrap()))),
            // An operator need not see these as long as they disturb nothing.
            Kind::Reload | Kind::UnknownEntry => true,
            Kind::ServerStops | Kind::StateLocked => says("heartbeat_failing", ""),
            Kind::ProofsLocked | Kind::ProofsRevoked => says("state_waiting", "`proofs`"),
            Kind::RequestsLocked => says("state_waiting", "`requests`"),
            Kind::ChannelsLocked => says("state_waiting", "channels"),
            Kind::NullChannel => says("state_not_readable", "the row of instance odd"),
            // The owner cannot record, or no instance can claim the channel.
            Kind::RowLocked => ["state_not_writable", "reading_blocked"]
                .iter()
                .any(|kind| says(kind, "another session locks the channel's row")),
            Kind::HeldBackDamaged => self.is_unreadable(status, "held_back"),
            Kind::CursorsDamaged => self.is_unreadable(status, "cursors"),
            _ => self.is_in_parts(status),
        }
    }

    /// Whether the status reports that this text in the state of the channel is unreadable.
    fn is_unreadable(&self, status: &Value, what: &str) -> bool {
        let Target::Channel(it) = self.target else { return false };
        let name = format!("c{it}");
        reasons(status, "state_not_readable")
            .any(|reason| reason["channel"] == *name && text_of(reason, "detail").contains(what))
    }

    fn is_in_parts(&self, status: &Value) -> bool {
        match (self.target, &self.held) {
            (Target::Channel(it), Held::Above(before)) => channel(status, it)["quarantined"].as_u64() > Some(*before),
            (Target::Channel(it), Held::Offsets(_)) => channel(status, it)["pending"].as_u64() > Some(0),
            (Target::Channel(it), _) => is_not_read(channel(status, it)),
            _ => {
                let of_fault = lanes().filter(|lane| self.target.covers(*lane)).map(|at| lane(status, at));
                let mut states = of_fault.map(|lane| &lane["state"]);
                states.any(|state| *state == "retrying" || *state == "blocked")
            }
        }
    }
}

/// Whether an instance is unknown to the instance whose status this is.
fn is_missing(status: &Value, name: &str) -> bool {
    let listed = status["instances"].as_array().is_some_and(|all| all.iter().any(|it| it["name"] == *name));
    !listed || reasons(status, "instance_unknown").any(|reason| reason["instance"] == *name)
}

fn reasons<'a>(status: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    status["not_ready"].as_array().unwrap().iter().filter(move |reason| reason["kind"] == *kind)
}

fn text_of<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_default()
}

/// Whether the service does not answer, or its answers are useless.
fn is_not_read(channel: &Value) -> bool {
    ["waiting", "in_doubt", "awaiting_turn"].iter().any(|state| channel["state"] == *state)
        || channel["unanswered_seconds"].is_u64()
}
