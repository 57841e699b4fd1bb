//! The feed and its consumers as text.

use jiff::Timestamp;

use crate::cli::terminal::{ASIDE, BAD, Cell, GOOD, PASSING, Table};
use crate::cli::verdict_line::printable;
use channel::{counted, span};
use operator::feed::{FeedConsumer, FeedConsumerState, FeedStatus};

/// The line about the feed itself.
pub(super) fn line(feed: &FeedStatus, now: Timestamp) -> String {
    let FeedStatus { address, waiting, read, error, .. } = feed;
    let waiting = counted(*waiting as u64, "request");
    let read = match (error, read) {
        (None, _) => String::new(),
        (Some(_), Some(read)) => {
            let since = u64::try_from(now.as_second() - read.as_second()).unwrap_or_default();
            format!("; its consumers were read {} ago", span(since))
        }
        (Some(_), None) => "; its consumers could not be read".to_owned(),
    };
    format!("feed: {}, {waiting} waiting for events{read}", printable(address))
}

/// The table of consumers.
pub(crate) fn consumers(consumers: &[FeedConsumer], now: Timestamp) -> Table {
    let heading = [Cell::text("CONSUMER"), Cell::text("CHANNEL"), Cell::text("STATE")];
    let quantities = ["CURSOR", "NEWEST", "LAG", "OLDEST"].map(|text| Cell::quantity(Some(text)));
    let mut rows = vec![(heading.into_iter().chain(quantities).collect(), String::new())];
    for consumer in consumers {
        let state = consumer.state();
        let style = match state {
            FeedConsumerState::Gone => BAD,
            FeedConsumerState::Ok | FeedConsumerState::Leased => GOOD,
            FeedConsumerState::NoCursor => ASIDE,
            FeedConsumerState::Ahead | FeedConsumerState::Behind => PASSING,
        };
        let cells = vec![
            Cell::text(printable(&consumer.consumer)),
            Cell::text(printable(&consumer.channel)),
            Cell::new(style, <&str>::from(state)),
            Cell::quantity(Some(consumer.through)),
            Cell::quantity(Some(consumer.newest)),
            Cell::quantity(Some(consumer.lag)),
            Cell::quantity(Some(consumer.age_seconds(now)).filter(|seconds| *seconds > 0).map(span)),
        ];
        rows.push((cells, detail(consumer)));
    }
    Table(rows)
}

fn detail(consumer: &FeedConsumer) -> String {
    let gone = consumer.oldest.filter(|_| consumer.gone);
    let gone = gone.map(|oldest| format!("the next events were deleted; the oldest event has position {oldest}"));
    let ahead = (consumer.through > consumer.newest)
        .then(|| "the table was restored or created again; the next delivery moves the cursor back".to_owned());
    let leased = consumer.leased_until.map(|until| format!("leased until {until:.0}"));
    gone.into_iter().chain(ahead).chain(leased).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_consumer_has_a_row_with_its_state() {
        let now = Timestamp::from_second(10_000).unwrap();
        let consumer = |name: &str, lag| FeedConsumer {
            consumer: name.to_owned(),
            channel: "c0".to_owned(),
            has_cursor: true,
            newest: 9,
            through: 9 - lag,
            lag,
            waiting_since: (lag > 0).then(|| Timestamp::from_second(9_400).unwrap()),
            ..FeedConsumer::default()
        };
        let gone = FeedConsumer { gone: true, oldest: Some(5), ..consumer("audit", 9) };
        let leased = FeedConsumer { leased_until: Some(now), ..consumer("fund", 2) };
        let ahead = FeedConsumer { through: 12, ..consumer("zeal", 0) };
        let table = consumers(&[gone, leased, consumer("ledger", 1), consumer("tax", 0), ahead], now).to_string();
        let text = anstream::adapter::strip_str(&table).to_string();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["CONSUMER", "CHANNEL", "STATE", "CURSOR", "NEWEST", "LAG", "OLDEST"]);
        assert_eq!(rows[1][..9], ["audit", "c0", "gone", "0", "9", "9", "10", "min", "the"]);
        assert!(text.contains("the oldest event has position 5"), "{text}");
        assert_eq!(rows[2][..3], ["fund", "c0", "leased"]);
        assert!(text.contains("leased until 1970-01-01T02:46:40Z"), "{text}");
        assert_eq!(rows[3][..3], ["ledger", "c0", "behind"]);
        assert_eq!(rows[4], ["tax", "c0", "ok", "9", "9", "0", "-"]);
        assert_eq!(rows[5][..5], ["zeal", "c0", "ahead", "12", "9"]);
    }

    #[test]
    fn the_line_says_since_when_the_consumers_are_unknown() {
        let now = Timestamp::from_second(10_000).unwrap();
        let mut feed = FeedStatus { address: "127.0.0.1:9465".to_owned(), waiting: 1, ..FeedStatus::default() };
        assert_eq!(line(&feed, now), "feed: 127.0.0.1:9465, 1 request waiting for events");
        feed.error = Some("locked".to_owned());
        assert!(line(&feed, now).ends_with("could not be read"), "{}", line(&feed, now));
        feed.read = Some(Timestamp::from_second(9_940).unwrap());
        assert!(line(&feed, now).ends_with("were read 60 s ago"), "{}", line(&feed, now));
    }
}
