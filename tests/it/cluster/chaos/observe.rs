//! Collects what the instances do: the deliveries, the statuses, and the sessions at the database.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;
use tokio::time::timeout;

use super::target::{HOOK, TABLES, WAREHOUSES, lanes};
use super::world::{CHANNELS, INSTANCES, SINK_ROLE, STATE_ROLE, World};
use crate::support::{Lane, deliverable};

/// For each connection of an instance, one waiting server process, and one whose cancellation is under way. The second number
/// is for an instance whose cancellations do not reach the server.
const WAITING_OF_STATE: (i64, i64) = (6, 6);

/// The number of connections of an instance to the tables of one sink.
const WAITING_OF_SINK: i64 = 4;

/// The longest time for `channeld status`, whatever else happens.
const ANSWERED: Duration = Duration::from_secs(15);

/// A channel in the status.
pub(super) fn channel(status: &Value, channel: usize) -> &Value {
    let name = format!("c{channel}");
    status["channels"].as_array().unwrap().iter().find(|it| it["channel"] == *name).unwrap()
}

/// A lane in the status. Null if the channel runs on an instance that did not answer.
pub(super) fn lane(status: &Value, (of, sink): Lane) -> &Value {
    let lanes = channel(status, of)["lanes"].as_array();
    lanes.and_then(|lanes| lanes.iter().find(|lane| lane["sink"] == sink)).unwrap_or(&Value::Null)
}

/// The largest number of server processes of a role that may wait for a lock.
pub(super) fn max_waiting(role: &str) -> i64 {
    let instances = i64::try_from(INSTANCES + 1).unwrap();
    let (each, unreachable) = WAITING_OF_STATE;
    let sinks = i64::try_from(WAREHOUSES.len()).unwrap();
    if role == STATE_ROLE { instances * each + unreachable } else { instances * sinks * WAITING_OF_SINK }
}

impl World {
    /// Collects the new deliveries, and asserts that no daemon has exited. A server that is down adds nothing.
    pub(super) async fn gather(&mut self) {
        self.instances.look().await;
        let recent = self.rows("where delivered > now() - interval '1 minute'").await;
        self.in_tables.extend(recent.into_iter().flatten());
    }

    /// Like [`gather`](Self::gather), and reads the tables again: a crash of the server can remove rows, which are then
    /// delivered again.
    pub(super) async fn gather_again(&mut self) {
        self.gather().await;
        self.in_tables = self.rows("").await.unwrap_or_default();
    }

    /// Channel and offset of the rows of all tables. `None` if the server is down or the tables do not exist.
    async fn rows(&self, which: &str) -> Option<BTreeSet<(usize, i64)>> {
        let rows = TABLES.map(|table| format!("select channel, event_offset from {table} {which}")).join(" union all ");
        let rows = self.instances.database.try_query(&rows).await.ok()?;
        let number = |name: &str| name[1..].parse().unwrap();
        Some(rows.iter().map(|row| (number(row.get(0)), row.get(1))).collect())
    }

    pub(super) fn has_delivered(&self, (channel, sink): Lane, offset: i64) -> bool {
        if sink == HOOK {
            self.instances.arrivals.has(channel, offset)
        } else {
            self.in_tables.contains(&(channel, offset))
        }
    }

    /// The number of deliveries that are missing.
    pub(super) fn undelivered(&self) -> usize {
        let expected: Vec<_> = (0..CHANNELS).map(|it| deliverable(&self.instances.simulator, it)).collect();
        let missing = |at: Lane| expected[at.0].iter().filter(|offset| !self.has_delivered(at, **offset)).count();
        lanes().map(missing).sum()
    }

    /// The output of `channeld status` of each instance that is not stopped by a signal.
    pub(super) async fn statuses(&mut self) -> Vec<Value> {
        let asked = self.running().into_iter().filter(|instance| !self.frozen.contains(instance));
        let all: Vec<_> = self.instances.iter().collect();
        let told = asked.map(|instance| {
            let told = all[instance].setup.tell(&["status", "--json"]);
            async move { (instance, timeout(ANSWERED, told).await) }
        });
        let mut statuses = Vec::new();
        for (instance, told) in join_all(told).await {
            let told =
                told.unwrap_or_else(|_| panic!("`channeld status` of {instance} did not answer\n{}", self.shown(&[])));
            if told.code == Some(0) && !told.json()[0]["daemon"].is_null() {
                self.answers.insert(instance);
                statuses.push(told.json().remove(0));
            } else {
                // An instance that has just started does not answer yet.
                assert!(!self.answers.contains(&instance), "i{instance}: {told:?}\n{}", self.shown(&[]));
            }
        }
        statuses
    }

    /// The names of the instances that have a lease, according to the database.
    pub(super) async fn live_instances(&self) -> Vec<String> {
        let live = "select distinct name from channeld.instances where heartbeat + lease > clock_timestamp()";
        self.instances.database.query(live).await.iter().map(|row| row.get(0)).collect()
    }

    /// The number of server processes of each role that wait for a lock. Empty if the server is down.
    pub(super) async fn waiting_processes(&self) -> Vec<(String, i64)> {
        let waiting = format!(
            "select usename::text, count(*) from pg_stat_activity where wait_event_type = 'Lock' \
             and usename in ('{STATE_ROLE}', '{SINK_ROLE}') group by usename"
        );
        let rows = self.instances.database.try_query(&waiting).await.unwrap_or_default();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }

    /// The statuses and the ends of the logs, for a failure message.
    pub(super) fn shown(&self, statuses: &[Value]) -> String {
        let mut shown = String::new();
        for status in statuses {
            writeln!(shown, "{:#}", status["reasons"]).unwrap();
        }
        for instance in self.running() {
            writeln!(shown, "i{instance}:\n{}", self.instances.last_log(instance)).unwrap();
        }
        shown
    }
}
