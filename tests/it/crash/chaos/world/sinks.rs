//! The sinks of the daemon, the channels that deliver to them, and their configuration.

use simulator::Simulator;

use super::{CHANNELS, Hook};
use crate::support::{Database, Nats, Relay, Setup};

pub(in super::super) const FILES: [&str; 3] = ["file-0", "file-1", "file-2"];
pub(in super::super) const TABLES: [&str; 2] = ["table-0", "table-1"];
pub(in super::super) const HOOKS: [&str; 3] = ["hook-0", "hook-1", "hook-2"];
pub(in super::super) const WAREHOUSES: [&str; 3] = ["warehouse-0", "warehouse-1", "warehouse-2"];

/// The sink that publishes to NATS JetStream.
pub(in super::super) const BUS: &str = "bus";

/// The file on a small file system of its own.
pub(in super::super) const ON_SMALL_DISK: &str = FILES[2];

/// The sink whose server has two hosts.
pub(in super::super) const WITH_TWO_HOSTS: &str = WAREHOUSES[2];

/// The sinks that turn an event into a dead letter.
pub(in super::super) const GIVE_UP: [&str; 3] = ["table-1", "hook-1", "warehouse-1"];

pub(in super::super) fn sinks() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().chain(TABLES).chain(HOOKS).chain(WAREHOUSES).chain([BUS])
}

/// Whether a channel delivers to a sink. Each channel has one sink of each kind, and each kind is distributed differently.
pub(in super::super) fn has_sink(channel: usize, sink: &str) -> bool {
    let of_tables = [TABLES[channel / 3 % 2], WAREHOUSES[channel / 2 % 3]];
    let chosen = [FILES[channel / 4 % 3], HOOKS[channel % 3], BUS];
    chosen.iter().chain(&of_tables).any(|chosen| *chosen == sink)
}

/// The number of a sink among the sinks of its kind.
pub(in super::super) fn number(sink: &str) -> usize {
    sink.rsplit('-').next().unwrap().parse().unwrap()
}

/// The addresses of everything that receives events.
pub(super) struct Receivers<'a> {
    pub(super) hooks: &'a [Hook],
    pub(super) database: &'a Database,
    /// The relays that are the hosts of one of the databases.
    pub(super) hosts: &'a [Relay; 2],
    pub(super) nats: &'a Nats,
}

/// The waits are short, so that faults are noticed soon and lanes recover soon.
pub(super) fn configured(simulator: &Simulator, receivers: &Receivers<'_>) -> Setup {
    let mut setup = Setup::reading(simulator).with_admin().and_publishing(receivers.nats.address());
    setup.remove("api.api_key");
    setup.set("api.api_key_file", setup.path("api-key").display().to_string());
    let waits = [("idle_wait", "500ms"), ("retry_wait", "200ms"), ("retry_wait_max", "1s"), ("request_timeout", "4s")];
    for (key, value) in waits {
        setup.set(&format!("api.{key}"), value);
    }
    for sink in FILES {
        setup.set(&format!("sinks.{sink}.type"), "file");
        setup.set(&format!("sinks.{sink}.path"), super::file(&setup, sink).display().to_string());
    }
    for sink in TABLES {
        setup.set(&format!("sinks.{sink}.type"), "sqlite");
        setup.set(&format!("sinks.{sink}.path"), setup.path(&format!("{sink}.db")).display().to_string());
    }
    for (sink, hook) in HOOKS.into_iter().zip(receivers.hooks) {
        setup.define_webhook(sink, &hook.receiver);
    }
    for sink in HOOKS.into_iter().chain([BUS]) {
        for (key, value) in [("retry_wait", "200ms"), ("retry_wait_max", "1s"), ("timeout", "3s")] {
            setup.set(&format!("sinks.{sink}.{key}"), value);
        }
    }
    setup.set("sinks.hook-2.batch_events", 10);
    let [first, second] = receivers.hosts.each_ref().map(Relay::address);
    for sink in WAREHOUSES {
        let two_hosts = || receivers.database.url_by(second).replacen('@', &format!("@{first},"), 1);
        let url = if sink == WITH_TWO_HOSTS { two_hosts() } else { receivers.database.url() };
        setup.set(&format!("sinks.{sink}.type"), "postgres");
        setup.set(&format!("sinks.{sink}.url"), url);
        setup.set(&format!("sinks.{sink}.table"), format!("events_{}", number(sink)));
    }
    for sink in GIVE_UP {
        setup.set(&format!("sinks.{sink}.give_up_after"), "2s");
    }
    for channel in 0..CHANNELS {
        let its: Vec<_> = sinks().filter(|sink| has_sink(channel, sink)).collect();
        setup.set(&format!("channels.c{channel}.sinks"), its);
    }
    setup
}
