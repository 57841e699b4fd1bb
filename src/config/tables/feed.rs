//! `[feed]`: the feed, its consumers and their tokens.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::channel::Channel;
use super::discover::Discover;
use super::server::read_server_identity;
use super::sink::{Sink, SinkSettings};
use crate::config::reading::values::{duration_in, text_if, whole_number};
use crate::config::reading::{Reading, Reported, Section, all};
use crate::config::settings_list::SettingsList;
use ::feed::{Consumer, FeedChannel, FeedSettings, Listen, TokenHash};
use ::record::Format;

const LISTEN: &str = "must be an IP address and a port, such as \"127.0.0.1:9465\", or \"unix:\" and the absolute path of a \
                      socket, such as \"unix:/run/channeld/feed.sock\"";

const PER_INSTANCE: &str = "names a sink with per_instance = true, whose table can have only a part of the events; use a sink of \
                            type \"postgres\", or remove per_instance if only one instance runs";

/// The service could add a member `position` to an event.
const RAW: &str = "names a sink with format = \"raw\", whose records could contain a position of their own; set the format of the \
                   sink to \"json\" or \"cloudevents\"";

/// The longest path of a socket, in bytes. The socket is created in a directory beside it, whose path is longer.
const MAX_PATH: usize = 100;

/// The allowed values of `connections` and `connections_per_consumer`.
const CONNECTIONS: std::ops::RangeInclusive<usize> = 1..=4000;

/// The allowed values of `lease`.
const LEASE: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60 * 60);

/// The shortest token. A shorter one could be guessed.
const MIN_TOKEN: usize = 16;

/// How many tokens a consumer can have at once: the token in use, and the token that replaces it.
const MAX_TOKENS: usize = 2;

/// The key that names the files of several tokens.
const FILES: &str = "token_files";

mod usage;

pub(crate) use usage::FeedUsage;

/// `[feed]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed {
    /// The address.
    pub listen: Listen,
    /// The name of the sink whose table is served.
    pub sink: String,
    /// The settings that a reload can change.
    pub settings: FeedSettings,
}

impl Feed {
    /// Describes the feed for `channeld check`.
    pub fn shown(&self) -> SettingsList {
        let Self { listen, sink, settings } = self;
        let consumers: Vec<_> = settings.consumers.iter().map(|consumer| &*consumer.name).collect();
        let channels: Vec<_> = settings.channels.iter().map(|channel| &*channel.name).collect();
        vec![
            ("listen", json!(listen.to_string())),
            ("sink", json!(sink)),
            ("tls", json!(settings.identity.is_some())),
            ("channels", json!(channels)),
            ("consumers", json!(consumers)),
            ("lease_seconds", json!(settings.lease.as_secs())),
        ]
    }
}

/// Reads the feed, if the configuration has one.
pub(crate) fn read(
    root: &Section<'_>,
    channels: &[Channel],
    discover: Option<&Discover>,
    sinks: &BTreeMap<String, Sink>,
) -> Reading<Feed> {
    if !root.is_table("feed") {
        return Ok(None);
    }
    let feed = root.section("feed");
    let read = all!(Feed {
        listen: feed.required("listen", listen),
        sink: read_sink(root, &feed, sinks),
        settings: {
            let sink = sink.as_deref().ok();
            let served = sink.map(|sink| ServedChannels::of(&feed, channels, discover, sink));
            all!(FeedSettings {
                identity: read_server_identity(&feed),
                consumers: read_consumers(&feed, served.as_ref(), matches!(listen, Ok(Listen::Tcp(_)))),
                connections: feed.or("connections", whole_number(CONNECTIONS), "512"),
                connections_per_consumer: feed.or("connections_per_consumer", whole_number(CONNECTIONS), "256"),
                lease: feed.or("lease", duration_in(LEASE), "30s"),
                channels: Ok(served.map(|served| served.known).unwrap_or_default()),
            })
        },
    })?;
    match (&read.listen, &read.settings.identity) {
        (Listen::Unix(_), Some(_)) => {
            feed.wrong("tls_certificate", "is set, but a Unix socket has no TLS; remove it, and tls_key");
        }
        (Listen::Tcp(address), None) if !address.ip().is_loopback() => feed.note(
            "listen",
            "plain http: tokens and events can be read and changed in transit; set tls_certificate and tls_key, or listen on a loopback address behind a proxy with TLS",
        ),
        _ => {}
    }
    Ok(Some(read))
}

fn listen(text: &str) -> Result<Listen, String> {
    if let Some(path) = text.trim().strip_prefix("unix:") {
        let legal = path.len() <= MAX_PATH && path.starts_with('/') && Path::new(path).file_name().is_some();
        let needed = format!("{LISTEN}; a path has at most {MAX_PATH} bytes");
        return text_if(legal, path, &needed).map(|path| Listen::Unix(path.into()));
    }
    text.trim().parse().map(Listen::Tcp).map_err(|_| LISTEN.to_owned())
}

/// Reads the name of the sink.
fn read_sink(root: &Section<'_>, feed: &Section<'_>, sinks: &BTreeMap<String, Sink>) -> Result<String, Reported> {
    let name = feed.required("sink", |text| Ok(text.trim().to_owned()))?;
    let Some(sink) = sinks.get(&name) else {
        // The sink exists and has its own mistakes, or it does not exist.
        let exists = root.section("sinks").names()?.contains(&name);
        let unknown =
            || feed.wrong("sink", format!("is {name:?}, but no sink has this name; add a [sinks.{name}] table"));
        return Err(if exists { Reported } else { unknown() });
    };
    let is_per_instance = || root.section("sinks").section(&name).boolean("per_instance", false).unwrap_or(false);
    let wrong = match (&sink.settings, sink.shape.format) {
        (SinkSettings::Sqlite(_), _) if is_per_instance() => PER_INSTANCE,
        (SinkSettings::Sqlite(_) | SinkSettings::Postgres(_), Format::Raw) => RAW,
        (SinkSettings::Sqlite(_) | SinkSettings::Postgres(_), _) => return Ok(name),
        _ => "must be the name of a sink of type \"sqlite\" or \"postgres\"",
    };
    Err(feed.wrong("sink", wrong))
}

/// The channels that deliver to the sink.
struct ServedChannels {
    known: Vec<FeedChannel>,
    /// Whether `[discover]` can add more.
    can_grow: bool,
}

impl ServedChannels {
    fn of(feed: &Section<'_>, channels: &[Channel], discover: Option<&Discover>, sink: &str) -> Self {
        let delivers = |channel: &Channel| channel.sinks.iter().any(|name| name == sink);
        let channel = |channel: &Channel| FeedChannel { name: channel.channel.name.clone(), id: channel.channel.id.0 };
        let known: Vec<_> = channels.iter().filter(|channel| delivers(channel)).map(channel).collect();
        let can_grow = discover.is_some_and(|discover| delivers(&discover.template));
        if known.is_empty() && !can_grow && !channels.is_empty() {
            feed.wrong(
                "sink",
                format!("is {sink:?}, but no channel delivers to this sink; add it to the sinks of a channel"),
            );
        }
        Self { known, can_grow }
    }

    /// Returns the name of a served channel. The channel may still have to be found.
    fn name(&self, consumer: &Section<'_>, name: &str) -> Result<Arc<str>, String> {
        if let Some(channel) = self.known.iter().find(|channel| &*channel.name == name) {
            return Ok(channel.name.clone());
        }
        if self.can_grow {
            let message =
                format!("no channel has the name {name:?} yet; the feed serves it when [discover] has added it");
            consumer.note("channels", &message);
            return Ok(name.into());
        }
        let names: Vec<_> = self.known.iter().map(|channel| &*channel.name).collect();
        let names = names.join(", ");
        Err(format!(
            "names the channel {name:?}, which is not one of the channels that deliver to the sink of the feed: {names}"
        ))
    }
}

/// Reads the consumers. Every consumer needs a token if `needs_token` is true. Without the list of served channels, the channels of
/// the consumers are not checked.
fn read_consumers(
    feed: &Section<'_>,
    served: Option<&ServedChannels>,
    needs_token: bool,
) -> Result<Vec<Consumer>, Reported> {
    let section = feed.section("consumers");
    let names = section.names()?;
    if names.is_empty() && needs_token {
        let message = "no consumer is configured; add a [feed.consumers.NAME] table with its token_file and channels";
        return Err(feed.wrong("consumers", message));
    }
    let read = |name: &String| {
        section.check_name(name);
        let consumer = section.section(name);
        all!(Consumer {
            name: Ok(name.as_str().into()),
            tokens: read_tokens(&consumer, needs_token),
            channels: consumer
                .items("channels", "is empty; name a channel", |_, name| {
                    served.map_or_else(|| Ok(name.into()), |served| served.name(&consumer, name))
                })
                .and_then(|channels| channels.ok_or_else(|| consumer.missing("channels"))),
        })
    };
    // Every consumer is read before the first error is returned.
    let consumers = names.iter().map(read).collect::<Vec<_>>().into_iter().collect::<Result<Vec<_>, _>>()?;
    for (at, consumer) in consumers.iter().enumerate() {
        let has_same = |other: &&Consumer| consumer.tokens.iter().any(|token| other.tokens.contains(token));
        if let Some(other) = consumers[..at].iter().find(has_same) {
            let message =
                format!("has the same token as consumer {}; give each consumer a token of its own", other.name);
            section.wrong(&consumer.name, message);
        }
    }
    Ok(consumers)
}

/// Reads the tokens of a consumer. Only their hashes are kept.
fn read_tokens(consumer: &Section<'_>, is_required: bool) -> Result<Vec<TokenHash>, Reported> {
    let tokens = match consumer.one_of(["token_file", "token_command", FILES])? {
        Some(FILES) => consumer.secret_files(FILES, "is empty; name the file of a token", token)?,
        _ => consumer.stored_secret("token", token)?.map(|token| vec![token]),
    };
    match tokens {
        Some(tokens) if tokens.len() > MAX_TOKENS => {
            Err(consumer.wrong(FILES, format!("names more than {MAX_TOKENS} files; remove those of old tokens")))
        }
        Some(tokens) => Ok(tokens),
        None if is_required => {
            let message = "is missing; set it to a file with a token, such as the output of: openssl rand -hex 32";
            Err(consumer.wrong("token_file", message))
        }
        None => Ok(Vec::new()),
    }
}

fn token(text: &str) -> Result<TokenHash, String> {
    let legal = text.len() >= MIN_TOKEN && text.bytes().all(|byte| byte.is_ascii_graphic());
    let needed = format!(
        "must have at least {MIN_TOKEN} visible ASCII characters and no spaces; create a token with: openssl rand -hex 32"
    );
    text_if(legal, text, &needed).map(|token| TokenHash::of(&token))
}

#[cfg(test)]
mod tests;
