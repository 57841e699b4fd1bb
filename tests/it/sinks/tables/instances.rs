//! Two instances run one lane. The older one writes nothing after the newer one has taken over the lane.

use rustix::process::Signal;
use simulator::{Options, Simulator};

use crate::support::{
    Daemon, Database, Line, Pooler, Relay, Setup, deliverable, eventually, everything, programs, skip,
};

/// The number of rows in the table, or 0 if the table does not exist.
const ROWS: &str = "select case when to_regclass('events') is null then 0 else \
     (xpath('//n/text()', query_to_xml('select count(*) as n from events', false, true, '')))[1]::text::bigint end";

/// The messages of an instance that notices, from the table or from its lease, that another instance owns the lane.
const FENCED: [&str; 2] = [
    "another instance delivers to this sink: this instance stops the channel",
    "the channel's lease is lost: the channel is leased again when no other instance owns it",
];

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

/// How often an instance has noticed that another one owns the lane.
fn fenced(daemon: &Daemon) -> usize {
    FENCED.iter().map(|message| daemon.log().lines(message).len()).sum()
}

async fn until(database: &Database, daemon: &mut Daemon, query: &str, number: i64) {
    super::until(daemon, query, async || database.number(query).await == number).await;
}

#[tokio::test]
async fn an_instance_frozen_during_a_delivery_writes_nothing_after_another_took_the_lane() {
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
    until(&database, &mut stopped, ROWS, 30).await;
    let mut other = new.start();
    until(&database, &mut other, "select count(*) from channeld.instances", 2).await;

    relay.becomes(Line::Silent);
    simulator.publish(0, 20);
    eventually("the relay withholds a statement of the older instance", || (relay.held() > 0).then_some(())).await;
    stopped.signal(Signal::STOP);
    until(&database, &mut other, ROWS, 50).await;
    // Remove the rows that the delayed statement would insert. If the statement were executed, they would reappear.
    database.change("create table kept as select * from events where event_offset > 30; delete from events where event_offset > 30").await;
    let epoch = database.number("select epoch from events_progress").await;
    relay.becomes(Line::Good);
    stopped.signal(Signal::CONT);
    stopped.until_logged("these instances are alive").await;
    eventually("the delayed statement has arrived", || {
        (relay.held() > 0 && relay.connections() == 0 || fenced(&stopped) > 0).then_some(())
    })
    .await;
    simulator.publish(0, 10);
    until(&database, &mut other, ROWS, 40).await;
    assert_eq!(database.number("select count(*) from events where event_offset between 31 and 50").await, 0);
    assert_eq!(database.number("select epoch from events_progress").await, epoch);
    database.change("insert into events select * from kept").await;
    stopped.stop().await;
    other.stop().await;
    let found = database.psql("select event_offset from events order by event_offset");
    assert_eq!(found, deliverable(&simulator, 0).iter().map(ToString::to_string).collect::<Vec<_>>());
}

/// A trigger that records every change of the lane's position.
const WATCHED: &str = "create table moves (number bigserial, through bigint, epoch bigint); \
    create function note() returns trigger language plpgsql as $$ begin \
    insert into moves (through, epoch) values (new.through, new.epoch); return new; end $$; \
    create trigger note after insert or update on events_progress for each row execute function note()";

#[tokio::test]
async fn two_daemons_frozen_by_turns_write_each_event_once_and_report_the_fenced_one() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql"]) {
        return;
    }
    let simulator = Simulator::start(Options { events: 30, ..Options::default() }).await.unwrap();
    let mut daemons = Vec::new();
    for name in ["one", "other"] {
        let relay = Relay::before(database.server.socket()).await;
        let mut setup = instance(name, &simulator, &database).with("api.page_limit", 10);
        setup.set("sinks.warehouse.url", database.url_by(relay.address()));
        let mut daemon = setup.start();
        daemon.until_logged("these instances are alive").await;
        daemons.push((relay, daemon, setup));
        // The first instance owns the lane.
        let (_, first, _) = &mut daemons[0];
        until(&database, first, ROWS, 30).await;
    }
    database.change(WATCHED).await;
    let rows = || i64::try_from(deliverable(&simulator, 0).len()).unwrap();
    for _ in 0..if everything() { 10 } else { 2 } {
        let [(relay, frozen, _), (_, next, _)] = &mut daemons[..] else { unreachable!("there are two") };
        let before = fenced(frozen);
        let held = relay.held();
        relay.becomes(Line::Silent);
        simulator.publish(0, 50);
        frozen.until("the relay withholds a statement", |_| relay.held() > held).await;
        frozen.signal(Signal::STOP);
        until(&database, next, ROWS, rows()).await;
        simulator.publish(0, 20);
        until(&database, next, ROWS, rows()).await;
        // The delayed statement arrives, and the instance that sent it continues.
        relay.becomes(Line::Good);
        frozen.signal(Signal::CONT);
        frozen.until("the instance reports that it is fenced", |frozen| fenced(frozen) > before).await;
        simulator.publish(0, 20);
        until(&database, next, ROWS, rows()).await;
        daemons.reverse();
    }
    for (_, daemon, _) in daemons {
        daemon.stop().await;
    }
    let expected: Vec<_> = deliverable(&simulator, 0).iter().map(ToString::to_string).collect();
    assert_eq!(database.psql("select event_offset from events order by event_offset"), expected);
    // Rows in the order of the transactions that inserted them.
    assert_eq!(database.psql("select event_offset from events order by age(xmin) desc, event_offset"), expected);
    let back = "select count(*) from (select through, epoch, lag(through) over (order by number) as earlier, \
                lag(epoch) over (order by number) as older from moves) m where through < earlier or epoch < older";
    assert_eq!(database.psql(back), ["0"], "no position or claim goes back");
    assert_eq!(database.psql("select through from events_progress"), [expected.last().unwrap().clone()]);
    let dense: Vec<_> = (1..=expected.len()).map(|position| position.to_string()).collect();
    assert_eq!(database.psql("select position from events order by position"), dense);
}

#[tokio::test]
async fn delivery_works_through_a_transaction_pooler() {
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
