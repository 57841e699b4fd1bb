use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use uuid::Uuid;

use super::*;
use crate::config::{Config, ConfigError, ConfigText};
use ::proof::event::ChannelId;
use ::sink::ConsumedChannel;

const REST: &str = r#"
[api]
api_key = "k"
[verification]
org_id = "org_1"
[channels.a]
id = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
sinks = ["table", "out"]
[channels.b]
id = "7c9e6679-7425-40de-944b-e07fc1f90ae8"
sinks = ["out"]
[sinks.out]
type = "stdout"
[sinks.table]
type = "sqlite"
path = "/nowhere/events.db"
"#;

const FEED: &str = r#"
[feed]
listen = "127.0.0.1:9465"
sink = "table"
[feed.consumers.ledger]
token_file = "~/token"
channels = ["a"]
"#;

/// Loads a configuration with this feed. `~` is a directory with tokens, a certificate and its key.
fn load(feed: &str) -> Result<Config, ConfigError> {
    let directory = TempDir::new().unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["feed.test".to_owned()]).unwrap().self_signed(&key).unwrap();
    for (name, text) in [
        ("token", "the-token-of-ledger\n"),
        ("next-token", "the-next-token-of-ledger\n"),
        ("short", "123456789012345\n"),
        ("spaces", "the token of ledger\n"),
        ("certificate", &certificate.pem()),
        ("key", &key.serialize_pem()),
    ] {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let text = format!("{REST}{feed}").replace('~', &directory.path().display().to_string());
    let file = directory.path().join("channeld.toml");
    fs::write(&file, text).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    Config::of(ConfigText::read(Some(&file))?, []).map(|loaded| loaded.config)
}

fn feed_of(feed: &str) -> Feed {
    load(feed).unwrap_or_else(|error| panic!("{error}")).feed.expect("it has a feed")
}

#[test]
fn a_feed_has_these_defaults() {
    let Feed { listen, sink, settings } = feed_of(FEED);
    let address: SocketAddr = "127.0.0.1:9465".parse().unwrap();
    assert_eq!((listen, &*sink), (Listen::Tcp(address), "table"));
    let id = "7c9e6679-7425-40de-944b-e07fc1f90ae7".parse().unwrap();
    let expected = FeedSettings {
        identity: None,
        channels: vec![FeedChannel { name: "a".into(), id }],
        consumers: vec![Consumer {
            name: "ledger".into(),
            tokens: vec![TokenHash::of("the-token-of-ledger")],
            channels: vec!["a".into()],
        }],
        connections: 512,
        connections_per_consumer: 256,
        lease: Duration::from_secs(30),
    };
    assert_eq!(settings, expected);
    assert!(load("").unwrap().feed.is_none(), "without [feed] nothing is served");
}

#[test]
fn two_tokens_can_be_valid_at_once() {
    let files = FEED.replace("token_file = \"~/token\"", "token_files = [\"~/token\", \"~/next-token\"]");
    let tokens = ["the-token-of-ledger", "the-next-token-of-ledger"].map(TokenHash::of);
    assert_eq!(feed_of(&files).settings.consumers[0].tokens, tokens);
}

#[test]
fn a_unix_socket_needs_no_token_and_no_consumer() {
    let socket = "[feed]\nlisten = \"unix:/run/channeld/feed.sock\"\nsink = \"table\"\n";
    assert_eq!(feed_of(socket).listen, Listen::Unix("/run/channeld/feed.sock".into()));
    let consumer = format!("{socket}[feed.consumers.ledger]\nchannels = [\"a\"]\n");
    assert!(feed_of(&consumer).settings.consumers[0].tokens.is_empty());
}

#[test]
fn a_certificate_is_read_and_plain_http_beyond_this_machine_is_noted() {
    let tls = FEED.replace("[feed]", "[feed]\ntls_certificate = \"~/certificate\"\ntls_key = \"~/key\"");
    assert!(feed_of(&tls).settings.identity.is_some());
    let open = |feed: &str| load(&feed.replace("127.0.0.1", "0.0.0.0")).unwrap().notes;
    assert_eq!(open(&tls), Vec::<String>::new());
    let notes = open(FEED);
    assert!(notes.len() == 1 && notes[0].starts_with("feed.listen: plain http"), "{notes:?}");
}

#[test]
fn each_mistake_in_a_feed_is_reported_under_its_key() {
    let certificate = "sink = \"table\"\ntls_certificate = \"~/certificate\"";
    let both = format!("{certificate}\ntls_key = \"~/key\"");
    let three = "token_files = [\"~/token\", \"~/next-token\", \"~/token\"]";
    let twice = "[\"a\"]\n[feed.consumers.other]\ntoken_file = \"~/token\"\nchannels = [\"a\"]";
    for (from, to, key, words) in [
        ("\"127.0.0.1:9465\"", "\"9465\"", "feed.listen", "must be an IP address and a port"),
        ("\"127.0.0.1:9465\"", "\"unix:feed.sock\"", "feed.listen", "absolute path"),
        ("listen = \"127.0.0.1:9465\"", "", "feed.listen", "is missing"),
        ("sink = \"table\"", "", "feed.sink", "is missing"),
        ("\"table\"", "\"nowhere\"", "feed.sink", "no sink has this name"),
        ("\"table\"", "\"out\"", "feed.sink", "of type \"sqlite\" or \"postgres\""),
        ("sink = \"table\"", certificate, "feed.tls_certificate", "is set without feed.tls_key"),
        ("sink = \"table\"", "sink = \"table\"\nlease = \"0s\"", "feed.lease", "must be from"),
        ("sink = \"table\"", "sink = \"table\"\nconnections = 0", "feed.connections", "from 1 to 4000"),
        ("sink = \"table\"", "sink = \"table\"\ntokens = 1", "feed.tokens", "is not a known key"),
        ("token_file = \"~/token\"", "", "feed.consumers.ledger.token_file", "is missing"),
        ("~/token", "~/none", "feed.consumers.ledger.token_file", "No such file"),
        ("~/token", "~/short", "feed.consumers.ledger.token_file", "at least 16 visible"),
        ("~/token", "~/spaces", "feed.consumers.ledger.token_file", "no spaces"),
        ("token_file = \"~/token\"", three, "feed.consumers.ledger.token_files", "more than 2 files"),
        ("channels = [\"a\"]", "", "feed.consumers.ledger.channels", "is missing"),
        ("[\"a\"]", "[]", "feed.consumers.ledger.channels", "is empty"),
        (
            "[\"a\"]",
            "[\"b\"]",
            "feed.consumers.ledger.channels",
            "names the channel \"b\", which is not one of the channels",
        ),
        ("[\"a\"]", twice, "feed.consumers.other", "has the same token as consumer ledger"),
        ("[feed.consumers.ledger]", "[feed.consumers.a__b]", "feed.consumers.a__b", "letters, digits"),
    ] {
        assert!(FEED.contains(from), "{from}");
        let error = load(&FEED.replace(from, to)).expect_err(key);
        let found = error.problems.iter().any(|problem| problem.key == key && problem.message.contains(words));
        assert!(found, "{to}: {error}");
        assert!(!error.to_string().contains("the-token"), "no token is shown: {error}");
    }
    let socket = FEED.replace("127.0.0.1:9465", "unix:/run/feed.sock").replace("sink = \"table\"", &both);
    assert!(load(&socket).unwrap_err().to_string().contains("a Unix socket has no TLS"));
    let alone = FEED.split_once("[feed.consumers").unwrap().0;
    assert!(load(alone).unwrap_err().to_string().contains("feed.consumers: no consumer is configured"));
    let unused = format!(
        "{}[sinks.unused]\ntype = \"sqlite\"\npath = \"/nowhere/u.db\"\n",
        FEED.replace("\"table\"", "\"unused\"")
    );
    assert!(load(&unused).unwrap_err().to_string().contains("no channel delivers to this sink"));
}

#[test]
fn a_table_with_a_part_of_the_events_or_with_unchecked_positions_is_not_served() {
    let raw = "format = \"raw\"\nfilter = { verification = [\"verified\"] }";
    let postgres = "type = \"postgres\"\nurl = \"postgres://channeld@db/events\"";
    let sqlite = "type = \"sqlite\"\npath = \"/nowhere/other.db\"";
    let feed = FEED.replace("\"table\"", "\"other\"").replace("[\"a\"]", "[\"c\"]");
    let channel = "[channels.c]\nid = \"00000000-0000-0000-0000-00000000000c\"\nsinks = [\"other\"]\n";
    let with = |sink: &str, more: &str| load(&format!("{feed}{channel}[sinks.other]\n{sink}\n{more}\n"));
    for (sink, more, words) in [
        (sqlite, "per_instance = true", "only a part of the events; use a sink of type \"postgres\""),
        (sqlite, raw, "set the format of the sink to \"json\""),
        (postgres, raw, "set the format of the sink to \"json\""),
    ] {
        let error = with(sink, more).expect_err(words);
        let keys: Vec<_> = error.problems.iter().map(|problem| &*problem.key).collect();
        assert_eq!(keys, ["feed.sink"], "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
    for (sink, more) in [(sqlite, "per_instance = false"), (sqlite, "format = \"cloudevents\""), (postgres, "")] {
        with(sink, more).unwrap_or_else(|error| panic!("{sink}: {error}"));
    }
}

/// The settings of the sink `table`, with these keys instead of none.
fn table_with(feed: &str, keys: &str) -> Result<::sink::SqliteSettings, ConfigError> {
    let config = load(&format!("{feed}[sinks.kept]\ntype = \"sqlite\"\npath = \"/nowhere/kept.db\"\n{keys}"))?;
    let SinkSettings::Sqlite(settings) = config.sinks["kept"].settings.clone() else { panic!("another type") };
    Ok(settings)
}

#[test]
fn the_sink_of_the_feed_knows_that_it_is_read_and_which_consumers_it_waits_for() {
    let config = load(FEED).unwrap_or_else(|error| panic!("{error}"));
    let SinkSettings::Sqlite(settings) = &config.sinks["table"].settings else { panic!("another type") };
    assert!(settings.feed && settings.keep_for_consumers.is_empty());
    assert!(!table_with(FEED, "").unwrap_or_else(|error| panic!("{error}")).feed, "the feed reads another table");

    let feed = FEED.replace("\"table\"", "\"kept\"").replace("[\"a\"]", "[\"c\", \"d\"]");
    let channels = "[channels.c]\nid = \"00000000-0000-0000-0000-00000000000c\"\nsinks = [\"kept\"]\n\
                    [channels.d]\nid = \"00000000-0000-0000-0000-00000000000d\"\nsinks = [\"kept\"]\n";
    let feed = format!("{feed}{channels}");
    let kept = table_with(&feed, "keep_for = \"1h\"\nkeep_for_consumers = [\"ledger\"]\n");
    let kept = kept.unwrap_or_else(|error| panic!("{error}")).keep_for_consumers;
    let known = |number| ConsumedChannel::Known(ChannelId(Uuid::from_u128(number)));
    let found: Vec<_> = kept.into_iter().map(|of| (of.consumer, of.channel)).collect();
    assert_eq!(found, [("ledger".to_owned(), known(0xc)), ("ledger".to_owned(), known(0xd))]);

    // The table can contain events of this channel from an earlier run.
    let growing = feed.replace("\"d\"]", "\"later\"]") + "[discover]\nchannels = \"all\"\nsinks = [\"kept\"]\n";
    let kept = table_with(&growing, "keep_for = \"1h\"\nkeep_for_consumers = [\"ledger\"]\n");
    let kept = kept.unwrap_or_else(|error| panic!("{error}")).keep_for_consumers;
    let channels: Vec<_> = kept.into_iter().map(|of| of.channel).collect();
    assert_eq!(channels, [known(0xc), ConsumedChannel::Named("later".to_owned())]);

    for (feed, keys, words) in [
        (
            &*feed,
            "keep_for = \"1h\"\nkeep_for_consumers = [\"other\"]\n",
            "not one of the consumers of the feed: ledger",
        ),
        (&*feed, "keep_for = \"1h\"\nkeep_for_consumers = []\n", "is empty; name a consumer of the feed"),
        (&*feed, "keep_for_consumers = [\"ledger\"]\n", "has no effect without keep_for"),
        (FEED, "keep_for = \"1h\"\nkeep_for_consumers = [\"ledger\"]\n", "no feed reads this table"),
        ("", "keep_for = \"1h\"\nkeep_for_consumers = [\"ledger\"]\n", "no feed reads this table"),
    ] {
        let error = table_with(feed, keys).expect_err(words);
        let problems: Vec<_> = error.problems.iter().map(|problem| &*problem.key).collect();
        assert_eq!(problems, ["sinks.kept.keep_for_consumers"], "{error}");
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_channel_that_can_still_be_found_is_noted_and_accepted() {
    let feed = FEED.replace("[\"a\"]", "[\"a\", \"later\"]");
    let discover = |sink: &str| format!("{feed}[discover]\nchannels = \"all\"\nsinks = [\"{sink}\"]\n");
    let config = load(&discover("table")).unwrap_or_else(|error| panic!("{error}"));
    let Feed { settings, .. } = config.feed.expect("it has a feed");
    assert_eq!(settings.consumers[0].channels, ["a".into(), "later".into()]);
    assert_eq!(settings.channels.len(), 1);
    let noted = config.notes.iter().any(|note| note.contains("no channel has the name \"later\" yet"));
    assert!(noted, "{:?}", config.notes);
    let error = load(&discover("out")).expect_err("channels that are found do not deliver to the table");
    assert!(error.to_string().contains("names the channel \"later\", which is not one of the channels"), "{error}");
}
