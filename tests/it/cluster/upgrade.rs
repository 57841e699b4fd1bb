//! A start that has to upgrade the tables of the state, while another session uses them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{instance, offsets, service};
use crate::support::{Admin, Answered, Database, LONGEST_WAIT, LOOK_AGAIN, Receiver, deliverable};

/// The longest time that a heartbeat may take: a third of the shortest lease.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The number of connections of an instance, and one that is about to be closed.
const AT_ONCE: usize = 6;

/// Undoes the last migration, which adds columns to the table of instances.
const OLDER: &str = "alter table channeld.instances drop column settings, drop column settings_digest; \
                     delete from channeld.migrations where number = 5";

#[tokio::test]
async fn an_upgrade_that_waits_for_a_lock_says_so_and_delays_no_heartbeat_of_other_instances() {
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 10).await, Receiver::start().await);
    let setup = instance("only", &simulator, &database, &receiver).with_admin();
    let mut daemon = setup.start();
    let all = || offsets(&receiver, "c0").len() >= deliverable(&simulator, 0).len();
    daemon.until("the backlog is delivered", |_| all()).await;
    daemon.stop().await;
    database.change(OLDER).await;
    simulator.publish(0, 10);

    // For example a backup, which reads the tables in one transaction.
    let backup = database.server.client(&database.name).await;
    backup.batch_execute("begin; select from channeld.instances").await.unwrap();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let reason =
        "the tables in schema channeld cannot be checked and upgraded yet, because another session locks one of them";
    let says = |answer: &Answered| answer.status == 503 && answer.text.contains(reason);
    admin.until(&mut daemon, "/readyz", "the answer names the reason", says).await;

    let other = database.server.client(&database.name).await;
    other.batch_execute(&format!("set statement_timeout = '{}s'", HEARTBEAT.as_secs())).await.unwrap();
    let waiting = "select pid from pg_locks where not granted and relation = 'channeld.instances'::regclass \
                   and mode = 'AccessExclusiveLock'";
    let processes =
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    let (mut attempts, mut longest, began) = (BTreeSet::<i32>::new(), Duration::ZERO, Instant::now());
    while attempts.len() < 2 * AT_ONCE {
        let waits = database.query(waiting).await;
        attempts.extend(waits.iter().map(|row| row.get::<_, i32>(0)));
        let beat = Instant::now();
        other.batch_execute("update channeld.instances set heartbeat = heartbeat").await.expect("a heartbeat in time");
        longest = longest.max(beat.elapsed());
        let processes = database.number(processes).await;
        assert!(processes <= i64::try_from(AT_ONCE).unwrap(), "{processes} server processes wait");
        assert!(began.elapsed() < LONGEST_WAIT, "only {} attempts", attempts.len());
        daemon.until("the daemon runs", |_| true).await;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    println!("{} attempts to upgrade; a heartbeat of another instance took at most {longest:.1?}", attempts.len());
    backup.batch_execute("rollback").await.unwrap();

    daemon.until("the later events are delivered", |_| all()).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready", |answer| answer.status == 200).await;
    assert_eq!(offsets(&receiver, "c0"), deliverable(&simulator, 0), "no event is lost or repeated");
    daemon.stop().await;
}
