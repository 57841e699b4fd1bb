use std::collections::BTreeMap;

use serde_json::Value;
use tracing::subscriber::DefaultGuard;
use tracing::{debug, error, info, trace, warn};
use tracing_subscriber::layer::SubscriberExt;

use super::*;
use crate::tests::CapturedLog;
use crate::{LogFormat, lines};

/// A program with a limit. Its clock is stopped.
struct Program {
    limit: Limit,
    written: CapturedLog,
    _logs: DefaultGuard,
}

impl Program {
    fn new() -> Self {
        let (limit, written) = (Limit::default(), CapturedLog::default());
        let to = written.clone();
        let lines = lines(LogFormat::Json, move || to.clone(), false, false);
        let logs = tracing::subscriber::set_default(tracing_subscriber::registry().with(limit.clone()).with(lines));
        Self { limit, written, _logs: logs }
    }

    fn lines(&self) -> Vec<Value> {
        self.written.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// How often each message was written.
    fn times(&self) -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        for line in self.lines() {
            *times.entry(line["message"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        times
    }

    /// The lines that report suppressed lines.
    fn told(&self) -> Vec<Value> {
        self.lines().into_iter().filter(|line| line["message"] == TOLD).collect()
    }

    fn look(&self) {
        let now = Instant::now();
        self.limit.report(|window| window.ends <= now);
    }
}

const TOLD: &str = "more lines like this were not written";

fn refuse(channel: &str, sink: &str) {
    warn!(%channel, %sink, wait_ms = 100, "sink refused");
}

#[tokio::test(start_paused = true)]
async fn a_repeated_message_is_written_a_few_times_and_then_counted() {
    let program = Program::new();
    for _ in 0..1000 {
        refuse("settlements", "ledger");
        tokio::time::advance(Duration::from_millis(50)).await;
    }
    program.look();
    assert_eq!(program.times(), [("sink refused".to_owned(), LINES as usize)].into(), "the window has not ended");

    tokio::time::advance(Duration::from_secs(10)).await;
    program.look();
    let [told] = &program.told()[..] else { panic!("{:?}", program.lines()) };
    assert_eq!((&told["level"], &told["like"]), (&"WARN".into(), &"sink refused".into()));
    assert_eq!((&told["channel"], &told["sink"]), (&"settlements".into(), &"ledger".into()));
    assert_eq!((&told["lines"], &told["window_s"]), (&(1000 - LINES).into(), &60.into()));

    refuse("settlements", "ledger");
    assert_eq!(program.times()["sink refused"], LINES as usize + 1, "another window");
    tokio::time::advance(WINDOW).await;
    program.look();
    assert_eq!(program.told().len(), 1, "the second window suppressed no line");
}

#[tokio::test(start_paused = true)]
async fn a_suppressed_count_is_reported_even_after_a_quiet_time() {
    let program = Program::new();
    for _ in 0..2 {
        (0..LINES + 5).for_each(|_| refuse("settlements", "ledger"));
        tokio::time::advance(WINDOW).await;
    }
    assert_eq!(program.times()["sink refused"], 2 * LINES as usize);
    program.look();
    assert_eq!(program.told()[0]["lines"], 10);
}

#[tokio::test(start_paused = true)]
async fn each_channel_sink_and_message_is_limited_separately() {
    let program = Program::new();
    (0..100).for_each(|_| refuse("settlements", "ledger"));
    refuse("payments", "ledger");
    refuse("settlements", "audit");
    warn!(channel = %"settlements", sink = %"ledger", "sink accepts events again");
    warn!(sink = "ledger", "sink could not be reopened");
    let times = program.times();
    assert_eq!(times["sink refused"], LINES as usize + 2);
    assert_eq!((times["sink accepts events again"], times["sink could not be reopened"]), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn single_and_requested_messages_are_always_written() {
    let program = Program::new();
    for _ in 0..100 {
        info!(target: ALWAYS, "configuration reloaded");
        error!(target: ALWAYS, "configuration rejected: the previous one stays in force");
        debug!("batch recorded");
        trace!("event");
    }
    assert!(program.times().values().all(|times| *times == 100), "{:?}", program.times());
    program.limit.end();
    assert!(program.told().is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_level_is_limited_and_counted_at_its_own_level() {
    let program = Program::new();
    for _ in 0..=LINES {
        error!("rejected");
        warn!("refused");
        info!("caught up");
    }
    program.limit.end();
    let mut levels: Vec<_> =
        program.told().into_iter().map(|told| told["level"].as_str().unwrap().to_owned()).collect();
    levels.sort();
    assert_eq!(levels, ["ERROR", "INFO", "WARN"]);
}

#[tokio::test(start_paused = true)]
async fn the_count_is_written_when_the_window_ends() {
    let program = Program::new();
    (0..=LINES).for_each(|_| refuse("settlements", "ledger"));
    let began = Instant::now();
    let told = async {
        while program.told().is_empty() {
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::select! { () = program.limit.clone().watch() => {} () = told => {} }
    assert!((WINDOW..WINDOW + 3 * LOOK).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn messages_beyond_the_tracked_number_share_one_limit() {
    let program = Program::new();
    for number in 0..MAX_KINDS {
        refuse("settlements", &number.to_string());
    }
    (0..100).for_each(|number| refuse("settlements", &format!("one-more-{number}")));
    assert_eq!(program.times()["sink refused"], MAX_KINDS + LINES as usize);
    program.limit.end();
    let told = program.told();
    assert_eq!((told.len(), &told[0]["lines"], &told[0]["sink"]), (1, &80.into(), &Value::Null));
}
