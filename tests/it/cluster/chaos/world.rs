//! The instances, the service that they read, their database, and the sinks that they deliver to.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use proof::event::ChannelId;
use rand::Rng;
use rand::rngs::StdRng;
use rustix::process::Signal;
use simulator::{EventSpec, Kind, LateProofs, Options};
use tokio_postgres::Client;

use super::target::{HOOK, TABLES, WAREHOUSES, warehouse};
use crate::cluster::instances::Instances;
use crate::cluster::sharing::documented_grants;
use crate::cluster::{LOOK_AGAIN, until};
use crate::support::{Database, LONGEST_WAIT, Setup};

pub(super) const CHANNELS: usize = 12;

/// The number of instances that share the channels. One more can be started with other settings.
pub(super) const INSTANCES: usize = 3;

/// The default lease.
pub(super) const LEASE: Duration = Duration::from_secs(6);

/// The roles in the document for operators.
pub(super) const STATE_ROLE: &str = "channeld";
pub(super) const SINK_ROLE: &str = "channeld_events";

/// Events with a proof, and a notice.
const KINDS: [Kind; 4] = [Kind::WatcherEvent, Kind::OperationConfirmed, Kind::QueryCompleted, Kind::WatcherStatus];

/// The number of events of each channel at the start.
const BACKLOG: u64 = 10;

/// Longer than any run: the proofs of late events arrive when the fault ends.
const NEVER: Duration = Duration::from_secs(1_000_000);

pub(super) struct World {
    pub(super) instances: Instances,
    /// The events whose proof arrived late: channel and offset.
    pub(super) late: BTreeSet<(usize, i64)>,
    /// The channels without new events.
    pub(super) quiet: BTreeSet<usize>,
    /// The number of entries of unknown kinds.
    pub(super) unknown: i64,
    /// The events in the tables: channel and offset.
    pub(super) in_tables: BTreeSet<(usize, i64)>,
    pub(super) frozen: BTreeSet<usize>,
    /// The instances whose daemon has answered since its start.
    pub(super) answers: BTreeSet<usize>,
    began: Instant,
}

/// The table of a sink.
pub(super) fn table(sink: &str) -> &'static str {
    TABLES[WAREHOUSES.iter().position(|it| *it == sink).unwrap()]
}

/// The name of an instance.
pub(super) fn name(instance: usize) -> String {
    format!("i{instance}")
}

impl World {
    /// Creates the tables as their owner. Then starts the instances with the documented rights, and waits until they share the
    /// channels.
    pub(super) async fn new(database: Database) -> Self {
        let late_proofs = Some(LateProofs { share: 0.0, delay: NEVER });
        let options = Options { channels: CHANNELS, events: BACKLOG, late_proofs, ..Options::default() };
        let mut instances = Instances::new(database, INSTANCES + 1, options).await;
        let url = instances.database.url();
        for instance in 0..=INSTANCES {
            configure(&mut instances.get(instance).setup, &url);
        }
        instances.start(0);
        let (quiet, frozen, answers) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let (late, in_tables, began) = (BTreeSet::new(), BTreeSet::new(), Instant::now());
        let mut world = Self { instances, late, quiet, unknown: 0, in_tables, frozen, answers, began };
        world.until_delivered().await;
        world.instances.stop(0).await;
        world.restrict().await;
        (0..INSTANCES).for_each(|instance| world.start(instance));
        let share = i64::try_from(CHANNELS / INSTANCES).unwrap();
        until(&world.instances.database, "the channels are shared evenly", SHARES, &[share; INSTANCES]).await;
        world
    }

    /// Gives the instances the documented rights, and no others.
    async fn restrict(&mut self) {
        let database = &self.instances.database;
        let [first, second] = TABLES;
        let grants = documented_grants();
        let rights = format!(
            "create role {STATE_ROLE} login; create role {SINK_ROLE} login; revoke all on schema public from public; \
             {grants}; {}; \
             alter function audit.note_channel() security definer; alter function audit.note_cursor() security definer",
            grants.replace(first, second)
        );
        database.change(&rights).await;
        let of_sinks = database.url_as(SINK_ROLE);
        for instance in 0..=INSTANCES {
            let address = self.instances.get(instance).relay.address();
            let url = self.instances.database.url_by_as(address, STATE_ROLE);
            let setup = &mut self.instances.get(instance).setup;
            setup.set("state.url", url);
            for sink in WAREHOUSES {
                setup.set(&format!("sinks.{sink}.url"), of_sinks.clone());
                setup.set(&format!("sinks.{sink}.create"), false);
            }
        }
    }

    /// Waits until the backlog is delivered.
    async fn until_delivered(&mut self) {
        let since = Instant::now();
        loop {
            self.gather().await;
            if self.undelivered() == 0 {
                return;
            }
            assert!(since.elapsed() < LONGEST_WAIT, "the backlog: {}", self.shown(&[]));
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    pub(super) fn age(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn id(&self, channel: usize) -> ChannelId {
        self.instances.simulator.announcement().channels[channel]
    }

    /// A session that can hold a lock.
    pub(super) async fn session(&self) -> Client {
        let database = &self.instances.database;
        database.server.client(&database.name).await
    }

    pub(super) fn runs(&self, instance: usize) -> bool {
        self.instances.is_running(instance)
    }

    /// The instances that run or are stopped by a signal.
    pub(super) fn running(&self) -> Vec<usize> {
        (0..=INSTANCES).filter(|instance| self.runs(*instance)).collect()
    }

    pub(super) fn start(&mut self, instance: usize) {
        self.instances.start(instance);
    }

    pub(super) async fn kill(&mut self, instance: usize) {
        self.answers.remove(&instance);
        self.instances.kill(instance).await;
    }

    pub(super) async fn stop(&mut self, instance: usize) {
        self.answers.remove(&instance);
        self.instances.stop(instance).await;
    }

    /// Stops or continues an instance.
    pub(super) fn freeze(&mut self, instance: usize, signal: Signal) {
        if signal == Signal::STOP {
            self.frozen.insert(instance);
        } else {
            self.frozen.remove(&instance);
        }
        self.instances.signal(instance, signal);
    }

    /// Changes the configuration of an instance, and lets it reload.
    pub(super) async fn reload(&mut self, instance: usize) {
        let number = self.began.elapsed().as_millis() % 200;
        let setup = &mut self.instances.get(instance).setup;
        setup.set("api.idle_wait", format!("{}ms", 400 + number));
        setup.write();
        let told = setup.tell(&["reload"]).await;
        // The daemon may not listen yet.
        let is_up = self.answers.contains(&instance);
        assert!(told.code == Some(0) || !is_up, "{told:?}");
    }

    /// Starts the additional instance. It accepts one signature, or only the signatures of other signers.
    pub(super) fn start_stranger(&mut self, is_lax: bool) {
        let known = self.instances.simulator.announcement();
        let (own, required) = (known.valid_signers.iter(), known.min_required_signatures);
        let signers: Vec<_> = if is_lax {
            own.map(ToString::to_string).collect()
        } else {
            own.enumerate().map(|(number, _)| format!("0x{:040x}", number + 1)).collect()
        };
        let setup = &mut self.instances.get(INSTANCES).setup;
        setup.set("verification.min_required_signatures", if is_lax { 1 } else { required });
        setup.set("verification.valid_signers", signers);
        self.start(INSTANCES);
    }

    /// Publishes an event in about half of the channels, and returns their offsets.
    pub(super) fn publish(&self, random: &mut StdRng) -> Vec<(usize, i64)> {
        let mut published = Vec::new();
        for channel in 0..CHANNELS {
            if random.random_bool(0.5) && !self.quiet.contains(&channel) {
                let spec = EventSpec::Honest(KINDS[random.random_range(0..KINDS.len())]);
                published.push((channel, self.instances.simulator.publish_one(channel, spec)));
            }
        }
        published
    }

    /// Publishes an event in every channel.
    pub(super) fn publish_everywhere(&self) {
        for channel in 0..CHANNELS {
            self.instances.simulator.publish_one(channel, EventSpec::Honest(Kind::WatcherEvent));
        }
    }
}

/// The number of channels of each live owner.
pub(super) const SHARES: &str = "select count(*) from channeld.channels c join channeld.instances i on i.id = c.owner \
     where i.heartbeat + i.lease > clock_timestamp() group by i.id";

/// The waits are short, so that faults are noticed soon and lanes recover soon.
fn configure(setup: &mut Setup, url: &str) {
    for (key, value) in [("retry_wait", "200ms"), ("retry_wait_max", "1s"), ("request_timeout", "4s")] {
        setup.set(&format!("api.{key}"), value);
    }
    for (key, value) in [("retry_wait", "200ms"), ("retry_wait_max", "1s"), ("timeout", "3s")] {
        setup.set(&format!("sinks.{HOOK}.{key}"), value);
    }
    for (sink, table) in WAREHOUSES.into_iter().zip(TABLES) {
        setup.set(&format!("sinks.{sink}.type"), "postgres");
        setup.set(&format!("sinks.{sink}.url"), url);
        setup.set(&format!("sinks.{sink}.table"), table.strip_prefix("public.").unwrap());
        setup.set(&format!("sinks.{sink}.operations"), true);
    }
    for channel in 0..CHANNELS {
        setup.set(&format!("channels.c{channel}.sinks"), vec![HOOK, WAREHOUSES[warehouse(channel)]]);
    }
}
