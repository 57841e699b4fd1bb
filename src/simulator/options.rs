//! The options of the simulated service.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, TypedValueParser};
use clap::value_parser;

use crate::event::roster::{WatcherConfidence, WatcherStatus};
use crate::keys::{Deny, RevokeKey};
use crate::misbehaviour::MisbehavingChannels;
use crate::random;
use crate::version::ApiVersion;

/// The options of a simulated service. Two services with the same options and seed behave the same, except for the time
/// of day ([`ends_at`](Self::ends_at)) and the port.
#[derive(Clone, Debug, clap::Args)]
#[expect(clippy::doc_markdown, reason = "help texts contain plain names")]
pub struct Options {
    /// The address to listen on; with port 0, the system chooses the port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub listen: SocketAddr,

    /// An API key that clients can send. May be given several times [default: sim-… derived from the seed]
    #[arg(long = "api-key", value_name = "KEY", value_parser = NonEmptyStringValueParser::new())]
    pub api_keys: Vec<String>,

    /// Revoke an API key after this time, such as 1:30s for the first key [default: never]
    #[arg(long, value_name = "NUMBER:DURATION")]
    pub revoke_key: Vec<RevokeKey>,

    /// The routes for which an API key lacks the scope, such as 1:watcher for the first key [default: none]
    #[arg(long, value_name = "NUMBER:ROUTE")]
    pub deny: Vec<Deny>,

    /// The version of the service's API
    #[arg(long, value_enum, default_value_t, value_name = "VERSION")]
    pub api_version: ApiVersion,

    /// The organization that owns the events, in tenant 1
    #[arg(long, value_name = "ID", default_value = "org_simulated")]
    pub org_id: String,

    /// The number of channels, 1 to 1000
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=1000).map(usize::from))]
    pub channels: usize,

    /// The number of events that each channel has at the start, up to 100 million
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = value_parser!(u64).range(..=100_000_000))]
    pub events: u64,

    /// New events per second in each channel, 0 to 100000
    #[arg(long, value_name = "RATE", default_value_t = 0.0, value_parser = rate)]
    pub rate: f64,

    /// Share of events that never have a proof, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share)]
    pub unsigned: f64,

    /// Share of proofs that arrive after their events, and the delay, such as 0.1:30s [default: none]
    #[arg(long, value_name = "P:DURATION")]
    pub late_proofs: Option<LateProofs>,

    /// Lose the newest N events of each channel after this time, such as 50:30s, and reuse their offsets for new events
    /// [default: never]
    #[arg(long, value_name = "N:DURATION")]
    pub go_back: Option<GoBack>,

    /// Share of events with an invalid proof, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share)]
    pub forged: f64,

    /// Share of requests that fail, 0 to 1. The kinds of failures are used in turn
    #[arg(long, value_name = "P", default_value_t = 0.0, value_parser = share)]
    pub faults: f64,

    /// Which channels misbehave, and how
    #[arg(long, value_name = "[CHANNELS:]HOW", long_help = MisbehavingChannels::help())]
    pub misbehave: Vec<MisbehavingChannels>,

    /// Replace half of the backlog of channel INTO with genuine events of channel FROM, such as 0:1 [default: none]
    #[arg(long, value_name = "FROM:INTO")]
    pub steal: Option<Steal>,

    /// The number of workflows that each watcher has had, 1 to 1000. At equal distances in the backlog, the watcher is
    /// redeployed under a new workflow id
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..=1000))]
    pub workflows: u64,

    /// The status of every watcher
    #[arg(long, value_enum, default_value_t, value_name = "STATUS")]
    pub watcher_status: WatcherStatus,

    /// The number of signers in the oracle network, 1 to 255
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u8).range(1..).map(usize::from))]
    pub signers: usize,

    /// The number of signatures in a proof, at most the number of signers
    #[arg(long, value_name = "K", default_value_t = 4, value_parser = value_parser!(u8).range(1..).map(usize::from))]
    pub required: usize,

    /// The signers that sign an event, and their order
    #[arg(long, value_enum, default_value_t)]
    pub signing: Signing,

    /// The confidence of watcher events, which is a property of their watcher
    #[arg(long, value_enum, default_value_t)]
    pub confidence: WatcherConfidence,

    /// The number from which ids, keys, contents and faults are derived
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,

    /// Which events a page contains if not all events above the offset fit on it
    #[arg(long, value_enum, default_value_t)]
    pub window: Window,

    /// Return the event at the requested offset again
    #[arg(long)]
    pub inclusive: bool,

    /// The meaning of has_more
    #[arg(long, value_enum, default_value_t)]
    pub has_more: HasMore,

    /// Leave gaps between offsets
    #[arg(long)]
    pub sparse: bool,

    /// When the last event of the backlog happened, in Unix seconds. `None` means now. With a fixed time, every run
    /// creates the same backlog, byte for byte.
    #[arg(skip)]
    pub ends_at: Option<i64>,

    /// Create all records before the first request is answered, so that no answer has to compute signatures. Each
    /// record uses 2.7 kB of memory
    #[arg(long)]
    pub prepared: bool,
}

impl Options {
    /// Returns the API keys that are accepted. At least one.
    pub fn accepted_keys(&self) -> Vec<String> {
        if self.api_keys.is_empty() { vec![random::api_key(self.seed)] } else { self.api_keys.clone() }
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            api_version: ApiVersion::default(),
            api_keys: Vec::new(),
            revoke_key: Vec::new(),
            deny: Vec::new(),
            org_id: "org_simulated".to_owned(),
            channels: 1,
            events: 0,
            rate: 0.0,
            unsigned: 0.0,
            late_proofs: None,
            go_back: None,
            forged: 0.0,
            faults: 0.0,
            misbehave: Vec::new(),
            steal: None,
            workflows: 1,
            watcher_status: WatcherStatus::default(),
            signers: 10,
            required: 4,
            signing: Signing::default(),
            confidence: WatcherConfidence::default(),
            seed: 0,
            window: Window::Oldest,
            inclusive: false,
            has_more: HasMore::Remaining,
            sparse: false,
            ends_at: None,
            prepared: false,
        }
    }
}

/// Which events a page contains if not all events above `offset` fit on it (spec/wire.md, "`offset` on poll", 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Window {
    /// The events just above `offset`.
    #[default]
    Oldest,
    /// The newest events of the channel.
    Newest,
}

/// Which signers sign an event, and the order of their signatures in its proof.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Signing {
    /// A random subset of the signers, in the order of the network. A real network works like this: a proof contains
    /// the signatures that arrived first, sorted by signer.
    #[default]
    Network,
    /// A random subset of the signers, in random order.
    Arrival,
    /// Signers with consecutive numbers, in the order of the network. The first of them moves on by one signer with
    /// each event.
    Rotating,
    /// Always the same signers, in the order of the network.
    Fixed,
}

/// The meaning of `has_more` (spec/wire.md, "`offset` on poll", 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HasMore {
    /// Events above `offset` exist that the page does not contain. Without `offset`, this means that older events
    /// exist.
    #[default]
    Remaining,
    /// Events older than the page exist, regardless of `offset`.
    Older,
}

/// Proofs that arrive after their events, written as `0.1:30s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LateProofs {
    /// The share of the events with proofs, 0 to 1.
    pub share: f64,
    /// The delay between an event and its proof. For an event of the backlog, the delay starts when the service starts.
    pub delay: Duration,
}

/// The service goes back in time, written as `50:30s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GoBack {
    /// Each channel loses this number of its newest events.
    pub events: u64,
    /// The time between the start of the service and the loss.
    pub after: Duration,
}

/// A channel that shows events of another channel, written as `0:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steal {
    /// The index of the channel whose events are shown elsewhere.
    pub from: u64,
    /// The index of the channel that shows the events of the other channel.
    pub into: u64,
}

/// The text is not two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected the numbers of two channels, counted from 0, such as 0:1")]
pub struct ParseStealError;

impl FromStr for Steal {
    type Err = ParseStealError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let numbers = text.split_once(':').and_then(|(from, into)| Some((from.parse().ok()?, into.parse().ok()?)));
        numbers.filter(|(from, into)| from != into).map(|(from, into)| Self { from, into }).ok_or(ParseStealError)
    }
}

/// The text is not a number and a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAfterError {
    /// For [`LateProofs`].
    #[error("expected a share from 0 to 1 and a duration, such as 0.1:30s")]
    Share,
    /// For [`GoBack`].
    #[error("expected a number of events and a duration, such as 50:30s")]
    Events,
}

impl FromStr for LateProofs {
    type Err = ParseAfterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let after = after(text).filter(|(share, _)| (0.0..=1.0).contains(share));
        after.map(|(share, delay)| Self { share, delay }).ok_or(ParseAfterError::Share)
    }
}

impl FromStr for GoBack {
    type Err = ParseAfterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        after(text).map(|(events, after)| Self { events, after }).ok_or(ParseAfterError::Events)
    }
}

/// Parses a number and a duration, such as `50:30s`.
fn after<T: FromStr>(text: &str) -> Option<(T, Duration)> {
    let (number, duration) = text.split_once(':')?;
    let duration: jiff::SignedDuration = duration.trim().parse().ok()?;
    Some((number.trim().parse().ok()?, Duration::try_from(duration).ok()?))
}

fn share(text: &str) -> Result<f64, String> {
    within(text, 1.0)
}

fn rate(text: &str) -> Result<f64, String> {
    within(text, 100_000.0)
}

fn within(text: &str, most: f64) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number| (0.0..=most).contains(number));
    number.ok_or_else(|| format!("expected a number from 0 to {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_proofs_are_a_share_and_a_duration() {
        let read = |text: &str| text.parse::<LateProofs>();
        assert_eq!(read("0.1:30s"), Ok(LateProofs { share: 0.1, delay: Duration::from_secs(30) }));
        assert_eq!(read("1:1m 30s"), Ok(LateProofs { share: 1.0, delay: Duration::from_secs(90) }));
        for text in ["", "0.1", "0.1:", ":30s", "1.5:30s", "-0.1:30s", "NaN:30s", "0.1:30", "0.1:-30s"] {
            assert_eq!(read(text), Err(ParseAfterError::Share), "{text}");
        }
        assert_eq!("50:30s".parse(), Ok(GoBack { events: 50, after: Duration::from_secs(30) }));
        assert_eq!("0.5:30s".parse::<GoBack>(), Err(ParseAfterError::Events));
    }
}
