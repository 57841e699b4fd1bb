//! What an operator reads: every line one line, and no line a thousand times.

use channeld::simulator::{EventSpec, Kind, Options, Simulator};

use crate::support::Setup;

const REJECTED: &str = "event rejected: quarantined, not delivered";
const PROVED: EventSpec = EventSpec::Honest(Kind::WatcherEvent);

#[tokio::test]
async fn what_goes_wrong_again_and_again_is_a_few_lines_and_a_count_for_each_channel() {
    let options = Options { events: 150, channels: 2, forged: 1.0, ..Options::default() };
    let simulator = Simulator::start(options).await.unwrap();
    for channel in [0, 1] {
        simulator.publish_one(channel, PROVED);
    }
    let setup = Setup::reading(&simulator).with("log.level", "info");
    let mut daemon = setup.start();
    daemon.until("what is proved arrives", |_| setup.lines() == 2).await;
    let log = daemon.stop().await;

    for channel in ["c0", "c1"] {
        let of_channel = |message: &str| {
            let lines = log.lines(message);
            lines.into_iter().filter(|line| line["channel"] == channel).collect::<Vec<_>>()
        };
        let told = of_channel("more lines like this were not written");
        assert_eq!((of_channel(REJECTED).len(), told.len()), (20, 1), "{told:?}");
        let told = [&told[0]["level"], &told[0]["like"], &told[0]["lines"]];
        assert_eq!(told, [&"ERROR".into(), &REJECTED.into(), &serde_json::Value::from(130)]);
    }
    for once in ["channeld starts", "stopping: the batch in hand is finished and recorded first", "channeld ends"] {
        assert_eq!(log.lines(once).len(), 1, "{once}");
    }
}

#[tokio::test]
async fn a_line_for_people_is_one_line_whatever_a_file_is_called() {
    let simulator = Simulator::start(Options { events: 20, ..Options::default() }).await.unwrap();
    let setup = Setup::reading(&simulator).with("log.format", "text").with("sinks.file.rotate_size", "4KiB");
    let path = setup.path("nasty\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{202e}.jsonl");
    let setup = setup.with("sinks.file.path", path.to_str().unwrap()).with("api.page_limit", 5);
    let mut daemon = setup.start();
    daemon.until("a file is closed", |daemon| daemon.log().0.contains("file closed, going on in a new one")).await;
    let log = daemon.stop().await.0;

    assert!(log.contains(r"nasty\n2026-01-01T00:00:00Z ERROR forged\u{1b}[2J\u{202e}"), "{log}");
    assert!(
        !log.chars().any(|character| character.is_control() && character != '\n' || character == '\u{202e}'),
        "{log:?}"
    );
    let begins = |line: &str| line.split_once("Z ").is_some_and(|(at, _)| at.parse::<jiff::civil::DateTime>().is_ok());
    assert!(log.lines().all(begins), "{log}");
}
