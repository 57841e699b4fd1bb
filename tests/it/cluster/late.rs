//! Statements that the database executes after the instance has stopped waiting for them must not change newer data.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ledger::store::shared::{ForwardedRequest, ForwardedResponse, RequestState};
use ledger::{Change, Commit, CommitOutcome, Cursor, Effects, Key, Lease, Ledger, Pending, Value};
use proof::event::{EventKey, Offset};
use tokio_postgres::Client;

use super::failures::locked;
use super::fencing::{CHANNEL, Instance, advance, cursor};
use super::{LOOK_AGAIN, offsets, service, until};
use crate::support::{Database, LONGEST_WAIT, Line, Receiver, Relay};

/// Longer than the client waits for a statement.
const LEASE: Duration = Duration::from_secs(60);

/// Text that occurs in only one kind of statement.
const COMMIT: &[u8] = b"set version = given.version";
const CLAIM: &[u8] = b"set owner = $2, epoch";
const ASK: &[u8] = b"(instance, method, path, body";

async fn relayed(name: &str) -> Option<(Database, Relay, Instance)> {
    let database = Database::new().await?;
    let relay = Relay::before(database.server.socket()).await;
    let instance = Instance::by(&database.url_by(relay.address()), name, LEASE);
    Some((database, relay, instance))
}

async fn commit(instance: &Instance, lease: &Lease, effects: Effects) -> CommitOutcome {
    instance.store.commit(Arc::new(vec![(lease.clone(), effects)])).await.remove(0)
}

/// The effects that are sent if a commit was not answered and is sent again together with a newer one.
fn merged(mut earlier: Effects, newer: Effects) -> Effects {
    earlier.changes.extend(newer.changes);
    Effects { changes: earlier.changes, summary: newer.summary }
}

fn set(ledger: &mut Ledger, to: i64) -> Effects {
    let to = Cursor { through: Offset::new(to) };
    ledger.apply(Commit(vec![Change::SetCursor { sink: "sink".into(), to }])).unwrap()
}

#[tokio::test]
async fn a_late_copy_of_a_commit_does_not_replace_newer_ones() {
    let Some((_database, relay, instance)) = relayed("only").await else { return };
    let (lease, mut ledger) = instance.claim().await;
    assert!(matches!(instance.advance(&lease, &mut ledger, 1).await, CommitOutcome::Ok));
    let given_up = advance(&mut ledger, 7);
    relay.holds_next(COMMIT);
    assert!(matches!(commit(&instance, &lease, given_up.clone()).await, CommitOutcome::Unavailable(_)));
    // Meanwhile an operator sets the cursor, and the database acknowledges it.
    let retried = merged(given_up, set(&mut ledger, 3));
    assert!(matches!(commit(&instance, &lease, retried).await, CommitOutcome::Ok));
    relay.delivers_late().await;
    assert_eq!(instance.recorded().await, Some(cursor("3")), "the acknowledged commit is not undone");
    assert!(
        matches!(instance.advance(&lease, &mut ledger, 4).await, CommitOutcome::Ok),
        "the instance still owns the channel"
    );
    assert_eq!(instance.recorded().await, Some(cursor("4")));
}

#[tokio::test]
async fn a_late_copy_of_a_commit_before_newer_ones_changes_nothing() {
    let Some((_database, relay, instance)) = relayed("only").await else { return };
    let (lease, mut ledger) = instance.claim().await;
    let given_up = advance(&mut ledger, 7);
    relay.holds_next(COMMIT);
    assert!(matches!(commit(&instance, &lease, given_up.clone()).await, CommitOutcome::Unavailable(_)));
    relay.delivers_late().await;
    assert_eq!(instance.recorded().await, Some(cursor("7")));
    let retried = merged(given_up, set(&mut ledger, 3));
    assert!(matches!(commit(&instance, &lease, retried).await, CommitOutcome::Ok));
    assert_eq!(instance.recorded().await, Some(cursor("3")));
}

#[tokio::test]
async fn a_late_copy_of_a_claim_does_not_end_the_current_lease() {
    let Some((_database, relay, instance)) = relayed("only").await else { return };
    instance.beat().await;
    relay.holds_next(CLAIM);
    assert!(instance.store.claim(CHANNEL).await.is_err(), "the claim gets no answer");
    let (lease, mut ledger) = instance.claim().await;
    relay.delivers_late().await;
    assert!(matches!(instance.advance(&lease, &mut ledger, 1).await, CommitOutcome::Ok));
    let (_, mut again) = instance.claim().await;
    assert_eq!(again.cursor("sink"), ledger.cursor("sink"));
    let (newer, _) = instance.claim().await;
    assert!(matches!(instance.advance(&newer, &mut again, 2).await, CommitOutcome::Ok));
}

#[tokio::test]
async fn a_late_copy_of_a_request_is_not_executed() {
    let Some((database, relay, asking)) = relayed("asking").await else { return };
    let asked = Instance::by(&database.url(), "asked", LEASE);
    let request = |path: &str| ForwardedRequest { method: "POST".to_owned(), path: path.to_owned(), body: Vec::new() };
    let to = asked.members.me();
    asked.beat().await;
    relay.holds_next(ASK);
    assert!(
        asking.members.ask(to, &request("/first")).await.is_err(),
        "the request fails, so the operator sends a different one"
    );
    let id = asking.members.ask(to, &request("/second")).await.unwrap();
    assert_eq!(asking.members.look(id, false).await.unwrap(), RequestState::Waiting);
    relay.delivers_late().await;
    let taken = asked.members.take().await.unwrap();
    assert!(taken.len() == 1 && taken[0].1.path == "/second", "{taken:?}");
}

#[tokio::test]
async fn requests_with_lost_answers_are_executed_once() {
    let Some((database, relay, asked)) = relayed("asked").await else { return };
    let asking = Instance::on(&database, "asking");
    asked.beat().await;
    let request = ForwardedRequest { method: "POST".to_owned(), path: "/".to_owned(), body: Vec::new() };
    let id = asking.members.ask(asked.members.me(), &request).await.unwrap();
    assert_eq!(asking.members.look(id, false).await.unwrap(), RequestState::Waiting);
    relay.becomes(Line::CutsAnswers);
    assert!(asked.members.take().await.is_err());
    relay.becomes(Line::Good);
    assert_eq!(asked.members.take().await.unwrap(), [(id, request)]);
    assert_eq!(asked.members.take().await.unwrap(), [], "the request is taken once");

    let answer = ForwardedResponse { status: 200, body: b"done".to_vec() };
    asked.members.answer(id, &answer).await.unwrap();
    let losing = Instance::by(&database.url_by(relay.address()), "losing", LEASE);
    losing.beat().await;
    relay.becomes(Line::CutsAnswers);
    assert!(losing.members.look(id, false).await.is_err());
    relay.becomes(Line::Good);
    assert_eq!(losing.members.look(id, false).await.unwrap(), RequestState::Answered(answer));
    assert_eq!(database.number("select count(*) from channeld.requests").await, 0, "no request is left");
}

/// Starts a transaction that executes another copy of a commit, and leaves the transaction open.
async fn executing(database: &Database, lease: &Lease, late: &str) -> Client {
    let client = database.server.client(&database.name).await;
    let channel = lease.channel;
    let copy = format!(
        "begin; update channeld.channels set version = version + 1 where channel_id = '{channel}'; \
         insert into channeld.entries values ('{channel}', 'late', '\\x{late}', '{{}}')"
    );
    client.batch_execute(&copy).await.unwrap();
    client
}

#[tokio::test]
async fn a_retry_removes_rows_that_a_late_copy_inserted() {
    let Some(database) = Database::new().await else { return };
    let instance = Instance::by(&database.url(), "only", LEASE);
    let (lease, mut ledger) = instance.claim().await;
    assert!(matches!(instance.advance(&lease, &mut ledger, 1).await, CommitOutcome::Ok));
    let event = Pending {
        offset: Offset::new(2).unwrap(),
        event_id: None,
        first_seen: 1,
        received: None,
        appeared: false,
        json: b"{}".to_vec().into(),
    };
    let (sink, offset) = ("sink".into(), event.offset);
    let first = ledger.apply(Commit(vec![Change::Owe { sink, event }])).unwrap();
    let late = first.changes.iter().find(|(key, _)| matches!(key, Key::Late(..))).unwrap().0.clone();
    let copy = executing(&database, &lease, &hex::encode(late.bytes())).await;
    let settled =
        ledger.apply(Commit(vec![Change::Settle { sink: "sink".into(), key: EventKey { offset, id: None } }])).unwrap();
    let retried = merged(first, settled);
    assert!(
        matches!(commit(&instance, &lease, retried.clone()).await, CommitOutcome::Unavailable(_)),
        "nothing is written while the copy is being executed"
    );
    copy.batch_execute("commit").await.unwrap();
    let outcome = commit(&instance, &lease, retried).await;
    assert!(matches!(outcome, CommitOutcome::Ok), "{outcome:?}");
    let left: Vec<Key> = instance.store.entries(CHANNEL).await.unwrap().into_keys().collect();
    assert_eq!(left, [Key::Cursor("sink".into())], "no late event is left");
}

#[tokio::test]
async fn an_abandoned_statement_does_not_keep_waiting_in_the_server() {
    let Some(database) = Database::new().await else { return };
    let instance = Instance::by(&database.url(), "only", LEASE);
    let (lease, mut ledger) = instance.claim().await;
    let locking = database.server.client(&database.name).await;
    locking.batch_execute("begin; lock table channeld.channels in access exclusive mode").await.unwrap();
    assert!(matches!(instance.advance(&lease, &mut ledger, 1).await, CommitOutcome::Unavailable(_)));
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    until(&database, "nothing waits", waits, &[0]).await;
    locking.batch_execute("rollback").await.unwrap();
    assert_eq!(instance.recorded().await, None::<Value>, "the abandoned commit was not executed later either");
}

#[tokio::test]
async fn retries_of_a_silent_statement_leave_no_waiting_server_processes() {
    /// One for each connection of an instance, and one whose cancellation is under way.
    const AT_ONCE: usize = 6;
    let Some(database) = Database::new().await else { return };
    let (simulator, receiver) = (service(1, 10).await, Receiver::start().await);
    let setup = super::instance("only", &simulator, &database, &receiver);
    let mut daemon = setup.start();
    daemon.until("all events are delivered", |_| offsets(&receiver, "c0").len() >= 10).await;
    // Every new connection reads this table first.
    let lock = locked(&database, "state").await;
    let others = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    lock.batch_execute(&format!("select pg_terminate_backend(pid) {others}")).await.unwrap();

    let waiting = format!("select pid {others} and wait_event_type = 'Lock'");
    let (mut seen, began) = (BTreeSet::<i32>::new(), Instant::now());
    while seen.len() <= 2 * AT_ONCE {
        let now = database.query(&waiting).await;
        assert!(now.len() <= AT_ONCE, "{} server processes wait", now.len());
        seen.extend(now.iter().map(|row| row.get::<_, i32>(0)));
        assert!(began.elapsed() < LONGEST_WAIT, "only {} attempts", seen.len());
        daemon.until("the daemon runs", |_| true).await;
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    lock.batch_execute("rollback").await.unwrap();
    simulator.publish(0, 10);
    daemon.until("the later events are delivered", |_| offsets(&receiver, "c0").len() >= 20).await;
    daemon.stop().await;
}
