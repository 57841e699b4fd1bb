//! The files with the certificate and the key of the feed are read again on SIGHUP.

use rustix::process::Signal;
use simulator::{EventSpec, Kind, Options};

use super::stream::EventStream;
use super::{FeedClient, FeedEvent, Served, assert_positions};
use crate::support::Authority;

/// A client that trusts only this authority.
fn trusting(client: &FeedClient, authority: &str) -> FeedClient {
    let address = client.address();
    let certificate = reqwest::Certificate::from_pem(&std::fs::read(authority).unwrap()).unwrap();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([certificate]).resolve("localhost", address);
    let base_url = format!("https://localhost:{}/v1", address.port());
    FeedClient { base_url, http: http.build().unwrap(), ..client.clone() }
}

#[tokio::test]
async fn a_new_certificate_is_used_after_sighup_and_open_connections_continue() {
    let mut served = Served::by("sqlite", Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = &mut served.setup;
    let files = ["feed.pem", "feed.key"].map(|name| setup.path(name));
    let [old, new] = ["the old authority", "the new authority"].map(Authority::new);
    let [certificate, key] = old.issue_server(&files[0], &files[1]);
    setup.set("feed.tls_certificate", certificate);
    setup.set("feed.tls_key", key);
    let mut daemon = setup.start();
    let plain = FeedClient::of(&mut daemon).await;
    let [with_old, with_new] =
        [(&old, "old.pem"), (&new, "new.pem")].map(|(it, name)| trusting(&plain, &it.write(&setup.path(name))));
    with_old.until(&mut daemon, "c0", 5).await;
    let lists =
        async |client: &FeedClient| client.http.get(format!("{}/channels", client.base_url)).send().await.is_ok();
    assert!(!lists(&with_new).await, "the certificate of the old authority is not trusted");
    let mut stream = EventStream::open(&with_old, "/channels/c0/stream?after=4", None).await;
    assert_positions(&stream.take(1).await, [5]);
    let waiting = with_old.wait_after(5).await;

    new.issue_server(&files[0], &files[1]);
    daemon.signal(Signal::HUP);
    daemon.until_logged("configuration reloaded").await;
    assert!(lists(&with_new).await, "a new connection has the new certificate");
    assert!(!lists(&with_old).await, "the old certificate is no longer used");
    served.simulator.publish_one(0, EventSpec::Honest(Kind::OperationConfirmed));
    assert_positions(&stream.take(1).await, [6]);
    // A reload ends a long poll early. Its connection still gets the answer.
    let mut page = waiting.await.unwrap();
    if page["next"] == 5 {
        page = with_new.get("/channels/c0/events?after=5&wait=60s").await.json();
    }
    assert_positions(&FeedEvent::all(&page["events"]), [6]);
    daemon.stop().await;
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_changes_nothing() {
    let mut served = Served::by("sqlite", Options { events: 5, ..Options::default() }).await.unwrap();
    let setup = &mut served.setup;
    let files = ["feed.pem", "feed.key"].map(|name| setup.path(name));
    let authority = Authority::new("the authority of a test");
    let [certificate, key] = authority.issue_server(&files[0], &files[1]);
    setup.set("feed.tls_certificate", certificate);
    setup.set("feed.tls_key", key);
    let mut daemon = setup.start();
    let plain = FeedClient::of(&mut daemon).await;
    let client = trusting(&plain, &authority.write(&setup.path("ca.pem")));
    client.until(&mut daemon, "c0", 5).await;
    // The key of another certificate.
    authority.issue_server(&setup.path("other.pem"), &files[1]);
    daemon.signal(Signal::HUP);
    let rejected = "configuration rejected: the previous one stays in force";
    daemon.until_logged(rejected).await;
    let error = daemon.log().lines(rejected)[0]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("feed.tls_key") || error.contains("feed.tls_certificate"), "{error}");
    assert_positions(&client.read("c0", 0, 10).await, 1..=5);
    daemon.stop().await;
}
