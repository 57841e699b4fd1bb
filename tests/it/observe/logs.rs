//! The log: each message is one line, and after a few repetitions a message is counted instead of written.

use std::collections::BTreeSet;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use simulator::{EventSpec, Kind, Options, Simulator, Tampering};
use tokio::io::AsyncReadExt;

use crate::support::{Daemon, LONGEST_WAIT, Receiver, Reply, Setup, deliverable, signal, until_count};

const REJECTED: &str = "event rejected: not delivered";
const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);

#[tokio::test]
async fn repeated_failures_are_logged_a_few_times_and_then_counted_per_channel() {
    let options = Options { events: 150, channels: 2, forged: 1.0, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    for channel in [0, 1] {
        simulator.publish_one(channel, PROVED);
    }
    let setup = Setup::reading(&simulator).with("log.level", "info");
    let mut daemon = setup.start();
    daemon.until("the proved events arrive", |_| setup.lines() == 2).await;
    let log = daemon.stop().await;

    for channel in ["c0", "c1"] {
        let of_channel = |message: &str| {
            let lines = log.lines(message);
            lines.into_iter().filter(|line| line["channel"] == channel).collect::<Vec<_>>()
        };
        let told = of_channel("more lines like this were not written");
        assert_eq!((of_channel(REJECTED).len(), told.len()), (20, 1), "{told:?}");
        let told = [&told[0]["level"], &told[0]["like"], &told[0]["lines"]];
        assert_eq!(told, [&"ERROR".into(), &REJECTED.into(), &Value::from(130)]);
    }
    for once in ["channeld starts", "stopping: finishing and recording the current batch", "channeld ends"] {
        assert_eq!(log.lines(once).len(), 1, "{once}");
    }
}

#[tokio::test]
async fn refused_and_rejected_events_can_be_traced_to_their_page() {
    let simulator = Simulator::start(Options { events: 12, ..Options::default() }).await.unwrap();
    let forged = simulator.publish_one(0, EventSpec::Forged(Tampering::ContentChanged));
    simulator.publish_one(0, PROVED);
    let receiver = Receiver::start().await;
    receiver.reply(Reply::Refuse(503, None), 1);
    let setup = Setup::reading(&simulator).with("api.page_limit", 5).with_webhook("hook", &receiver);
    let mut daemon = setup.start();
    let last = simulator.offsets(0).last().unwrap().0;
    let recorded = |daemon: &Daemon, sink: &str| {
        let lines = daemon.log().lines("batch recorded");
        lines.iter().any(|line| line["sink"] == sink && line["offset"] == last)
    };
    daemon.until("everything is recorded", |daemon| recorded(daemon, "file") && recorded(daemon, "hook")).await;
    let log = daemon.stop().await;

    let pages = log.lines("batch verified");
    let id = |line: &Value| line["trace_id"].as_str().unwrap().to_owned();
    let page_with = |offset: i64| {
        let bound = |page: &Value, end: &str| page[end].as_i64().unwrap();
        let page = pages.iter().find(|page| bound(page, "first") <= offset && offset <= bound(page, "last"));
        id(page.unwrap())
    };
    let ids: BTreeSet<_> = pages.iter().map(id).collect();
    assert!(pages.len() >= 3 && ids.len() == pages.len(), "{pages:?}");
    assert!(ids.iter().all(|id| id.len() == 32 && id.bytes().all(|digit| digit.is_ascii_hexdigit())), "{ids:?}");

    assert_eq!(id(&log.lines(REJECTED)[0]), page_with(forged));
    let first = page_with(simulator.offsets(0)[0].0);
    assert_eq!(id(&log.lines("sink refused: its events wait and will be offered again")[0]), first);
    assert_eq!(id(&log.lines("sink accepts events again")[0]), first);
    for message in ["batch passed to the lanes", "batch recorded"] {
        let lines = log.lines(message);
        let offset = |line: &Value| line["offset"].as_i64().unwrap();
        assert!(lines.len() >= 3 && lines.iter().all(|line| id(line) == page_with(offset(line))), "{lines:?}");
    }
    let offered = [log.lines("events offered"), log.lines("batch joined with another batch")].concat();
    assert!(offered.iter().map(id).collect::<BTreeSet<_>>() == ids, "{offered:?}");
}

#[tokio::test]
async fn a_json_log_line_has_its_target_and_typed_fields_and_no_source_paths() {
    let simulator = Simulator::start(Options { events: 3, ..Options::default() }).await.unwrap();
    for spec in [EventSpec::Forged(Tampering::ContentChanged), EventSpec::Late(Kind::WatcherEvent), PROVED] {
        simulator.publish_one(0, spec);
    }
    let receiver = Receiver::start().await;
    receiver.reply(Reply::Refuse(503, None), 2);
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver).with("log.level", "trace");
    let mut daemon = setup.start();
    daemon.until("the proved events arrive", |_| setup.lines() == 4 && receiver.received() == 4).await;
    simulator.prove(0, 5);
    daemon.until("the pending event arrives", |_| setup.lines() == 5 && receiver.received() == 5).await;
    setup.set("sinks.hook.secret", "whsec_YW5vdGhlciBzZWNyZXQgb2YgdGhpcyB0ZXN0ICAgICA=");
    setup.write();
    assert_eq!(setup.tell(&["reload"]).await.code, Some(0));
    daemon.until_logged("lane restarts: the configuration of its sink, or a secret, has changed").await;
    for arguments in [&["pause", "c0"][..], &["cursor", "set", "c0", "--to", "2", "--yes"], &["resume", "c0"]] {
        let told = setup.tell(arguments).await;
        assert!(told.code == Some(0) || arguments[0] == "cursor", "{told:?}");
    }
    let log = daemon.stop().await;
    assert!(log.lines("lane ended: it was removed from the configuration").is_empty(), "{}", log.0);
    assert_eq!(log.lines("channeld ends")[0]["outcome"], "everything that was delivered is recorded");
    for line in log.0.lines() {
        let fields: serde_json::Map<String, Value> = serde_json::from_str(line).unwrap();
        assert!(fields["target"].as_str().is_some_and(|target| !target.is_empty()), "{line}");
        for (name, value) in &fields {
            let is_number = value.as_str().is_some_and(|text| text.parse::<f64>().is_ok());
            assert!(!is_number && !name.starts_with("log."), "{name} in {line}");
        }
        assert!(!["Some(", "/registry/", "Offset("].iter().any(|rust| line.contains(rust)), "{line}");
    }
}

/// Runs the daemon until its channel has started or the daemon has exited, and returns its log. Standard error is a file.
/// `is_named` decides whether the environment names this file as the stream of the journal.
async fn written_to_journal(setup: &Setup, is_named: bool) -> String {
    let (config, path) = (setup.write(), setup.path("stderr"));
    let file = std::fs::File::create(&path).unwrap();
    let found = file.metadata().unwrap();
    let stream = format!("{}:{}", found.dev(), if is_named { found.ino() } else { 1 });
    let mut command = Command::new(env!("CARGO_BIN_EXE_channeld"));
    command.args(["run", "--config"]).arg(config).env_clear().env("JOURNAL_STREAM", stream);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().unwrap();
    let (asked, written) = (Instant::now(), || std::fs::read_to_string(&path).unwrap());
    while !written().contains("channel started") && child.try_wait().unwrap().is_none() {
        assert!(asked.elapsed() < LONGEST_WAIT, "{}", written());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let _ = kill_process(Pid::from_child(&child), Signal::TERM);
    child.wait().unwrap();
    written()
}

#[tokio::test]
async fn in_the_journal_each_line_has_its_priority() {
    let simulator = Simulator::start(Options { events: 1, forged: 1.0, ..Options::default() }).await.unwrap();
    for format in ["text", "json"] {
        let setup = Setup::reading(&simulator).with("log.format", format);
        let written = written_to_journal(&setup, true).await;
        let has_priority = |line: &str, word: &str| match line.split_at(3) {
            ("<3>", _) => word == "ERROR",
            ("<4>", _) => word == "WARN",
            ("<6>", _) => word == "INFO",
            ("<7>", _) => word == "DEBUG",
            _ => false,
        };
        let word =
            |line: &str| ["ERROR", "WARN", "INFO", "DEBUG"].into_iter().find(|word| line.contains(*word)).unwrap();
        assert!(written.lines().count() > 3 && written.lines().all(|line| has_priority(line, word(line))), "{written}");
        assert!(!written_to_journal(&setup, false).await.contains("<6>"));
    }
    let setup = Setup::reading(&simulator).with("api.page_limit", 0).with("api.idle_wait", 3);
    let written = written_to_journal(&setup, true).await;
    assert!(written.lines().count() > 1 && written.lines().all(|line| line.starts_with("<3>")), "{written}");
}

#[tokio::test]
async fn a_text_log_line_is_one_line_even_with_hostile_file_names() {
    let simulator = Simulator::start(Options { events: 20, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with("log.format", "text").with("sinks.file.rotate_size", "4KiB");
    let path = setup.path("nasty\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{202e}.jsonl");
    let setup = setup.with("sinks.file.path", path.to_str().unwrap()).with("api.page_limit", 5);
    let mut daemon = setup.start();
    daemon.until("a file is closed", |daemon| daemon.log().0.contains("file closed: continuing in a new one")).await;
    let log = daemon.stop().await.0;

    assert!(log.contains(r"nasty\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{202e}"), "{log}");
    assert!(
        !log.chars().any(|character| character.is_control() && character != '\n' || character == '\u{202e}'),
        "{log:?}"
    );
    let begins = |line: &str| line.split_once("Z ").is_some_and(|(at, _)| at.parse::<jiff::civil::DateTime>().is_ok());
    assert!(log.lines().all(begins), "{log}");
}

/// A log directive for `channeld` is applied to each crate of the program, so the list of crates must be complete.
#[test]
fn a_log_directive_for_channeld_applies_to_every_crate() {
    let folders = std::fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    let logs = |folder: &Path| {
        std::fs::read_to_string(folder.join("Cargo.toml")).is_ok_and(|manifest| manifest.contains("\ntracing = "))
    };
    let folders = folders.map(|folder| folder.unwrap().path()).filter(|folder| logs(folder));
    let logging: BTreeSet<_> = folders.map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let named: BTreeSet<_> = telemetry::CRATES.map(ToOwned::to_owned).into();
    assert_eq!(logging.difference(&named).collect::<Vec<_>>(), Vec::<&String>::new());
}

#[tokio::test]
async fn a_log_level_for_a_module_applies_in_whichever_crate_it_is() {
    let simulator = Simulator::start(Options { events: 20, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with("log.level", "off,channeld::channel=debug");
    let mut daemon = setup.start();
    daemon.until_logged("batch recorded").await;
    let log = daemon.stop().await.0;
    let targets: BTreeSet<_> = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["target"].as_str().unwrap().to_owned())
        .collect();
    assert!(targets.iter().all(|target| target.starts_with("channeld::channel")), "{targets:?}");
}

/// The size of a pipe, in bytes.
const PIPE: usize = 64 * 1024;

#[tokio::test]
async fn a_standard_error_that_nobody_reads_blocks_neither_deliveries_nor_the_stop() {
    let simulator = Simulator::start(Options { events: 4_000, unsigned: 0.2, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with("log.level", "trace").with("api.page_limit", 20);
    let mut daemon = tokio::process::Command::new(env!("CARGO_BIN_EXE_channeld"));
    daemon.args(["run", "--config"]).arg(setup.write()).env_clear().kill_on_drop(true);
    let mut daemon = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    until_count(deliverable(&simulator, 0).len(), async || setup.lines()).await;

    signal(&daemon, Signal::TERM);
    let ended = tokio::time::timeout(LONGEST_WAIT, daemon.wait()).await.expect("the daemon ends").unwrap();

    assert_eq!(ended.code(), Some(0));
    let mut unread = Vec::new();
    daemon.stderr.take().unwrap().read_to_end(&mut unread).await.unwrap();
    assert!(unread.len() > PIPE - PIPE / 8, "the pipe was not full: {} bytes", unread.len());
}

#[tokio::test]
async fn a_standard_error_that_nobody_reads_is_a_warning_and_its_lost_lines_are_counted() {
    let simulator = Simulator::start(Options { events: 10, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with("log.level", "trace").with("api.page_limit", 1);
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| setup.lines() == 10).await;
    let status = async || setup.tell(&["status", "--json"]).await.json().remove(0);
    let warns = |status: &Value| status["warnings"].to_string().contains("the log is not read: ");
    let before = status().await;
    assert!(!warns(&before) && before["daemon"]["log_lines_lost"] == 0, "{before:#}");

    daemon.stall_log(true).await;
    let (mut deadline, mut delivered) = (Instant::now() + LONGEST_WAIT, 0);
    loop {
        // Each event causes several lines.
        simulator.publish(0, 100);
        let status = status().await;
        if warns(&status) && status["daemon"]["log_lines_lost"].as_u64() > Some(0) {
            break;
        }
        let now = setup.lines();
        if now > delivered {
            (deadline, delivered) = (Instant::now() + LONGEST_WAIT, now);
        }
        assert!(Instant::now() < deadline, "{status:#}");
    }
    let text = String::from_utf8(setup.tell(&["status"]).await.out).unwrap();
    assert!(text.contains("\nwarning: the log is not read: ") && text.contains("\nlog: "), "{text}");
    assert!(text.contains(": ready\n"), "events are not affected: {text}");

    daemon.stall_log(false).await;
    let reported = "log lines were lost, because standard error did not accept them in time";
    daemon.until_logged(reported).await;
    let sum: u64 = daemon.log().lines(reported).iter().map(|line| line["lines"].as_u64().unwrap()).sum();
    let after = status().await;
    assert!(!warns(&after) && sum > 0 && after["daemon"]["log_lines_lost"].as_u64() >= Some(sum), "{after:#}");
    daemon.stop().await;
}
