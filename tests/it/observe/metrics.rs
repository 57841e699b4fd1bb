//! The metrics are correct, have their documented names and labels, and are in a format that Prometheus accepts.

use std::collections::{BTreeMap, BTreeSet};

use rustix::process::Signal;
use simulator::{EventSpec, Kind, Options, Simulator, Tampering};

use crate::support::{Admin, Answered, Daemon, Prometheus, Receiver, Reply, Setup, programs, value};

/// The metrics of a channel that are absent while nothing is wrong with it.
const ABSENT: [&str; 16] = [
    "channeld_channel_dead_letters_full",
    "channeld_channel_late_full",
    "channeld_channel_panics_total",
    "channeld_channel_paused_seconds",
    "channeld_channel_pending_full",
    "channeld_channel_quarantine_full",
    "channeld_channel_shared_proofs",
    "channeld_channel_shared_workflows",
    "channeld_dead_letters_total",
    "channeld_lane_oldest_undelivered_age_seconds",
    "channeld_lane_paused_seconds",
    "channeld_lane_queue_batches",
    "channeld_late_proofs",
    "channeld_pending_events",
    "channeld_replay_offsets_left",
    "channeld_replays",
];

/// The documentation of the metrics.
const DOCUMENTED: &str = include_str!("../../../src/telemetry/metrics/table.md");

const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);

async fn service(specs: &[EventSpec]) -> Simulator {
    let simulator = Simulator::start(Options::default()).await.unwrap();
    for spec in specs {
        simulator.publish_one(0, *spec);
    }
    simulator
}

/// Waits until a sample has this value, and returns the scrape.
async fn until(admin: &Admin, daemon: &mut Daemon, sample: &str, expected: f64) -> String {
    let holds = |answer: &Answered| value(&answer.text, sample) == Some(expected);
    admin.until(daemon, "/metrics", &format!("{sample} {expected}"), holds).await.text
}

/// Starts a daemon and waits until it has processed verified, unsigned, pending and rejected events ([`SEASON`]).
async fn seasoned(simulator: &Simulator, setup: &Setup) -> (Daemon, Admin) {
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("the deliverable events arrive", |_| setup.lines() == 4).await;
    until(&admin, &mut daemon, r#"channeld_processed_offset{channel="c0"}"#, 7.0).await;
    simulator.prove(0, 6);
    daemon.until("the pending event arrives", |_| setup.lines() == 5).await;
    let none_pending = |answer: &Answered| !answer.text.contains("\nchanneld_late_proofs{");
    admin.until(&mut daemon, "/metrics", "no event is pending any more", none_pending).await;
    (daemon, admin)
}

const SEASON: [EventSpec; 7] = [
    PROVED,
    EventSpec::Honest(Kind::WalletStatus),
    EventSpec::Honest(Kind::Unknown),
    EventSpec::Forged(Tampering::ContentChanged),
    EventSpec::Forged(Tampering::Strangers),
    EventSpec::Late(Kind::QueryCompleted),
    PROVED,
];

#[tokio::test]
async fn metrics_count_what_happened() {
    let (simulator, receiver) = (service(&SEASON).await, Receiver::start().await);
    receiver.reply(Reply::Refuse(503, None), 2);
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with_admin();
    let (mut daemon, admin) = seasoned(&simulator, &setup).await;
    let sample = r#"channeld_events_delivered_total{channel="c0",sink="hook"}"#;
    let scrape = until(&admin, &mut daemon, sample, 5.0).await;
    for (sample, expected) in [
        (r#"channeld_events_total{channel="c0",verdict="verified"}"#, 3.0),
        (r#"channeld_events_total{channel="c0",verdict="rejected"}"#, 2.0),
        (r#"channeld_events_total{channel="c0",verdict="unsigned"}"#, 2.0),
        (r#"channeld_events_total{channel="c0",verdict="pending"}"#, 1.0),
        (r#"channeld_events_by_type_total{type="watcher.event",verdict="verified"}"#, 2.0),
        (r#"channeld_events_by_type_total{type="watcher.event",verdict="rejected"}"#, 2.0),
        (r#"channeld_events_by_type_total{type="wallet.status",verdict="unsigned"}"#, 1.0),
        (r#"channeld_events_by_type_total{type="other",verdict="unsigned"}"#, 1.0),
        (r#"channeld_events_by_type_total{type="query.status",verdict="pending"}"#, 1.0),
        (r#"channeld_events_by_type_total{type="query.status",verdict="verified"}"#, 1.0),
        (r#"channeld_events_by_type_total{type="query.status",verdict="rejected"}"#, 0.0),
        (r#"channeld_events_rejected_total{channel="c0",reason="event-hash-mismatch"}"#, 1.0),
        (r#"channeld_events_rejected_total{channel="c0",reason="too-few-signatures"}"#, 1.0),
        (r#"channeld_events_delivered_total{channel="c0",sink="file"}"#, 5.0),
        (r#"channeld_deliveries_total{outcome="refused",sink="hook"}"#, 2.0),
        (r#"channeld_unknown_values_total{what="type"}"#, 1.0),
        (r#"channeld_unknown_values_total{what="status"}"#, 0.0),
        (r#"channeld_quarantined_events{channel="c0"}"#, 2.0),
        ("channeld_quarantine_events", 2.0),
        ("channeld_quarantine_full", 0.0),
        ("channeld_state_writable", 1.0),
        (r#"channeld_state_lost_events{kind="quarantined"}"#, 0.0),
        (r#"channeld_state_lost_events{kind="dead_letter"}"#, 0.0),
        (r#"channeld_newest_offset{channel="c0"}"#, 7.0),
        (r#"channeld_lag_events{channel="c0"}"#, 0.0),
        (r#"channeld_oldest_undelivered_age_seconds{channel="c0"}"#, 0.0),
        (r#"channeld_lane_state{channel="c0",sink="file",state="ok"}"#, 1.0),
        (r#"channeld_deliveries_total{outcome="ok",sink="hook"}"#, 5.0),
        (r#"channeld_webhook_requests_total{code="204",sink="hook"}"#, 5.0),
        (r#"channeld_webhook_requests_total{code="503",sink="hook"}"#, 2.0),
        (r#"channeld_webhook_request_duration_seconds_count{sink="hook"}"#, 7.0),
        (r#"channeld_delivered_event_age_seconds_count{sink="hook"}"#, 5.0),
        (r#"channeld_delivered_after_reading_seconds_count{sink="file"}"#, 5.0),
        (r#"channeld_file_upkeep_failures_total{sink="file",task="compress"}"#, 0.0),
        ("channeld_ready", 1.0),
        ("channeld_live", 1.0),
    ] {
        assert_eq!(value(&scrape, sample), Some(expected), "{sample}\n{scrape}");
    }
    for absent in [
        r#"channeld_events_rejected_total{channel="c0",reason="duplicate-proof"}"#,
        r#"channeld_channel_quarantine_full{channel="c0"}"#,
        r#"channeld_channel_late_full{channel="c0"}"#,
        r#"channeld_channel_dead_letters_full{channel="c0"}"#,
        r#"channeld_lane_state{channel="c0",sink="file",state="blocked"}"#,
    ] {
        assert_eq!(value(&scrape, absent), None, "a series of a channel that is 0 is absent: {absent}");
    }
    let strangers = value(&scrape, r#"channeld_unknown_signer_signatures_total{channel="c0"}"#).unwrap();
    assert!(strangers >= 4.0, "{strangers}");
    let checked = value(&scrape, "channeld_verification_duration_seconds_count").unwrap();
    assert!(checked >= 1.0, "{checked}");
    // The timestamps of the service are whole seconds, and the events were created just now.
    let age = value(&scrape, r#"channeld_delivered_event_age_seconds_sum{sink="file"}"#).unwrap();
    let after = value(&scrape, r#"channeld_delivered_after_reading_seconds_sum{sink="file"}"#).unwrap();
    assert!((0.0..600.0).contains(&age) && (0.0..600.0).contains(&after), "{age} {after}");
    let polls = value(&scrape, r#"channeld_api_requests_total{channel="c0",endpoint="poll",outcome="ok"}"#).unwrap();
    assert!(polls >= 2.0 && value(&scrape, "channeld_state_commit_duration_seconds_count").unwrap() >= 2.0);
    daemon.stop().await;
}

#[tokio::test]
async fn the_documented_metrics_are_the_exported_ones() {
    let (simulator, receiver) = (service(&SEASON).await, Receiver::start().await);
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with_admin();
    let setup = setup.with("channels.c0.compare", "1s").with("api.api_key_expires", "2100-01-01");
    let (mut daemon, admin) = seasoned(&simulator, &setup).await;
    until(&admin, &mut daemon, r#"channeld_missing_events{channel="c0",sink="file"}"#, 0.0).await;
    let all_delivered = |answer: &Answered| {
        let delivered = value(&answer.text, r#"channeld_events_delivered_total{channel="c0",sink="hook"}"#);
        delivered == Some(5.0) && ABSENT.iter().all(|name| !answer.text.contains(&format!("\n{name}{{")))
    };
    let scrape = admin.until(&mut daemon, "/metrics", "nothing is wrong", all_delivered).await;
    assert_eq!(scrape.kind, "text/plain; version=0.0.4");
    let (documented, served) = (documented(), served(&scrape.text));
    assert!(documented.len() > 30, "{documented:?}");
    // A test of the feed compares the metrics of the feed.
    let is_expected = |name: &&str| !ABSENT.contains(name) && !name.starts_with("channeld_feed_");
    let expected = documented.keys().map(String::as_str).filter(is_expected);
    assert_eq!(expected.collect::<BTreeSet<_>>(), served.keys().map(String::as_str).collect());
    for (name, shape) in served {
        assert_eq!(shape, documented[&name], "{name}");
    }
    daemon.stop().await;
}

/// The type of a metric, and the names of its labels.
type Shape = (String, BTreeSet<String>);

/// The documented metrics.
fn documented() -> BTreeMap<String, Shape> {
    let rows = DOCUMENTED.lines().filter_map(|line| line.strip_prefix("| `"));
    let row = |row: &str| {
        let cells: Vec<_> = row.split('|').map(str::trim).collect();
        let labels = cells[2].split(',').map(str::trim).filter(|label| !label.is_empty());
        (cells[0].trim_matches('`').to_owned(), (cells[1].to_owned(), labels.map(str::to_owned).collect()))
    };
    rows.map(row).collect()
}

/// The metrics in a scrape.
fn served(scrape: &str) -> BTreeMap<String, Shape> {
    let types = scrape.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let shape = |(name, kind): (&str, &str)| {
        let sample = if kind == "histogram" { format!("{name}_sum") } else { name.to_owned() };
        let sample = scrape.lines().find_map(|line| line.strip_prefix(&*sample)).unwrap();
        let labels = sample.split_once('}').map_or("", |(labels, _)| labels).trim_start_matches('{');
        let labels = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0.to_owned()));
        (name.to_owned(), (kind.to_owned(), labels.collect()))
    };
    types.map(shape).collect()
}

#[tokio::test]
async fn counters_survive_a_reload_and_removed_parts_disappear() {
    let simulator = Simulator::start(Options { channels: 2, events: 10, ..Options::default() }).await.unwrap();
    let mut setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    let delivered = |channel: &str| format!(r#"channeld_events_delivered_total{{channel="{channel}",sink="file"}}"#);
    for channel in ["c0", "c1"] {
        until(&admin, &mut daemon, &delivered(channel), 10.0).await;
    }
    setup.remove("channels.c1");
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    simulator.publish(0, 5);
    let scrape = until(&admin, &mut daemon, &delivered("c0"), 15.0).await;
    assert!(!scrape.contains(r#"channel="c1""#), "{scrape}");
    let verdicts: f64 = scrape
        .lines()
        .filter(|line| line.starts_with(r#"channeld_events_total{channel="c0""#))
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap())
        .sum();
    assert!((verdicts - 15.0).abs() < 0.5, "each event is counted once: {verdicts}");
    daemon.stop().await;
}

#[tokio::test]
async fn lag_is_shown_in_events_and_time_across_a_restart() {
    let (simulator, receiver) = (service(&[PROVED; 5]).await, Receiver::start().await);
    // After ten attempts the lane counts as blocked, so they must last longer than the wait for a scrape.
    let setup = Setup::reading(&simulator)
        .with_webhook("hook", &receiver)
        .with("sinks.hook.retry_wait", "5s")
        .with("sinks.hook.retry_wait_max", "10s")
        .with_admin();
    receiver.always(Some(Reply::Refuse(503, None)));
    for run in 0..2 {
        let mut daemon = setup.start();
        let admin = Admin::of(&mut daemon).await;
        let retrying = r#"channeld_lane_state{channel="c0",sink="hook",state="retrying"}"#;
        until(&admin, &mut daemon, retrying, 1.0).await;
        let scrape =
            until(&admin, &mut daemon, r#"channeld_lane_processed_offset{channel="c0",sink="file"}"#, 5.0).await;
        let of = |metric: &str, sink| value(&scrape, &format!(r#"{metric}{{channel="c0",sink="{sink}"}}"#)).unwrap();
        assert!(of("channeld_lane_lag_events", "hook") >= 5.0 && of("channeld_lane_lag_events", "file") < 0.5, "{run}");
        // The age is computed from the time of the event, so a restart does not reset it.
        let age = age_of_first(&setup);
        let measured = of("channeld_lane_oldest_undelivered_age_seconds", "hook");
        assert!((measured - age).abs() <= 5.0, "{run}: {measured} s, {age} s");
        daemon.stop().await;
    }
}

/// The time since the first event, according to its own timestamp.
fn age_of_first(setup: &Setup) -> f64 {
    let happened: jiff::Timestamp = setup.delivered()[0].time.as_deref().unwrap().parse().unwrap();
    jiff::Timestamp::now().duration_since(happened).as_secs_f64()
}

#[tokio::test]
async fn promtool_accepts_the_metrics() {
    if !programs(&["promtool"]) {
        return;
    }
    let (simulator, receiver) = (service(&SEASON).await, Receiver::start().await);
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with_admin();
    let (daemon, admin) = seasoned(&simulator, &setup).await;
    let scrape = setup.path("scrape.txt");
    std::fs::write(&scrape, admin.get("/metrics").await.text).unwrap();
    let mut check = std::process::Command::new("promtool");
    let checked = check.args(["check", "metrics"]).stdin(std::fs::File::open(&scrape).unwrap()).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&checked.stdout), String::from_utf8_lossy(&checked.stderr));
    assert!(checked.status.success() && said.is_empty(), "{said}");
    daemon.stop().await;
}

#[tokio::test]
async fn prometheus_scrapes_the_number_of_delivered_events() {
    if !programs(&["prometheus"]) {
        return;
    }
    let simulator = Simulator::start(Options { events: 30, unsigned: 0.2, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with_admin();
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    daemon.until("all events arrive", |_| setup.lines() == 30).await;
    let prometheus = Prometheus::scraping(&setup, &admin);
    for (query, expected) in [
        (r#"channeld_events_delivered_total{channel="c0",sink="file"}"#, "30"),
        (r#"sum(channeld_events_total{job="channeld"})"#, "30"),
        ("channeld_ready and on(instance) up == 1", "1"),
        (r#"count(channeld_channel_state{channel="c0"} == 1)"#, "1"),
    ] {
        prometheus.until(query, expected).await;
    }
    daemon.stop().await;
}

#[tokio::test]
async fn failed_file_maintenance_is_counted_while_events_continue() {
    let simulator = Simulator::start(Options { events: 40, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with_admin().with("api.page_limit", 10);
    let setup = setup.with("sinks.file.rotate_size", "16KiB").with("sinks.file.latest_link", "/nowhere/at/all");
    let mut daemon = setup.start();
    let admin = Admin::of(&mut daemon).await;
    until(&admin, &mut daemon, r#"channeld_events_delivered_total{channel="c0",sink="file"}"#, 40.0).await;
    let failures = r#"channeld_file_upkeep_failures_total{sink="file",task="other"}"#;
    let counted = |answer: &Answered| value(&answer.text, failures).is_some_and(|failures| failures >= 1.0);
    let scrape = admin.until(&mut daemon, "/metrics", "a failure", counted).await.text;
    assert_eq!(value(&scrape, r#"channeld_file_upkeep_failures_total{sink="file",task="rotate"}"#), Some(0.0));
    daemon.stop().await;
}
