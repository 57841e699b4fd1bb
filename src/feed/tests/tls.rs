//! TLS, and Unix sockets.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use super::support::{CLOSED, TOKEN, ask_on, request, served, served_on, settings};
use crate::listener::BOUNDS;
use crate::{FeedListener, FeedSettings, Listen};
use net::http::{Identity, certificates, private_key};

fn certificate() -> (Identity, CertificateDer<'static>) {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["feed.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    let chain = certificates(&certificate.pem()).unwrap();
    (Identity::new(chain, private_key(&key.serialize_pem()).unwrap()).unwrap(), certificate.der().clone())
}

fn trusting(certificate: CertificateDer<'static>) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(client.with_root_certificates(roots).with_no_client_auth()))
}

fn list() -> String {
    request("GET", "/v1/channels", &format!("Authorization: Bearer {TOKEN}\r\n"), "")
}

#[tokio::test]
async fn a_new_certificate_is_used_for_the_next_connection() {
    let ((old, old_certificate), (new, new_certificate)) = (certificate(), certificate());
    served(FeedSettings { identity: Some(old), ..settings() }, async |feed| {
        let connect = async |certificate: &CertificateDer<'static>| {
            let name = ServerName::try_from("feed.test").unwrap();
            trusting(certificate.clone()).connect(name, feed.connect().await).await
        };
        let mut client = connect(&old_certificate).await.unwrap();
        assert_eq!(ask_on(&mut client, &list()).await.status, 200);
        assert!(connect(&new_certificate).await.is_err());
        feed.set(FeedSettings { identity: Some(new), ..settings() });
        let mut client = connect(&new_certificate).await.unwrap();
        assert_eq!(ask_on(&mut client, &list()).await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn a_client_that_sends_no_handshake_delays_nobody() {
    let (identity, certificate) = certificate();
    served(FeedSettings { identity: Some(identity), ..settings() }, async |feed| {
        let _silent = feed.connect().await;
        let name = ServerName::try_from("feed.test").unwrap();
        let mut client = trusting(certificate).connect(name, feed.connect().await).await.unwrap();
        assert_eq!(ask_on(&mut client, &list()).await.status, 200);
    })
    .await;
}

#[tokio::test]
async fn a_unix_socket_needs_no_token_and_only_its_owner_can_connect() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("feed.sock");
    // A socket that a killed process left behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let listen = Listen::Unix(path.clone());
    served_on(&listen, BOUNDS, settings(), async |feed| {
        feed.table.deliver(CLOSED, 1);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let ask = async |method: &str, asked: &str, headers: &str| {
            let mut client = UnixStream::connect(&path).await.unwrap();
            ask_on(&mut client, &request(method, asked, headers, "")).await
        };
        let events = ask("GET", "/v1/channels/closed/events", "").await;
        assert_eq!(events.positions(), [1]);
        assert_eq!(ask("POST", "/v1/consumers/ledger/closed/lease", "").await.positions(), [1]);
        assert_eq!(ask("POST", "/v1/consumers/nobody/closed/lease", "").await.status, 404, "it is not configured");
        let wrong = ask("GET", "/v1/channels", "Authorization: Bearer wrong\r\n").await;
        assert_eq!(wrong.status, 401, "a token that is sent must be valid");

        let taken = FeedListener::bind(&listen).await.unwrap_err();
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse, "another feed listens there");
    })
    .await;
    assert!(!path.exists(), "the socket is removed");
    std::fs::write(&path, "a file").unwrap();
    assert!(FeedListener::bind(&listen).await.is_err(), "other files are not replaced");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}
