//! Commands work from any instance, and from a machine without a daemon. The owner of the channel executes them.

use std::time::Instant;

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::Simulator;

use super::{instance, service, until, until_status};
use crate::support::{Admin, Answered, Daemon, Database, LONGEST_WAIT, Receiver, Reply, Setup};

/// Two instances that own one channel each and have delivered everything.
struct Pair {
    database: Database,
    receiver: Receiver,
    setups: [Setup; 2],
    daemons: Vec<Daemon>,
    simulator: Simulator,
}

impl Pair {
    async fn start() -> Option<Self> {
        let database = Database::new().await?;
        let (simulator, receiver) = (service(2, 4).await, Receiver::start().await);
        let setups = ["a", "b"].map(|name| instance(name, &simulator, &database, &receiver));
        let mut daemons: Vec<_> = setups.iter().map(Setup::start).collect();
        daemons[0].until_logged("these instances are alive").await;
        let shares = "select count(*) from channeld.channels where owner is not null group by owner";
        until(&database, "the channels are shared evenly", shares, &[1, 1]).await;
        until_status(&setups[0], "both channels are idle and both instances are listed", |status| {
            let shares = status["instances"].as_array().unwrap().iter().map(|it| it["channels"].as_u64().unwrap());
            let is_idle = channels(status).iter().all(|channel| channel["state"] == "idle");
            is_idle && status["ready"] == true && shares.eq([1, 1])
        })
        .await;
        Some(Self { database, receiver, setups, daemons, simulator })
    }

    /// The name of the channel that each instance owns.
    async fn owned(&self) -> [String; 2] {
        let cluster = self.setups[0].tell(&["cluster", "--json"]).await.json().remove(0);
        ["a", "b"].map(|name| {
            let channel = channels(&cluster).iter().find(|channel| channel["owner"] == name).cloned();
            channel.unwrap_or_else(|| panic!("{name} owns no channel: {cluster:#}"))["channel"]
                .as_str()
                .unwrap()
                .to_owned()
        })
    }

    async fn stop(self) {
        for daemon in self.daemons {
            daemon.stop().await;
        }
    }
}

fn channels(report: &Value) -> &[Value] {
    report["channels"].as_array().unwrap()
}

#[tokio::test]
async fn a_command_reaches_the_channels_owner_from_any_instance() {
    let Some(mut pair) = Pair::start().await else { return };
    let report = until_status(&pair.setups[0], "the status has both channels", |_| true).await;
    let shown: Vec<_> = channels(&report).iter().map(|channel| (&channel["channel"], &channel["lag_events"])).collect();
    assert_eq!(shown, [(&"c0".into(), &0.into()), (&"c1".into(), &0.into())], "{report:#}");
    let table = String::from_utf8(pair.setups[0].tell(&["status"]).await.out).unwrap();
    assert!(table.contains("instances: a (this one, 1 channel), b (1 channel)"), "{table}");

    for name in ["c0", "c1"] {
        let told = pair.setups[0].tell(&["pause", name]).await;
        assert_eq!(told.code, Some(0), "{told:?}");
        let told = pair.setups[1].tell(&["cursor", "set", name, "--to", "2", "--yes", "--json"]).await;
        assert_eq!(told.each("repeated"), [2], "{told:?}");
    }
    let before = pair.receiver.received();
    until_status(&pair.setups[0], "both are paused", |status| {
        channels(status).iter().all(|it| it["state"] == "paused")
    })
    .await;
    let refused = pair.setups[0].tell(&["pause", "c1", "--sink", "nowhere"]).await;
    assert_eq!(refused.code, Some(64), "{refused:?}");
    let reached = pair.setups[0].tell(&["quarantine", "drop", &pair.owned().await[1], "7", "--yes"]).await;
    assert!(
        reached.code == Some(64) && reached.errors.contains("event 7 of channel"),
        "the owner's message: {reached:?}"
    );
    assert_eq!(pair.receiver.received(), before);
    for name in ["c0", "c1"] {
        assert_eq!(pair.setups[1].tell(&["resume", name]).await.code, Some(0));
    }
    let receiver = &pair.receiver;
    pair.daemons[0].until("both deliver again", |_| receiver.received() == before + 4).await;
    pair.stop().await;
}

#[tokio::test]
async fn a_command_without_a_local_daemon_reaches_the_owner_or_takes_the_lease() {
    let Some(pair) = Pair::start().await else { return };
    let visitor = instance("visitor", &pair.simulator, &pair.database, &pair.receiver).with("log.level", "info");
    visitor.write();
    for name in ["c0", "c1"] {
        let told = visitor.tell(&["pause", name]).await;
        assert_eq!((told.code, &*told.errors), (Some(0), ""), "{told:?}");
    }
    let report = visitor.tell(&["status", "--json"]).await.json().remove(0);
    assert!(channels(&report).iter().all(|channel| channel["state"] == "paused"), "{report:#}");
    let names: Vec<_> = report["instances"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect();
    assert_eq!((names, report["daemon"].is_null()), (vec!["a".into(), "b".into()], true), "{report:#}");
    let database = Database { server: pair.database.server.clone(), name: pair.database.name.clone() };
    pair.stop().await;

    let told = visitor.tell(&["cursor", "set", "c0", "--to", "3", "--yes", "--json"]).await;
    assert_eq!(told.each("repeated"), [1], "{told:?}");
    let shown = visitor.tell(&["cursor", "show", "c0", "--json"]).await.json().remove(0);
    assert_eq!(shown["cursor"], 3, "{shown:#}");
    assert_eq!(visitor.tell(&["resume", "c1"]).await.code, Some(0));
    let report = visitor.tell(&["status", "--json"]).await.json().remove(0);
    let states: Vec<_> = channels(&report).iter().map(|channel| &channel["state"]).collect();
    assert_eq!(states, ["paused", "stopped"], "{report:#}");
    for left in ["channels where owner is not null", "instances", "requests"] {
        assert_eq!(database.number(&format!("select count(*) from channeld.{left}")).await, 0, "{left}");
    }
}

#[tokio::test]
async fn a_hanging_owner_is_reported_and_the_next_owner_runs_the_command() {
    let Some(pair) = Pair::start().await else { return };
    let [_, of_b] = pair.owned().await;
    pair.daemons[1].signal(Signal::STOP);
    let report = until_status(&pair.setups[0], "the instance hangs", |_| true).await;
    let says = |report: &Value| report["reasons"].to_string().contains("instance b: its status is unknown");
    assert!(says(&report), "{report:#}");
    let told = pair.setups[0].tell(&["pause", &of_b]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    let report = until_status(&pair.setups[0], "the hanging instance counts as dead", |status| !says(status)).await;
    let paused = channels(&report).iter().find(|channel| channel["channel"] == *of_b).unwrap();
    assert_eq!(paused["state"], "paused", "{report:#}");
    pair.daemons[1].signal(Signal::CONT);
    pair.stop().await;
}

#[tokio::test]
async fn a_command_whose_owner_dies_reports_an_unknown_outcome() {
    let Some(mut pair) = Pair::start().await else { return };
    let [_, of_b] = pair.owned().await;
    pair.daemons[1].signal(Signal::STOP);
    let take = "update channeld.requests set taken = now() returning id";
    let taking = async { while pair.database.query(take).await.is_empty() {} };
    let pause = ["pause", &*of_b];
    let (told, ()) = tokio::join!(pair.setups[0].tell(&pause), taking);
    assert_eq!(told.code, Some(1), "{told:?}");
    assert!(
        told.errors.contains("instance b") && told.errors.contains("may or may not have been executed"),
        "{told:?}"
    );
    pair.daemons.remove(1).kill().await;
    pair.stop().await;
}

#[tokio::test]
async fn instances_with_different_configurations_show_the_differences() {
    let Some(pair) = Pair::start().await else { return };
    let mut other = instance("c", &pair.simulator, &pair.database, &pair.receiver).with_admin();
    other.remove("channels.c1");
    let mut daemon = other.start();
    let admin = Admin::of(&mut daemon).await;
    let differs = "instance c does not configure c1, but others do";
    let setup = &pair.setups[0];
    let deadline = Instant::now() + LONGEST_WAIT;
    while !String::from_utf8(setup.tell(&["cluster"]).await.out).unwrap().contains(differs) {
        assert!(Instant::now() < deadline);
    }
    let status = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(status.contains(differs), "{status}");
    let instances = setup.tell(&["status", "--json"]).await.json().remove(0)["instances"].take();
    let lacking: Vec<_> = instances.as_array().unwrap().iter().map(|it| it["not_configured"].clone()).collect();
    assert_eq!(lacking, [json!([]), json!([]), json!(["c1"])], "{instances:#}");
    let counted = |answer: &Answered| answer.text.contains("channeld_channels_not_configured 1\n");
    admin.until(&mut daemon, "/metrics", "the metric counts the channels that are not configured", counted).await;
    daemon.stop().await;
    pair.stop().await;
}

#[tokio::test]
async fn a_replay_continues_on_the_instance_that_takes_the_channel_over() {
    let Some(mut pair) = Pair::start().await else { return };
    let [_, of_b] = pair.owned().await;
    let (before, requests) = (pair.receiver.received(), pair.receiver.requests());
    pair.receiver.always(Some(Reply::Refuse(503, None)));
    // One instance receives the command, and the other instance owns the channel.
    let told = pair.setups[0].tell(&["replay", &of_b, "--from", "1", "--to", "4"]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    let receiver = &pair.receiver;
    pair.daemons[1].until("the owner offers an event", |_| receiver.requests() > requests).await;
    pair.daemons.remove(1).kill().await;
    receiver.always(None);
    pair.daemons[0].until("the events are replayed", |_| receiver.received() == before + 4).await;
    let deadline = Instant::now() + LONGEST_WAIT;
    while pair.setups[0].tell(&["replay", &of_b, "--list", "--json"]).await.each("state") != ["done"] {
        assert!(Instant::now() < deadline, "the replay does not end");
    }
    pair.stop().await;
}
