//! The table of operations: one row for each operation, which is written with the events and never moves down the ladder.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng;
use simulator::{EventSpec, Kind, Options};
use uuid::Uuid;

use super::tables::check::examined;
use super::tables::{tables, until};
use crate::support::{Database, Tables, programs, random, serving, signed, sqlite};

const OPERATIONS: u128 = 30;

const EVENTS: i64 = 240;

const KILLS: usize = 5;

/// The statuses, with their steps. The last one is unknown to channeld.
const LADDER: [(&str, i64); 13] = [
    ("pending_signature", 1),
    ("accepted", 2),
    ("sending", 3),
    ("sent", 4),
    ("broadcasting", 5),
    ("confirmed_latest", 6),
    ("confirmed_safe", 7),
    ("failed", 8),
    ("reverted", 8),
    ("cancelled", 8),
    ("expired", 8),
    ("confirmed", 9),
    ("teleported", 0),
];

/// An event of an operation. The network signs the confirmed steps.
#[derive(Clone, Copy)]
struct StatusEvent {
    offset: i64,
    operation: Uuid,
    status: &'static str,
    step: i64,
    time: i64,
}

impl StatusEvent {
    /// The events of a channel. The steps of an operation are in any order.
    fn all() -> Vec<Self> {
        let mut rng = random(38);
        let event = |offset| {
            let (status, step) = LADDER[rng.random_range(0..LADDER.len())];
            let operation = Uuid::from_u128((0xabcd << 112) | rng.random_range(0..OPERATIONS));
            let time = 1_750_000_000 + i64::from(rng.random_range(0..1_000_000_u32));
            Self { offset, operation, status, step, time }
        };
        (1..=EVENTS).map(event).collect()
    }

    fn is_signed(&self) -> bool {
        self.status.starts_with("confirmed")
    }

    fn hash(&self) -> Option<String> {
        let has_hash = self.is_signed() || ["sent", "broadcasting"].contains(&self.status);
        has_hash.then(|| format!("0x{:064x}", self.offset))
    }

    fn reason(&self) -> String {
        if self.step == 8 { format!("reason {}", self.offset) } else { String::new() }
    }

    fn json(&self) -> String {
        let Self { offset, operation, status, time, .. } = self;
        let (id, hash, reason) = (Uuid::from_u128(offset.unsigned_abs().into()), self.hash(), self.reason());
        let members = format!(
            r#""operation_id":"{operation}","wallet_operation_id":"7","address":"0x01","status":"{status}","status_reason":"{reason}""#
        );
        if self.is_signed() {
            let hash = hash.unwrap();
            let content =
                format!(r#"{{"name":"OperationConfirmed","service":"_crec","chain_event":{{"tx_hash":"{hash}"}}}}"#);
            return signed(*offset, &content)
                .replace("watcher.event", "operation.status")
                .replace(&format!(r#""watcher_id":"{id}""#), &members)
                .replace(r#""timestamp":1750000000"#, &format!(r#""timestamp":{time}"#));
        }
        let hash = hash.map_or_else(String::new, |hash| format!(r#","hash":"{hash}""#));
        format!(
            r#"{{"event_id":"{id}","headers":{{"type":"operation.status","offset":{offset},"proofs":[]}},"payload":{{{members},"chain_selector":"1","timestamp":{time},"transactions":[{{"to":"0x02","value":"0","data":"0x"{hash}}}]}}}}"#
        )
    }
}

/// The row of the operation with these events.
fn expected_row(events: &[StatusEvent]) -> String {
    let rank = |event: &&StatusEvent| (event.step, event.offset);
    let last = events.iter().max_by_key(rank).unwrap();
    let hash = events.iter().filter(|event| event.hash().is_some()).max_by_key(rank);
    let hash = hash.and_then(StatusEvent::hash).unwrap_or_default();
    let first = events.iter().map(|event| event.time).min().unwrap();
    let verification = if last.is_signed() { "verified" } else { "unsigned" };
    let StatusEvent { operation, status, step, offset, time } = last;
    format!("{operation}|{status}|{step}|{offset}|{}|{verification}|{hash}|{first}|{time}", last.reason())
}

/// A query for the events, and for the rows of operations, of one moment.
fn snapshot_query(seconds: fn(&str) -> String) -> String {
    let (first, last) = (seconds("first_seen"), seconds("last_changed"));
    format!(
        "select 'event|' || event_offset from events union all \
         select operation_id || '|' || status || '|' || step || '|' || event_offset || '|' || \
         coalesce(status_reason, '') || '|' || verification || '|' || coalesce(transaction_hash, '') || '|' || \
         {first} || '|' || {last} from events_operations"
    )
}

/// Asserts that the operations in a table match the events in the table. Returns the number of events.
fn assert_agree(lines: &[String], events: &[StatusEvent], moment: &str) -> usize {
    let (offsets, mut found): (Vec<_>, Vec<_>) = lines.iter().partition(|line| line.starts_with("event|"));
    let offsets: BTreeSet<i64> = offsets.iter().map(|line| line["event|".len()..].parse().unwrap()).collect();
    let mut operations = BTreeMap::<_, Vec<StatusEvent>>::new();
    for event in events.iter().filter(|event| offsets.contains(&event.offset)) {
        operations.entry(event.operation).or_default().push(*event);
    }
    let expected: Vec<_> = operations.values().map(|events| expected_row(events)).collect();
    found.sort();
    assert_eq!(found, expected.iter().collect::<Vec<_>>(), "{moment}");
    offsets.len()
}

/// Asserts that the operations of both tables agree with their events. Returns the numbers of events.
fn assert_both_agree(tables: &Tables, events: &[StatusEvent], moment: &str) -> [usize; 2] {
    let postgres = snapshot_query(|column| format!("extract(epoch from {column})::bigint"));
    let local = snapshot_query(|column| format!("strftime('%s', {column})"));
    [tables.database.psql(&postgres), sqlite(&tables.file, &local)].map(|lines| assert_agree(&lines, events, moment))
}

#[tokio::test]
async fn operations_have_their_highest_step_after_kills_and_replays_in_the_transactions_of_the_events() {
    let Some(database) = Database::new().await else { return };
    if !programs(&["psql", "python3"]) {
        return;
    }
    let events = StatusEvent::all();
    let (_service, setup) = serving(events.iter().map(StatusEvent::json).collect()).await;
    let (setup, tables) = setup.with_tables(database);
    let setup =
        setup.with("api.page_limit", 5).with("sinks.warehouse.operations", true).with("sinks.local.operations", true);
    let mut moments = random(39);
    for kill in 0..KILLS {
        let share = EVENTS / i64::try_from(KILLS + 1).unwrap();
        let enough = i64::try_from(kill).unwrap() * share + moments.random_range(1..=share);
        let mut daemon = setup.start();
        // Both tables exist before the first kill. After a kill, either table can contain more events than the other.
        until(&mut daemon, "some rows are there", async || {
            let rows = tables.rows().await;
            rows[kill % 2] >= enough && rows.iter().all(|rows| *rows > 0)
        })
        .await;
        daemon.kill().await;
        assert_both_agree(&tables, &events, &format!("kill {kill}"));
    }
    let all = usize::try_from(EVENTS).unwrap();
    let mut daemon = setup.start();
    tables.until(&mut daemon, all).await;
    daemon.stop().await;
    assert_eq!(assert_both_agree(&tables, &events, "at the end"), [all, all]);

    // A replay changes no operation, and restores the operations that an operator has deleted.
    let every = "select * from events_operations order by operation_id";
    let before = tables.both(every);
    for deleted in ["delete from events;", "delete from events; delete from events_operations;"] {
        tables.change(deleted).await;
        let mut daemon = setup.start();
        daemon.until_logged("channel started").await;
        for sink in ["warehouse", "local"] {
            let (last, told) =
                (EVENTS.to_string(), ["replay", "--channel", "c0", "--sink", sink, "--from", "1", "--to"]);
            let told = setup.tell(&[&told[..], &[&*last]].concat()).await;
            assert_eq!(told.code, Some(0), "{told:?}");
        }
        tables.until(&mut daemon, all).await;
        daemon.stop().await;
        assert_eq!(assert_both_agree(&tables, &events, deleted), [all, all]);
        if !deleted.contains("operations") {
            assert_eq!(tables.both(every), before);
        }
    }
}

#[tokio::test]
async fn check_prints_the_sql_for_the_table_of_operations_and_finds_a_missing_right() {
    let Some((simulator, mut setup, tables)) = tables(Options { events: 20, ..Options::default() }).await else {
        return;
    };
    let mut daemon = setup.start();
    tables.until(&mut daemon, 20).await;
    daemon.stop().await;

    let role = format!("operator_of_{}", tables.database.name);
    tables.database.psql(&format!(
        "create role {role} login; grant select, insert on events to {role}; \
         grant select, insert, update on events_progress to {role}"
    ));
    setup.set("sinks.warehouse.url", tables.database.url_as(&role));
    for sink in ["warehouse", "local"] {
        setup.set(&format!("sinks.{sink}.operations"), true);
    }
    let (ok, said) = examined(&setup).await;
    let (why, sql) = said.split_once(" run: ").unwrap_or_else(|| panic!("{said}"));
    assert!(!ok && why.contains("may not create tables in schema public"), "{said}");
    tables.database.psql(sql);
    let (ok, said) = examined(&setup).await;
    assert!(ok && said.contains("table public.events (with public.events_operations) is there"), "{said}");

    simulator.publish_one(0, EventSpec::Honest(Kind::OperationConfirmed));
    let mut daemon = setup.start();
    tables.until(&mut daemon, 21).await;
    daemon.stop().await;
    let confirmed = "select count(*) from events_operations where status = 'confirmed' and verification = 'verified' \
                     and transaction_hash is not null";
    assert_eq!(tables.both(confirmed), [["1"], ["1"]]);

    tables.database.psql(&format!("revoke update on events_operations from {role}"));
    let (ok, said) = examined(&setup).await;
    assert!(!ok && said.contains("may not write"), "{said}");
    tables.database.psql(said.split_once(" run: ").unwrap().1);
    assert!(examined(&setup).await.0);
}
