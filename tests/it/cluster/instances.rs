//! Several instances that deliver to one webhook. Each reaches the database through its own relay.

use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proof::event::ChannelId;
use rustix::process::Signal;
use simulator::{Options, Simulator};
use tokio_util::task::AbortOnDropHandle;

use super::arrivals::Arrivals;
use super::{LOOK_AGAIN, instance};
use crate::support::{Daemon, Database, LONGEST_WAIT, Log, Receiver, Relay, Setup, deliverable};

/// The number of log lines per instance in a failure message.
const SHOWN_LINES: usize = 60;

/// How long a channel without new events waits before the next poll.
const IDLE_WAIT: &str = "500ms";

/// The instances of a test, and the services that they use.
pub(super) struct Instances {
    pub(super) simulator: Arc<Simulator>,
    pub(super) database: Database,
    pub(super) receiver: Receiver,
    pub(super) arrivals: Arrivals,
    all: Vec<Instance>,
}

/// An instance, which may be running or not.
pub(super) struct Instance {
    pub(super) setup: Setup,
    pub(super) relay: Relay,
    daemon: Option<Daemon>,
}

impl Instances {
    /// Creates the instances without starting them, and starts the audit of the database.
    pub(super) async fn new(database: Database, count: usize, options: Options) -> Self {
        let channels = options.channels;
        let simulator = Arc::new(Simulator::start(options).await.unwrap());
        let receiver = Receiver::start().await;
        database.watch().await;
        let mut all = Vec::new();
        for number in 0..count {
            let relay = Relay::before(database.server.socket()).await;
            let setup = instance(&format!("i{number}"), &simulator, &database, &receiver)
                .with("state.url", database.url_by(relay.address()))
                .with("api.idle_wait", IDLE_WAIT)
                .with("log.level", "info");
            all.push(Instance { setup, relay, daemon: None });
        }
        Self { simulator, database, receiver, arrivals: Arrivals::of(channels), all }
    }

    /// Sets a configuration key of every instance.
    pub(super) fn with(mut self, key: &str, value: impl Into<serde_json::Value>) -> Self {
        let value = value.into();
        self.all.iter_mut().for_each(|instance| instance.setup.set(key, value.clone()));
        self
    }

    pub(super) fn get(&mut self, instance: usize) -> &mut Instance {
        &mut self.all[instance]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Instance> {
        self.all.iter()
    }

    pub(super) fn start(&mut self, instance: usize) {
        let instance = &mut self.all[instance];
        assert!(instance.daemon.is_none());
        instance.daemon = Some(instance.setup.start());
    }

    pub(super) fn is_running(&self, instance: usize) -> bool {
        self.all[instance].daemon.is_some()
    }

    /// Stops an instance with SIGTERM. It must exit cleanly, and its log must not contain a defect.
    pub(super) async fn stop(&mut self, instance: usize) {
        without_defects(&self.all[instance].daemon.take().unwrap().stop().await);
    }

    /// Kills an instance with SIGKILL. Its log must not contain a defect.
    pub(super) async fn kill(&mut self, instance: usize) {
        without_defects(&self.all[instance].daemon.take().unwrap().kill().await);
    }

    pub(super) fn signal(&self, instance: usize, signal: Signal) {
        self.all[instance].daemon.as_ref().unwrap().signal(signal);
    }

    /// Stops all running instances.
    pub(super) async fn stop_all(&mut self) {
        for instance in 0..self.all.len() {
            if self.is_running(instance) {
                self.stop(instance).await;
            }
        }
    }

    /// Waits until the query returns this number. No instance may exit meanwhile.
    pub(super) async fn until_number(&mut self, what: &str, query: &str, number: i64) {
        let began = Instant::now();
        while self.database.number(query).await != number {
            assert!(began.elapsed() < LONGEST_WAIT, "{what}: not within {LONGEST_WAIT:?}");
            self.look().await;
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until this number of instances has an unexpired lease in the database.
    pub(super) async fn until_live(&mut self, count: i64) {
        let live = "select count(*) from channeld.instances where heartbeat + lease > clock_timestamp()";
        self.until_number(&format!("{count} instances live"), live, count).await;
    }

    /// Waits until every deliverable event has arrived. Fails if no event arrives for [`LONGEST_WAIT`].
    pub(super) async fn until_all_arrived(&mut self) {
        let (mut total, mut since) = (0, Instant::now());
        loop {
            self.look().await;
            let channels = 0..self.simulator.announcement().channels.len();
            let mut numbers =
                channels.map(|number| (self.arrivals.count(number), deliverable(&self.simulator, number)));
            if numbers.all(|(arrived, expected)| arrived >= expected.len()) {
                return;
            }
            if self.arrivals.total() != total {
                (total, since) = (self.arrivals.total(), Instant::now());
            }
            let is_late = since.elapsed() > LONGEST_WAIT;
            assert!(!is_late, "no event arrived for {LONGEST_WAIT:?}, but some are missing\n{}", self.shown().await);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Waits until `holds` accepts the arrivals. No instance may exit meanwhile.
    pub(super) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Arrivals) -> bool) {
        let since = Instant::now();
        loop {
            self.look().await;
            if holds(&self.arrivals) {
                return;
            }
            assert!(since.elapsed() < LONGEST_WAIT, "{what}: not within {LONGEST_WAIT:?}\n{}", self.shown().await);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The channels and the last log lines of each instance, for a failure message.
    async fn shown(&self) -> String {
        let mut shown = String::new();
        for number in 0..self.all.len() {
            writeln!(shown, "i{number} owns {:?}\n{}", self.owned_by(number).await, self.last_log(number)).unwrap();
        }
        shown
    }

    /// The last log lines of an instance. Empty if it does not run.
    pub(super) fn last_log(&self, instance: usize) -> String {
        let log = self.all[instance].daemon.as_ref().map(|daemon| daemon.log().0).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
    }

    /// The channels that an instance owns according to the database. Empty if the database is down.
    pub(super) async fn owned_by(&self, instance: usize) -> Vec<usize> {
        let owned = format!(
            "select channel_id from channeld.channels c join channeld.instances i on i.id = c.owner \
                             where i.name = 'i{instance}' and i.heartbeat + i.lease > clock_timestamp()"
        );
        let Ok(rows) = self.database.try_query(&owned).await else { return Vec::new() };
        let owned: Vec<_> = rows.iter().map(|row| ChannelId(row.get(0))).collect();
        let channels = self.simulator.announcement().channels.iter().enumerate();
        channels.filter(|(_, channel)| owned.contains(channel)).map(|(number, _)| number).collect()
    }

    /// Terminates every other connection to the database. Does nothing if the database is down.
    pub(super) async fn terminate_connections(&self) {
        let terminate = "select pg_terminate_backend(pid) from pg_stat_activity \
                         where datname = current_database() and pid <> pg_backend_pid()";
        drop(self.database.try_query(terminate).await);
    }

    /// Waits for this time. No instance may exit meanwhile.
    pub(super) async fn go_on_for(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.look().await;
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Collects the arrivals, and asserts that no instance has exited.
    pub(super) async fn look(&mut self) {
        self.arrivals.gather(&self.receiver);
        for daemon in self.all.iter_mut().filter_map(|instance| instance.daemon.as_mut()) {
            daemon.until("the daemon runs", |_| true).await;
        }
    }

    /// Publishes one event per channel in each interval of this length, until the returned handle is dropped.
    pub(super) fn publish_every(&self, time: Duration) -> AbortOnDropHandle<()> {
        let simulator = self.simulator.clone();
        let channels = simulator.announcement().channels.len();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let mut every = tokio::time::interval(time / u32::try_from(channels).unwrap());
            for channel in (0..channels).cycle() {
                every.tick().await;
                simulator.publish(channel, 1);
            }
        }))
    }

    /// See [`Arrivals::assert_whole`].
    pub(super) async fn assert_whole(&mut self) {
        self.arrivals.gather(&self.receiver);
        self.arrivals.assert_whole(&self.simulator, &self.database).await;
    }
}

fn without_defects(log: &Log) {
    assert_eq!(log.lines("channel failed because of a defect: restarting it"), [] as [serde_json::Value; 0]);
}
