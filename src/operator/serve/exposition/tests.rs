use strum::VariantArray;

use super::*;
use crate::feed::{FeedConsumer, FeedStatus};
use channel::{Activity, LaneState, StoredEvents};
use proof::event::EventType;
use proof::verify::Address;
use record::ChannelRef;
use telemetry::metrics::{Endpoint, Sort};

const CHANNELS: u128 = 1_000;

/// The channel with this number. Its name has 20 bytes.
fn channel(number: u128) -> ChannelRef {
    ChannelRef { name: format!("settlements-eu-{number:05}").into(), id: format!("{number:032x}").parse().unwrap() }
}

/// The status of a channel with one sink that has delivered a thousand events.
fn healthy(channel: &ChannelRef) -> ChannelStatus {
    let offset = Some(Offset::new(1_000).unwrap());
    let signer = |number: u8| SignerStatus { signer: Address([number; 20]), last_seen: Some(Timestamp::now()) };
    let lane = LaneStatus {
        sink: "warehouse".into(),
        cursor: offset,
        lag_events: Some(0),
        oldest_undelivered_seconds: Some(0),
        state: LaneState::Ok,
        ..LaneStatus::default()
    };
    ChannelStatus {
        channel: channel.name.clone(),
        channel_id: channel.id,
        activity: Activity::Idle,
        cursor: offset,
        newest: offset,
        lag_events: Some(0),
        oldest_undelivered_seconds: Some(0),
        signers: (1..=10).map(signer).collect(),
        required_signatures: 4,
        lanes: vec![lane],
        ..ChannelStatus::default()
    }
}

/// Everything that can be wrong with a channel and its sink at once.
fn troubled(channel: &ChannelRef) -> ChannelStatus {
    let mut status = healthy(channel);
    let full = StoredEvents { events: 7, bytes: 7, full: true };
    (status.quarantine, status.dead_letters, status.quarantined) = (full, full, 7);
    (status.pending, status.pending_full, status.lag_events) = (7, true, Some(7));
    status.paused = Some(Pause { since: Timestamp::now(), until: None });
    let lane = &mut status.lanes[0];
    (lane.paused, lane.queued_batches, lane.oldest_undelivered_seconds) = (status.paused, 7, Some(7));
    status
}

/// Counts what happens in a channel: events of every type, each verified.
fn counted(metrics: &Metrics, channel: &ChannelRef) {
    let counters = metrics.channel(channel);
    counters.lane_begins("warehouse");
    counters.asked(Endpoint::Poll, Duration::from_millis(30), None);
    counters.checked(Duration::from_millis(3));
    for kind in EventType::KNOWN {
        counters.verdict(Some(&EventType::from(kind.to_owned())), Sort::Verified);
    }
    counters.offered("warehouse", Duration::from_millis(3), 1_000, None);
    metrics.webhook_asked("warehouse", Duration::from_millis(3), None);
}

fn series<'a>(text: &'a str, channel: &ChannelRef) -> Vec<&'a str> {
    let label = format!("channel=\"{}\"", channel.name);
    text.lines().filter(|line| line.contains(&label)).collect()
}

#[test]
fn a_thousand_healthy_channels_take_at_most_a_mebibyte() {
    let (metrics, channels) = (Metrics::default(), (0..CHANNELS).map(channel).collect::<Vec<_>>());
    for channel in &channels {
        counted(&metrics, channel);
    }
    let report = Report { channels: channels.iter().map(healthy).collect(), ..Report::default() };
    let text = text(&metrics, &report, true).unwrap();
    assert!(text.len() <= 1 << 20, "{} bytes: {:#?}", text.len(), series(&text, &channels[0]));
    for channel in &channels {
        let of_channel = series(&text, channel);
        assert!(of_channel.len() <= 16, "{of_channel:#?}");
        assert!(!of_channel.iter().any(|line| line.contains("le=\"")), "no histogram: {of_channel:#?}");
    }
}

#[test]
fn a_channel_in_every_kind_of_trouble_has_at_most_forty_series() {
    let (metrics, one) = (Metrics::default(), channel(0));
    counted(&metrics, &one);
    let counters = metrics.channel(&one);
    for sort in Sort::VARIANTS {
        counters.verdict(None, *sort);
    }
    for why in ["too-few-signatures", "event-hash-mismatch", "duplicate-proof"] {
        counters.rejected(why);
    }
    for endpoint in Endpoint::VARIANTS {
        counters.asked(*endpoint, Duration::ZERO, None);
        counters.asked(*endpoint, Duration::ZERO, Some("unavailable"));
    }
    counters.unknown_signers(1);
    counters.panicked();
    counters.gave_up("warehouse");
    counters.offered("warehouse", Duration::ZERO, 0, Some("refused"));
    let text = text(&metrics, &Report { channels: vec![troubled(&one)], ..Report::default() }, true).unwrap();
    let of_channel = series(&text, &one);
    assert!((30..=40).contains(&of_channel.len()), "{}: {of_channel:#?}", of_channel.len());
}

#[test]
fn a_scrape_contains_what_is_known_about_the_consumers_of_the_feed() {
    let metrics = Metrics::default();
    metrics.feed().gone("settlements-eu-00000");
    let since = |seconds: i64| Timestamp::from_second(Timestamp::now().as_second() - seconds).unwrap();
    let consumer = |name: &str, lag, waiting_since, gone| FeedConsumer {
        consumer: name.to_owned(),
        channel: "settlements-eu-00000".to_owned(),
        has_cursor: true,
        lag,
        waiting_since,
        gone,
        ..FeedConsumer::default()
    };
    let reader = FeedConsumer { has_cursor: false, ..consumer("reader", 9, Some(since(900)), false) };
    let consumers = vec![consumer("ledger", 0, None, false), consumer("audit", 7, Some(since(600)), true), reader];
    let feed = FeedStatus { waiting: 3, consumers, read: Some(since(60)), ..FeedStatus::default() };
    let report = Report { channels: vec![healthy(&channel(0))], feed: Some(feed), ..Report::default() };
    let text = text(&metrics, &report, true).unwrap();
    let of = |name: &str, consumer: &str| {
        let start = format!("{name}{{channel=\"settlements-eu-00000\",consumer=\"{consumer}\"}} ");
        text.lines().find_map(|line| line.strip_prefix(&*start)?.parse::<i64>().ok())
    };
    assert_eq!(
        (of("channeld_feed_consumer_lag", "ledger"), of("channeld_feed_consumer_lag", "audit")),
        (Some(0), Some(7))
    );
    assert_eq!(of("channeld_feed_consumer_lag", "reader"), None, "the feed does not know what it has processed");
    assert_eq!(of("channeld_feed_consumer_age_seconds", "ledger"), Some(0));
    assert!((600..660).contains(&of("channeld_feed_consumer_age_seconds", "audit").unwrap()), "{text}");
    assert_eq!(
        (of("channeld_feed_consumer_gone", "ledger"), of("channeld_feed_consumer_gone", "audit")),
        (None, Some(1))
    );
    for line in [
        "channeld_feed_waiting 3\n",
        "channeld_feed_gone_total{channel=\"settlements-eu-00000\"} 1\n",
        "channeld_feed_requests_total{call=\"commit\",status=\"204\"} 0\n",
        "channeld_feed_consumers_read_timestamp_seconds ",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
}

#[test]
fn a_counter_of_a_channel_appears_with_its_first_event() {
    let (metrics, one) = (Metrics::default(), channel(0));
    let counters = metrics.channel(&one);
    let report = Report { channels: vec![healthy(&one)], ..Report::default() };
    let scrape = || text(&metrics, &report, true).unwrap();
    assert!(!scrape().contains("channeld_events_rejected_total{"));
    counters.rejected("duplicate-proof");
    assert!(
        scrape().contains(
            "channeld_events_rejected_total{channel=\"settlements-eu-00000\",reason=\"duplicate-proof\"} 1\n"
        )
    );
    assert!(scrape().contains("channeld_live_signers{channel=\"settlements-eu-00000\"} 10\n"));
    assert!(scrape().contains("outcome=\"ok\"} 0\n"), "the alert for channels that are not read needs this counter");
}
