//! `channeld check --connect` reports success, or each problem and its remedy, and leaves nothing behind.

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use simulator::{Options, Simulator};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::support::{Authority, Receiver, Setup};

async fn service() -> Simulator {
    Simulator::start(Options { events: 10, unsigned: 0.2, ..Options::default() }).await.unwrap()
}

/// The exit code and the result of each check: its name, whether it succeeded, and its message.
pub(crate) async fn connect(setup: &Setup) -> (Option<i32>, Vec<(String, bool, String)>) {
    setup.write();
    let told = setup.tell(&["check", "--connect", "--json"]).await;
    let shown: Value = serde_json::from_slice(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    let asked = shown["asked"].as_array().unwrap().iter().map(|asked| {
        let what = format!("{} {}", asked["what"].as_str().unwrap(), asked["name"].as_str().unwrap());
        (what, asked["ok"].as_bool().unwrap(), asked["message"].as_str().unwrap().to_owned())
    });
    (told.code, asked.collect())
}

#[tokio::test]
async fn check_succeeds_without_delivering_or_creating_anything() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    let (code, asked) = connect(&setup).await;
    assert!(code == Some(0) && asked.iter().all(|(_, ok, _)| *ok), "{asked:?}");
    let names: Vec<_> = asked.iter().map(|(what, ..)| what.as_str()).collect();
    assert_eq!(names[1..], ["channel c0", "sink file", "sink hook"]);
    assert!(asked[1].2.contains("newest event is at offset 10") && asked[1].2.contains("verified"), "{asked:?}");
    assert!(receiver.posts().is_empty());
    assert!(!setup.path("state").exists() && !setup.path("events.jsonl").exists());

    let told = setup.tell(&["check", "--connect"]).await;
    let text = String::from_utf8(told.out).unwrap();
    assert!(text.contains("\nok   channel c0: ") && text.contains("\nok   sink hook: "), "{text}");
}

#[tokio::test]
async fn each_problem_is_reported_with_its_remedy() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let strict = format!("http://{}/", listener.local_addr().unwrap());
    let _strict = AbortOnDropHandle::new(tokio::spawn(async move {
        axum::serve(listener, Router::new().fallback(|| async { StatusCode::UNAUTHORIZED })).await.unwrap();
    }));
    let (limited, _limited) = endpoint(429, "").await;
    let (refused, _refused) = endpoint(422, r#"{"type": "validation", "message": "no"}"#).await;
    let good = || Setup::reading(&simulator);
    let signers: Vec<_> = (1..=4).map(|number| format!("0x{number:040x}")).collect();
    let cases = [
        (good().with("api.api_key", "another"), "channel c0", "check api.api_key"),
        (good().with("api.base_url", limited), "channel c0", "check whether another program uses the same key"),
        (good().with("api.base_url", refused), "channel c0", "check api.base_url, or ask the service's operator"),
        (good().with("channels.c0.id", "7c9e6679-7425-40de-944b-e07fc1f90ae7"), "channel c0", "check the channel's id"),
        (good().with("verification.valid_signers", signers), "channel c0", "check verification.valid_signers"),
        (good().with("verification.org_id", "org_other"), "channel c0", "check verification.org_id"),
        (good().with("sinks.file.path", "/nowhere/at/all.jsonl"), "sink file", "no file can be created in /nowhere/at"),
        (good().with("sinks.file.path", "/proc"), "sink file", "it is not a regular file"),
        (
            good().with_webhook("hook", &receiver).with("sinks.hook.url", strict),
            "sink hook",
            "are the credentials correct?",
        ),
        (good().with_webhook("hook", &receiver).with("sinks.hook.url", "http://127.0.0.1:9/"), "sink hook", "refused"),
        (good().with("api.base_url", "http://127.0.0.1:9/v1"), "service http://127.0.0.1:9/v1", "check api.base_url"),
    ];
    for (setup, wrong, advice) in cases {
        let (code, asked) = connect(&setup).await;
        let said = asked.iter().find(|(what, ok, _)| what == wrong && !ok);
        let said = said.unwrap_or_else(|| panic!("{wrong} is not said to be wrong: {asked:?}"));
        assert!(code == Some(69) && said.2.contains(advice), "{advice}: {asked:?}");
    }
}

#[tokio::test]
async fn an_invalid_configuration_is_not_connected() {
    let simulator = service().await;
    let setup = Setup::reading(&simulator).with("api.page_limit", 1000);
    setup.write();
    let told = setup.tell(&["check", "--connect", "--json"]).await;
    let shown: Value = serde_json::from_slice(&told.out).unwrap();
    assert_eq!((told.code, &shown["valid"], &shown["asked"]), (Some(78), &json!(false), &Value::Null));
}

/// The notes in the output of `check`.
async fn notes(setup: &Setup) -> Vec<String> {
    let told = setup.tell(&["check", "--json"]).await;
    let shown: Value = serde_json::from_slice(&told.out).unwrap_or_else(|_| panic!("{told:?}"));
    shown["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap().to_owned()).collect()
}

fn set_mode(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

#[tokio::test]
async fn plain_http_to_other_machines_and_world_readable_secrets_are_noted() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    setup.write();
    assert_eq!(notes(&setup).await, [""; 0]);

    setup.set("api.base_url", "http://service.internal/v1");
    setup.set("sinks.hook.url", "http://ledger.internal/hooks");
    setup.remove("sinks.hook.secret");
    let secret = setup.path("secret");
    std::fs::write(&secret, "whsec_b25seSBhIHRlc3Qga25vd3MgdGhpcyBzZWNyZXQ=\n").unwrap();
    set_mode(&secret, 0o644);
    setup.set("sinks.hook.secret_file", secret.display().to_string());
    set_mode(&setup.write(), 0o644);
    let noted = notes(&setup).await;
    let expected = [
        ("api.base_url: plain http", "the API key"),
        ("api.api_key: every user can read", "channeld.toml"),
        ("sinks.hook.url: plain http", "use https"),
        ("sinks.hook.secret_file: every user can read", "chmod o-r"),
    ];
    assert_eq!(noted.len(), expected.len(), "{noted:?}");
    for (key, words) in expected {
        assert!(noted.iter().any(|note| note.starts_with(key) && note.contains(words)), "{key}: {noted:?}");
    }
}

#[tokio::test]
async fn a_token_in_a_webhook_url_is_never_shown_and_the_url_can_come_from_a_file() {
    let simulator = service().await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator).with_webhook("hook", &receiver);
    setup.set("sinks.hook.url", "https://chat.internal/api/v2/hooks/T024BE7LD/xK29aTokenOfATest?token=aTokenOfATest");
    setup.keep_secret("aTokenOfATest");
    setup.keep_secret("T024BE7LD");
    setup.write();
    let told = setup.tell(&["check"]).await;
    let text = String::from_utf8(told.out).unwrap();
    assert!(text.contains(" https://chat.internal/api/v2/hooks/…/…\n"), "{text}");
    assert!(text.contains("note: sinks.hook.url: it seems to contain a token"), "{text}");

    let file = setup.path("url");
    let write = |url: String| std::fs::write(&file, url + "\n").unwrap();
    write(format!("{}?token=1", receiver.url()));
    set_mode(&file, 0o600);
    setup.remove("sinks.hook.url");
    setup.set("sinks.hook.url_file", file.display().to_string());
    let mut daemon = setup.start();
    daemon.until("all arrive", |_| receiver.received() == 10).await;
    let text = String::from_utf8(setup.tell(&["check"]).await.out).unwrap();
    assert!(text.contains("/…\n") && !text.contains("/hook") && !text.contains("note:"), "{text}");

    let other = Receiver::start().await;
    write(other.url());
    daemon.signal(rustix::process::Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    simulator.publish(0, 5);
    daemon.until("the rest goes to the other", |_| other.received() == 5).await;
    daemon.stop().await;
}

#[tokio::test]
async fn check_examines_the_state_directory_as_run_would_find_or_create_it() {
    let simulator = service().await;
    let mut setup = Setup::reading(&simulator);
    let state = setup.path("state");
    for (path, what) in [(state.clone(), ""), (state.join("not/yet/made"), "")] {
        setup.set("state.path", path.display().to_string());
        setup.write();
        assert_eq!(notes(&setup).await, [what; 0]);
    }
    assert!(!state.exists(), "nothing was made");
    std::fs::create_dir(&state).unwrap();
    set_mode(&state, 0o750);
    std::fs::write(setup.path("a-file"), "").unwrap();
    for (path, words) in
        [("state", "has mode 0750"), ("a-file", "is not a directory"), ("a-file/state", "Not a directory")]
    {
        setup.set("state.path", setup.path(path).display().to_string());
        setup.write();
        let noted = notes(&setup).await;
        assert!(noted.len() == 1 && noted[0].contains(words) && noted[0].starts_with("state.path: "), "{noted:?}");
        let (code, asked) = connect(&setup).await;
        let said = asked.iter().find(|(what, ok, _)| what.starts_with("state ") && !ok).unwrap();
        assert!(code == Some(69) && said.2.contains(words), "{asked:?}");
    }
}

/// An endpoint that answers every request with this status and body, followed by the request's `Authorization` header.
async fn endpoint(status: u16, body: &'static str) -> (String, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let answer = move |headers: HeaderMap| async move {
        (StatusCode::from_u16(status).unwrap(), format!("{body} {:?}", headers.get("authorization")))
    };
    let serving = tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
    (url, AbortOnDropHandle::new(serving))
}

#[tokio::test]
async fn an_endpoint_that_requires_a_client_certificate_or_presents_a_ca_certificate_fails() {
    let simulator = service().await;
    let (url, _serving) = endpoint(400, "<h1>400</h1> No required SSL certificate was sent").await;
    let authority = Authority::new("an authority of one's own");
    let receiver = Receiver::start_as(&authority).await;
    let with_hook = || Setup::reading(&simulator).with_webhook("hook", &receiver);
    let of_authority = with_hook();
    let ca = authority.write(&of_authority.path("ca.pem"));
    let of_authority = of_authority.with("sinks.hook.ca_file", ca).with("sinks.hook.url", receiver.url());
    for (setup, words) in [
        (with_hook().with("sinks.hook.url", url), "answers 400 to HEAD: its answer mentions a certificate"),
        (of_authority, "could not connect: the server uses a CA certificate as its own"),
    ] {
        let (code, asked) = connect(&setup).await;
        let (_, ok, said) = asked.iter().find(|(what, ..)| what == "sink hook").unwrap();
        assert!(code == Some(69) && !ok && said.contains(words) && !said.contains("CaUsed"), "{said}");
    }
}

#[tokio::test]
async fn an_error_body_is_shown_on_request_in_one_line_without_secrets() {
    let simulator = service().await;
    let (url, _serving) = endpoint(502, "<html>\n\u{1b}[31mthe proxy says no\n").await;
    let receiver = Receiver::start().await;
    let mut setup = Setup::reading(&simulator)
        .with_webhook("hook", &receiver)
        .with("sinks.hook.url", url.as_str())
        .with("sinks.hook.bearer_token", "token-of-a-test")
        .with("api.base_url", url.as_str());
    setup.keep_secret("token-of-a-test");
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    assert!(!String::from_utf8(told.out).unwrap().contains("the proxy says no"));
    let told = setup.tell(&["check", "--connect", "--show-body"]).await;
    let said = String::from_utf8(told.out).unwrap();
    for line in ["FAIL service ", "FAIL channel c0", "ok   sink hook"] {
        let line = said.lines().find(|said| said.starts_with(line)).unwrap_or_else(|| panic!("{line}: {said}"));
        assert!(line.contains("; the body begins: <html> \\u{1b}[31mthe proxy says no"), "{line}");
    }
    assert!(said.contains("[secret]"), "{said}");
    assert_eq!(setup.tell(&["check", "--show-body"]).await.code, Some(64));
}
