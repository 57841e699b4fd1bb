//! The page about the daemon: its history of the last hour, and several instances. Also the history of a late event.

use simulator::{EventSpec, Kind, Options, Simulator};

use super::{FORGED, PROVED, daemon_with_rows, into_table, with_table};
use crate::support::{Admin, Answer, Answered, Database, Setup};

/// The time at which the daemon started to record the history, according to the page.
fn since(page: &Answer) -> String {
    page.link("Recorded since <time datetime=\"")
        .unwrap_or_else(|| panic!("the page does not state the time of the first sample: {page:?}"))
}

#[tokio::test]
async fn a_reopened_console_shows_the_last_hour() {
    let (simulator, setup) = with_table(20).await;
    let setup = setup.with_admin().with("api.idle_wait", "100ms");
    let mut daemon = daemon_with_rows(&setup, 20).await;
    let first = setup.console(&[]).await;
    let visitor = first.enter().await;
    simulator.publish(0, 7);
    // The rate is known once a sample is stored.
    let no_rate = "<span class=\"what\">Delivered per second</span><strong>–</strong>";
    let sampled = |page: &Answer| page.body.contains("Recorded since") && !page.body.contains(no_rate);
    let page = visitor.until("/daemon", "the page shows the first sample", sampled).await;
    let noted = since(&page);
    drop(first);

    let second = setup.console(&[]).await;
    let visitor = second.enter().await;
    let page = visitor.get("/daemon").await;
    assert_eq!(since(&page), noted, "a new console shows the same history");
    assert!(page.body.contains(" of 60 minutes"), "{page:?}");

    let admin = Admin::of(&mut daemon).await;
    let is_caught_up = |answer: &Answered| {
        let hours = answer.json();
        let now = hours[0]["samples"].as_array().and_then(|samples| samples.last());
        hours[0]["channel"] == "c0" && now.is_some_and(|now| now["lag_events"] == 0)
    };
    admin.until(&mut daemon, "/hour", "nothing is behind", is_caught_up).await;
    let named = admin.get("/hour?channels=%5B%22c0%22%5D").await.json();
    assert_eq!(named.as_array().unwrap().len(), 1);
    assert_eq!(admin.get("/hour?channels=%5B%22nowhere%22%5D").await.status, 400);
    daemon.stop().await;

    // A new process starts a new history.
    let mut daemon = setup.start();
    daemon.until_logged("channeld starts").await;
    let page = visitor.until("/daemon", "the daemon runs again", |page| page.body.contains("Recorded since")).await;
    assert_ne!(since(&page), noted);
    daemon.stop().await;
}

#[tokio::test]
async fn the_page_of_one_instance_shows_all_instances_and_owners() {
    let Some(database) = Database::new().await else { return };
    let simulator = Simulator::start(Options { channels: 4, events: 12, ..Options::default() }).await.unwrap();
    let instance = |name: &str| {
        let mut setup = Setup::reading(&simulator)
            .sharing(&database, name)
            .with("sinks.warehouse.type", "postgres")
            .with("sinks.warehouse.url", database.url());
        for channel in 0..4 {
            setup.set(&format!("channels.c{channel}.sinks"), vec!["warehouse"]);
        }
        setup.remove("sinks.file");
        setup
    };
    let setups = [instance("north"), instance("south")];
    let (north, south) = (setups[0].start(), setups[1].start());
    let console = setups[0].console(&[]).await;
    let visitor = console.enter().await;
    let shared = |page: &Answer| ["north", "south"].map(|owner| owned(page, owner)) == [2, 2];
    let page = visitor.until("/daemon", "each instance owns two channels", shared).await;
    for said in
        ["Instances", "north", "south", "Owners of channels", "this instance", "Runs in instance <bdi>south</bdi>"]
    {
        assert!(page.body.contains(said), "{said}: {page:?}");
    }
    let no_lag = "<span class=\"what\">Lag, events</span><strong>0</strong>";
    let sampled = |page: &Answer| page.body.matches(no_lag).count() == 4;
    visitor.until("/daemon", "the samples of the other instance are shown as well", sampled).await;

    south.stop().await;
    visitor
        .until("/daemon", "one instance owns all channels", |page| {
            owned(page, "north") == 4 && owned(page, "south") == 0
        })
        .await;
    north.stop().await;
}

/// The number of channels that an instance owns, according to the page.
fn owned(page: &Answer, instance: &str) -> usize {
    let Some((_, owners)) = page.body.split_once("Owners of channels") else { return 0 };
    owners.matches(&format!("data-label=\"Owner\"><bdi>{instance}</bdi>")).count()
}

#[tokio::test]
async fn the_history_of_a_late_delivery_is_shown_while_pending_and_afterwards() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in [EventSpec::Late(Kind::WatcherEvent), PROVED, FORGED] {
        simulator.publish_one(0, spec);
    }
    let setup = into_table(Setup::reading(&simulator)).with("api.idle_wait", "100ms");
    let daemon = daemon_with_rows(&setup, 1).await;
    let waits = service_page(&setup).await;
    for said in ["Proof pending", "by its id until the proof arrives", "Not yet delivered to", "still pending"] {
        assert!(waits.body.contains(said), "{said}: {waits:?}");
    }

    simulator.prove(0, 1);
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let page = visitor.until("/", "the late event is delivered", |page| page.offsets().len() == 2).await;
    let id = simulator.announcement().channels[0];
    let late = visitor.get(&format!("/event/{id}/1")).await;
    assert!(
        late.body.contains("Late delivery: later events were delivered first")
            || late.body.contains("Pending until the proof arrived"),
        "{late:?}"
    );
    assert!(late.body.contains("Delivered to"), "{late:?}");
    let timely = visitor.get(&format!("/event/{id}/2")).await;
    assert!(!timely.body.contains("were delivered first") && timely.body.contains("Proof made"), "{timely:?}");
    assert_eq!(page.offsets().len(), 2);
    let forged = visitor.get("/held/quarantine/c0/3").await;
    assert!(forged.body.contains("In the quarantine") && !forged.body.contains("Proof made"), "{forged:?}");
    daemon.stop().await;
}

/// The page of the first event as the service shows it, from a console without a table.
async fn service_page(setup: &Setup) -> Answer {
    setup.write_but("channels.c0.sinks", vec!["file"]);
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let list =
        visitor.until("/", "the list shows the events of the service", |page| page.body.contains("/at-service/")).await;
    setup.write();
    for link in list.body.split("href=\"/at-service/").skip(1) {
        let page = visitor.get(&format!("/at-service/{}", link.split_once('"').unwrap().0)).await;
        if page.body.contains("offset 1 ·") {
            return page;
        }
    }
    panic!("the service does not return the event: {list:?}");
}
