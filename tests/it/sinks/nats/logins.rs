//! Clients that a server accepts: with a login, or with a certificate.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::stream::deliver_all;
use super::{assert_whole, setup};
use crate::sinks::streams::proved;
use crate::support::{Authority, Nats, Operator, Setup};

const PASSWORD: &str = "hunter2-of-a-test";

/// Runs `check --connect`. Returns whether it succeeded, and its output.
async fn checked(setup: &Setup) -> (bool, String) {
    setup.write();
    let told = setup.tell(&["check", "--connect"]).await;
    (told.code == Some(0), format!("{}{}", String::from_utf8_lossy(&told.out), told.errors))
}

/// Asserts that a server with this login accepts the sink with these keys, and refuses it without them or with a wrong
/// value of the last key.
async fn login(lines: &str, login: Value, wrong: &str, keys: &[(&str, &str)]) {
    let Some(nats) = Nats::start_with(lines, login) else { return };
    let simulator = proved(3).await;
    let mut setup = setup(&simulator, nats.address());
    setup.keep_secret(PASSWORD);
    let (is_well, said) = checked(&setup).await;
    assert!(!is_well && said.contains("login refused"), "without a login: {said}");
    for (key, value) in keys {
        setup.set(&format!("sinks.bus.{key}"), *value);
    }
    let (key, _) = keys[keys.len() - 1];
    setup.write_but(&format!("sinks.bus.{key}"), wrong);
    let told = setup.tell(&["check", "--connect"]).await;
    let said = format!("{}{}", String::from_utf8_lossy(&told.out), told.errors);
    assert!(told.code != Some(0) && said.contains("login refused"), "with a wrong login: {said}");
    deliver_all(&nats, &setup, 3).await;
    assert_whole(&nats, &simulator, &[]).await;
}

#[tokio::test]
async fn logins_work_and_no_secret_is_shown() {
    let (operator, directory) = (Operator::new(), tempfile::tempdir().unwrap());
    let credentials = |name: &str, of: &Operator| {
        let path = directory.path().join(name);
        std::fs::write(&path, of.credentials()).unwrap();
        path.display().to_string()
    };
    let [right, wrong] = [credentials("right.creds", &operator), credentials("wrong.creds", &Operator::new())];
    let of_user = format!("authorization {{ user: me, password: {PASSWORD:?} }}");
    let of_token = format!("authorization {{ token: {PASSWORD:?} }}");
    let of_operator = operator.lines();
    let (user, token) = ([("user", "me"), ("password", PASSWORD)], [("token", PASSWORD)]);
    let file = [("credentials_file", &*right)];
    tokio::join!(
        login(&of_user, json!({"user": "me", "pass": PASSWORD}), "another-password", &user),
        login(&of_token, json!({"auth_token": PASSWORD}), "another-token", &token),
        login(&of_operator, operator.login(), &wrong, &file),
    );
}

#[tokio::test]
async fn a_missing_permission_is_reported_by_name() {
    let user = format!(
        "user: me, password: {PASSWORD:?}, permissions: {{ publish: {{ deny: \"$JS.API.STREAM.MSG.GET.>\" }} }}"
    );
    let lines = format!("authorization {{ users: [ {{ {user} }} ] }}");
    let Some(nats) = Nats::start_with(&lines, json!({"user": "me", "pass": PASSWORD})) else { return };
    let simulator = proved(1).await;
    let setup = setup(&simulator, nats.address()).with("sinks.bus.user", "me").with("sinks.bus.password", PASSWORD);
    let setup = setup.with("sinks.bus.timeout", "300ms");
    let mut daemon = setup.start();
    let words = "Permissions Violation for Publish to \\\"$JS.API.STREAM.MSG.GET.events\\\"";
    daemon
        .until("the missing permission is reported", |daemon| {
            daemon.log().0.to_lowercase().contains(&words.to_lowercase())
        })
        .await;
    daemon.stop().await;
}

/// A server with a certificate for `localhost`. It accepts clients with a certificate of the same authority. The test's
/// own client may connect without TLS.
struct Secured {
    nats: Nats,
    directory: tempfile::TempDir,
    authority: Authority,
    ca: String,
}

impl Secured {
    fn start() -> Option<Self> {
        let (authority, directory) = (Authority::new("a private authority"), tempfile::tempdir().unwrap());
        let path = |name: &str| directory.path().join(name);
        let ca = authority.write(&path("ca.pem"));
        let [certificate, key] = authority.issue_server(&path("server.pem"), &path("server-key.pem"));
        let tls = format!("cert_file: {certificate:?}, key_file: {key:?}, ca_file: {ca:?}, verify: true, timeout: 5");
        let nats = Nats::start_with(&format!("allow_non_tls: true\ntls {{ {tls} }}"), json!({}))?;
        Some(Self { nats, directory, authority, ca })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn url(&self, host: &str) -> String {
        format!("tls://{host}:{}", self.nats.address().port())
    }
}

#[tokio::test]
async fn a_private_ca_and_client_certificate_work_and_distrust_is_explained() {
    let Some(secured) = Secured::start() else { return };
    let simulator = proved(3).await;
    let of = |authority: &Authority, name: &str| {
        authority.issue(&secured.path(&format!("{name}.pem")), &secured.path(&format!("{name}-key.pem")))
    };
    let other = Authority::new("another");
    let wrong_ca = other.write(&secured.path("other.pem"));
    let [right, wrong] = [of(&secured.authority, "right"), of(&other, "wrong")];
    let setup = |host: &str, ca: &str, client: Option<&[String; 2]>| {
        let mut setup = setup(&simulator, secured.nats.address()).with("sinks.bus.url", secured.url(host));
        setup.set("sinks.bus.ca_file", ca);
        if let Some([certificate, key]) = client {
            setup.set("sinks.bus.client_certificate_file", &**certificate);
            setup.set("sinks.bus.client_key_file", &**key);
        }
        setup
    };
    for (host, ca, client, words) in [
        (
            "localhost",
            &wrong_ca,
            Some(&right),
            "UnknownIssuer; is the authority of the server's certificate in ca_file?",
        ),
        ("127.0.0.1", &secured.ca, Some(&right), "; use the name in the server's certificate"),
        ("localhost", &secured.ca, None, "; does the server ask for a client certificate (client_certificate_file)?"),
        ("localhost", &secured.ca, Some(&wrong), "; does the server know the CA of client_certificate_file?"),
    ] {
        let (is_well, said) = checked(&setup(host, ca, client)).await;
        assert!(!is_well && said.contains("TLS failed: ") && said.contains(words), "{words}: {said}");
    }
    deliver_all(&secured.nats, &setup("localhost", &secured.ca, Some(&right)), 3).await;
    assert_whole(&secured.nats, &simulator, &[]).await;
}
