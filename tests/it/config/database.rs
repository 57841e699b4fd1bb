//! `channeld check --connect` with the state in PostgreSQL: it reports what a start would change, or the problem and
//! its remedy.

use std::sync::Arc;

use simulator::{Options, Simulator};

use super::check::connect;
use crate::support::{Database, Pooler, Receiver, Relay, Server, Setup, skip};

/// Counts the schemas named `channeld`.
const SCHEMAS: &str = "select count(*) from pg_namespace where nspname = 'channeld'";

fn reading(simulator: &Simulator, receiver: &Receiver, database: &Database) -> Setup {
    let mut setup = Setup::reading(simulator).sharing(database, "only").with_webhook("hook", receiver);
    setup.set("channels.c0.sinks", vec!["hook"]);
    setup.remove("sinks.file");
    setup
}

/// The result of the check of the database. Asserts that every other check succeeds.
async fn examined(setup: &Setup) -> (bool, String) {
    let (code, mut asked) = connect(setup).await;
    let at = asked.iter().position(|(what, ..)| what.starts_with("database ")).unwrap();
    let (_, ok, said) = asked.remove(at);
    assert!(asked.iter().all(|(_, ok, _)| *ok) && code == Some(if ok { 0 } else { 69 }), "{code:?} {asked:?}");
    (ok, said)
}

async fn parts() -> (Simulator, Receiver) {
    let options = Options { events: 5, ..Options::default() };
    (Simulator::start(options).await.unwrap(), Receiver::start().await)
}

#[tokio::test]
async fn check_lists_what_a_start_will_create_and_creates_nothing() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = parts().await;
    let mut setup = reading(&simulator, &receiver, &database);
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.starts_with("PostgreSQL 1") && said.contains("schema channeld will be created"), "{said}");
    assert_eq!(database.number(SCHEMAS).await, 0, "nothing was made");

    let mut daemon = setup.start();
    daemon.until("all arrive", |_| receiver.received() == 5).await;
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.contains("is up to date (5 migrations)"), "{said}");
    daemon.stop().await;
    // Undo the last migration, which adds the settings of the instances.
    let undone = "alter table channeld.instances drop column settings, drop column settings_digest; \
                  delete from channeld.migrations where number = 5";
    begin_anew(&setup, &database, undone).await;
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.contains("1 of 5 migrations will be applied") && !said.contains("pooler"), "{said}");

    database.change(&format!("alter database {} set synchronous_commit = off", database.name)).await;
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.contains("because synchronous_commit is off"), "{said}");
    let Some(pooler) = Pooler::before(&database).await else { return skip("pgbouncer") };
    setup.set("state.url", pooler.url());
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.contains("it is behind a transaction pooler, which is supported"), "{said}");
}

/// Changes the database, and makes the instance forget that it has used it.
async fn begin_anew(setup: &Setup, database: &Database, statements: &str) {
    database.change(statements).await;
    // The file does not exist before the first start.
    let _ = std::fs::remove_file(setup.path("state/state.json"));
}

#[tokio::test]
async fn the_printed_sql_grants_the_missing_rights() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = parts().await;
    let role = format!("guest_of_{}", database.name);
    database.change(&format!("create role {role} login")).await;
    let mut setup = reading(&simulator, &receiver, &database);
    setup.set("state.url", database.url_as(&role));
    // No schema; a schema of another role, without any rights to it; tables of another role, without any rights to
    // them.
    for before in ["select 1", "drop schema channeld; create schema channeld", "made by another"] {
        if before == "made by another" {
            setup.set("state.url", database.url());
            begin_anew(&setup, &database, "drop schema channeld cascade").await;
            let mut daemon = setup.start();
            daemon.until_logged("these instances are alive").await;
            daemon.stop().await;
            setup.set("state.url", database.url_as(&role));
            database.change(&format!("grant usage on schema channeld to {role}")).await;
        } else {
            begin_anew(&setup, &database, before).await;
        }
        let (ok, said) = examined(&setup).await;
        let (_, sql) = said.split_once(" run: ").unwrap_or_else(|| panic!("{before}: {said}"));
        assert!(!ok, "{said}");
        database.change(sql).await;
        let (ok, said) = examined(&setup).await;
        assert!(ok, "{before}: {said}");
        let mut daemon = setup.start();
        daemon.until_logged("these instances are alive").await;
        daemon.stop().await;
        database.change(&format!("drop owned by {role} cascade")).await;
        database.change("create schema if not exists channeld").await;
    }
}

#[tokio::test]
async fn a_failed_connection_is_reported_with_reason_and_remedy() {
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let database = Database::on(Arc::new(server)).await;
    let (simulator, receiver) = parts().await;
    database.change("create role guest login password 'a-password-of-a-test'").await;
    database.server.ask_password_of("guest").await;
    let relay = Relay::before(database.server.socket()).await;
    let without_tls = database.url_by(relay.address()).replace("sslmode=disable", "sslmode=require");
    let mut setup = reading(&simulator, &receiver, &database);
    setup.keep_secret("another-password");
    for (url, words) in [
        (database.url_as("guest:another-password"), "correct the password of role guest in state.url"),
        (database.url_as("guest"), "put the password into state.url or, better, into the file"),
        (database.url_as("stranger"), "role \"stranger\" does not exist; let role stranger log in"),
        (database.server.url("nowhere"), "as a superuser run: create database \"nowhere\""),
        (without_tls, "does not support TLS; turn TLS on at the server"),
        ("postgresql://channeld@127.0.0.1:9/state".to_owned(), "check host and port in state.url"),
    ] {
        setup.set("state.url", url);
        let (ok, said) = examined(&setup).await;
        assert!(!ok && said.contains(words), "{words}: {said}");
    }
    setup.set("state.url", database.url_as("guest:a-password-of-a-test"));
    let (_, said) = examined(&setup).await;
    assert!(said.contains("role guest may not create a schema"), "{said}");
}
