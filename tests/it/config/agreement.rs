//! `channeld check --connect` and the daemon agree about PostgreSQL: the check succeeds if and only if the daemon works.
//!
//! Each environment is a database of its own on one server, prepared by a superuser, and a role that channeld logs in with.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, stream};
use serde_json::Value;
use simulator::{Options, Simulator};

use super::check::connect;
use crate::support::{Daemon, Database, LONGEST_WAIT, LOOK_AGAIN, Server, Setup, skip};

mod sink;
mod state;

/// The number of events of the channel.
const EVENTS: usize = 5;

/// How many environments are tested at the same time.
const AT_ONCE: usize = 4;

/// The database that a superuser's channeld has filled with its tables. Its rows were removed.
const TEMPLATE: &str = "template_of_tables";

/// Messages of a daemon that cannot use a sink or the state.
const COMPLAINTS: [&str; 5] = [
    "sink refused: its events wait and will be offered again",
    "sink has no position: nothing is delivered until an operator decides",
    "heartbeat failed: the state's database cannot be used",
    "the state cannot be written: channels wait, retrying",
    "the state cannot be read: restarting the channel",
];

/// A prepared database, and whether the check and the daemon must succeed in it.
struct Environment {
    name: &'static str,
    /// Whether the tables of an earlier run of a superuser exist. The role has no rights to them.
    has_tables: bool,
    /// The statements of a superuser. `{role}` and `{db}` are the role and the database.
    prepare: &'static str,
    /// Settings of channeld, as JSON.
    settings: &'static [(&'static str, &'static str)],
    works: bool,
    /// Words in the result of the check.
    says: &'static str,
}

const fn new(name: &'static str, prepare: &'static str, works: bool, says: &'static str) -> Environment {
    Environment { name, has_tables: false, prepare, settings: &[], works, says }
}

const fn with_tables(name: &'static str, prepare: &'static str, works: bool, says: &'static str) -> Environment {
    Environment { has_tables: true, ..new(name, prepare, works, says) }
}

/// What the environments have in common.
struct Common {
    server: Arc<Server>,
    simulator: Simulator,
    has_trigrams: bool,
}

impl Common {
    async fn start() -> Option<Self> {
        let server = Arc::new(Server::start()?);
        let simulator = Simulator::start(Options { events: EVENTS as u64, ..Options::default() }).await.unwrap();
        let admin = server.client("postgres").await;
        // Each line of the log begins with the role and the database.
        admin.batch_execute("alter system set log_line_prefix = '%u in %d '").await.unwrap();
        admin.batch_execute("select pg_reload_conf()").await.unwrap();
        admin.batch_execute(&format!("create database {TEMPLATE}")).await.unwrap();
        let trigrams = "select count(*) from pg_available_extensions where name = 'pg_trgm'";
        let has_trigrams = admin.query_one(trigrams, &[]).await.unwrap().get::<_, i64>(0) == 1;
        let common = Self { server, simulator, has_trigrams };
        common.fill_template().await;
        Some(common)
    }

    async fn fill_template(&self) {
        let template = Database { server: self.server.clone(), name: TEMPLATE.to_owned() };
        let setup = self
            .setup(&template, template.url(), true)
            .sharing(&template, "only")
            .with("sinks.file.per_instance", true);
        let mut daemon = setup.start();
        let is_recorded = |daemon: &Daemon, sink: &str| {
            let recorded = daemon.log().lines("batch recorded");
            recorded.iter().any(|line| line["sink"] == sink && line["offset"] == EVENTS)
        };
        let are_recorded = |daemon: &Daemon| is_recorded(daemon, "warehouse") && is_recorded(daemon, "file");
        daemon.until("both sinks have every event", are_recorded).await;
        daemon.stop().await;
        let rows = "select count(*) from events";
        assert_eq!(template.number(rows).await, i64::try_from(EVENTS).unwrap());
        let removed = "delete from events; delete from events_progress; delete from channeld.channels; \
                       delete from channeld.entries; delete from channeld.proofs; delete from channeld.instances";
        template.change(removed).await;
        // A database with connections cannot be a template.
        let admin = self.server.client("postgres").await;
        let connected = format!("select count(*) from pg_stat_activity where datname = '{TEMPLATE}'");
        let deadline = Instant::now() + LONGEST_WAIT;
        while admin.query_one(&connected, &[]).await.unwrap().get::<_, i64>(0) > 0 {
            assert!(Instant::now() < deadline, "the template stays in use");
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Delivers to a file, and to a table if `has_sink` is set.
    fn setup(&self, database: &Database, url: String, has_sink: bool) -> Setup {
        let setup = Setup::reading(&self.simulator);
        if !has_sink {
            return setup;
        }
        let (mut setup, _) = setup.with_tables(database.also_on(&self.server));
        setup.remove("sinks.local");
        setup.set("sinks.warehouse.url", url);
        setup.set("channels.c0.sinks", vec!["warehouse", "file"]);
        setup
    }

    /// Creates a database and a role for an environment. Returns the database, and its address for this role.
    async fn prepare(&self, environment: &Environment, number: usize, of: &str) -> (Database, String) {
        let (name, role) = (format!("{of}_{number}"), format!("guest_of_{of}_{number}"));
        let admin = self.server.client("postgres").await;
        let template = if environment.has_tables { TEMPLATE } else { "template1" };
        admin.batch_execute(&format!("create role {role} login")).await.unwrap();
        admin.batch_execute(&format!("create database {name} template {template}")).await.unwrap();
        let database = Database { server: self.server.clone(), name };
        let statements = environment.prepare.replace("{role}", &role).replace("{db}", &database.name);
        let client = self.server.client(&database.name).await;
        let prepared = client.batch_execute(&statements).await;
        prepared.unwrap_or_else(|error| panic!("{}: {error:?}", environment.name));
        let url = database.url_as(&role);
        (database, url)
    }

    /// The lines of the server's log about the role's errors in a database.
    fn errors(&self, database: &Database) -> Vec<String> {
        let [error, fatal] = ["ERROR: ", "FATAL: "].map(|level| format!("guest_of_{0} in {0} {level}", database.name));
        let log = self.server.log();
        log.lines().filter(|line| line.starts_with(&error) || line.starts_with(&fatal)).map(str::to_owned).collect()
    }
}

/// Asserts that the check and the daemon have the expected result. `has_worked` returns whether the daemon has delivered.
async fn compare(
    common: &Common,
    environment: &Environment,
    database: &Database,
    (mut setup, what): (Setup, &str),
    mut has_worked: impl AsyncFnMut(&Setup, &Daemon) -> bool,
) {
    let Environment { name, settings, works, says, .. } = environment;
    for (key, value) in *settings {
        setup.set(key, serde_json::from_str::<Value>(value).unwrap());
    }
    let (code, asked) = connect(&setup).await;
    let (_, ok, said) = asked.iter().find(|(asked, ..)| asked.starts_with(what)).unwrap();
    assert!(ok == works && said.contains(says), "{name}: the check says {ok}: {said}");
    assert_eq!(code, Some(if *works { 0 } else { 69 }), "{name}: {asked:?}");

    let before = common.errors(database).len();
    let mut daemon = setup.start();
    let deadline = Instant::now() + LONGEST_WAIT;
    loop {
        // A daemon that will work can be refused at first, for example because the check's connections still exist. A daemon
        // that cannot do all of its work can still deliver.
        let complains = || COMPLAINTS.iter().any(|message| daemon.has_logged(message));
        let is_over = if *works {
            has_worked(&setup, &daemon).await
        } else {
            complains() || common.errors(database).len() > before
        };
        if is_over {
            break;
        }
        let errors = || common.errors(database);
        assert!(Instant::now() < deadline, "{name}: nothing happens: {:?}\n{}", errors(), daemon.log().tail());
        daemon.until("the daemon runs", |_| true).await;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    daemon.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_and_daemon_agree_about_a_table() {
    let Some(common) = Common::start().await else { return skip("PostgreSQL") };
    let environments = sink::ENVIRONMENTS.iter().enumerate();
    let environments = environments.filter(|(_, it)| common.has_trigrams || !it.prepare.contains("pg_trgm"));
    let compared = stream::iter(environments).map(async |(number, environment)| {
        let (database, url) = common.prepare(environment, number, "sink").await;
        let setup = common.setup(&database, url, true);
        let schema = environment.settings.iter().find(|(key, _)| *key == "sinks.warehouse.schema");
        let schema = schema.map_or("public", |(_, value)| value.trim_matches('"'));
        let count = format!("select count(*) from {schema}.events_progress where through >= {EVENTS}");
        compare(&common, environment, &database, (setup, "sink warehouse"), async |_, _| {
            database.try_query(&count).await.is_ok_and(|rows| rows[0].get::<_, i64>(0) == 1)
        })
        .await;
    });
    compared.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_and_daemon_agree_about_the_state() {
    let Some(common) = Common::start().await else { return skip("PostgreSQL") };
    let compared = stream::iter(state::ENVIRONMENTS.iter().enumerate()).map(async |(number, environment)| {
        let (database, url) = common.prepare(environment, number, "state").await;
        let setup = common
            .setup(&database, String::new(), false)
            .sharing(&database, "only")
            .with("state.url", url)
            .with("sinks.file.per_instance", true);
        compare(&common, environment, &database, (setup, "database"), async |setup, _| setup.lines() == EVENTS).await;
    });
    compared.buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
}

#[tokio::test]
async fn status_names_a_database_that_acknowledges_before_its_disk() {
    // The servers of the tests have `fsync = off`.
    let Some(database) = Database::new().await else { return };
    let simulator = Simulator::start(Options { events: EVENTS as u64, ..Options::default() }).await.unwrap();
    let (mut setup, tables) = Setup::reading(&simulator).sharing(&database, "only").with_tables(database);
    setup.remove("sinks.local");
    setup.set("channels.c0.sinks", vec!["warehouse", "file"]);
    setup.set("sinks.file.per_instance", true);
    let mut daemon = setup.start();
    daemon.until("the events are delivered", |_| setup.lines() == EVENTS).await;
    let deadline = Instant::now() + LONGEST_WAIT;
    let report = loop {
        let report = setup.tell(&["status", "--json"]).await.json().remove(0);
        if report["channels"][0]["lanes"]
            .as_array()
            .is_some_and(|lanes| lanes.iter().any(|it| !it["early_ack"].is_null()))
        {
            break report;
        }
        assert!(Instant::now() < deadline, "{report:#}");
    };
    assert!(report["state_early_ack"].as_str().unwrap().contains("fsync is off"), "{report:#}");
    let told = setup.tell(&["status"]).await;
    let text = String::from_utf8(told.out).unwrap();
    assert_eq!(text.matches("acknowledges early: fsync is off").count(), 2, "{text}");
    daemon.stop().await;
    drop(tables);
}
