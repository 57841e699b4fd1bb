//! The service's history, the contents of the sinks and the state are compared before the daemon relies on any of them.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use axum::response::IntoResponse;
use proof::event::ChannelId;
use serde_json::Value;
use simulator::{Options, Simulator};
use uuid::Uuid;

use crate::support::{Admin, Answered, Daemon, Receiver, Scripted, Setup, deliverable, offsets};

const LOST: &str = "sink has lost data: more events were delivered than the sink has; it was probably restored from a backup; delivering the events above the sink's position again";
const AHEAD: &str = "sink is ahead of the state: events that it has are not delivered again";
const APPEARED: &str = "an event became visible below events that were already read: it is delivered late";

/// The unsigned events that a service shows, as pairs of offset and id.
#[derive(Clone, Default)]
struct Shown(Arc<Mutex<Vec<(i64, u128)>>>);

impl Shown {
    fn with(events: impl IntoIterator<Item = (i64, u128)>) -> Self {
        Self(Arc::new(Mutex::new(events.into_iter().collect())))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<(i64, u128)>)) {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut events);
        events.sort_unstable();
    }

    /// Shows other events from offset 4 on, like a service that was restored from a backup.
    fn restore(&self) {
        self.change(|events| {
            events.truncate(3);
            events.extend([(4, 104), (5, 105), (6, 106), (7, 107)]);
        });
    }

    /// Starts a service with these events. A page contains the newest or the oldest events above an offset. With
    /// `inclusive`, the event at the offset belongs to the page too.
    async fn serve(&self, inclusive: bool, newest: bool) -> Scripted {
        let shown = self.clone();
        Scripted::answering(move |asked| {
            let events = shown.0.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(limit) = asked.limit else {
                let has_id = |(_, id): &&(i64, u128)| asked.event == Some(Uuid::from_u128(*id).to_string());
                let found = events.iter().find(has_id).map(|(offset, id)| notice(*offset, *id));
                return found.ok_or(StatusCode::NOT_FOUND).into_response();
            };
            let from = asked.offset.map_or(0, |offset| if inclusive { offset } else { offset + 1 });
            let mut page: Vec<_> = events.iter().filter(|(offset, _)| *offset >= from).copied().collect();
            let has_more = page.len() > limit;
            if newest || asked.offset.is_none() {
                page.drain(..page.len().saturating_sub(limit));
            } else {
                page.truncate(limit);
            }
            let events: Vec<_> = page.iter().rev().map(|(offset, id)| notice(*offset, *id)).collect();
            format!(r#"{{"events":[{}],"has_more":{has_more}}}"#, events.join(",")).into_response()
        })
        .await
    }
}

fn notice(offset: i64, id: u128) -> String {
    let id = Uuid::from_u128(id);
    format!(
        r#"{{"event_id":"{id}","headers":{{"type":"wallet.status","offset":{offset},"proofs":[]}},"payload":{{"status":"deployed","status_reason":"","wallet_id":"{id}","address":"0x01","chain_selector":"1","timestamp":1750000000}}}}"#
    )
}

fn reading(service: &Scripted) -> Setup {
    Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))])
}

fn plain(offsets: impl IntoIterator<Item = i64>) -> impl Iterator<Item = (i64, u128)> {
    offsets.into_iter().map(|offset| (offset, u128::try_from(offset).unwrap()))
}

async fn admin_of(daemon: &mut Daemon) -> Admin {
    Admin::of(daemon).await
}

fn is_ready(answer: &Answered) -> bool {
    answer.status == 200
}

#[tokio::test]
async fn an_event_visible_out_of_order_is_delivered_late_and_once_in_every_reading_window() {
    for (inclusive, newest) in [(false, false), (false, true), (true, false), (true, true)] {
        let shown = Shown::with(plain((1..=10).chain(12..=15)));
        let service = shown.serve(inclusive, newest).await;
        let receiver = Receiver::start().await;
        let setup = reading(&service).with_webhook("hook", &receiver);
        let mut daemon = setup.start();
        let both = |lines: usize| {
            let (setup, receiver) = (&setup, &receiver);
            move |_: &Daemon| setup.lines() == lines && receiver.received() == lines
        };
        daemon.until("the visible events arrive", both(14)).await;
        shown.change(|events| events.extend(plain([11, 16, 17])));
        daemon.until("the late event arrives too", both(17)).await;
        let log = daemon.stop().await;
        assert_eq!(log.lines(APPEARED).len(), 1, "inclusive {inclusive}, newest {newest}");
        let mut daemon = setup.start();
        shown.change(|events| events.extend(plain([18])));
        daemon.until("the event after a restart arrives", both(18)).await;
        daemon.stop().await;
        for mut delivered in [setup.offsets("c0"), offsets(&receiver.delivered())] {
            delivered.sort_unstable();
            assert!(delivered.iter().copied().eq(1..=18), "{delivered:?}");
        }
    }
}

#[tokio::test]
async fn late_events_are_delivered_after_the_start_and_again_to_a_restored_file() {
    let shown = Shown::with(plain([1, 2, 5, 6]));
    let service = shown.serve(false, false).await;
    let setup = reading(&service);
    setup.run_until_lines(4).await;
    let file = setup.path("events.jsonl");
    let backup = fs::read(&file).unwrap();
    // Two events become visible while the daemon is stopped.
    shown.change(|events| events.extend(plain([3, 4])));
    setup.run_until_lines(6).await;
    // Late deliveries have no order among themselves.
    let mut late = setup.offsets("c0").split_off(4);
    late.sort_unstable();
    assert_eq!(late, [3, 4]);
    fs::write(&file, &backup).unwrap();
    setup.run_until_lines(6).await;
    // Now the backup also lacks an event above the late ones.
    shown.change(|events| events.extend(plain([7])));
    setup.run_until_lines(7).await;
    fs::write(&file, &backup).unwrap();
    setup.run_until_lines(7).await;
    let mut delivered = setup.offsets("c0");
    delivered.sort_unstable();
    assert!(delivered.iter().copied().eq(1..=7), "{delivered:?}");
}

#[tokio::test]
async fn an_event_written_after_later_events_of_a_crashed_run_is_delivered_again_to_a_restored_file() {
    let shown = Shown::with(plain([1]));
    let service = shown.serve(false, false).await;
    let setup = reading(&service);
    setup.run_until_lines(1).await;
    setup.back_up_state();
    shown.change(|events| events.extend(plain([3, 4, 5])));
    setup.run_until_lines(4).await;
    // A crash before the commit leaves the same state.
    setup.restore_state();
    let file = setup.path("events.jsonl");
    let backup = fs::read(&file).unwrap();
    shown.change(|events| events.extend(plain([2])));
    setup.run_until_lines(5).await;
    assert_eq!(setup.offsets("c0"), [1, 3, 4, 5, 2]);
    for last in [5, 6] {
        fs::write(&file, &backup).unwrap();
        shown.change(|events| events.extend(plain(6..=last)));
        setup.run_until_lines(usize::try_from(last).unwrap()).await;
        let mut delivered = setup.offsets("c0");
        delivered.sort_unstable();
        assert!(delivered.iter().copied().eq(1..=last), "{delivered:?}");
    }
}

#[tokio::test]
async fn events_of_a_changed_history_are_quarantined_until_an_operator_accepts_it() {
    for inclusive in [false, true] {
        for stopped in [false, true] {
            let shown = Shown::with(plain(1..=5));
            let service = shown.serve(inclusive, false).await;
            let setup = reading(&service).with_admin();
            let mut daemon = setup.start();
            daemon.until("all arrive", |_| setup.lines() == 5).await;
            daemon.until_logged("batch recorded").await;
            if stopped {
                daemon.stop().await;
                shown.restore();
                daemon = setup.start();
            } else {
                shown.restore();
            }
            let admin = admin_of(&mut daemon).await;
            let said = "channel c0: the service has a different event at offset 4 than before";
            let is_said = |answer: &Answered| answer.status == 503 && answer.text.contains(said);
            admin.until(&mut daemon, "/readyz", said, is_said).await;
            let quarantined = ["quarantine", "list", "--json"];
            daemon.until("new events are rejected", |daemon| daemon.log().0.contains(r#""offset":7"#)).await;
            assert_eq!(setup.lines(), 5, "no new event is delivered");

            assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
            while setup.tell(&["cursor", "set", "c0", "--back-to", "3", "--yes"]).await.code != Some(0) {
                daemon.until("the daemon runs", |_| true).await;
            }
            assert_eq!(setup.tell(&["resume", "c0"]).await.code, Some(0));
            daemon.until("the new history arrives", |_| setup.lines() == 9).await;
            admin.until(&mut daemon, "/readyz", "the daemon is ready", is_ready).await;
            assert_eq!(setup.tell(&quarantined).await.json(), [] as [Value; 0], "delivered events are not quarantined");
            daemon.stop().await;
            assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 4, 5, 6, 7], "inclusive {inclusive}, stopped {stopped}");
        }
    }
}

#[tokio::test]
async fn a_changed_history_can_be_accepted_without_its_events() {
    let shown = Shown::with(plain(1..=5));
    let service = shown.serve(false, false).await;
    let setup = reading(&service).with_admin();
    let mut daemon = setup.start();
    let admin = admin_of(&mut daemon).await;
    daemon.until("all arrive", |_| setup.lines() == 5).await;
    daemon.until_logged("batch recorded").await;
    shown.restore();
    daemon.until("new events are rejected", |daemon| daemon.log().0.contains(r#""offset":7"#)).await;

    assert_eq!(setup.tell(&["pause", "c0"]).await.code, Some(0));
    while setup.tell(&["cursor", "set", "c0", "--to", "latest", "--yes"]).await.code != Some(0) {
        daemon.until("the daemon runs", |_| true).await;
    }
    assert_eq!(setup.tell(&["resume", "c0"]).await.code, Some(0));
    shown.change(|events| events.push((8, 108)));
    daemon.until("the next event arrives", |_| setup.lines() == 6).await;
    admin.until(&mut daemon, "/readyz", "the daemon is ready", is_ready).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 8]);
}

#[tokio::test]
async fn a_restored_file_gets_the_lost_events_again_and_no_event_twice() {
    for stopped in [true, false] {
        let simulator = Simulator::start(Options { events: 7, ..Options::default() }).await.unwrap();
        let setup = Setup::reading(&simulator).with_admin();
        let file = setup.path("events.jsonl");
        let mut daemon = setup.start();
        daemon.until("the backlog arrives", |_| setup.lines() == 7).await;
        daemon.until_logged("batch recorded").await;
        let backup: String = fs::read_to_string(&file).unwrap().split_inclusive('\n').take(3).collect();
        if stopped {
            daemon.stop().await;
            fs::write(&file, backup).unwrap();
            daemon = setup.start();
        } else {
            fs::write(&file, backup).unwrap();
        }
        daemon.until("the lost events are in the file, although no new event arrives", |_| setup.lines() == 7).await;
        simulator.publish(0, 1);
        daemon.until("the new event arrives", |_| setup.lines() == 8).await;
        let admin = admin_of(&mut daemon).await;
        admin.until(&mut daemon, "/readyz", "the daemon is ready again", is_ready).await;
        let log = daemon.stop().await;
        let lost = log.lines(LOST);
        assert_eq!((lost.len(), &lost[0]["position"], &lost[0]["delivered"]), (1, &3.into(), &7.into()));
        assert!(setup.offsets("c0").into_iter().eq(1..=8), "stopped {stopped}: {:?}", setup.offsets("c0"));
    }
}

#[tokio::test]
async fn a_restored_state_delivers_nothing_twice_and_is_reported_as_older() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(5).await;
    setup.back_up_state();
    simulator.publish(0, 5);
    setup.run_until_lines(10).await;
    setup.restore_state();
    simulator.publish(0, 1);
    let mut daemon = setup.start();
    daemon.until("the new event arrives", |_| setup.lines() == 11).await;
    assert_eq!(daemon.stop().await.lines(AHEAD).len(), 1);
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn a_channel_without_state_continues_from_its_sinks_position() {
    let simulator = Simulator::start(Options { events: 5, ..Options::default() }).await.unwrap();
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator);
    setup.run_until_lines(5).await;
    fs::remove_dir_all(setup.path("state")).unwrap();
    simulator.publish(0, 5);
    let setup = setup.with("channels.c0.start", "latest").with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    daemon.until("the events since then arrive", |_| setup.lines() == 10 && receiver.received() == 5).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
    assert!(
        offsets(&receiver.delivered()).into_iter().eq(6..=10),
        "the new sink begins at the position of the other sink"
    );
}
