//! A state that was deleted or replaced is not accepted as a new one.

use simulator::Simulator;

use super::{instance, offsets, service};
use crate::config::check::connect;
use crate::support::{Admin, Answered, Daemon, Database, Receiver, Setup, deliverable};

const GONE: &str = "the state in schema channeld is gone, and is not created automatically";
const REPLACED: &str = "is a different one than this instance has used";

/// An instance that has delivered thirty events.
async fn used() -> Option<(Database, Simulator, Receiver, Setup, Daemon)> {
    let database = Database::new().await?;
    let (simulator, receiver) = (service(1, 30).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    daemon.until("all events are delivered", |_| offsets(&receiver, "c0").len() >= 30).await;
    Some((database, simulator, receiver, setup, daemon))
}

async fn until_not_ready(daemon: &mut Daemon, why: &str) {
    let admin = Admin::of(daemon).await;
    let says = |answer: &Answered| answer.status == 503 && answer.text.contains(why);
    admin.until(daemon, "/readyz", "the answer names the reason", says).await;
}

/// The result of `check --connect` for the database.
async fn examined(setup: &Setup) -> (bool, String) {
    let (_, asked) = connect(setup).await;
    asked.into_iter().find(|(what, ..)| what.starts_with("database ")).map(|(_, ok, said)| (ok, said)).unwrap()
}

async fn schemas(database: &Database) -> i64 {
    database.number("select count(*) from pg_namespace where nspname = 'channeld'").await
}

#[tokio::test]
async fn a_dropped_schema_is_not_recreated_and_works_again_once_restored() {
    let Some((database, simulator, receiver, setup, mut daemon)) = used().await else { return };
    database.dump();
    database.change("drop schema channeld cascade").await;
    until_not_ready(&mut daemon, GONE).await;
    daemon.stop().await;
    let mut daemon = setup.start();
    until_not_ready(&mut daemon, GONE).await;
    let (ok, said) = examined(&setup).await;
    assert!(!ok && said.contains(GONE) && said.contains("state.json"), "{said}");
    assert_eq!(schemas(&database).await, 0);

    database.restore();
    simulator.publish(0, 5);
    daemon.until("delivery continues at the cursor", |_| offsets(&receiver, "c0").len() >= 35).await;
    assert_eq!(offsets(&receiver, "c0"), deliverable(&simulator, 0), "no event is skipped or repeated");
    assert!(examined(&setup).await.0);
    daemon.stop().await;
}

#[tokio::test]
async fn a_state_recreated_by_another_instance_is_refused_until_an_operator_decides() {
    let Some((database, simulator, receiver, setup, mut daemon)) = used().await else { return };
    database.change("drop schema channeld cascade").await;
    // This instance has no `state.json`, so it creates a new state.
    let another = instance("another", &simulator, &database, &receiver).with("channels.c0.start", "latest");
    let mut other = another.start();
    other.until_logged("channel started").await;
    until_not_ready(&mut daemon, REPLACED).await;
    daemon.stop().await;
    other.stop().await;
    let (ok, said) = examined(&setup).await;
    assert!(!ok && said.contains(REPLACED), "{said}");
    let mut daemon = setup.start();
    until_not_ready(&mut daemon, REPLACED).await;
    daemon.stop().await;

    std::fs::remove_file(setup.path("state/state.json")).unwrap();
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    daemon.stop().await;
}
