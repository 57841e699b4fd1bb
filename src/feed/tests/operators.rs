//! Operators see the consumers and set their cursors.

use jiff::Timestamp;
use serde_json::json;
use tokio::time::timeout;

use super::support::{Answer, MAX_WAIT, OPEN, TestFeed, served, settings};
use crate::FeedSettings;
use operator::Refusal;
use operator::feed::FeedConsumer;

const LEASE: &str = "/v1/consumers/ledger/open/lease";

const COMMIT: &str = "/v1/consumers/ledger/open/commit";

/// Reads the consumers, and returns the consumer `ledger` in the channel `open`.
async fn ledger(feed: &TestFeed) -> FeedConsumer {
    assert!(feed.operators.refresh().await, "the table answers");
    let found = feed.operators.status().consumers.into_iter().find(|known| known.consumer == "ledger");
    found.expect("it is configured")
}

async fn commit(feed: &TestFeed, lease: &Answer, through: i64) {
    let body = json!({"lease": lease.json()["lease"], "through": through}).to_string();
    assert_eq!(feed.post(COMMIT, &body).await.status, 204);
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    };
    timeout(MAX_WAIT, wait).await.unwrap_or_else(|_| panic!("not in time: {what}"));
}

#[tokio::test]
async fn lag_age_and_lease_of_each_configured_consumer_are_reported() {
    served(settings(), async |feed| {
        let new = ledger(feed).await;
        let expected = FeedConsumer {
            consumer: "ledger".to_owned(),
            channel: "open".to_owned(),
            channel_id: OPEN.to_string(),
            ..FeedConsumer::default()
        };
        assert_eq!(new, expected, "a channel without events");
        let consumers = feed.operators.status().consumers;
        let pairs: Vec<_> = consumers.iter().map(|known| (&*known.consumer, &*known.channel)).collect();
        assert_eq!(pairs, [("ledger", "open"), ("other", "open"), ("other", "closed")]);

        let before = Timestamp::now();
        feed.table.deliver(OPEN, 3);
        let first = ledger(feed).await;
        assert_eq!((first.through, first.newest, first.oldest, first.lag, first.gone), (0, 3, Some(1), 3, false));
        let since = first.waiting_since.expect("events wait");
        assert!(since >= before && since <= Timestamp::now(), "{since}");

        let lease = feed.post(LEASE, "").await;
        assert!(ledger(feed).await.leased_until.is_some());
        commit(feed, &lease, 2).await;
        let second = ledger(feed).await;
        assert_eq!((second.through, second.lag, second.leased_until), (2, 1, None));
        assert!(second.waiting_since >= first.waiting_since);

        commit(feed, &feed.post(LEASE, "").await, 3).await;
        let done = ledger(feed).await;
        assert_eq!((done.lag, done.waiting_since), (0, None));
    })
    .await;
}

#[tokio::test]
async fn a_consumer_whose_next_event_was_deleted_is_reported() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 2);
        commit(feed, &feed.post(LEASE, "").await, 1).await;
        feed.table.deliver(OPEN, 3);
        feed.table.delete_through(OPEN, 3);
        let gone = ledger(feed).await;
        assert_eq!((gone.through, gone.oldest, gone.lag, gone.gone), (1, Some(4), 4, true));
        assert!(gone.waiting_since.is_some(), "the oldest event that remains waits");
        let new = feed.operators.status().consumers.into_iter().find(|known| known.consumer == "other").unwrap();
        assert_eq!((new.through, new.lag, new.gone), (3, 2, false), "a new consumer begins with the oldest event");
    })
    .await;
}

#[tokio::test]
async fn an_operator_sets_a_cursor_and_ends_the_lease() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 5);
        let lease = feed.post(LEASE, "").await;
        feed.operators.set_cursor("ledger", "open", 3).await.unwrap();
        let set = ledger(feed).await;
        assert_eq!((set.through, set.lag, set.leased_until), (3, 2, None));
        let body = json!({"lease": lease.json()["lease"], "through": 5}).to_string();
        assert_eq!(feed.post(COMMIT, &body).await.status, 409, "the old lease has ended");
        assert_eq!(feed.post(LEASE, "").await.positions(), [4, 5]);
        for (channel, through) in [("open", 6), ("unknown", 0)] {
            let refused = feed.operators.set_cursor("ledger", channel, through).await.unwrap_err();
            assert!(matches!(refused, Refusal::Usage(_)), "{refused}");
        }
        assert_eq!(ledger(feed).await.through, 3, "a refused request changes nothing");
    })
    .await;
}

#[tokio::test]
async fn a_reload_changes_the_reported_consumers_at_once() {
    served(settings(), async |feed| {
        ledger(feed).await;
        let consumers = settings().consumers.into_iter().filter(|consumer| &*consumer.name == "other").collect();
        let queries = feed.table.channel_queries();
        feed.set(FeedSettings { consumers, ..settings() });
        until("the consumers are read", || feed.table.channel_queries() > queries).await;
        assert!(feed.operators.refresh().await);
        assert!(feed.operators.status().consumers.iter().all(|known| known.consumer == "other"));
    })
    .await;
}

#[tokio::test]
async fn requests_at_the_same_time_share_a_query() {
    served(settings(), async |feed| {
        assert!(feed.operators.refresh().await);
        let queries = feed.table.channel_queries();
        let all = futures_util::future::join_all((0..10).map(|_| feed.operators.refresh())).await;
        assert_eq!(all, [true; 10]);
        let asked = feed.table.channel_queries() - queries;
        assert!((1..=2).contains(&asked), "{asked} queries");
    })
    .await;
}

#[tokio::test]
async fn a_table_that_does_not_answer_delays_neither_operators_nor_clients() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 3);
        assert_eq!(ledger(feed).await.lag, 3);
        let read = feed.operators.status().read;
        feed.table.set_locked(true);
        assert!(!feed.operators.refresh().await, "it gives up");
        let status = feed.operators.status();
        assert_eq!((status.read, status.consumers.len()), (read, 3), "the last report remains known, with its time");
        assert_eq!(feed.get("/v1/channels").await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn waiting_requests_are_counted() {
    served(settings(), async |feed| {
        assert_eq!(feed.operators.status().waiting, 0);
        let waits = async {
            feed.until_waiting(1).await;
            // The request begins to wait after it has read the table.
            until("it waits", || feed.operators.status().waiting == 1).await;
            feed.table.deliver(OPEN, 1);
        };
        let (answer, ()) = tokio::join!(feed.get("/v1/channels/open/events?after=0&wait=30s"), waits);
        assert_eq!(answer.positions(), [1]);
        assert_eq!(feed.operators.status().waiting, 0);
    })
    .await;
}
