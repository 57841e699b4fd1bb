//! Listing, reading and waiting, and who may do it.

use serde_json::json;

use super::support::{CLOSED, OPEN, OTHER_TOKEN, TOKEN, ask_on, request, served, settings};
use crate::TokenHash;

#[tokio::test]
async fn a_client_lists_its_channels_and_resumes_at_its_position() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 5);
        let listed = feed.get("/v1/channels").await;
        let expected = json!({"channels": [{"name": "open", "id": OPEN.to_string(), "position": 5}]});
        assert_eq!((listed.status, listed.json()), (200, expected), "only the channels of the token");

        let first = feed.get("/v1/channels/open/events?after=0&limit=2").await;
        let events = json!([{"position": 1, "event_id": "e1"}, {"position": 2, "event_id": "e2"}]);
        assert_eq!(first.json(), json!({"events": events, "next": 2}));
        assert!(first.body.starts_with(r#"{"events":[{"position":1,"event_id":"e1"},{"#), "{}", first.body);
        let rest = feed.get("/v1/channels/open/events?after=2").await;
        assert_eq!((rest.positions(), &rest.json()["next"]), (vec![3, 4, 5], &json!(5)));
        let none = feed.get("/v1/channels/open/events?after=5").await;
        assert_eq!(none.json(), json!({"events": [], "next": 5}), "nothing is newer");
        assert_eq!(feed.get("/v1/channels/open/events").await.positions(), [1, 2, 3, 4, 5], "from the oldest on");
    })
    .await;
}

#[tokio::test]
async fn the_positions_of_several_channels_are_read_together() {
    served(settings(), async |feed| {
        feed.table.deliver(CLOSED, 3);
        let listed = feed.ask("GET", "/v1/channels", Some(OTHER_TOKEN), "").await.json();
        let expected = [("open", OPEN, 0), ("closed", CLOSED, 3)]
            .map(|(name, id, position)| json!({"name": name, "id": id.to_string(), "position": position}));
        assert_eq!(listed, json!({"channels": expected}), "a channel without events has position 0");
        assert_eq!(feed.table.newest_queries(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_delivery_wakes_a_waiting_client() {
    served(settings(), async |feed| {
        let deliver = async {
            feed.until_waiting(1).await;
            feed.table.deliver(CLOSED, 1);
            feed.table.deliver(OPEN, 1);
        };
        let (woken, ()) = tokio::join!(feed.get("/v1/channels/open/events?after=0&wait=60s"), deliver);
        assert_eq!(woken.positions(), [1]);
    })
    .await;
}

#[tokio::test]
async fn a_wait_ends_without_events_and_when_the_daemon_stops() {
    served(settings(), async |feed| {
        let short = feed.get("/v1/channels/open/events?after=0&wait=20ms").await;
        assert_eq!(short.json(), json!({"events": [], "next": 0}));
        let stop = async {
            feed.until_waiting(1).await;
            feed.stop.cancel();
        };
        let (stopped, ()) = tokio::join!(feed.get("/v1/channels/open/events?after=0&wait=60s"), stop);
        assert_eq!((stopped.status, stopped.positions()), (200, vec![]));
        assert_eq!(feed.get("/v1/channels").await.status, 503);
    })
    .await;
}

#[tokio::test]
async fn positions_of_deleted_and_of_missing_events_are_problems() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 5);
        feed.table.delete_through(OPEN, 3);
        for path in ["/v1/channels/open/events?after=2", "/v1/channels/open/stream?after=2"] {
            let gone = feed.get(path).await;
            assert_eq!((gone.status, &gone.json()["oldest"]), (410, &json!(4)), "{path}");
        }
        assert_eq!(feed.get("/v1/channels/open/events?after=3").await.positions(), [4, 5]);
        assert_eq!(feed.get("/v1/channels/open/events").await.positions(), [4, 5]);
        feed.table.delete_through(OPEN, 5);
        assert_eq!(feed.get("/v1/channels/open/events?after=4").await.json()["oldest"], 6, "every row was deleted");
        assert_eq!(feed.get("/v1/channels/open/events?after=5").await.positions(), [] as [i64; 0]);
        for after in ["6", "9223372036854775807"] {
            let missing = feed.get(&format!("/v1/channels/open/events?after={after}&wait=60s")).await;
            assert_eq!(missing.status, 400, "{after} was never assigned, so the table lost it");
        }
    })
    .await;
}

#[tokio::test]
async fn an_answer_ends_before_a_deleted_event_and_the_next_one_is_a_problem() {
    served(settings(), async |feed| {
        feed.table.deliver(OPEN, 5);
        feed.table.delete(OPEN, 3);
        assert_eq!(feed.get("/v1/channels/open/events?after=0").await.positions(), [1, 2]);
        for path in ["/v1/channels/open/events?after=2&wait=60s", "/v1/channels/open/stream?after=2"] {
            let gone = feed.get(path).await;
            assert_eq!((gone.status, &gone.json()["oldest"]), (410, &json!(4)), "{path}");
        }
        assert_eq!(feed.get("/v1/channels/open/events?after=3").await.positions(), [4, 5]);
        feed.table.delete(OPEN, 5);
        let newest = feed.get("/v1/channels/open/events?after=4&wait=60s").await;
        assert_eq!((newest.status, &newest.json()["oldest"]), (410, &json!(6)));
    })
    .await;
}

#[tokio::test]
async fn a_client_tries_again_while_the_table_has_no_positions() {
    served(settings(), async |feed| {
        let answer = feed.get("/v1/channels/open/events?after=6").await;
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    })
    .await;
}

#[tokio::test]
async fn a_record_that_is_no_object_is_not_served() {
    served(settings(), async |feed| {
        feed.table.deliver_record(OPEN, "[1]");
        let refused = feed.get("/v1/channels/open/events?after=0").await;
        assert_eq!(refused.status, 503);
        assert!(!refused.body.contains("position 1"), "only the log contains the reason: {}", refused.body);
    })
    .await;
}

#[tokio::test]
async fn only_valid_tokens_are_answered_and_only_about_their_channels() {
    served(settings(), async |feed| {
        for token in [None, Some(""), Some("wrong"), Some("the-token-of-ledge"), Some("the-token-of-ledgerr")] {
            for path in ["/v1/channels", "/v1/channels/open/events", "/nowhere"] {
                let refused = feed.ask("GET", path, token, "").await;
                assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{token:?}");
            }
        }
        let basic = "Authorization: Basic dGhlLXRva2VuLW9mLWxlZGdlcg==\r\n";
        let twice = format!("Authorization: Bearer {TOKEN}\r\n").repeat(2);
        for headers in [basic, &twice, &format!("Authorization: {TOKEN}\r\n")] {
            let refused = ask_on(&mut feed.connect().await, &request("GET", "/v1/channels", headers, "")).await;
            assert_eq!(refused.status, 401, "{headers}");
        }
        for (path, status) in [
            ("/v1/channels/closed/events", 403),
            ("/v1/channels/closed/stream", 403),
            ("/v1/channels/missing/events", 404),
            ("/v1/channels/%ff/events", 404),
            ("/v1/channels/open/../closed/events", 404),
            ("/v1", 404),
        ] {
            assert_eq!(feed.get(path).await.status, status, "{path}");
        }
        let other = feed.ask("GET", "/v1/channels/closed/events", Some(OTHER_TOKEN), "").await;
        assert_eq!(other.status, 200);
    })
    .await;
}

#[tokio::test]
async fn a_token_is_replaced_without_an_interruption() {
    served(settings(), async |feed| {
        let with_tokens = |tokens: &[&str]| {
            let mut settings = settings();
            settings.consumers[0].tokens = tokens.iter().map(|token| TokenHash::of(token)).collect();
            feed.set(settings);
        };
        let status = async |token: &str| feed.ask("GET", "/v1/channels", Some(token), "").await.status;
        assert_eq!((status(TOKEN).await, status("the-next-token").await), (200, 401));
        with_tokens(&[TOKEN, "the-next-token"]);
        assert_eq!((status(TOKEN).await, status("the-next-token").await), (200, 200));
        with_tokens(&["the-next-token"]);
        assert_eq!((status(TOKEN).await, status("the-next-token").await), (401, 200));
    })
    .await;
}

#[tokio::test]
async fn a_removed_token_ends_a_wait() {
    served(settings(), async |feed| {
        let remove = async {
            feed.until_waiting(1).await;
            let mut settings = settings();
            settings.consumers[0].tokens.clear();
            feed.set(settings);
        };
        let (refused, ()) = tokio::join!(feed.get("/v1/channels/open/events?after=0&wait=60s"), remove);
        assert_eq!(refused.status, 401);
    })
    .await;
}

#[tokio::test]
async fn every_problem_is_a_problem_document() {
    served(settings(), async |feed| {
        for (method, path, body, status) in [
            ("GET", "/v1/channels?x=1", "", 400),
            ("GET", "/v1/channels/open/events?after=-1", "", 400),
            ("GET", "/v1/channels/open/stream?limit=5", "", 400),
            ("POST", "/v1/consumers/ledger/open/lease?limit=0", "", 400),
            ("POST", "/v1/consumers/ledger/open/commit", "{}", 400),
            ("POST", "/v1/consumers/other/open/lease", "", 403),
            ("POST", "/v1/consumers/ledger/missing/lease", "", 404),
            ("DELETE", "/v1/channels", "", 405),
            ("GET", "/v1/consumers/ledger/open/lease", "", 405),
            ("POST", "/v1/consumers/ledger/open/commit", &*"x".repeat(5_000), 413),
        ] {
            let refused = feed.ask(method, path, Some(TOKEN), body).await;
            let problem = refused.json();
            assert_eq!((refused.status, &problem["status"]), (status, &json!(status)), "{method} {path}: {problem}");
            assert_eq!(refused.header("content-type"), Some("application/problem+json"), "{path}");
            assert_eq!(refused.header("cache-control"), Some("no-store"), "{path}");
            assert_eq!(refused.header("allow").is_some(), status == 405, "{path}");
        }
    })
    .await;
}
