//! Promises about the keys of a webhook.

use rcgen::{CertificateParams, KeyPair};

use super::*;
use ::sink::{Compression, Credentials, Dispatch, Rate, WebhookSettings};
use net::http::Proxy;

const PRIVATE_KEY: &str = "whsk_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";

fn webhook(config: &Config) -> &WebhookSettings {
    let SinkSettings::Webhook(webhook) = &config.sinks["hook"].settings else { panic!("{config:?}") };
    webhook
}

/// `GOOD` with these lines in `[sinks.hook]`.
fn hook(lines: &str) -> String {
    GOOD.replace("type = \"webhook\"\n", &format!("type = \"webhook\"\n{lines}\n"))
}

fn loaded(lines: &str) -> Config {
    load(&hook(lines), &[]).unwrap_or_else(|error| panic!("{lines}: {error}"))
}

/// Files with a certificate, its key, and the key of another certificate.
fn files() -> (TempDir, [String; 3]) {
    let directory = TempDir::new().expect("a temporary directory");
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let certificate = CertificateParams::new(["here".to_owned()]).unwrap().self_signed(&key).unwrap();
    let texts = [certificate.pem(), key.serialize_pem(), other.serialize_pem()];
    let paths = [("certificate", 0), ("key", 1), ("other", 2)].map(|(name, number)| {
        let path = directory.path().join(name);
        fs::write(&path, &texts[number]).unwrap();
        path.display().to_string()
    });
    (directory, paths)
}

/// The keys for access tokens, followed by these lines.
fn oauth2(lines: &str) -> String {
    format!("oauth2.token_url = 'https://a/b'\noauth2.client_id = 'c'\noauth2.client_secret = 'hunter2'\n{lines}")
}

#[test]
fn access_tokens_compression_and_a_rate_are_read_and_no_secret_is_shown() {
    let config =
        loaded(&oauth2("oauth2.credentials = 'body'\noauth2.scope = 's'\ncompress = 'zstd'\nrate_limit = ' 100 / m '"));
    let webhook = webhook(&config);
    let tokens = webhook.oauth2.as_ref().expect("they are set");
    assert_eq!((tokens.client_secret.expose(), tokens.credentials), ("hunter2", Credentials::Body));
    assert_eq!((tokens.scope.as_deref(), tokens.audience.as_deref()), (Some("s"), None));
    assert_eq!(webhook.compression, Some(Compression::Zstd));
    assert_eq!(webhook.rate, Some(Rate { requests: 100, per: Duration::from_secs(60) }));
    assert!(!format!("{config:?}{:?}", config.sinks["hook"].shown()).contains("hunter2"));
    let plain = loaded(&oauth2("").replace("https://a", "http://a"));
    assert!(
        plain.notes.iter().any(|note| note.starts_with("sinks.hook.oauth2.token_url: plain http")),
        "{:?}",
        plain.notes
    );
}

#[test]
fn each_mistake_is_reported_under_its_key_and_shows_no_value() {
    let (_directory, [certificate, key, other]) = files();
    let cases = [
        ("headers.webhook-id = 'hunter2'", "headers.webhook-id"),
        ("headers.Webhook-Anything = 'hunter2'", "headers.Webhook-Anything"),
        ("headers.Content-Type = 'hunter2'", "headers.Content-Type"),
        ("headers.host = 'hunter2'", "headers.host"),
        ("headers.content-length = '7'", "headers.content-length"),
        ("headers.transfer-encoding = 'chunked'", "headers.transfer-encoding"),
        ("headers.\"no name\" = 'hunter2'", "headers.\"no name\""),
        ("headers.x = \"hunter2\\nx: y\"", "headers.x"),
        ("headers.x = 'hunter2ü'", "headers.x"),
        ("headers.x = 7", "headers.x"),
        ("headers = 'hunter2'", "headers"),
        ("headers.X = 'a'\nheaders.x = 'hunter2'", "headers.x"),
        ("header_files.x = '/nowhere/at/all'", "header_files.x"),
        ("header_files.x = 'hunter2'", "header_files.x"),
        ("headers.authorization = 'hunter2'\nbearer_token = 'a'", "headers.authorization"),
        ("bearer_token = 'Bearer hunter2'", "bearer_token"),
        ("bearer_token = ''", "bearer_token"),
        ("bearer_token_file = 'hunter2'", "bearer_token_file"),
        ("bearer_token = 'a'\nusername = 'b'\npassword = 'hunter2'", "username"),
        ("username = 'me'", "username"),
        ("username = 'me:hunter2'\npassword = 'x'", "username"),
        ("password = 'hunter2'", "username"),
        ("password_file = '/nowhere/at/all'", "password_file"),
        ("ca_file = '/nowhere/at/all'", "ca_file"),
        (&format!("ca_file = {key:?}"), "ca_file"),
        (&format!("client_certificate_file = {certificate:?}"), "client_certificate_file"),
        (&format!("client_key_file = {key:?}"), "client_key_file"),
        (&format!("client_certificate_file = {certificate:?}\nclient_key_file = {other:?}"), "client_key_file"),
        (&format!("client_certificate_file = {certificate:?}\nclient_key_file = {certificate:?}"), "client_key_file"),
        (&format!("client_certificate_file = {key:?}\nclient_key_file = {key:?}"), "client_certificate_file"),
        ("oauth2 = 'hunter2'", "oauth2"),
        ("oauth2.token_url = 'https://a/b'\noauth2.client_secret = 'hunter2'", "oauth2.client_id"),
        ("oauth2.token_url = 'https://a/b'\noauth2.client_id = 'c'", "oauth2.client_secret"),
        ("oauth2.client_id = 'c'\noauth2.client_secret = 'hunter2'", "oauth2.token_url"),
        (&oauth2("oauth2.credentials = 'hunter2'"), "oauth2.credentials"),
        (&oauth2("oauth2.client_secret_file = '/nowhere'"), "oauth2.client_secret"),
        (&oauth2("oauth2.scope = ''"), "oauth2.scope"),
        (&oauth2("oauth2.scopes = 'hunter2'"), "oauth2.scopes"),
        (&oauth2("bearer_token = 'hunter2'"), "oauth2"),
        (&oauth2("headers.authorization = 'hunter2'"), "oauth2"),
        (&oauth2("allow_private = false").replace("https://a/b", "https://10.0.0.1/b"), "oauth2.token_url"),
        ("compress = 'brotli'", "compress"),
        ("rate_limit = '10'", "rate_limit"),
        ("rate_limit = '0/s'", "rate_limit"),
        ("rate_limit = '10/d'", "rate_limit"),
        ("rate_limit = '1.5/s'", "rate_limit"),
        ("rate_limit = '99999/s'", "rate_limit"),
        ("proxy = 'socks5://host'", "proxy"),
        ("proxy = 'http://me:hunter2@host:3128'", "proxy"),
        ("proxy = 'http://host:3128/path'", "proxy"),
        ("proxy_username = 'me'\nproxy_password = 'hunter2'", "proxy_username"),
        ("proxy = 'http://host'\nproxy_username = 'me'", "proxy_username"),
        ("proxy = 'http://host'\nallow_private = false", "proxy"),
        ("allow_private = 'perhaps'", "allow_private"),
        ("batch_events = 0", "batch_events"),
        ("batch_events = 1001", "batch_events"),
        ("batch_bytes = '1 parsec'", "batch_bytes"),
        ("batch_bytes = '1GiB'", "batch_bytes"),
        ("batch_wait = '1s'", "batch_wait"),
        ("batch_events = 2\nbatch_wait = '1h'", "batch_wait"),
        ("concurrency = 0", "concurrency"),
        ("concurrency = 65", "concurrency"),
        ("concurrency = 2\nbatch_events = 2", "concurrency"),
        ("retry_wait = '2h'", "retry_wait"),
        ("header.x = 'hunter2'", "header"),
    ];
    for (lines, expected) in cases {
        let error = load(&hook(lines), &[]).expect_err(lines);
        assert_eq!(keys_of(&error), [format!("sinks.hook.{expected}")], "{lines}\n{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn a_wrong_secret_is_named_by_its_number() {
    let secrets = format!("\"\"\"\n{PRIVATE_KEY}\nwhsec_hunter2\n\"\"\"");
    let error = load(&with("sinks.hook", "secret", &secrets), &[]).expect_err("not base64");
    assert!(error.problems[0].message.starts_with("secret 2 of 2 must be whsec_ or whsk_"), "{error}");
}

#[test]
fn several_secrets_of_both_kinds_are_read_from_a_file() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("secrets");
    fs::write(&file, format!("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n{PRIVATE_KEY}\n")).unwrap();
    let text = GOOD.replace("secret = \"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\"", "");
    let text = text.replace("type = \"webhook\"", &format!("type = \"webhook\"\nsecret_file = {file:?}"));
    let config = load(&text, &[]).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(webhook(&config).keys.counts(), (1, 1));
}

#[test]
fn headers_and_credentials_are_read_and_not_shown() {
    let directory = TempDir::new().expect("a temporary directory");
    let token = directory.path().join("token");
    fs::write(&token, "hunter2-of-a-file\n").unwrap();
    let config = loaded(&format!(
        "headers.X-Tenant = 'hunter2'\nheader_files.x-api-key = {token:?}\nusername = 'me'\npassword = 'hunter2'"
    ));
    let headers = &webhook(&config).headers;
    assert_eq!(headers["x-tenant"], "hunter2");
    assert_eq!(headers["x-api-key"], "hunter2-of-a-file");
    assert_eq!(headers["authorization"], "Basic bWU6aHVudGVyMg==");
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("bWU6"), "{shown}");

    let config = loaded(&format!("bearer_token_file = {token:?}"));
    assert_eq!(webhook(&config).headers["authorization"], "Bearer hunter2-of-a-file");
    let config = loaded("headers.authorization = 'Signature of my own'");
    assert_eq!(webhook(&config).headers["authorization"], "Signature of my own");

    let variables = [("CHANNELD_SINKS__HOOK__HEADERS__X_TENANT", "other")];
    let config = load(&hook("headers.X-Tenant = 'one'"), &variables).expect("its name is in the file");
    assert_eq!(webhook(&config).headers["x-tenant"], "other");
}

#[test]
fn a_connection_is_read_and_its_key_is_not_shown() {
    let (_directory, [certificate, key, _]) = files();
    let config = loaded(&format!(
        "ca_file = {certificate:?}\nclient_certificate_file = {certificate:?}\nclient_key_file = {key:?}\n\
         proxy = 'http://proxy:3128'\nproxy_username = 'me'\nproxy_password = 'hunter2'"
    ));
    let connection = &webhook(&config).connection;
    assert!(connection.authorities.is_some() && connection.identity.is_some());
    let Proxy::Named { url, authorization } = &connection.proxy else { panic!("{connection:?}") };
    assert_eq!(url.as_str(), "http://proxy:3128/");
    assert!(authorization.as_ref().is_some_and(|value| value == "Basic bWU6aHVudGVyMg=="));
    let shown = format!("{config:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("bWU6") && !shown.contains("PRIVATE"), "{shown}");

    assert_eq!(webhook(&loaded("")).connection.proxy, Proxy::Environment);
    assert_eq!(webhook(&loaded("proxy = ''")).connection.proxy, Proxy::Direct);
    let connection = &webhook(&loaded("proxy = ''\nallow_private = false")).connection.clone();
    assert_eq!((&connection.proxy, connection.public_only), (&Proxy::Direct, true));
}

#[test]
fn a_private_address_is_refused_at_the_start_if_only_public_ones_are_allowed() {
    for host in ["127.0.0.1:8080", "[::1]", "0x7f.1", "169.254.169.254", "[::ffff:10.0.0.1]"] {
        let text = with("sinks.hook", "url", &format!("\"http://{host}/\""))
            .replace("type = \"webhook\"", "type = \"webhook\"\nallow_private = false");
        let error = load(&text, &[]).expect_err(host);
        assert_eq!(keys_of(&error), ["sinks.hook.url"], "{error}");
    }
}

#[test]
fn batches_and_concurrency_are_read() {
    assert_eq!(webhook(&loaded("")).dispatch, Dispatch::Single { concurrency: 1 });
    assert_eq!(webhook(&loaded("concurrency = 8")).dispatch, Dispatch::Single { concurrency: 8 });
    let config = loaded("batch_events = 100\nbatch_bytes = '512KiB'\nbatch_wait = '2s'");
    let batches = Dispatch::Batches { events: 100, bytes: 512 * 1024, wait: Duration::from_secs(2) };
    assert_eq!(webhook(&config).dispatch, batches);
}
