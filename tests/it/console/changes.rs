//! Changes that an operator makes in the console: each is confirmed, executed by the daemon, and logged with the user.

use reqwest::StatusCode;

use super::{FORGED, PROVED, into_table};
use crate::support::{Receiver, Reply, Setup, eventually, rows_of};
use simulator::{Options, Simulator};

const GIVEN_UP: &str =
    "the sink refused the event for too long: the event is a dead letter now, see `channeld dead-letters list`";

#[tokio::test]
async fn a_forged_event_shows_its_reason_and_can_be_retried_or_dropped() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in [PROVED, FORGED, PROVED] {
        simulator.publish_one(0, spec);
    }
    let setup = into_table(Setup::reading(&simulator));
    let daemon = super::daemon_with_rows(&setup, 2).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let held = visitor
        .until("/held", "the forged event is quarantined", |page| page.body.contains("/held/quarantine/c0/2"))
        .await;
    assert!(held.body.contains("event-hash-mismatch"), "{held:?}");
    let one = visitor.get("/held/quarantine/c0/2").await;
    for said in ["Not delivered.", "Unverified content", "The proof is invalid", "not as expected", "do not act on it"]
    {
        assert!(one.body.contains(said), "{said}: {one:?}");
    }

    let confirm = visitor.get("/do/retry?channel=c0&offset=2").await;
    assert!(
        confirm.body.contains("is verified again")
            && confirm.body.contains("logs the change with the name of the user"),
        "{confirm:?}"
    );
    let to = visitor.submit("/do/retry?channel=c0&offset=2", "/do/retry", &[("channel", "c0"), ("offset", "2")]).await;
    assert_eq!((to.status, &to.headers["location"]), (StatusCode::SEE_OTHER, &"/held".parse().unwrap()));
    assert!(visitor.get("/held").await.body.contains("still rejected and kept in the quarantine"));

    let confirm = visitor.get("/do/drop?channel=c0&offset=2").await;
    assert!(confirm.body.contains("cannot be undone"), "{confirm:?}");
    let all = visitor.get("/do/drop?channel=c0&reason=event-hash-mismatch").await;
    assert!(
        all.body.contains("<h1><bdi>Drop 1 event</bdi>?"),
        "the confirmation states how many events it is about: {all:?}"
    );
    for (filter, is_listed) in
        [("reason=event-hash-mismatch&q=2", true), ("reason=wrong-owner", false), ("q=nowhere", false)]
    {
        let held = visitor.get(&format!("/held?{filter}")).await;
        assert_eq!(held.body.contains("/held/quarantine/c0/2"), is_listed, "{filter}: {held:?}");
        let has_group = held.body.contains("/do/drop?channel=c0&amp;reason=event-hash-mismatch");
        assert_eq!(has_group, filter != "reason=wrong-owner", "only the groups of the filter are shown: {held:?}");
    }
    assert!(
        visitor.get("/held").await.body.contains("/held/quarantine/c0/2"),
        "showing the description changes nothing"
    );
    visitor.submit("/do/drop?channel=c0&offset=2", "/do/drop", &[("channel", "c0"), ("offset", "2")]).await;
    let held = visitor.get("/held").await;
    assert!(held.body.contains("Dropped: 1 event.") && held.body.contains("The quarantine is empty"), "{held:?}");
    let log = daemon.stop().await;
    assert_eq!(log.lines("quarantined event dropped by an operator").len(), 1);
    let asked: Vec<_> = log.lines("requested by an operator").iter().map(|line| line["request"].clone()).collect();
    assert_eq!(asked, ["/quarantine/retry", "/quarantine/drop"]);
}

#[tokio::test]
async fn a_change_of_several_events_does_not_affect_events_that_come_after_its_confirmation() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in [PROVED, FORGED, FORGED] {
        simulator.publish_one(0, spec);
    }
    let setup = into_table(Setup::reading(&simulator));
    let daemon = super::daemon_with_rows(&setup, 1).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let quarantined = |offset: i64| format!("/held/quarantine/c0/{offset}");
    visitor.until("/held", "both are quarantined", |page| page.body.contains(&quarantined(3))).await;
    let confirmation = "/do/drop?channel=c0&reason=event-hash-mismatch";
    let shown = visitor.get(confirmation).await.body;
    assert!(shown.contains("Drop 2 events") && shown.contains("up to offset 3"), "{shown}");

    simulator.publish_one(0, FORGED);
    visitor.until("/held", "another one is quarantined", |page| page.body.contains(&quarantined(4))).await;
    // Without the number of events, or with another one, the confirmation was about other events.
    for count in ["", "3", "2"] {
        let held = visitor.get("/held").await.body;
        assert!(held.contains(&quarantined(2)) && held.contains(&quarantined(3)), "{held}");
        let members = [("channel", "c0"), ("reason", "event-hash-mismatch"), ("up_to", "3"), ("count", count)];
        visitor.submit(confirmation, "/do/drop", &members).await;
    }
    let held = visitor.get("/held").await.body;
    assert!(held.contains("Dropped: 2 events.") && held.contains(&quarantined(4)), "{held}");
    assert!(!held.contains(&quarantined(2)) && !held.contains(&quarantined(3)), "{held}");
    daemon.stop().await;
}

#[tokio::test]
async fn dead_letters_are_replayed_and_sinks_paused_and_resumed() {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for _ in 0..3 {
        simulator.publish_one(0, PROVED);
    }
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(422, None)));
    let setup =
        into_table(Setup::reading(&simulator)).with_webhook("hook", &receiver).with("sinks.hook.give_up_after", "1s");
    let mut daemon = super::daemon_with_rows(&setup, 3).await;
    daemon.until("all events become dead letters", |daemon| daemon.log().lines(GIVEN_UP).len() == 3).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let one = visitor.get("/held/dead/c0/hook/2").await;
    for said in ["refused this event for too long", "answered 422", "What to do: "] {
        assert!(one.body.contains(said), "{said}: {one:?}");
    }
    assert!(one.body.contains("The proof is valid"), "{one:?}");

    receiver.always(None);
    let place = [("channel", "c0"), ("sink", "hook"), ("offset", "2")];
    visitor.submit("/do/redeliver-dead?channel=c0&sink=hook&offset=2", "/do/redeliver-dead", &place).await;
    eventually("the dead letter arrives", || (receiver.received() == 1).then_some(())).await;
    let dropped = [("channel", "c0"), ("sink", "hook"), ("offset", "1")];
    visitor.submit("/do/drop-dead?channel=c0&sink=hook&offset=1", "/do/drop-dead", &dropped).await;
    let held = visitor.get("/held").await;
    assert!(held.body.contains("Dropped: 1 event.") && held.body.contains("/held/dead/c0/hook/3"), "{held:?}");
    assert!(!held.body.contains("/held/dead/c0/hook/1\"") && !held.body.contains("/held/dead/c0/hook/2\""), "{held:?}");

    // Replay an event of the table from its own page.
    let list = visitor.get("/").await;
    let path = list.link("class=\"open\" href=\"").unwrap();
    let page = visitor.get(&path).await;
    let to = page.link("href=\"/do/redeliver?").unwrap();
    let to = to.replace("sink=local", "sink=hook");
    let members: Vec<(String, String)> = url::form_urlencoded::parse(to.as_bytes()).into_owned().collect();
    let members: Vec<_> = members.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let sent = visitor.submit(&format!("/do/redeliver?{to}"), "/do/redeliver", &members).await;
    assert_eq!(&sent.headers["location"], &path.parse::<reqwest::header::HeaderValue>().unwrap());
    assert_eq!(receiver.received(), 2, "the answer waits until the event has arrived");
    let page = visitor.get(&path).await;
    assert!(page.body.contains("Replayed to hook at"), "{page:?}");
    assert!(page.body.contains("requested by an operator"), "{page:?}");

    let confirm = visitor.get("/do/pause?channel=c0&sink=hook").await;
    assert!(confirm.body.contains("Pause sink hook of channel c0</bdi>?"), "{confirm:?}");
    visitor
        .submit("/do/pause?channel=c0&sink=hook", "/do/pause", &[("channel", "c0"), ("sink", "hook"), ("for", "1h")])
        .await;
    let page = visitor.get("/daemon").await;
    assert!(
        page.body.contains("c0, sink hook: paused.") && page.body.contains("/do/resume?channel=c0&amp;sink=hook"),
        "{page:?}"
    );
    simulator.publish(0, 1);
    visitor.until("/", "the table receives the new event", |page| page.offsets().len() == 4).await;
    // The sink is paused, so the event has not arrived when the browser is answered. The page then requests the
    // progress of the event repeatedly.
    visitor.submit(&format!("/do/redeliver?{to}"), "/do/redeliver", &members).await;
    assert!(visitor.get(&path).await.body.contains("Queued for replay to hook. The event is not delivered yet."));
    let history = format!("{path}?part=history");
    let page = visitor.get(&history).await;
    assert!(page.body.contains("still pending") && !page.body.contains("<html"), "{page:?}");
    assert_eq!(receiver.received(), 2, "the paused sink receives nothing");
    visitor.submit("/do/resume?channel=c0&sink=hook", "/do/resume", &[("channel", "c0"), ("sink", "hook")]).await;
    visitor
        .until(&history, "the event has arrived", |page| page.body.matches("requested by an operator").count() == 2)
        .await;
    eventually("the resumed sink receives events", || (receiver.received() == 4).then_some(())).await;
    let log = daemon.stop().await;
    assert_eq!(log.lines("requested by an operator").len(), 6);
}

#[tokio::test]
async fn the_daemon_page_shows_problems_with_remedies_and_outlives_the_daemon() {
    let simulator = Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    receiver.always(Some(Reply::Refuse(410, None)));
    let setup = into_table(Setup::reading(&simulator)).with_webhook("hook", &receiver);
    let daemon = super::daemon_with_rows(&setup, 3).await;
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let page = visitor.until("/daemon", "the sink is blocked", |page| page.body.contains("blocked")).await;
    // The remedy is about this answer of the sink.
    let remedy = "What to do: </strong><code><bdi>410</bdi></code><bdi>: the endpoint asked for no more requests.";
    for said in
        ["not ready", remedy, "class=\"runbook\"", "Signers", "Lag, events", "Delivered per second", "Delivery latency"]
    {
        assert!(page.body.contains(said), "{said}: {page:?}");
    }
    for signer in &simulator.announcement().valid_signers {
        assert!(page.body.contains(&signer.to_string()), "{signer}");
    }
    daemon.stop().await;
    visitor
        .until("/daemon/now", "the page reports that the daemon is unreachable", |page| {
            page.body.contains("The daemon is unreachable")
        })
        .await;
    assert_eq!(visitor.get("/").await.offsets().len(), 3, "the table is read without a daemon");
    let daemon = setup.start();
    visitor
        .until("/daemon/now", "the page shows the daemon again", |page| page.body.contains("Channels and their sinks"))
        .await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_commands_for_a_dropped_table_are_shown_once_below_the_problem() {
    let simulator = Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap();
    let setup = into_table(Setup::reading(&simulator));
    let archive = setup.path("archive.db");
    let setup = setup
        .with("sinks.archive.type", "sqlite")
        .with("sinks.archive.path", archive.display().to_string())
        .with("channels.c0.sinks", vec!["local", "archive"]);
    let mut daemon = super::daemon_with_rows(&setup, 3).await;
    daemon.until("the archive has the events", |_| rows_of(&archive) == 3).await;
    daemon.stop().await;
    let table = rusqlite::Connection::open(&archive).unwrap();
    table.execute_batch("drop table events; delete from events_progress").unwrap();
    drop(table);
    let daemon = setup.start();
    let console = setup.console(&[]).await;
    let visitor = console.enter().await;
    let page = visitor.until("/daemon", "the sink is blocked", |page| page.body.contains(">blocked<")).await;
    for said in [
        "<strong><bdi>channel c0, sink archive: table events_progress has no row for this lane",
        "Nothing is delivered until you decide.</bdi></strong>",
        "What to do: </strong><bdi>To deliver again, from the start or another offset: </bdi><code><bdi>channeld pause c0<",
    ] {
        assert!(page.body.contains(said), "{said}: {page:?}");
    }
    assert_eq!(
        page.body.matches("channeld pause c0<").count(),
        1,
        "the row of the sink does not repeat them: {page:?}"
    );
    daemon.stop().await;
}
