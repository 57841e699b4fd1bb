//! Promises about the keys of a JetStream sink.

use super::*;
use ::sink::{Login, NatsSettings};

const CREDENTIALS: &str = "-----BEGIN NATS USER JWT-----\nx\n-----BEGIN USER NKEY SEED-----\nhunter2\n";

/// `GOOD` with a sink that has these lines.
fn bus(lines: &str) -> String {
    format!("{GOOD}\n[sinks.bus]\ntype = 'nats'\n{lines}\n")
}

fn loaded(lines: &str) -> NatsSettings {
    let config = load(&bus(lines), &[]).unwrap_or_else(|error| panic!("{lines}: {error}"));
    let shown = format!("{config:?}{:?}", config.sinks["bus"].shown());
    assert!(!shown.contains("hunter2"), "{shown}");
    let SinkSettings::Nats(settings) = config.sinks["bus"].settings.clone() else { panic!("{config:?}") };
    *settings
}

#[test]
fn each_mistake_is_reported_under_its_key_and_shows_no_secret() {
    let url = "url = 'nats://host'";
    let cases = [
        ("", "url"),
        ("url = 'http://host'", "url"),
        ("url = 'host:4222'", "url"),
        ("url = 'nats://me:hunter2@host'", "url"),
        ("url = 'nats://host/path'", "url"),
        ("url = 'nats://host,nope'", "url"),
        (&format!("{url}\nuser = 'me'"), "user"),
        (&format!("{url}\npassword = 'hunter2'"), "user"),
        (&format!("{url}\ntoken = ''"), "token"),
        (&format!("{url}\ntoken = 'hunter2'\nuser = 'me'\npassword = 'hunter2'"), "token"),
        (&format!("{url}\ncredentials_file = '/nowhere'"), "credentials_file"),
        (&format!("{url}\nstream = 'a.b'"), "stream"),
        (&format!("{url}\nsubject = 'events'"), "subject"),
        (&format!("{url}\nsubject = 'channeld.{{what}}'"), "subject"),
        (&format!("{url}\npositions = 'a..b'"), "positions"),
        (&format!("{url}\npositions = 'channeld.positions'"), "positions"),
        (&format!("{url}\nreplicas = 0"), "replicas"),
        (&format!("{url}\ncreate = 'perhaps'"), "create"),
        (&format!("{url}\nca_file = '/nowhere'"), "ca_file"),
        (&format!("{url}\nclient_certificate_file = '/nowhere'"), "client_certificate_file"),
    ];
    for (lines, key) in cases {
        let error = load(&bus(lines), &[]).expect_err(lines);
        assert_eq!(keys_of(&error), [format!("sinks.bus.{key}")], "{lines}\n{error}");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}

#[test]
fn unset_keys_have_the_documented_defaults() {
    let settings = loaded("url = 'nats://one:4222, tls://two'");
    assert_eq!(settings.shown_servers(), "nats://one:4222,tls://two");
    assert_eq!((&*settings.stream, &*settings.positions), ("channeld", "channeld-positions"));
    assert_eq!(settings.subject.to_string(), "channeld.{channel}.{type}");
    assert_eq!((settings.create, settings.replicas, &settings.login), (true, 1, &Login::None));
}

#[test]
fn credentials_come_from_a_value_or_file_and_are_not_shown() {
    let directory = TempDir::new().expect("a temporary directory");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let (password, credentials) = (file("password", "hunter2\n"), file("creds", CREDENTIALS));
    let url = "url = 'nats://host'";
    for lines in [
        "user = 'me'\npassword = 'hunter2'",
        &format!("user = 'me'\npassword_file = {password:?}"),
        "token = 'hunter2'",
        &format!("token_file = {password:?}"),
        &format!("credentials_file = {credentials:?}"),
    ] {
        let exposed = match loaded(&format!("{url}\n{lines}")).login {
            Login::Password(user, secret) => format!("{user} {}", secret.expose()),
            Login::Token(secret) | Login::Credentials(secret) => secret.expose().to_owned(),
            Login::None => panic!("{lines}"),
        };
        assert!(exposed.contains("hunter2"), "{lines}");
    }
    let nonsense = file("nonsense", "hunter2");
    let error = load(&bus(&format!("{url}\ncredentials_file = {nonsense:?}")), &[]).expect_err("no credentials");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}
