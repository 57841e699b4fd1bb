//! The daemon, the service that it reads, and the sinks that it delivers to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::Resource;
use serde_json::{Value, json};
use simulator::{EventSpec, Kind, LateProofs, Options, Simulator};

use super::plant::rules;
use super::target::lanes;
use crate::support::{Admin, Daemon, Database, LONGEST_WAIT, Lane, Mount, Nats, Receiver, Relay, Setup, place};

mod sinks;

pub(super) use sinks::{
    BUS, FILES, GIVE_UP, HOOKS, ON_SMALL_DISK, TABLES, WAREHOUSES, WITH_TWO_HOSTS, has_sink, number, sinks,
};

pub(super) const CHANNELS: usize = 12;

/// Events with a proof, and a notice.
const KINDS: [Kind; 4] = [Kind::WatcherEvent, Kind::OperationConfirmed, Kind::QueryCompleted, Kind::WatcherStatus];

/// The number of events of each channel at the start.
pub(super) const BACKLOG: u64 = 10;

/// Longer than any run: the proofs of late events arrive when the fault ends.
const NEVER: Duration = Duration::from_secs(1_000_000);

/// The longest time for `channeld status`, whatever else happens.
const ANSWERED: Duration = Duration::from_secs(15);

/// The size of the small file system, for each second of the run, and at least. A file gets some 20 kB per second.
const DISK_PER_SECOND: u64 = 64 << 10;
const LEAST_DISK: u64 = 16 << 20;

pub(super) struct World {
    pub(super) simulator: Simulator,
    /// The small file system. It is in the directory of the setup, so it is unmounted first.
    _disk: Mount,
    pub(super) setup: Setup,
    pub(super) database: Database,
    pub(super) daemon: Option<Daemon>,
    /// The lowest limit with which the reserve of this daemon is usable.
    pub(super) least_descriptors: u64,
    /// Whether the daemon may have no free descriptor.
    pub(super) has_shortage: bool,
    pub(super) hooks: Vec<Hook>,
    /// Clients of the admin listener that never finish.
    pub(super) clients: Vec<TcpStream>,
    pub(super) nats: Nats,
    /// The relays that are the hosts of one of the databases.
    pub(super) hosts: [Relay; 2],
    /// The events whose proof arrived late: channel and offset.
    pub(super) late: BTreeSet<(usize, i64)>,
    /// The events that an endpoint refused, and the lanes whose table refused events with an even offset.
    pub(super) refused: BTreeSet<(Lane, i64)>,
    pub(super) refuses_even: BTreeSet<Lane>,
    /// How often a fault concerned a whole sink, and how often the daemon was killed.
    pub(super) outages: BTreeMap<&'static str, usize>,
    pub(super) kills: usize,
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

fn small_disk(setup: &Setup) -> PathBuf {
    setup.path("small")
}

fn directory(setup: &Setup, sink: &str) -> PathBuf {
    if sink == ON_SMALL_DISK { small_disk(setup).join(sink) } else { setup.path(sink) }
}

fn file(setup: &Setup, sink: &str) -> PathBuf {
    directory(setup, sink).join("events.jsonl")
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
    /// Starts the daemon, and waits until the backlog is delivered. Returns `None` if no file system can be mounted: the test
    /// is skipped.
    pub(super) async fn new(database: Database, nats: Nats, length: Duration) -> Option<Self> {
        let late_proofs = Some(LateProofs { share: 0.0, delay: NEVER });
        let options = Options { channels: CHANNELS, events: BACKLOG, late_proofs, ..Options::default() };
        let simulator = Simulator::start(options).await.unwrap();
        let mut hooks = Vec::new();
        for _ in HOOKS {
            hooks.push(Hook { receiver: Receiver::start().await, received: Vec::new() });
        }
        // A stream that is full must refuse new events, not delete old ones.
        nats.make(json!({"discard": "new"})).await;
        let hosts = [Relay::before(database.server.socket()).await, Relay::before(database.server.socket()).await];
        let key = simulator.announcement().api_key.clone();
        let receivers = sinks::Receivers { hooks: &hooks, database: &database, hosts: &hosts, nats: &nats };
        let setup = sinks::configured(&simulator, &receivers);
        let size = LEAST_DISK.max(length.as_secs() * DISK_PER_SECOND);
        let disk = Mount::new(small_disk(&setup), &size.to_string())?;
        for sink in FILES {
            std::fs::create_dir(directory(&setup, sink)).unwrap();
        }
        let began = Instant::now();
        let mut world = Self {
            simulator,
            _disk: disk,
            setup,
            database,
            daemon: None,
            least_descriptors: 0,
            has_shortage: false,
            hooks,
            clients: Vec::new(),
            nats,
            hosts,
            late: BTreeSet::new(),
            refused: BTreeSet::new(),
            refuses_even: BTreeSet::new(),
            outages: BTreeMap::new(),
            kills: 0,
            key,
            began,
        };
        world.give_key(&world.key.clone());
        world.start().await;
        loop {
            let status = world.status().await;
            if world.undelivered(&status) == 0 {
                break;
            }
            assert!(began.elapsed() < LONGEST_WAIT, "the backlog is not delivered: {status:#}\n{}", world.log());
        }
        rules::prepare(&world.database).await;
        Some(world)
    }

    /// Starts the daemon, and waits until it reads.
    pub(super) async fn start(&mut self) {
        let mut daemon = self.setup.start();
        daemon.until_logged("channel started").await;
        (self.daemon, self.least_descriptors) = (Some(daemon), 0);
    }

    pub(super) fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    pub(super) async fn admin(&mut self) -> Admin {
        Admin::of(self.daemon.as_mut().unwrap()).await
    }

    /// The path of a file sink.
    pub(super) fn file(&self, sink: &str) -> PathBuf {
        file(&self.setup, sink)
    }

    /// The directory of a file sink.
    pub(super) fn directory(&self, sink: &str) -> PathBuf {
        directory(&self.setup, sink)
    }

    /// The root of the small file system.
    pub(super) fn small_disk(&self) -> PathBuf {
        small_disk(&self.setup)
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
        let ask = async |setup: &Setup| tokio::time::timeout(ANSWERED, setup.tell(&["status", "--json"])).await;
        let mut told = ask(&self.setup).await;
        if told.is_err() && self.has_shortage {
            // The daemon keeps one descriptor for the control socket. When it uses this descriptor, another part of the process
            // can take it first, and may keep it as long as the shortage lasts.
            println!("{:.1?} the status is not answered without a free descriptor", self.age());
            self.free_descriptors();
            told = ask(&self.setup).await;
        }
        let told = told.unwrap_or_else(|_| panic!("`channeld status` did not answer\n{}", self.log()));
        if let Some(daemon) = &mut self.daemon {
            assert!(!daemon.has_ended(), "the daemon ended\n{}", daemon.log().tail());
        }
        told.json().remove(0)
    }

    /// Ends the shortage of descriptors.
    pub(super) fn free_descriptors(&mut self) {
        self.clients.clear();
        self.daemon().limit(Resource::Nofile, None);
        self.has_shortage = false;
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
