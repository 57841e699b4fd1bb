//! The daemon, the service that it reads, and the sinks that it delivers to.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use serde_json::Value;
use simulator::{EventSpec, Kind, LateProofs, Options, Simulator};

use super::target::{Lane, lanes};
use crate::support::{Admin, Daemon, Database, LONGEST_WAIT, Receiver, Setup, place};

pub(super) const CHANNELS: usize = 12;
pub(super) const FILES: [&str; 2] = ["file-0", "file-1"];
pub(super) const TABLES: [&str; 2] = ["table-0", "table-1"];
pub(super) const HOOKS: [&str; 3] = ["hook-0", "hook-1", "hook-2"];
pub(super) const WAREHOUSES: [&str; 2] = ["warehouse-0", "warehouse-1"];

/// The sinks that turn an event into a dead letter.
pub(super) const GIVE_UP: [&str; 2] = ["table-1", "hook-1"];

/// Events with a proof, and a notice.
const KINDS: [Kind; 4] = [Kind::WatcherEvent, Kind::OperationConfirmed, Kind::QueryCompleted, Kind::WatcherStatus];

/// The number of events of each channel at the start.
pub(super) const BACKLOG: u64 = 10;

/// Longer than any run: the proofs of late events arrive when the fault ends.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// The longest time for `channeld status`, whatever else happens.
const ANSWERED: Duration = Duration::from_secs(15);

pub(super) struct World {
    pub(super) simulator: Simulator,
    pub(super) setup: Setup,
    pub(super) database: Database,
    pub(super) daemon: Option<Daemon>,
    pub(super) hooks: Vec<Hook>,
    /// The events whose proof arrived late: channel and offset.
    pub(super) late: BTreeSet<(usize, i64)>,
    /// The current API key.
    key: String,
    began: Instant,
}

/// A webhook endpoint.
pub(super) struct Hook {
    pub(super) receiver: Receiver,
    /// The channel and the offset of each received event, in order.
    pub(super) received: Vec<(String, i64)>,
}

pub(super) fn sinks() -> impl Iterator<Item = &'static str> {
    FILES.into_iter().chain(TABLES).chain(HOOKS).chain(WAREHOUSES)
}

/// Whether a channel delivers to a sink. Each channel has one sink of each kind, and each kind is distributed differently.
pub(super) fn has_sink(channel: usize, sink: &str) -> bool {
    let chosen = [FILES[channel % 2], TABLES[channel / 2 % 2], HOOKS[channel % 3], WAREHOUSES[channel / 3 % 2]];
    chosen.contains(&sink)
}

/// The number of a sink among the sinks of its kind.
pub(super) fn number(sink: &str) -> usize {
    sink.rsplit('-').next().unwrap().parse().unwrap()
}

/// A channel in the status.
pub(super) fn channel(status: &Value, channel: usize) -> &Value {
    let name = format!("c{channel}");
    status["channels"].as_array().unwrap().iter().find(|it| it["channel"] == *name).unwrap()
}

/// A lane in the status. Null if the channel has not started.
pub(super) fn lane(status: &Value, (of, sink): Lane) -> &Value {
    let lanes = channel(status, of)["lanes"].as_array().unwrap();
    lanes.iter().find(|lane| lane["sink"] == sink).unwrap_or(&Value::Null)
}

impl World {
    /// Starts the daemon, and waits until the backlog is delivered.
    pub(super) async fn new(database: Database) -> Self {
        let late_proofs = Some(LateProofs { share: 0.0, delay: NEVER });
        let options = Options { channels: CHANNELS, events: BACKLOG, late_proofs, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let mut hooks = Vec::new();
        for _ in HOOKS {
            hooks.push(Hook { receiver: Receiver::start().await, received: Vec::new() });
        }
        let key = simulator.announcement().api_key.clone();
        let setup = configured(&simulator, &hooks, &database);
        let began = Instant::now();
        let mut world = Self { simulator, setup, database, daemon: None, hooks, late: BTreeSet::new(), key, began };
        world.give_key(&world.key.clone());
        world.start().await;
        loop {
            let status = world.status().await;
            if world.undelivered(&status) == 0 {
                return world;
            }
            assert!(began.elapsed() < LONGEST_WAIT, "the backlog is not delivered: {status:#}\n{}", world.log());
        }
    }

    /// Starts the daemon, and waits until it reads.
    pub(super) async fn start(&mut self) {
        let mut daemon = self.setup.start();
        daemon.until_logged("channel started").await;
        self.daemon = Some(daemon);
    }

    pub(super) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub(super) async fn admin(&mut self) -> Admin {
        Admin::of(self.daemon.as_mut().unwrap()).await
    }

    /// The path of a file sink.
    pub(super) fn file(&self, sink: &str) -> PathBuf {
        self.setup.path(sink).join("events.jsonl")
    }

    /// The path of a SQLite sink.
    pub(super) fn table(&self, sink: &str) -> PathBuf {
        self.setup.path(&format!("{sink}.db"))
    }

    /// The channels and offsets in a file. The last line may be incomplete.
    pub(super) fn places(&self, sink: &str) -> BTreeSet<(String, i64)> {
        let text = std::fs::read_to_string(self.file(sink)).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.map(place).map(|(channel, offset)| (channel.unwrap(), offset)).collect()
    }

    /// The events that sinks gave up on: channel, sink and offset.
    pub(super) async fn dead_letters(&self) -> BTreeSet<(String, String, i64)> {
        let letters = self.setup.tell(&["dead-letters", "list", "--json"]).await.json();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let one = |it: &Value| (text(&it["channel"]), text(&it["sink"]), it["offset"].as_i64().unwrap());
        letters.iter().map(one).collect()
    }

    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// Writes this API key into its file.
    pub(super) fn give_key(&self, key: &str) {
        let next = self.setup.path("next-key");
        std::fs::write(&next, key).unwrap();
        std::fs::rename(&next, self.key_file()).unwrap();
    }

    pub(super) fn key_file(&self) -> PathBuf {
        self.setup.path("api-key")
    }

    /// Writes the API key that the service accepts into its file.
    pub(super) fn give_good_key(&self) {
        self.give_key(&self.key);
    }

    /// The service accepts only a new API key from now on.
    pub(super) fn rotate_key(&mut self, number: u64) {
        self.key = format!("rotated-key-{number:x}");
        self.setup.keep_secret(&self.key);
        self.simulator.set_api_key(&self.key);
        self.give_good_key();
    }

    /// Publishes an event in about half of the channels, and returns their offsets.
    pub(super) fn publish(&self, random: &mut StdRng) -> Vec<(usize, i64)> {
        let mut published = Vec::new();
        for channel in 0..CHANNELS {
            if random.random_bool(0.5) {
                let spec = EventSpec::Honest(KINDS[random.random_range(0..KINDS.len())]);
                published.push((channel, self.simulator.publish_one(channel, spec)));
            }
        }
        published
    }

    /// Publishes an event in every channel.
    pub(super) fn publish_everywhere(&self) {
        for channel in 0..CHANNELS {
            self.simulator.publish_one(channel, EventSpec::Honest(Kind::WatcherEvent));
        }
    }

    /// Returns the output of `channeld status`. The daemon runs, unless it was killed.
    pub(super) async fn status(&mut self) -> Value {
        for hook in &mut self.hooks {
            let posts = hook.receiver.drain();
            let delivered = posts.iter().flat_map(crate::support::Post::delivered);
            hook.received.extend(delivered.map(|record| (record.channel, record.offset)));
        }
        let told = tokio::time::timeout(ANSWERED, self.setup.tell(&["status", "--json"])).await;
        let told = told.unwrap_or_else(|_| panic!("`channeld status` did not answer\n{}", self.log()));
        if let Some(daemon) = &mut self.daemon {
            assert!(!daemon.has_ended(), "the daemon ended\n{}", daemon.log().tail());
        }
        told.json().remove(0)
    }

    /// The number of lanes that have not processed the last event, pending events and late deliveries.
    pub(super) fn undelivered(&self, status: &Value) -> usize {
        let count = |value: &Value| usize::try_from(value.as_u64().unwrap_or(0)).unwrap();
        let pending: usize = (0..CHANNELS).map(|it| count(&channel(status, it)["pending"])).sum();
        let of_lane = |at: Lane| {
            let (last, lane) = (self.simulator.offsets(at.0).last().unwrap().0, lane(status, at));
            usize::from(lane["cursor"].as_i64() < Some(last)) + count(&lane["late_deliveries"])
        };
        pending + lanes().map(of_lane).sum::<usize>()
    }

    /// The end of the daemon's log.
    pub(super) fn log(&self) -> String {
        self.daemon.as_ref().map_or_else(|| "the daemon was killed".to_owned(), |daemon| daemon.log().tail())
    }
}

/// The waits are short, so that faults are noticed soon and lanes recover soon.
fn configured(simulator: &Simulator, hooks: &[Hook], database: &Database) -> Setup {
    let mut setup = Setup::reading(simulator).with_admin();
    setup.remove("api.api_key");
    setup.set("api.api_key_file", setup.path("api-key").display().to_string());
    let waits = [("idle_wait", "500ms"), ("retry_wait", "200ms"), ("retry_wait_max", "1s"), ("request_timeout", "4s")];
    for (key, value) in waits {
        setup.set(&format!("api.{key}"), value);
    }
    for sink in FILES {
        setup.set(&format!("sinks.{sink}.type"), "file");
        let directory = setup.path(sink);
        std::fs::create_dir(&directory).unwrap();
        setup.set(&format!("sinks.{sink}.path"), directory.join("events.jsonl").display().to_string());
    }
    for sink in TABLES {
        setup.set(&format!("sinks.{sink}.type"), "sqlite");
        setup.set(&format!("sinks.{sink}.path"), setup.path(&format!("{sink}.db")).display().to_string());
    }
    for (sink, hook) in HOOKS.into_iter().zip(hooks) {
        setup.define_webhook(sink, &hook.receiver);
        for (key, value) in [("retry_wait", "200ms"), ("retry_wait_max", "1s"), ("timeout", "3s")] {
            setup.set(&format!("sinks.{sink}.{key}"), value);
        }
    }
    setup.set("sinks.hook-2.batch_events", 10);
    for sink in WAREHOUSES {
        setup.set(&format!("sinks.{sink}.type"), "postgres");
        setup.set(&format!("sinks.{sink}.url"), database.url());
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
