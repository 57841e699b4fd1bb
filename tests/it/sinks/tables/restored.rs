//! Tables are restored from a backup or dropped, while the daemon runs or is stopped.

use simulator::{EventSpec, Kind, Options};

use super::failures::lane;
use super::{tables, until};
use crate::support::{Tables, deliverable};

/// Restores both tables to the state after this offset.
async fn restore(tables: &Tables, through: i64) {
    let rows = format!("delete from events where event_offset > {through};");
    tables.change(&format!("{rows} update events_progress set through = {through};")).await;
}

#[tokio::test]
async fn restored_tables_get_the_lost_events_again_each_once() {
    for stopped in [true, false] {
        let Some((simulator, setup, tables)) = tables(Options { events: 7, ..Options::default() }).await else {
            return;
        };
        let mut daemon = setup.start();
        tables.until(&mut daemon, 7).await;
        daemon.until_logged("batch recorded").await;
        if stopped {
            daemon.stop().await;
            restore(&tables, 3).await;
            daemon = setup.start();
        } else {
            restore(&tables, 3).await;
        }
        simulator.publish(0, 1);
        tables.until(&mut daemon, 8).await;
        daemon.stop().await;
        tables.assert_each_once(&deliverable(&simulator, 0), 8);
    }
}

#[tokio::test]
async fn an_event_written_after_later_events_of_a_crashed_run_is_delivered_again_to_restored_tables() {
    let Some((simulator, setup, tables)) = tables(Options::default()).await else { return };
    let (proved, late) = (EventSpec::Honest(Kind::WatcherEvent), EventSpec::Late(Kind::WatcherEvent));
    let publish = |specs: &[EventSpec]| specs.iter().for_each(|spec| _ = simulator.publish_one(0, *spec));
    let run = async |rows| {
        let mut daemon = setup.start();
        tables.until(&mut daemon, rows).await;
        daemon.stop().await;
    };
    publish(&[proved]);
    run(1).await;
    setup.back_up_state();
    publish(&[late, proved, proved]);
    run(3).await;
    // A crash before the commit leaves the same state.
    setup.restore_state();
    simulator.prove(0, 2);
    run(4).await;
    publish(&[proved]);
    run(5).await;
    restore(&tables, 4).await;
    tables.change("delete from events where event_offset = 2;").await;
    run(5).await;
    tables.assert_each_once(&deliverable(&simulator, 0), 5);
}

#[tokio::test]
async fn a_lane_without_a_position_is_blocked_until_an_operator_refills_or_accepts() {
    for accepts in [true, false] {
        let Some((simulator, setup, tables)) = tables(Options { events: 7, ..Options::default() }).await else {
            return;
        };
        let mut daemon = setup.start();
        tables.until(&mut daemon, 7).await;
        daemon.stop().await;
        tables.change("drop table events; drop table events_progress;").await;
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        simulator.publish(0, 1);
        for sink in ["warehouse", "local"] {
            let is_blocked = async || lane(&setup, sink).await["error"]["kind"] == "position_missing";
            until(&mut daemon, "the lane is blocked", is_blocked).await;
        }
        assert_eq!(tables.rows().await, [0, 0]);
        if accepts {
            for sink in ["warehouse", "local"] {
                let refused = setup.tell(&["resume", "c0", "--sink", sink]).await;
                assert!(refused.code == Some(1) && refused.errors.contains("--accept-loss"), "{refused:?}");
                assert_eq!(setup.tell(&["resume", "c0", "--sink", sink, "--accept-loss"]).await.code, Some(0));
            }
            tables.until(&mut daemon, 1).await;
        } else {
            assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
            for sink in ["warehouse", "local"] {
                let set = ["cursor", "set", "c0", "--sink", sink, "--to", "earliest", "--yes"];
                let is_set = async || setup.tell(&set).await.code == Some(0);
                until(&mut daemon, "the cursor is set", is_set).await;
            }
            assert_eq!(setup.tell(&["resume", "c0"]).await.code, Some(0));
            tables.until(&mut daemon, 8).await;
        }
        daemon.stop().await;
        let all = deliverable(&simulator, 0);
        tables.assert_each_once(if accepts { &all[7..] } else { &all }, 8);
    }
}
