//! Instances share the channels evenly. If an instance dies, another one takes over its channels. Instances with different
//! settings are not ready. Instances need only the rights that the documents list.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{instance, offsets, service, until, until_status};
use crate::config::check::connect;
use crate::support::{Database, Receiver, Server, deliverable, skip};

const CHANNELS: usize = 4;

#[tokio::test]
async fn two_instances_share_the_channels_and_one_takes_over_when_the_other_is_killed() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(CHANNELS, 20).await, Receiver::start().await);
    let (one, other) =
        (instance("a", &simulator, &database, &receiver), instance("b", &simulator, &database, &receiver));
    let (mut one, other) = (one.start(), other.start());
    let all = |receiver: &Receiver| {
        (0..CHANNELS)
            .all(|channel| offsets(receiver, &format!("c{channel}")).len() >= deliverable(&simulator, channel).len())
    };
    one.until("all events are delivered", |_| all(&receiver)).await;
    let shares = "select count(*) from channeld.channels where owner is not null group by owner";
    until(&database, "the channels are shared evenly", shares, &[2, 2]).await;
    other.kill().await;
    for channel in 0..CHANNELS {
        simulator.publish(channel, 10);
    }
    one.until("the remaining instance delivers all events", |_| all(&receiver)).await;
    one.stop().await;
    for channel in 0..CHANNELS {
        let found = offsets(&receiver, &format!("c{channel}"));
        assert_eq!(found, deliverable(&simulator, channel), "no event is lost or repeated, and the order is right");
    }
}

#[tokio::test]
async fn each_instance_discovers_the_same_channels_and_one_of_them_runs_each() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(CHANNELS, 5).await, Receiver::start().await);
    (2..CHANNELS).for_each(|channel| simulator.set_listed(channel, false));
    let [one, other] = ["a", "b"].map(|name| {
        let mut setup = instance(name, &simulator, &database, &receiver);
        setup.remove("channels");
        setup.set("discover.channels", "all");
        setup.set("discover.sinks", vec!["hook"]);
        setup.set("discover.every", "1s");
        setup
    });
    let (mut daemon, second) = (one.start(), other.start());
    let shares = "select count(*) from channeld.channels where owner is not null group by owner";
    until(&database, "the listed channels are shared evenly", shares, &[1, 1]).await;
    (2..CHANNELS).for_each(|channel| simulator.set_listed(channel, true));
    until(&database, "the new channels are shared evenly", shares, &[2, 2]).await;
    let name = |channel: usize| format!("simulated-channel-{channel}");
    let has_all = |channel| offsets(&receiver, &name(channel)) == deliverable(&simulator, channel);
    daemon.until("each event arrives once", |_| (0..CHANNELS).all(has_all)).await;
    for setup in [&one, &other] {
        until_status(setup, "the instances agree", |status| {
            let channels = status["channels"].as_array().unwrap();
            status["ready"] == true && channels.len() == CHANNELS && channels.iter().all(|it| it["discovered"] == true)
        })
        .await;
    }
    daemon.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn two_instances_share_the_rate_of_requests() {
    const RATE: u64 = 10;
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(CHANNELS, 5).await, Receiver::start().await);
    let of = |name| instance(name, &simulator, &database, &receiver).with("api.requests_per_second", RATE);
    let (one, other) = (of("a"), of("b"));
    let (mut one, other) = (one.start(), other.start());
    let shares = "select count(*) from channeld.channels where owner is not null group by owner";
    until(&database, "the channels are shared evenly", shares, &[2, 2]).await;

    let requests = || simulator.requests().poll + simulator.requests().search + simulator.requests().event;
    let (began, before) = (Instant::now(), requests());
    one.until("many requests are sent", |_| requests() >= before + 8 * RATE).await;
    // The instances would need half of this time if each of them used the whole rate.
    assert!(began.elapsed() >= Duration::from_secs(7), "{:?}", began.elapsed());
    one.stop().await;
    other.stop().await;
}

#[tokio::test]
async fn an_instance_that_verifies_differently_takes_no_channel_while_another_can_and_both_name_the_keys() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(2, 5).await, Receiver::start().await);
    let [one, same] = ["a", "c"].map(|name| instance(name, &simulator, &database, &receiver));
    let other = instance("b", &simulator, &database, &receiver).with("verification.min_required_signatures", 1);
    let owned = |name: &str| {
        format!(
            "select count(*) from channeld.channels c join channeld.instances i on i.id = c.owner where i.name = '{name}'"
        )
    };
    let mut daemons = vec![one.start()];
    until(&database, "the first instance owns all channels", &owned("a"), &[2]).await;
    daemons.push(other.start());
    for (setup, name) in [(&one, "b"), (&other, "a")] {
        let key = "channels.c0.verification.min_required_signatures";
        let said = format!("instance {name} has other values than this instance for {key}");
        until_status(setup, "the instance names the key", |status| {
            let reasons = status["not_ready"].as_array().unwrap().iter();
            let own = reasons.filter(|reason| reason["kind"] == "instances_differ" && reason["instance"].is_null());
            own.map(|reason| reason["detail"].as_str().unwrap()).any(|detail| detail.starts_with(&said))
        })
        .await;
    }
    daemons.push(same.start());
    until(&database, "the instance with the same settings gets its share", &owned("c"), &[1]).await;
    until(&database, "the other instance gets nothing", &owned("b"), &[0]).await;
    // The last instance takes over everything, because no other instance is left.
    let last = daemons.remove(1);
    for daemon in daemons {
        daemon.stop().await;
    }
    until(&database, "the last instance owns all channels", &owned("b"), &[2]).await;
    last.stop().await;
}

/// The grants in the document for operators.
pub(super) fn documented_grants() -> String {
    let document = include_str!("../../../deploy/OPERATIONS.md");
    let (_, section) = document.split_once("### Roles and rights in PostgreSQL\n").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let blocks = section.split("```sql\n").skip(1).map(|block| block.split_once("```").unwrap().0);
    let grants: Vec<_> = blocks.collect();
    assert_eq!(grants.len(), 2, "the state, and a sink: {grants:?}");
    grants.concat()
}

#[tokio::test]
async fn the_documented_rights_are_enough_for_a_cluster_and_its_tables() {
    // The roles of the document belong to the whole server.
    let Some(server) = Server::start() else { return skip("PostgreSQL") };
    let database = Database::on(Arc::new(server)).await;
    let (simulator, receiver) = (service(CHANNELS, 20).await, Receiver::start().await);
    let mut setups = ["a", "b"].map(|name| {
        let setup = instance(name, &simulator, &database, &receiver)
            .with("sinks.warehouse.type", "postgres")
            .with("sinks.warehouse.url", database.url())
            .with("sinks.warehouse.operations", true);
        (0..CHANNELS)
            .fold(setup, |setup, channel| setup.with(&format!("channels.c{channel}.sinks"), vec!["hook", "warehouse"]))
    });
    let rows = |events: usize| i64::try_from(CHANNELS * events).unwrap();
    let written = "select count(*) from public.events";

    // The owner creates the tables of the state as the document says. The sink creates its own at its first delivery.
    setups[0].write();
    setups[0].tell(&["status"]).await;
    assert_eq!(database.number("select count(*) from channeld.state").await, 1);
    let mut owner = setups[0].start();
    owner.until("the owner delivers", |_| receiver.received() >= CHANNELS * 20).await;
    until(&database, "the sink's table has all events", written, &[rows(20)]).await;
    owner.stop().await;

    let roles =
        "create role channeld login; create role channeld_events login; revoke all on schema public from public";
    database.change(roles).await;
    database.change(&documented_grants()).await;
    for setup in &mut setups {
        setup.set("state.url", database.url_as("channeld"));
        setup.set("sinks.warehouse.url", database.url_as("channeld_events"));
        setup.set("sinks.warehouse.create", false);
        let (_, asked) = connect(setup).await;
        assert!(asked.iter().all(|(_, ok, _)| *ok), "{asked:?}");
    }
    let (one, other) = (setups[0].start(), setups[1].start());
    let shares = "select count(*) from channeld.channels where owner is not null group by owner";
    until(&database, "the channels are shared evenly", shares, &[2, 2]).await;
    (0..CHANNELS).for_each(|channel| simulator.publish(channel, 10));
    until(&database, "both write", written, &[rows(30)]).await;
    // A request between the instances, which an owner carries out.
    for channel in 0..CHANNELS {
        let told = setups[0].tell(&["pause", &format!("c{channel}")]).await;
        assert_eq!(told.code, Some(0), "{told:?}");
        let told = setups[0].tell(&["resume", &format!("c{channel}")]).await;
        assert_eq!(told.code, Some(0), "{told:?}");
    }
    other.kill().await;
    (0..CHANNELS).for_each(|channel| simulator.publish(channel, 10));
    until(&database, "the remaining instance writes everything", written, &[rows(40)]).await;
    let log = one.stop().await;
    assert!(!log.0.contains("permission denied"), "{}", log.tail());
}
