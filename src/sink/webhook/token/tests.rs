use std::net::TcpListener;
use std::sync::Arc;

use futures_util::future::join_all;
use reqwest::header::HeaderMap;
use serde_json::json;

use super::*;
use net::http::{ConnectionSettings, Proxy};

fn granted(answer: Value) -> Option<(String, Duration, Duration)> {
    let asked = Instant::now();
    let CachedToken { authorization, renew_at, ends_at } = cached_token(serde_json::from_value(answer).ok()?, asked)?;
    assert!(authorization.is_sensitive());
    Some((authorization.to_str().unwrap().to_owned(), renew_at - asked, ends_at - asked))
}

#[test]
fn a_token_is_renewed_before_it_ends() {
    let seconds = Duration::from_secs;
    for (expires_in, renewed, ends) in [
        (json!(3600), seconds(3540), seconds(3600)),
        (json!("3600"), seconds(3540), seconds(3600)),
        (json!(10), seconds(8), seconds(10)),
        (json!(null), seconds(240), seconds(300)),
        (json!(0), seconds(240), seconds(300)),
        (json!(-5), seconds(240), seconds(300)),
        (json!(1e300), seconds(240), seconds(300)),
        (json!(1e12), seconds(30 * 24 * 3600 - 60), LONGEST_LIFE),
    ] {
        let answer = json!({"access_token": "t", "token_type": "Bearer", "expires_in": expires_in});
        assert_eq!(granted(answer), Some(("Bearer t".to_owned(), renewed, ends)), "{expires_in}");
    }
}

#[test]
fn an_invalid_bearer_token_is_refused() {
    for answer in [
        json!({"access_token": "t", "token_type": "mac"}),
        json!({"access_token": "", "token_type": "bearer"}),
        json!({"access_token": "a\nb", "token_type": "bearer"}),
        json!({"token": "t"}),
        json!("t"),
    ] {
        assert_eq!(granted(answer.clone()), None, "{answer}");
    }
    assert!(granted(json!({"access_token": "t"})).is_some(), "the response may omit the token type");
}

#[test]
fn only_the_code_of_a_refusal_is_shown() {
    let said = |status: u16, body: &str| refusal(StatusCode::from_u16(status).unwrap(), Some(body.as_bytes()));
    let advised = "it answered 401 (invalid_client): check oauth2.client_id and its secret";
    assert_eq!(said(401, r#"{"error":"invalid_client","error_description":"hunter2"}"#), advised);
    assert_eq!(said(400, r#"{"error":"invalid_scope"}"#), "it answered 400 (invalid_scope): check oauth2.scope");
    assert_eq!(said(503, r#"{"error":"Hunter2 is no secret"}"#), "it answered 503");
    assert_eq!(said(404, "<html>hunter2"), "it answered 404: check oauth2.token_url");
}

#[test]
fn an_id_and_a_secret_are_encoded_before_they_become_a_header() {
    let header = credentials_of("a:b", &Secret::new("c d%"));
    assert_eq!(header, basic("a%3Ab", "c+d%25"));
}

fn tokens_from(token_url: &str, timeout: Duration) -> Tokens {
    let token_url: Url = token_url.parse().unwrap();
    let settings = OAuth2 {
        client_id: "c".into(),
        client_secret: Secret::new("s"),
        credentials: Credentials::Header,
        scope: None,
        audience: None,
        token_url: token_url.clone(),
    };
    let direct = ConnectionSettings { proxy: Proxy::Direct, ..ConnectionSettings::default() };
    let client = Client::new(&token_url, &direct, HeaderMap::new(), timeout, 0, Arc::default()).unwrap();
    Tokens::new(settings, client, timeout)
}

#[tokio::test(start_paused = true)]
async fn callers_that_wait_for_a_fetch_share_its_failure() {
    let timeout = Duration::from_secs(30);
    // This server accepts connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let tokens = tokens_from(&format!("http://{}/token", silent.local_addr().unwrap()), timeout);
    for _ in 0..2 {
        let began = Instant::now();
        let answers = join_all((0..20).map(|_| tokens.authorization())).await;
        let took = began.elapsed();
        assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(|refusal| !refusal.error.needs_attention())));
        assert!(timeout <= took && took < 2 * timeout, "later callers fetch again, once: {took:?}");
    }
}

#[tokio::test]
async fn a_valid_token_is_used_if_renewal_fails() {
    // No server listens on this port.
    let tokens = tokens_from("http://127.0.0.1:1/token", Duration::from_secs(10));
    let (now, later) = (Instant::now(), Instant::now() + Duration::from_secs(3600));
    let authorization = sensitive("Bearer t").unwrap();
    let token = CachedToken { authorization: authorization.clone(), renew_at: now, ends_at: later };
    tokens.cached.lock().await.token = Some(token);
    assert!(tokens.authorization().await.is_ok_and(|used| used == authorization));
    tokens.forget(&sensitive("Bearer another").unwrap()).await;
    assert!(tokens.authorization().await.is_ok(), "the endpoint has refused another token");
    tokens.forget(&authorization).await;
    let Err(RequestRefusal { error, about }) = tokens.authorization().await else { panic!("a token was returned") };
    assert!(error.to_string().starts_with(
        "no access token from http://127.0.0.1:1: the request to the token endpoint failed: could not connect"
    ));
    assert!(about == RefusalScope::Endpoint && !error.needs_attention());
}
