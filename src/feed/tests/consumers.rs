//! Leases and commits.

use serde_json::json;

use super::support::{Answer, CLOSED, OPEN, OTHER_TOKEN, served, settings};

const LEASE: &str = "/v1/consumers/ledger/open/lease";

const COMMIT: &str = "/v1/consumers/ledger/open/commit";

fn commit(lease: &Answer, through: i64) -> String {
    json!({"lease": lease.json()["lease"], "through": through}).to_string()
}

#[tokio::test]
async fn a_consumer_processes_each_event_once_and_in_order() {
    served(settings(), async |feed| {
        assert_eq!(feed.post(LEASE, "").await.status, 204, "the table is empty");
        feed.table.deliver(OPEN, 3);
        let first = feed.post(&format!("{LEASE}?limit=2"), "").await;
        assert_eq!((first.status, first.positions(), &first.json()["expires_in"]), (200, vec![1, 2], &json!(30)));
        let held = feed.post(LEASE, "").await;
        assert_eq!((held.status, &held.json()["type"]), (409, &json!("urn:channeld:feed:leased")));
        assert_eq!(feed.post(COMMIT, &commit(&first, 3)).await.status, 400, "3 is not leased");
        assert_eq!(feed.post(COMMIT, &commit(&first, 2)).await.status, 204);
        assert_eq!(feed.post(COMMIT, &commit(&first, 2)).await.status, 409, "the lease has ended");
        let rest = feed.post(LEASE, "").await;
        assert_eq!(rest.positions(), [3]);
        assert_eq!(feed.post(COMMIT, &commit(&rest, 3)).await.status, 204);
        assert_eq!(feed.post(&format!("{LEASE}?wait=20ms"), "").await.status, 204);
    })
    .await;
}

#[tokio::test]
async fn a_commit_by_an_expired_lease_changes_nothing() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 2);
        let expired = feed.post(LEASE, "").await;
        feed.table.expire_leases();
        let next = feed.post(LEASE, "").await;
        assert_eq!(next.positions(), expired.positions(), "the events were not committed");
        let refused = feed.post(COMMIT, &commit(&expired, 2)).await;
        assert_eq!((refused.status, &refused.json()["type"]), (409, &json!("urn:channeld:feed:not-leased")));
        assert_eq!(feed.post(COMMIT, &commit(&next, 1)).await.status, 204, "the newer lease is not affected");
        assert_eq!(feed.post(LEASE, "").await.positions(), [2]);
    })
    .await;
}

#[tokio::test]
async fn a_delivery_wakes_a_waiting_consumer() {
    served(settings(), async |feed| {
        let deliver = async {
            feed.until_waiting(1).await;
            feed.table.deliver(OPEN, 1);
        };
        let waiting = format!("{LEASE}?wait=60s");
        let (leased, ()) = tokio::join!(feed.post(&waiting, ""), deliver);
        assert_eq!(leased.positions(), [1]);
    })
    .await;
}

#[tokio::test]
async fn a_waiting_consumer_does_not_ask_for_a_lease_after_each_delivery_to_another_channel() {
    served(settings(), async |feed| {
        let deliver = async {
            feed.until(|feed| feed.table.lease_queries() == 1).await;
            for _ in 0..10 {
                let queries = || feed.table.lease_queries() + feed.table.newest_queries();
                let before = queries();
                feed.table.deliver(CLOSED, 1);
                feed.until(|_| queries() > before).await;
            }
            assert!(feed.table.lease_queries() <= 2, "{}", feed.table.lease_queries());
            feed.table.deliver(OPEN, 1);
        };
        let waiting = format!("{LEASE}?wait=60s");
        let (leased, ()) = tokio::join!(feed.post(&waiting, ""), deliver);
        assert_eq!(leased.positions(), [1]);
    })
    .await;
}

#[tokio::test]
async fn consumers_have_cursors_of_their_own() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 1);
        let own = feed.post(LEASE, "").await;
        assert_eq!(feed.post(COMMIT, &commit(&own, 1)).await.status, 204);
        let other = feed.ask("POST", "/v1/consumers/other/open/lease", Some(OTHER_TOKEN), "").await;
        assert_eq!(other.positions(), [1]);
        assert_eq!(feed.ask("POST", LEASE, Some(OTHER_TOKEN), "").await.status, 403, "the token of another consumer");
    })
    .await;
}

#[tokio::test]
async fn a_consumer_behind_the_oldest_event_is_told_so() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 2);
        feed.table.delete_through(OPEN, 1);
        let first = feed.post(LEASE, "").await;
        assert_eq!(first.positions(), [2], "a new consumer begins with the oldest event");
        assert_eq!(feed.post(COMMIT, &commit(&first, 2)).await.status, 204);
        feed.table.deliver(OPEN, 2);
        feed.table.delete_through(OPEN, 3);
        let gone = feed.post(LEASE, "").await;
        assert_eq!((gone.status, &gone.json()["oldest"]), (410, &json!(4)));
        assert!(gone.body.contains("channeld consumers set ledger open 3 --yes"), "{}", gone.body);
    })
    .await;
}
