//! A client with several API keys, and keys that the service refuses.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A client with two keys, and a server that answers with these statuses.
async fn with_two_keys(answers: &'static [u16]) -> (Client, Scripted) {
    let next = Arc::new(AtomicUsize::new(0));
    let service = Scripted::start(move |_| {
        let status = answers[next.fetch_add(1, Ordering::Relaxed)];
        answer(status, if status == 200 { PAGE } else { r#"{"type":"X","message":"first or second"}"# })
    });
    let service = service.await;
    let api_keys = vec![Secret::new("first"), Secret::new("second")];
    (Client::new(Settings { api_keys, ..service.settings() }).unwrap(), service)
}

fn sent_keys(service: &Scripted) -> Vec<String> {
    service.asked().iter().map(|(_, headers)| headers["authorization"].to_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_request_whose_key_is_refused_is_repeated_with_the_next_key() {
    let (client, service) = with_two_keys(&[401, 200, 200]).await;
    assert_eq!(offsets(&client.poll(channel(), None, 200).await.unwrap()), [5, 3]);
    client.clone().poll(channel(), None, 3).await.unwrap();
    assert_eq!(sent_keys(&service), ["Apikey first", "Apikey second", "Apikey second"]);
    let states = client.keys().states().borrow().clone();
    assert_eq!(states[0], KeyState { was_accepted: false, is_refused: true, refusals: 1 });
    assert_eq!(states[1], KeyState { was_accepted: true, is_refused: false, refusals: 0 });
}

#[tokio::test]
async fn a_request_fails_if_every_key_is_refused_and_shows_none_of_them() {
    let (client, service) = with_two_keys(&[401, 401, 403, 500]).await;
    let error = client.poll(channel(), None, 200).await.unwrap_err();
    assert!(matches!(&error, ApiError::Refused(answer) if answer.status == 401), "{error:?}");
    assert!(error.to_string().contains("[api key] or [api key]"), "{error}");
    for kind in ["refused", "transient"] {
        assert_eq!(client.poll(channel(), None, 200).await.unwrap_err().kind(), kind, "only a 401 concerns the key");
    }
    assert_eq!(sent_keys(&service).len(), 4);
}

#[tokio::test]
async fn a_403_names_the_scope_that_the_key_lacks() {
    let (client, _server) = answering(403, r#"{"type":"PERMISSION_DENIED"}"#).await.client_and_server();
    let events =
        [client.poll(channel(), None, 200).await.unwrap_err(), client.event(channel(), event_id()).await.unwrap_err()];
    for error in events {
        assert!(error.to_string().contains("; the key lacks the scope crec:event:read, "), "{error}");
    }
    let error = client.watcher(channel(), event_id().0).await.unwrap_err().to_string();
    assert!(
        error.contains("lacks the scope that is needed to read watchers") && !error.contains("crec:event"),
        "{error}"
    );
    let error = polled(403, "<html>blocked</html>").await.unwrap_err().to_string();
    assert!(error.contains("does a proxy in between refuse the request?") && !error.contains("scope"), "{error}");
}

#[tokio::test]
async fn an_error_names_the_table_of_the_account() {
    for (status, body, says) in [
        (401, r#"{"type":"X"}"#, "; check accounts.fund.api_key"),
        (404, "<html>", "is accounts.fund.base_url correct"),
        (400, "<html>", "should accounts.fund.base_url begin with https://?"),
    ] {
        let service = answering(status, body).await;
        let (keys, other) = (vec![Secret::new("another")], service.client());
        let settings = Settings { account: AccountName::new("fund"), api_keys: keys, ..service.settings() };
        let client = other.beside(settings).unwrap();
        let error = client.poll(channel(), None, 1).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        assert_eq!(sent_keys(&service), ["Apikey another"]);
    }
}
