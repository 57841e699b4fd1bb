//! Malformed, endless and broken answers of the service cost time. They never cause unbounded memory, a busy loop or a
//! lost event.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use axum::response::IntoResponse;
use clap::ValueEnum;
use proof::event::ChannelId;
use simulator::{Fault, Misbehaviour, Options, Simulator};
use uuid::Uuid;

use crate::support::{Daemon, Scripted, Setup, deliverable};

/// The largest memory of the daemon. An answer has at most 64 MiB and is read into a buffer that grows by doubling. The rest
/// is for other memory.
const MOST_MEMORY_KB: u64 = 256 * 1024;

fn notice(offset: i64) -> String {
    notice_of(offset, Uuid::from_u128(u128::try_from(offset).unwrap()))
}

fn notice_of(offset: i64, id: Uuid) -> String {
    format!(
        r#"{{"event_id":"{id}","headers":{{"type":"wallet.status","offset":{offset},"proofs":[]}},"payload":{{"status":"deployed","status_reason":"","wallet_id":"{id}","address":"0x01","chain_selector":"1","timestamp":1750000000}}}}"#
    )
}

fn page(events: &[i64], has_more: bool) -> String {
    let events: Vec<_> = events.iter().map(|offset| notice(*offset)).collect();
    format!(r#"{{"events":[{}],"has_more":{has_more}}}"#, events.join(","))
}

async fn service(channels: usize, events: u64) -> Simulator {
    Simulator::start(Options { channels, events, ..Options::default() }).await.unwrap()
}

/// Asserts that ten requests take at least 800 ms, because the daemon waits 100 ms (`api.idle_wait`) between polls.
async fn until_it_idles(daemon: &mut Daemon, requests: impl Fn() -> u64) {
    let (began, before) = (Instant::now(), requests());
    daemon.until("it idles", |_| requests() >= before + 10).await;
    assert!(began.elapsed() > Duration::from_millis(800), "ten requests in {:?}", began.elapsed());
}

fn reading(service: &Scripted) -> Setup {
    Setup::of(&service.base_url(), "key-of-a-test", &[ChannelId(Uuid::from_u128(1))])
}

fn most_memory_kb(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn an_endless_answer_is_refused_in_bounded_memory() {
    let simulator = service(1, 3).await;
    simulator.misbehave(0, Some(Misbehaviour::EndlessBody));
    let setup = Setup::reading(&simulator).with("log.level", "info");
    let mut daemon = setup.start();
    daemon.until("the answer is refused, and requested again", |_| simulator.requests().poll >= 3).await;
    let said = "the answer is longer than 64 MiB, the fixed limit for one answer";
    daemon.until("the refusal is logged", |daemon| daemon.log().0.contains(said)).await;
    assert!(!daemon.log().0.contains("limits.memory"), "the memory limit is not the reason");
    assert!(most_memory_kb(&daemon) < MOST_MEMORY_KB, "{} kB", most_memory_kb(&daemon));

    simulator.misbehave(0, None);
    daemon.until("the later events arrive", |_| setup.lines() == 3).await;
    daemon.stop().await;
}

#[tokio::test]
async fn unreadable_json_is_quarantined_in_bounded_memory() {
    let with = |offset: i64, extra: &str| notice(offset).replacen('{', &format!(r#"{{"extra":{extra},"#), 1);
    let deep = with(1, &format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)));
    let page = format!(r#"{{"events":[{},{},{deep}],"has_more":false}}"#, notice(3), with(2, r#""\ud800""#));
    let service = Scripted::answering(move |asked| match asked.offset {
        Some(3..) => self::page(&[], false).into_response(),
        _ => page.clone().into_response(),
    })
    .await;
    let setup = reading(&service);
    let mut daemon = setup.start();
    daemon.until("the readable event arrives", |_| setup.lines() == 1).await;
    daemon.until_logged("batch recorded").await;
    assert!(most_memory_kb(&daemon) < 64 * 1024, "{} kB", most_memory_kb(&daemon));
    let kept = setup.tell(&["quarantine", "list", "--json"]).await;
    assert_eq!((kept.each("offset"), kept.each("reason")), (vec![1.into(), 2.into()], vec!["malformed".into(); 2]));
    let details = kept.each("detail");
    assert!(
        details[0].as_str().unwrap().contains("nested deeper") && details[1].as_str().unwrap().contains("surrogate")
    );
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), [3]);
}

#[tokio::test]
async fn pages_without_progress_cause_no_busy_loop_and_no_repeats() {
    for how in [Misbehaviour::EmptyPages, Misbehaviour::SamePage, Misbehaviour::Backwards] {
        let simulator = service(1, 3).await;
        let setup = Setup::reading(&simulator).with("api.idle_wait", "100ms").with("api.page_limit", 3);
        let mut daemon = setup.start();
        daemon.until("the backlog arrives", |_| setup.lines() == 3).await;
        simulator.misbehave(0, Some(how));
        let requests = || simulator.requests().poll + simulator.requests().search;
        until_it_idles(&mut daemon, requests).await;
        assert_eq!(setup.lines(), 3, "{how:?}");

        simulator.misbehave(0, None);
        simulator.publish(0, 1);
        daemon.until("the later events arrive", |_| setup.lines() == 4).await;
        daemon.stop().await;
        assert_eq!(setup.offsets("c0"), [1, 2, 3, 4], "{how:?}");
    }
}

#[tokio::test]
async fn a_comparison_continues_after_errors_and_fails_if_the_history_ends_early() {
    let simulator = service(1, 30).await;
    let setup = Setup::reading(&simulator).with("api.page_limit", 3);
    setup.run_until_lines(30).await;
    let check = async || setup.tell(&["check", "--history", "c0"]).await;
    simulator.fail_next(Fault::Status(503), 5);
    let told = check().await;
    assert_eq!(told.code, Some(0), "{told:?}");

    simulator.misbehave(0, Some(Misbehaviour::EmptyPages));
    let told = check().await;
    assert!(told.code == Some(1) && told.errors.contains("the range is in doubt"), "{told:?}");
}

#[tokio::test]
async fn a_healthy_channel_continues_beside_each_kind_of_misbehavior() {
    let ways = Misbehaviour::value_variants();
    let simulator = service(ways.len() + 1, 20).await;
    let mut setup = Setup::reading(&simulator).with("api.request_timeout", "2s").with("sinks.other.type", "file");
    setup.set("sinks.other.path", setup.path("others.jsonl").display().to_string());
    for (channel, how) in (1..).zip(ways) {
        simulator.misbehave(channel, Some(*how));
        setup.set(&format!("channels.c{channel}.sinks"), vec!["other"]);
    }
    let mut daemon = setup.start();
    daemon.until("the backlog of the healthy channel arrives", |_| setup.lines() == 20).await;
    simulator.publish(0, 5);
    daemon.until("the later events arrive", |_| setup.lines() == 25).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), deliverable(&simulator, 0));
}

#[tokio::test]
async fn offsets_at_the_limits_of_int64_work() {
    let last = i64::MAX;
    let service = Scripted::answering(move |asked| match asked.offset {
        Some(from) if from < last - 1 => page(&[last - 1], true).into_response(),
        Some(from) if from < last => page(&[last], false).into_response(),
        Some(_) => page(&[], false).into_response(),
        None => page(&[last], true).into_response(),
    })
    .await;
    let setup = reading(&service);
    setup.run_until_lines(2).await;
    assert_eq!(setup.offsets("c0"), [last - 1, last]);
    setup.run_until_lines(2).await;
    assert_eq!(setup.lines(), 2);
}

#[tokio::test]
async fn nonsense_far_above_the_newest_offset_loses_no_later_event() {
    let newest = Arc::new(AtomicI64::new(3));
    let published = Arc::clone(&newest);
    let service = Scripted::answering(move |asked| {
        let Some(limit) = asked.limit else { return axum::http::StatusCode::NOT_FOUND.into_response() };
        let offset = asked.offset.unwrap_or(0);
        let nonsense = r#"{"headers":{"type":"watcher.event","offset":9000000000000000000},"payload":7}"#.to_owned();
        let above = (offset + 1..=published.load(Ordering::Relaxed)).map(notice);
        let mut events: Vec<_> = above.chain([nonsense]).take(limit).collect();
        events.reverse();
        format!(r#"{{"events":[{}],"has_more":true}}"#, events.join(",")).into_response()
    })
    .await;
    let setup = reading(&service).with("api.idle_wait", "100ms");
    let mut daemon = setup.start();
    daemon.until("the backlog arrives", |_| setup.lines() == 3).await;
    daemon.until_logged("event rejected: not delivered").await;
    assert_eq!(
        setup.tell(&["status", "--json"]).await.json()[0]["channels"][0]["newest"],
        3,
        "the offset is not credible"
    );
    let (began, before) = (Instant::now(), service.requests());
    daemon.until("it idles", |_| service.requests() >= before + 12).await;
    // One poll can take up to five requests: a page of nonsense contains no known event, so the daemon also requests
    // the newest known event.
    assert!(began.elapsed() > Duration::from_millis(150), "twelve requests in {:?}", began.elapsed());

    newest.store(6, Ordering::Relaxed);
    daemon.until("the later events arrive", |_| setup.lines() == 6).await;
    let ended = daemon.stop().await;
    let said = ended.lines("event rejected: not delivered");
    assert_eq!(said.len(), 1, "it is logged once: {said:?}");
}

#[tokio::test]
async fn one_event_far_above_all_others_does_not_move_the_cursor() {
    const FAR: i64 = i64::MAX - 1;
    let (newest, far) = (Arc::new(AtomicI64::new(3)), Arc::new(AtomicI64::new(FAR)));
    let (published, shown) = (Arc::clone(&newest), Arc::clone(&far));
    let service = Scripted::answering(move |asked| {
        let offset = asked.offset.unwrap_or(0);
        let above = (1..=published.load(Ordering::Relaxed)).chain(FAR..=shown.load(Ordering::Relaxed));
        let mut events: Vec<_> = above.filter(|event| *event > offset).take(asked.limit.unwrap_or(1)).collect();
        events.reverse();
        page(&events, false).into_response()
    })
    .await;
    let setup = reading(&service).with("api.idle_wait", "100ms").with("api.retry_wait_max", "100ms");
    let setup = setup.with("api.retry_wait", "100ms");
    let mut daemon = setup.start();
    daemon.until_logged("failed: an operator must act; retrying").await;
    let said = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(said.contains("is far above all others, which end at 3"), "{said}");
    assert_eq!(setup.offsets("c0"), [1, 2, 3]);

    // The far event is gone. The daemon must not have skipped the events below it.
    far.store(0, Ordering::Relaxed);
    newest.store(6, Ordering::Relaxed);
    daemon.until("the events below it arrive", |_| setup.lines() == 6).await;
    daemon.until_logged("works again").await;
    // A second event at such an offset confirms the first one.
    far.store(FAR + 1, Ordering::Relaxed);
    daemon.until("both far events arrive", |_| setup.lines() == 8).await;
    daemon.stop().await;
    assert_eq!(setup.offsets("c0"), [1, 2, 3, 4, 5, 6, FAR, FAR + 1]);
}

#[tokio::test]
async fn unsigned_events_at_the_last_offsets_do_not_silence_a_channel() {
    const LAST: i64 = i64::MAX;
    // An event that no other event confirms is not delivered. Two events at different offsets confirm each other.
    let one = vec![(LAST, notice(LAST))];
    let two = vec![(LAST - 1, notice(LAST - 1)), (LAST, notice(LAST))];
    for (nonsense, delivered) in [(one, 0), (two, 2)] {
        let newest = Arc::new(AtomicI64::new(3));
        let published = Arc::clone(&newest);
        let service = Scripted::answering(move |asked| {
            let Some(limit) = asked.limit else { return axum::http::StatusCode::NOT_FOUND.into_response() };
            let known = (1..=published.load(Ordering::Relaxed)).map(|offset| (offset, notice(offset)));
            let shown = known.chain(nonsense.clone()).filter(|(offset, _)| Some(*offset) >= asked.offset);
            let mut events: Vec<_> = shown.map(|(_, event)| event).take(limit).collect();
            events.reverse();
            format!(r#"{{"events":[{}],"has_more":false}}"#, events.join(",")).into_response()
        })
        .await;
        let setup = reading(&service).with("api.idle_wait", "100ms").with("api.retry_wait_max", "100ms");
        let setup = setup.with("api.retry_wait", "100ms");
        let mut daemon = setup.start();
        daemon.until("the backlog arrives", |_| setup.lines() == 3 + delivered).await;
        newest.store(6, Ordering::Relaxed);
        daemon.until("the later events arrive", |_| setup.lines() == 6 + delivered).await;
        daemon.stop().await;
        let mut offsets = setup.offsets("c0");
        offsets.sort_unstable();
        assert_eq!(offsets[..6], [1, 2, 3, 4, 5, 6]);
    }
}
