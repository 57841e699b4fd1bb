use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use axum::response::Response;

use super::*;
use api::Client;
use api::testing::Scripted;
use proof::event::ChannelId;
use proof::verify::{Address, SignerSet, Verifier};
use record::ChannelRef;

/// Answers with each entry of the script in turn, and then repeats the last one.
async fn telling(script: &'static [(u16, &'static str)]) -> Scripted {
    let next = Arc::new(AtomicUsize::new(0));
    Scripted::start(move |_| {
        let (status, body) = script[next.fetch_add(1, Ordering::Relaxed).min(script.len() - 1)];
        let body = if status == 200 && body.len() < 20 { format!(r#"{{"status":"{body}"}}"#) } else { body.to_owned() };
        Response::builder().status(status).body(Body::from(body)).unwrap()
    })
    .await
}

/// The result of a wait of at most `timeout`.
async fn ended(client: Client, until: TargetStatus, timeout: Duration) -> Result<String, CommandError> {
    let id: Uuid = "7c9e6679-7425-40de-944b-e07fc1f90ae7".parse().unwrap();
    let channel = ChannelRef { name: "test".into(), id: ChannelId(id) };
    let verifier = Verifier::new(SignerSet::new(vec![Address([1; 20])], 1).unwrap(), Address([2; 20]));
    let connection = Connection { client, channel, verifier, signer_names: operator::SignerNames::default() };
    let args = Args { channel: "test".to_owned(), watcher_id: id, until, interval: Duration::from_millis(1), timeout };
    let mut out = Vec::new();
    assert_eq!(run(&args, &connection, &mut Context { file: None, out: &mut out }).await?, Exit::Done);
    Ok(String::from_utf8(out).unwrap())
}

async fn waiting(service: &Scripted, until: TargetStatus) -> Result<String, CommandError> {
    ended(service.client(), until, Duration::from_secs(10)).await
}

#[tokio::test]
async fn the_wait_continues_during_transient_states_and_errors() {
    for (until, reached) in [(TargetStatus::Active, "active"), (TargetStatus::Archived, "archived")] {
        let service = telling(&[(200, "pending"), (502, ""), (500, ""), (503, "<html>"), (200, "new_state")]).await;
        let failure = ended(service.client(), until, Duration::from_millis(100)).await.unwrap_err();
        let expected = format!("the watcher did not become {until} within 0.1s; it was last new_state");
        assert_eq!((failure.to_string(), failure.0), (expected, Exit::Failed));

        let script: &'static [_] = if until == TargetStatus::Active {
            &[(502, ""), (200, "pending"), (200, "active")]
        } else {
            &[(200, "active"), (200, "archiving"), (200, "archived")]
        };
        let service = telling(script).await;
        let said = waiting(&service, until).await.unwrap();
        assert_eq!(said, format!("watcher 7c9e6679-7425-40de-944b-e07fc1f90ae7 is {reached}\n"));
        assert_eq!(service.asked().len(), 3);
    }
}

#[tokio::test]
async fn a_final_state_ends_the_wait_and_is_named() {
    for (until, status) in [
        (TargetStatus::Active, "failed"),
        (TargetStatus::Active, "archiving"),
        (TargetStatus::Active, "archived"),
        (TargetStatus::Archived, "archive_failed"),
        (TargetStatus::Archived, "failed"),
    ] {
        let service = Scripted::start(move |_| {
            let body = format!(r#"{{"status":"{status}","status_reason":"no\u001b funds"}}"#);
            Response::new(Body::from(body))
        });
        let failure = waiting(&service.await, until).await.unwrap_err();
        assert_eq!(
            failure.to_string(),
            format!("the watcher is {status} (no\u{fffd} funds) and will not become {until}")
        );
    }
}

#[tokio::test]
async fn a_new_watcher_may_be_missing_at_first() {
    const NOT_FOUND: (u16, &str) = (404, r#"{"type":"NOT_FOUND","code":"WATCHER_NOT_FOUND"}"#);
    let service = telling(&[NOT_FOUND, NOT_FOUND, (200, "active")]).await;
    assert!(waiting(&service, TargetStatus::Active).await.is_ok());
    let failure = waiting(&telling(&[NOT_FOUND]).await, TargetStatus::Active).await.unwrap_err();
    assert_eq!(failure.0, Exit::Failed, "{failure}");
}

#[tokio::test]
async fn a_permanent_error_ends_the_wait() {
    for (status, body, exit) in [
        (400, "", Exit::Failed),
        (401, "", Exit::Failed),
        (404, "", Exit::Unavailable),
        (409, "", Exit::Failed),
        (200, "<html>and so on, a proxy's page</html>", Exit::Unavailable),
        (302, "", Exit::Unavailable),
    ] {
        let service =
            Scripted::start(move |_| Response::builder().status(status).body(Body::from(body)).unwrap()).await;
        match waiting(&service, TargetStatus::Active).await {
            Err(CommandError(ended, why)) => {
                assert_eq!(ended, exit, "{status}: {why}");
                assert!(why.starts_with("the watcher's state could not be read: "), "{status}: {why}");
            }
            other => panic!("{status}: {other:?}"),
        }
        assert_eq!(service.asked().len(), 1, "{status}");
    }
}

#[tokio::test]
async fn an_unreachable_service_is_retried_until_the_timeout() {
    let service = telling(&[(200, "active")]).await;
    let client = service.client();
    drop(service);
    let failure = ended(client, TargetStatus::Active, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "the watcher did not become active within 0.05s; the service never reported its state"
    );
    assert_eq!(failure.0, Exit::Unavailable);
}

#[test]
fn durations_need_a_unit_and_must_be_positive() {
    assert_eq!(positive_duration("2s"), Ok(Duration::from_secs(2)));
    assert_eq!(positive_duration("5m"), Ok(Duration::from_mins(5)));
    assert_eq!(positive_duration("500ms"), Ok(Duration::from_millis(500)));
    for text in ["", "0s", "-1s", "5", "soon"] {
        assert!(positive_duration(text).is_err(), "{text}");
    }
}
