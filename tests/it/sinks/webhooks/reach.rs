//! The connection to a webhook: TLS with client certificates, signatures, proxies, and forbidden addresses.

use axum::http::Version;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_compact::{KeyPair, PublicKey, Seed, Signature};
use rustix::process::Signal;
use simulator::Simulator;

use super::{service, until_lane_is, webhook_only};
use crate::support::{Authority, ForwardProxy, Post, Receiver, Reply, Setup, deliverable, offsets};

/// Configures a private authority and a client certificate for a webhook.
fn introduce(setup: &mut Setup, sink: &str, authority: &Authority) {
    let ca = authority.write(&setup.path("ca.pem"));
    let [certificate, key] = authority.issue(&setup.path("client.pem"), &setup.path("client-key.pem"));
    setup.set(&format!("sinks.{sink}.ca_file"), ca);
    setup.set(&format!("sinks.{sink}.client_certificate_file"), certificate);
    setup.set(&format!("sinks.{sink}.client_key_file"), key);
}

/// Verifies the `v1a` signature as the Standard Webhooks specification describes ("Signature scheme", "Webhook
/// headers"). It covers the id, the timestamp and the body, joined with full stops. The header contains several
/// signatures, separated by spaces.
fn verify_asymmetric(post: &Post, key: &PublicKey) {
    let signatures = post.headers["webhook-signature"].to_str().unwrap();
    let signature = signatures.split(' ').find_map(|signature| signature.strip_prefix("v1a,")).unwrap();
    let signature = Signature::from_slice(&STANDARD.decode(signature).unwrap()).unwrap();
    let timestamp = post.headers["webhook-timestamp"].to_str().unwrap();
    let content = format!("{}.{timestamp}.{}", post.id(), post.body);
    key.verify(content, &signature).unwrap();
}

#[tokio::test]
async fn http_2_with_mutual_tls_works_and_every_secret_signs() {
    let simulator = service(20).await;
    let authority = Authority::new("a private authority");
    let receiver = Receiver::start_tls(&authority).await;
    let mut setup = webhook_only(&simulator, &receiver);
    introduce(&mut setup, "hook", &authority);
    let pair = KeyPair::from_seed(Seed::new([7; 32]));
    let symmetric = [[1; 32], [2; 32]].map(|key| format!("whsec_{}", STANDARD.encode(key)));
    let private = format!("whsk_{}", STANDARD.encode(*pair));
    let secrets = setup.path("secrets");
    std::fs::write(&secrets, format!("{}\n{private}\n{}\n", symmetric[0], symmetric[1])).unwrap();
    std::fs::write(setup.path("api-key"), "key-never-to-be-shown\n").unwrap();
    setup.remove("sinks.hook.secret");
    setup.set("sinks.hook.secret_file", secrets.display().to_string());
    setup.set("sinks.hook.headers.X-Tenant", "treasury");
    setup.set("sinks.hook.header_files.x-api-key", setup.path("api-key").display().to_string());
    setup.set("sinks.hook.bearer_token", "token-never-to-be-shown");
    for secret in symmetric.iter().chain([&private]) {
        setup.keep_secret(secret);
    }
    setup.keep_secret("never-to-be-shown");

    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 20).await;
    daemon.stop().await;

    assert_eq!(offsets(&receiver.delivered()), deliverable(&simulator, 0));
    for post in receiver.posts() {
        assert_eq!(post.version, Version::HTTP_2);
        assert_eq!(post.headers["webhook-signature"].to_str().unwrap().split(' ').count(), 3);
        for secret in &symmetric {
            let verifier = standardwebhooks::Webhook::new(secret).unwrap();
            verifier.verify(post.body.as_bytes(), &post.headers).unwrap();
        }
        verify_asymmetric(&post, &pair.pk);
        assert_eq!(post.headers["x-tenant"], "treasury");
        assert_eq!(post.headers["x-api-key"], "key-never-to-be-shown");
        assert_eq!(post.headers["authorization"], "Bearer token-never-to-be-shown");
    }
    let said = String::from_utf8(setup.tell(&["check"]).await.out).unwrap();
    for row in ["secrets             v1 2; v1a 1", "headers             authorization, x-api-key, x-tenant"] {
        assert!(said.contains(row), "{said}");
    }
}

#[tokio::test]
async fn an_untrusted_endpoint_gets_nothing_and_is_reported() {
    let simulator = service(5).await;
    let (authority, other) = (Authority::new("the right one"), Authority::new("another"));
    let (distrusted, distrusting) = (Receiver::start_tls(&authority).await, Receiver::start_tls(&authority).await);
    let mut setup =
        Setup::reading(&simulator).with_webhook("distrusted", &distrusted).with_webhook("distrusting", &distrusting);
    introduce(&mut setup, "distrusted", &authority);
    let wrong = other.write(&setup.path("other.pem"));
    setup.set("sinks.distrusted.ca_file", wrong);
    let ca = authority.write(&setup.path("ca.pem"));
    setup.set("sinks.distrusting.ca_file", ca);

    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "distrusted", "blocked").await;
    let why = "could not connect: invalid peer certificate: UnknownIssuer; is the authority of the server's certificate in ca_file?";
    assert_eq!(lane["error"]["message"], why);
    let lane = until_lane_is(&setup, &mut daemon, "distrusting", "blocked").await;
    let message = lane["error"]["message"].as_str().unwrap();
    let why = "; it asks for a client certificate, and client_certificate_file is not set";
    assert!(message.starts_with("could not send the event: ") && message.ends_with(why), "{message}");
    assert_eq!((distrusted.requests(), distrusting.requests(), setup.lines()), (0, 0, 5));

    introduce(&mut setup, "distrusted", &authority);
    introduce(&mut setup, "distrusting", &authority);
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until("everything arrives", |_| distrusted.received() == 5 && distrusting.received() == 5).await;
    daemon.stop().await;
    let expected = deliverable(&simulator, 0);
    assert_eq!((offsets(&distrusted.delivered()), offsets(&distrusting.delivered())), (expected.clone(), expected));
}

#[tokio::test]
async fn a_proxy_with_a_password_works() {
    let simulator = service(5).await;
    let authority = Authority::new("a private authority");
    let receiver = Receiver::start_tls(&authority).await;
    let proxy = ForwardProxy::start("Basic bWU6aHVudGVyMg==").await;
    let mut setup = webhook_only(&simulator, &receiver);
    introduce(&mut setup, "hook", &authority);
    let password = setup.path("password");
    std::fs::write(&password, "hunter2\n").unwrap();
    setup.keep_secret("hunter2");
    setup.keep_secret("bWU6aHVudGVyMg");
    setup.set("sinks.hook.proxy", proxy.url());

    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "retrying").await;
    assert!(lane["error"]["message"].as_str().unwrap().contains("proxy"), "{lane}");
    setup.set("sinks.hook.proxy_username", "me");
    setup.set("sinks.hook.proxy_password_file", password.display().to_string());
    setup.write();
    daemon.signal(Signal::HUP);
    daemon.until("everything arrives", |_| receiver.received() == 5).await;
    daemon.stop().await;

    let host = receiver.url().replace("https://", "").replace("/hook", "");
    assert!(proxy.asked().iter().all(|line| *line == format!("CONNECT {host} HTTP/1.1")), "{:?}", proxy.asked());
    assert!(receiver.posts().iter().all(|post| post.version == Version::HTTP_2));
}

/// Uses a host name for the endpoint, which resolves to a private address.
fn by_name(simulator: &Simulator, receiver: &Receiver) -> Setup {
    webhook_only(simulator, receiver).with("sinks.hook.url", receiver.url().replace("127.0.0.1", "localhost"))
}

#[tokio::test]
async fn a_name_that_resolves_to_a_private_address_is_refused_if_forbidden() {
    let simulator = service(5).await;
    let receiver = Receiver::start().await;
    let proxy = ForwardProxy::start("").await;
    let mut setup = by_name(&simulator, &receiver).with("sinks.hook.allow_private", false);
    // A request through this proxy would bypass the check of the address.
    setup.set_environment("http_proxy", proxy.url());
    setup.set_environment("no_proxy", "127.0.0.1");
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    let message = lane["error"]["message"].as_str().unwrap();
    assert!(
        message.ends_with(".1 is not a public address, and allow_private is false") || message.contains("::1 is"),
        "{lane}"
    );
    daemon.stop().await;
    assert_eq!((receiver.requests(), proxy.asked()), (0, vec![]));
}

#[tokio::test]
async fn the_proxy_of_the_environment_is_used_unless_disabled() {
    let simulator = service(5).await;
    let receiver = Receiver::start().await;
    let proxy = ForwardProxy::start("").await;
    let mut setup = by_name(&simulator, &receiver);
    setup.set_environment("http_proxy", proxy.url());
    setup.set_environment("no_proxy", "127.0.0.1");
    let mut daemon = setup.start();
    daemon.until("the proxy gets a request", |_| !proxy.asked().is_empty()).await;
    daemon.stop().await;
    assert_eq!(receiver.requests(), 0);

    let setup = setup.with("sinks.hook.proxy", "");
    let mut daemon = setup.start();
    daemon.until("everything arrives", |_| receiver.received() == 5).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_400_is_explained_by_a_missing_client_certificate() {
    let simulator = service(5).await;
    let authority = Authority::new("a private authority");
    let receiver = Receiver::start_asking(&authority).await;
    receiver.always(Some(Reply::Refuse(400, None)));
    let setup = webhook_only(&simulator, &receiver);
    let ca = authority.write(&setup.path("ca.pem"));
    let setup = setup.with("sinks.hook.ca_file", ca);
    let mut daemon = setup.start();
    let lane = until_lane_is(&setup, &mut daemon, "hook", "blocked").await;
    let expected = "answered 400; it asks for a client certificate, and client_certificate_file is not set";
    assert_eq!(lane["error"]["message"], expected);
    daemon.stop().await;
}
