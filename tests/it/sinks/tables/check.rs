//! `channeld check --connect` reports missing parts of a table as SQL to run. Filters, formats, reload and operator
//! commands work as for every sink.

use rustix::process::Signal;
use simulator::Options;

use super::failures::lane;
use super::tables;
use crate::config::check::connect;
use crate::support::{Delivered, Setup, deliverable};

/// Whether the check of the sink `warehouse` succeeded, and its message.
pub(in crate::sinks) async fn examined(setup: &Setup) -> (bool, String) {
    let (_, mut asked) = connect(setup).await;
    let at = asked.iter().position(|(what, ..)| what == "sink warehouse").unwrap();
    let (_, ok, said) = asked.remove(at);
    (ok, said)
}

#[tokio::test]
async fn without_permission_to_create_tables_the_printed_sql_works() {
    let Some((simulator, mut setup, tables)) = tables(Options { events: 20, ..Options::default() }).await else {
        return;
    };
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.contains("table public.events will be created"), "{said}");
    assert_eq!(tables.database.psql("select to_regclass('events') is null"), ["t"], "the check creates nothing");

    let role = format!("writer_of_{}", tables.database.name);
    tables.database.psql(&format!("create role {role} login"));
    setup.set("sinks.warehouse.url", tables.database.url_as(&role));
    setup.set("sinks.warehouse.search", "words");
    for create in [true, false] {
        setup.set("sinks.warehouse.create", create);
        let (ok, said) = examined(&setup).await;
        let (why, sql) = said.split_once(" run: ").unwrap_or_else(|| panic!("{said}"));
        assert!(
            !ok && why.contains(if create { "may not create tables in schema public" } else { "create is false" }),
            "{said}"
        );
        if !create {
            tables.database.psql(sql);
            tables.database.psql(sql);
        }
    }
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.contains("table public.events is there"), "{said}");
    let mut daemon = setup.start();
    tables.until(&mut daemon, 20).await;
    tables.database.psql(&format!("revoke insert on events from {role}"));
    let (ok, said) = examined(&setup).await;
    assert!(!ok && said.contains("may not write"), "{said}");
    tables.database.psql(said.split_once(" run: ").unwrap().1);
    simulator.publish(0, 5);
    tables.until(&mut daemon, 25).await;
    daemon.stop().await;
    tables.assert_each_once(&deliverable(&simulator, 0), 25);

    // A table of another application.
    tables.database.psql("create table others (id int)");
    setup.set("sinks.warehouse.table", "others");
    let (ok, said) = examined(&setup).await;
    assert!(!ok && said.contains("has no column channel_id: it does not belong to channeld"), "{said}");
}

#[tokio::test]
async fn filters_formats_proofs_reload_and_replay_work_with_tables() {
    let options = Options { events: 60, unsigned: 0.3, ..Options::default() };
    let Some((simulator, mut setup, tables)) = tables(options).await else { return };
    setup.set("sinks.file.filter.verification", vec!["verified"]);
    setup.set("sinks.file.include_proof", true);
    setup.set("channels.c0.sinks", vec!["warehouse", "local", "file"]);
    for sink in ["warehouse", "local"] {
        setup.set(&format!("sinks.{sink}.include_proof"), true);
        setup.set(&format!("sinks.{sink}.filter.verification"), vec!["verified"]);
    }
    let mut daemon = setup.start();
    daemon.until_logged("channel started").await;
    let verified = simulator.offsets(0).iter().filter(|(_, it)| *it == simulator::Honesty::Verifiable).count();
    tables.until(&mut daemon, verified).await;
    daemon.until("the file has the events", |_| setup.lines() == verified).await;
    let lines = Delivered::read(&setup.path("events.jsonl"));
    for records in tables.both("select record from events order by event_offset") {
        let names = |text: &str| Delivered::parse(text).names();
        let all_same = records
            .iter()
            .zip(&lines)
            .all(|(record, line)| names(record) == line.names() && record.contains("\"proof\":"));
        assert!(all_same && records.len() == verified, "{}", records[0]);
    }
    assert_eq!(tables.both("select count(*) from events where proof is null"), [["0"], ["0"]]);

    // A sample would remain in the table as a row, so these sinks refuse it.
    for sink in ["warehouse", "local"] {
        let told = setup.tell(&["test-sink", sink, "--json"]).await;
        assert_eq!(told.each("delivered"), [false], "{told:?}");
    }
    assert_eq!(tables.rows().await, [verified, verified].map(|rows| i64::try_from(rows).unwrap()));

    // An operator deletes rows and replays them.
    tables.database.psql("delete from events");
    let last = simulator.offsets(0).last().unwrap().0.to_string();
    let told = setup.tell(&["replay", "--channel", "c0", "--sink", "warehouse", "--from", "1", "--to", &last]).await;
    assert_eq!(told.code, Some(0), "{told:?}");
    tables.until(&mut daemon, verified).await;

    setup.set("sinks.warehouse.format", "cloudevents");
    setup.remove("sinks.warehouse.filter.verification");
    setup.set("sinks.local.path", setup.path("second.db").display().to_string());
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    // Another file has no position, so the lane waits until an operator accepts it.
    super::until(&mut daemon, "the lane waits", async || {
        lane(&setup, "local").await["error"]["kind"] == "position_missing"
    })
    .await;
    assert_eq!(setup.tell(&["resume", "c0", "--sink", "local", "--accept-loss"]).await.code, Some(0));
    simulator.publish(0, 10);
    let file = setup.path("second.db");
    daemon.until("the second file has events", |_| crate::support::rows_of(&file) > 0).await;
    super::until(&mut daemon, "the new events have the new format", async || {
        tables.database.psql("select count(*) from events where record like '{\"specversion\"%'") == ["10"]
    })
    .await;
    daemon.stop().await;
}
