//! Two instances and one lane: the older one writes nothing after the younger one has claimed the lane.

use channeld::simulator::{Options, Simulator};
use rustix::process::Signal;

use crate::support::{Daemon, Database, Line, Pooler, Relay, Setup, deliverable, eventually, programs, skip};

fn instance(name: &str, simulator: &Simulator, database: &Database) -> Setup {
    let mut setup = Setup::reading(simulator)
        .sharing(database, name)
        .with("cluster.lease", "3s")
        .with("sinks.warehouse.type", "postgres")
        .with("sinks.warehouse.url", database.url())
        .with("channels.c0.sinks", vec!["warehouse"]);
    setup.remove("sinks.file");
    setup
}

async fn until(database: &Database, daemon: &mut Daemon, query: &str, number: i64) {
    super::until(daemon, query, async || database.number(query).await == number).await;
}

#[tokio::test]
async fn an_instance_that_was_stopped_in_the_middle_of_a_delivery_writes_nothing_of_it_once_another_has_the_lane() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql"]) {
        return;
    }
    let relay = Relay::before(database.server.socket()).await;
    let simulator = Simulator::start(Options { events: 30, ..Options::default() }).await.unwrap();
    let [mut old, new] = ["old", "new"].map(|name| instance(name, &simulator, &database));
    old.set("sinks.warehouse.url", database.url_by(relay.address()));
    let mut stopped = old.start();
    stopped.until_logged("channel started").await;
    let rows = "select case when to_regclass('events') is null then 0 else \
                (xpath('//n/text()', query_to_xml('select count(*) as n from events', false, true, '')))[1]::text::bigint end";
    until(&database, &mut stopped, rows, 30).await;
    let mut other = new.start();
    until(&database, &mut other, "select count(*) from channeld.instances", 2).await;

    relay.becomes(Line::Silent);
    simulator.publish(0, 20);
    eventually("its statement is on its way", || (relay.held() > 0).then_some(())).await;
    stopped.signal(Signal::STOP);
    until(&database, &mut other, rows, 50).await;
    // What the statement would write is not there, and would show.
    database.change("create table kept as select * from events where event_offset > 30; delete from events where event_offset > 30").await;
    let epoch = database.number("select epoch from events_progress").await;
    relay.becomes(Line::Good);
    stopped.signal(Signal::CONT);
    stopped.until_logged("these instances live").await;
    eventually("what was on its way has arrived", || {
        (relay.held() > 0 && relay.connections() == 0
            || stopped.has_logged("another instance delivers to this sink: this one stops")
            || stopped.has_logged("channel given up: another instance has it"))
        .then_some(())
    })
    .await;
    simulator.publish(0, 10);
    until(&database, &mut other, rows, 40).await;
    assert_eq!(database.number("select count(*) from events where event_offset between 31 and 50").await, 0);
    assert_eq!(database.number("select epoch from events_progress").await, epoch);
    database.change("insert into events select * from kept").await;
    stopped.stop().await;
    other.stop().await;
    let found = database.psql("select event_offset from events order by event_offset");
    assert_eq!(found, deliverable(&simulator, 0).iter().map(ToString::to_string).collect::<Vec<_>>());
}

#[tokio::test]
async fn by_a_pooler_of_transactions_it_works_as_without() {
    let options = Options { channels: 6, events: 60, ..Options::default() };
    let Some((simulator, mut setup, tables)) = super::tables(options).await else { return };
    let Some(pooler) = Pooler::before(&tables.database).await else { return skip("pgbouncer") };
    setup.set("sinks.warehouse.url", pooler.url());
    setup.set("sinks.warehouse.search", "words");
    for channel in 0..6 {
        setup.set(&format!("channels.c{channel}.sinks"), vec!["warehouse", "local"]);
    }
    let mut daemon = setup.start();
    tables.until(&mut daemon, 360).await;
    daemon.stop().await;
    let expected: Vec<_> =
        (0..6).map(|channel| format!("c{channel}|{}", deliverable(&simulator, channel).len())).collect();
    for found in tables.both("select channel, count(distinct event_offset) from events group by 1 order by 1") {
        assert_eq!(found, expected);
    }
}
