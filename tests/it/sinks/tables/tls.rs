//! PostgreSQL over TLS with a private authority and client certificates, for tables and for the state.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustix::process::Signal;
use simulator::{Options, Simulator};

use super::failures::until_says;
use crate::config::check::connect;
use crate::support::{Authority, Daemon, Database, ROLE, Relay, Server, Setup, deliverable, programs, skip};

/// The configuration tables that describe a connection to a database, and their keys.
const REACHED: [&str; 2] = ["state", "sinks.warehouse"];
const KEYS: [&str; 4] = ["url", "ca_file", "client_certificate_file", "client_key_file"];

/// A server that accepts only TLS connections, and a daemon that is configured for it.
struct Secured {
    simulator: Simulator,
    setup: Setup,
    database: Database,
    /// The correct value of each key.
    keys: BTreeMap<&'static str, String>,
}

impl Secured {
    async fn start() -> Option<Self> {
        if !programs(&["psql"]) {
            return None;
        }
        let authority = Authority::new("a private authority");
        let Some((server, address)) = Server::start_tls(&authority).await else {
            skip("PostgreSQL");
            return None;
        };
        let database = Database::on(Arc::new(server)).await;
        let simulator = Simulator::start(Options { events: 50, ..Options::default() }).await.unwrap();
        let mut setup = Setup::reading(&simulator)
            .sharing(&database, "only")
            .with("sinks.warehouse.type", "postgres")
            .with("sinks.warehouse.give_up_after", "1ms")
            .with("channels.c0.sinks", vec!["warehouse"]);
        setup.remove("sinks.file");
        let url = database.url_by_tls("localhost", address).await;
        let ca = authority.write(&setup.path("ca.pem"));
        let [certificate, key] = authority.issue_to(ROLE, &setup.path("client.pem"), &setup.path("client-key.pem"));
        let keys = KEYS.into_iter().zip([url, ca, certificate, key]).collect();
        reach(&mut setup, &REACHED, &keys);
        Some(Self { simulator, setup, database, keys })
    }

    /// Waits until every event is in the table, and checks the offsets.
    async fn all_come(&self, daemon: &mut Daemon) {
        let all = deliverable(&self.simulator, 0);
        super::until(daemon, "all events are in the table", async || {
            self.database.try_query("select from events").await.is_ok_and(|rows| rows.len() >= all.len())
        })
        .await;
        let found = self.database.psql("select event_offset from events order by event_offset");
        assert_eq!(found, all.iter().map(ToString::to_string).collect::<Vec<_>>());
    }
}

/// Sets the connection keys in these configuration tables, and removes the other ones.
fn reach(setup: &mut Setup, tables: &[&str], keys: &BTreeMap<&str, String>) {
    for (table, key) in tables.iter().flat_map(|table| KEYS.map(|key| (table, key))) {
        setup.remove(&format!("{table}.{key}"));
        if let Some(value) = keys.get(key) {
            setup.set(&format!("{table}.{key}"), &**value);
        }
    }
}

#[tokio::test]
async fn events_and_state_use_tls_with_a_private_ca_and_client_certificate() {
    let Some(secured) = Secured::start().await else { return };
    let (code, asked) = connect(&secured.setup).await;
    assert!(code == Some(0) && asked.iter().all(|(_, ok, _)| *ok), "{asked:?}");
    let mut daemon = secured.setup.start();
    secured.all_come(&mut daemon).await;
    let connections = format!(
        "select count(*) filter (where client_dn = '/CN={ROLE}'), count(*) filter (where not ssl) \
         from pg_stat_ssl join pg_stat_activity using (pid) where usename = '{ROLE}'"
    );
    let connections = &secured.database.query(&connections).await[0];
    // At least one connection for the state and one for the table.
    assert!(connections.get::<_, i64>(0) >= 2 && connections.get::<_, i64>(1) == 0, "{connections:?}");
    daemon.stop().await;
}

#[tokio::test]
async fn an_untrusted_certificate_is_reported_with_remedy_and_no_dead_letter() {
    let Some(mut secured) = Secured::start().await else { return };
    let path = |name: &str| secured.setup.path(name);
    let other = Authority::new("another");
    let wrong_ca = other.write(&path("other.pem"));
    let of_another = other.issue_to(ROLE, &path("another.pem"), &path("another-key.pem"));
    let url = &secured.keys["url"];
    let elsewhere = url.replace("@localhost", "@db.internal");
    let in_the_open = url.replace("sslmode=require", "sslmode=disable");
    let [certificate, key] = ["client_certificate_file", "client_key_file"];
    for (changes, words) in [
        (
            vec![("ca_file", wrong_ca.clone())],
            ["UnknownIssuer", "name the CA of the server's certificate in AT.ca_file"],
        ),
        (vec![("url", elsewhere)], ["\"db.internal\"", "in AT.url, use the host name of the server's certificate"]),
        (
            vec![(certificate, String::new()), (key, String::new())],
            ["requires a valid client certificate", "set AT.client_certificate_file"],
        ),
        (
            vec![(certificate, of_another[0].clone()), (key, of_another[1].clone())],
            ["UnknownCA", "use a AT.client_certificate_file that was issued by the server's ssl_ca_file"],
        ),
        (vec![("url", in_the_open)], ["no pg_hba.conf entry", "no encryption"]),
    ] {
        let mut keys = secured.keys.clone();
        keys.extend(changes);
        keys.retain(|_, value| !value.is_empty());
        reach(&mut secured.setup, &REACHED, &keys);
        let (_, asked) = connect(&secured.setup).await;
        for (what, at) in [("database ", REACHED[0]), ("sink warehouse", REACHED[1])] {
            let (_, ok, said) = asked.iter().find(|(asked, ..)| asked.starts_with(what)).unwrap();
            assert!(
                !ok && words.iter().all(|words| said.contains(&words.replace("AT.", &format!("{at}.")))),
                "{words:?}: {said}"
            );
        }
    }

    let mut keys = secured.keys.clone();
    keys.insert("ca_file", wrong_ca);
    reach(&mut secured.setup, &REACHED, &secured.keys);
    reach(&mut secured.setup, &REACHED[1..], &keys);
    let mut daemon = secured.setup.start();
    until_says(&secured.setup, &mut daemon, "warehouse", "sinks.warehouse.ca_file").await;
    reach(&mut secured.setup, &REACHED, &secured.keys);
    secured.setup.write();
    daemon.signal(Signal::HUP);
    secured.all_come(&mut daemon).await;
    daemon.stop().await;
}

/// Without this rule, an attacker in the middle could make the daemon send everything without encryption.
#[tokio::test]
async fn with_a_configured_ca_nothing_is_sent_without_tls() {
    let Some(secured) = Secured::start().await else { return };
    let relay = Relay::before(secured.database.server.socket()).await;
    let mut setup = secured.setup;
    let url = format!("postgresql://{ROLE}@{}/{}", relay.address(), secured.database.name);
    for at in REACHED {
        setup.set(&format!("{at}.url"), &*url);
    }
    let (_, asked) = connect(&setup).await;
    let refused =
        asked.iter().filter(|(_, ok, said)| !ok && said.contains("does not support TLS; turn TLS on at the server"));
    assert_eq!(refused.count(), 2, "{asked:?}");
}
