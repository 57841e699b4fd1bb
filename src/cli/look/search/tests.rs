use axum::body::Body;
use axum::response::Response;
use clap::Parser;

use super::*;
use api::testing::Scripted;
use proof::verify::{Address, SignerSet, Verifier};
use record::ChannelRef;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

/// A channel in memory whose offsets begin at 1. Its searches work as the service documents them.
#[derive(Clone, Copy)]
struct Fake {
    /// The time of the event at an offset.
    time: fn(i64) -> i64,
    /// How many seconds after its time the event at an offset was created.
    lag: fn(i64) -> i64,
    /// The milliseconds of the creation time. The service compares them with the bounds.
    millis: fn(i64) -> i64,
    events: i64,
    most: usize,
    has_more: HasMore,
}

#[derive(Clone, Copy, PartialEq)]
enum HasMore {
    Older,
    Never,
}

const FAKE: Fake =
    Fake { time: |offset| 1000 + offset, lag: |_| 0, millis: |_| 0, events: 1000, most: 200, has_more: HasMore::Older };

impl Fake {
    fn answer(self, path: &str) -> Response {
        let url = url::Url::parse(&format!("http://fake{path}")).unwrap();
        let number =
            |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.parse::<i64>().unwrap());
        let bound = |name: &str| number(name).map(|second| 1000 * second);
        let (gt, gte, lt, lte) = (bound("created.gt"), bound("created.gte"), bound("created.lt"), bound("created.lte"));
        assert!(gt.is_none() || gte.is_none(), "two lower bounds: {path}");
        assert!(lt.is_none() || lte.is_none(), "two upper bounds: {path}");
        let within = |&offset: &i64| {
            let created = 1000 * ((self.time)(offset) + (self.lag)(offset)) + (self.millis)(offset);
            lte.is_none_or(|lte| created <= lte)
                && lt.is_none_or(|lt| created < lt)
                && gte.is_none_or(|gte| created >= gte)
                && gt.is_none_or(|gt| created > gt)
        };
        let limit = usize::try_from(number("limit").unwrap()).unwrap().min(self.most);
        let mut found = (1..=self.events).rev().filter(within);
        let events: Vec<String> = found.by_ref().take(limit).map(|offset| self.event(offset)).collect();
        let has_more = self.has_more == HasMore::Older && found.next().is_some();
        Response::new(Body::from(format!(r#"{{"events":[{}],"has_more":{has_more}}}"#, events.join(","))))
    }

    fn event(self, offset: i64) -> String {
        let time = (self.time)(offset);
        format!(
            r#"{{"headers":{{"type":"watcher.status","offset":{offset}}},"payload":{{"status":"active","timestamp":{time}}}}}"#
        )
    }
}

/// The result of a search, the offsets that it writes, and the number of requests.
async fn searched(fake: Fake, flags: &[&str]) -> (Result<Exit, CommandError>, Vec<i64>, usize) {
    let service = Scripted::start(move |path| fake.answer(path)).await;
    let (ended, offsets) = found(&service, flags).await;
    (ended, offsets, service.asked().len())
}

/// The result and the output of a search.
async fn written(service: &Scripted, flags: &[&str]) -> (Result<Exit, CommandError>, String) {
    let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7";
    let channel = ChannelRef { name: "test".into(), id: id.parse().unwrap() };
    let verifier = Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([2; 20]));
    let Line { args } = Line::try_parse_from(["search", "test"].iter().chain(flags)).unwrap();
    let mut out = Vec::new();
    let (client, signer_names) = (service.client(), operator::SignerNames::default());
    let ended =
        run(&args, &Connection { client, channel, verifier, signer_names }, &mut Context { file: None, out: &mut out })
            .await;
    (ended, String::from_utf8(out).unwrap())
}

async fn found(service: &Scripted, flags: &[&str]) -> (Result<Exit, CommandError>, Vec<i64>) {
    let (ended, out) = written(service, flags).await;
    // Skip the heading and the summary: the other lines begin with spaces.
    let offset = |line: &str| line.split_whitespace().next().unwrap().parse().unwrap();
    (ended, out.lines().skip(1).filter(|line| line.starts_with(' ')).map(offset).collect())
}

fn down_from(offset: i64) -> Vec<i64> {
    (1..=offset).rev().collect()
}

#[tokio::test]
async fn a_search_is_one_request_and_a_line_for_each_event() {
    let (ended, offsets, asked) = searched(FAKE, &["--limit", "3"]).await;
    assert_eq!((ended.unwrap(), offsets, asked), (Exit::Done, vec![1000, 999, 998], 1));
}

#[tokio::test]
async fn a_list_has_one_heading_and_json_has_none() {
    let (many, none) = (FAKE, Fake { events: 0, ..FAKE });
    for flags in [&["--limit", "3"][..], &["--all"]] {
        let service = Scripted::start(move |path| many.answer(path)).await;
        let out = written(&service, flags).await.1;
        let (heading, lines) = out.split_once('\n').unwrap();
        assert_eq!(
            heading.split_whitespace().collect::<Vec<_>>(),
            ["OFFSET", "TIME", "TYPE", "VERDICT", "EVENT", "NAME"]
        );
        let (lines, summary) = lines.split_once("\n\n").unwrap();
        assert!(lines.starts_with("      1000  ") && !lines.contains("OFFSET"), "{out}");
        let (count, more) =
            if flags == ["--all"] { ("1,000", "") } else { ("3", " Older events were not searched: add --all.") };
        assert_eq!(summary, format!("{count} events: {count} unsigned.{more}\n"));
        let json = written(&service, &[flags, &["--json"]].concat()).await.1;
        assert!(json.lines().all(|line| line.starts_with('{')) && json.lines().count() == lines.lines().count());

        let service = Scripted::start(move |path| none.answer(path)).await;
        assert_eq!(written(&service, flags).await.1, "No event matches.\n");
        assert_eq!(written(&service, &[flags, &["--json"]].concat()).await.1, "");
    }
}

#[tokio::test]
async fn all_returns_every_event_once() {
    let burst = |offset: i64| 1000 + offset - (offset - 400).clamp(0, 150);
    let cases: [(&str, Fake, usize); 12] = [
        ("one a second", FAKE, 20),
        ("one an hour", Fake { time: |offset| 3600 * offset, ..FAKE }, 10),
        ("ten a second", Fake { time: |offset| 1000 + offset / 10, ..FAKE }, 20),
        ("150 in one second", Fake { time: burst, ..FAKE }, 20),
        ("180 in one second, then a year", Fake { time: |offset| 1000 + offset / 180 * 31_536_000, ..FAKE }, 40),
        ("created ten minutes late", Fake { lag: |_| 600, ..FAKE }, 40),
        ("created before its time", Fake { lag: |_| -500, ..FAKE }, 60),
        ("created in some disorder", Fake { lag: |offset| offset * 7 % 5, ..FAKE }, 20),
        (
            "ten a second in some disorder",
            Fake { time: |offset| 1000 + offset / 10, lag: |offset| offset * 7 % 5, ..FAKE },
            20,
        ),
        ("between two seconds", Fake { millis: |_| 500, ..FAKE }, 20),
        (
            "three a second, between seconds",
            Fake { time: |offset| 1000 + offset / 3, millis: |offset| offset % 3 * 300 + 1, ..FAKE },
            20,
        ),
        ("has_more never set", Fake { has_more: HasMore::Never, ..FAKE }, 20),
    ];
    for (name, fake, most_asked) in cases {
        let (ended, offsets, asked) = searched(fake, &["--all"]).await;
        assert_eq!(ended.unwrap(), Exit::Done, "{name}");
        assert_eq!(offsets, down_from(1000), "{name}");
        assert!(asked <= most_asked, "{name}: {asked} requests");
    }
}

#[tokio::test]
async fn all_ends_with_the_last_event() {
    for has_more in [HasMore::Older, HasMore::Never] {
        for events in [0, 1, 2, 199, 200, 201, 400] {
            let (ended, offsets, _) = searched(Fake { events, has_more, ..FAKE }, &["--all"]).await;
            assert_eq!((ended.unwrap(), offsets), (Exit::Done, down_from(events)), "{events}");
        }
    }
}

#[tokio::test]
async fn shorter_pages_than_requested_are_followed() {
    let (ended, offsets, _) = searched(Fake { most: 30, ..FAKE }, &["--all"]).await;
    assert_eq!((ended.unwrap(), offsets), (Exit::Done, down_from(1000)));
    let (ended, offsets, _) = searched(FAKE, &["--all", "--limit", "7"]).await;
    assert_eq!((ended.unwrap(), offsets), (Exit::Done, down_from(1000)));
}

#[tokio::test]
async fn the_operators_time_bounds_apply_to_every_page() {
    for flags in [["--created-gte", "1100", "--created-lt", "1901"], ["--created-gte", "1100", "--created-lte", "1900"]]
    {
        let (ended, offsets, _) = searched(FAKE, &[&["--all"], &flags[..]].concat()).await;
        assert_eq!((ended.unwrap(), offsets), (Exit::Done, (100..=900).rev().collect()));
    }
}

#[tokio::test]
async fn fractions_of_the_first_and_the_last_second_are_searched() {
    // The event at 890 is created with the event at 900.
    let fake = Fake { lag: |offset| if offset == 890 { 10 } else { 0 }, millis: |_| 500, ..FAKE };
    for (flags, expected) in [
        (["--created-gt", "1100", "--created-lt", "1901"], 100..=900),
        (["--created-gte", "1101", "--created-lte", "1901"], 101..=900),
    ] {
        let (ended, offsets, _) = searched(fake, &[&["--all", "--limit", "7"], &flags[..]].concat()).await;
        assert_eq!((ended.unwrap(), offsets), (Exit::Done, expected.rev().collect()), "{flags:?}");
    }
}

#[tokio::test]
async fn a_second_with_more_than_a_page_of_events_is_an_error() {
    let crowded = |offset: i64| {
        if (300..=600).contains(&offset) {
            5000
        } else if offset < 300 {
            offset
        } else {
            9000 + offset
        }
    };
    for has_more in [HasMore::Older, HasMore::Never] {
        let (ended, offsets, asked) = searched(Fake { time: crowded, has_more, ..FAKE }, &["--all"]).await;
        let failure = ended.unwrap_err();
        let lowest = offsets.last().copied().unwrap();
        assert!(
            lowest > 300 && offsets == (lowest..=1000).rev().collect::<Vec<_>>(),
            "no event above {lowest} is missing"
        );
        assert!(failure.to_string().contains(&format!("complete down to offset {lowest}")), "{failure}");
        assert!(asked < 100, "{asked} requests");
        assert_eq!(failure.0, Exit::Failed);
    }
}

#[tokio::test]
async fn a_failed_search_reports_how_far_it_is_complete() {
    let service = Scripted::start(|path| {
        if path.contains("created.lte") {
            Response::builder().status(503).body(Body::empty()).unwrap()
        } else {
            FAKE.answer(path)
        }
    });
    let (ended, offsets) = found(&service.await, &["--all"]).await;
    assert_eq!(offsets.len(), 200);
    let failure = ended.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the search stopped, and its results are complete down to offset 801: the service failed (HTTP 503)"
    );
    assert_eq!(failure.0, Exit::Unavailable);
}

#[tokio::test]
async fn invalid_searches_are_refused_before_a_request() {
    for flags in [
        &["--limit", "0"][..],
        &["--limit", "201"],
        &["--offset", "-1"],
        &["--offset", "1", "--all"],
        &["--address", "0x12"],
        &["--address", "9A9f2CCfdE556A7E9Ff0848998Aa4a0CFD8863AE"],
        &["--watcher-id", "7"],
        &["--wallet-id", "not-a-uuid"],
        &["--chain-selector", ""],
        &["--chain-environment", "moon"],
        &["--created-gt", "-1"],
        &["--created-lte", "yesterday"],
        &["--event-name", ""],
    ] {
        let line = Line::try_parse_from(["search", "test"].iter().chain(flags));
        assert!(line.is_err(), "{flags:?}");
    }
    for (kind, flags) in [
        ("wallet.status", ["--event-name", "Settled"]),
        ("watcher.status", ["--service", "dvp"]),
        ("watcher.event", ["--status", "active"]),
        ("watcher.event", ["--query-id", "q"]),
        ("query.status", ["--operation-id", "o"]),
        ("query.status", ["--wallet-operation-id", "o"]),
        ("query.status", ["--address", "0x9A9f2CCfdE556A7E9Ff0848998Aa4a0CFD8863AE"]),
        ("wallet.status", ["--watcher-id", "7c9e6679-7425-40de-944b-e07fc1f90ae7"]),
        ("watcher.event", ["--wallet-id", "7c9e6679-7425-40de-944b-e07fc1f90ae7"]),
    ] {
        let (ended, _, asked) = searched(FAKE, &[&["--type", kind], &flags[..]].concat()).await;
        assert_eq!((ended.unwrap_err().0, asked), (Exit::Usage, 0), "{kind} {flags:?}");
    }
}
