//! What an operator asks and what is answered.
//!
//! Answers, and the bodies of POST requests, are JSON. The members of a GET request stand in its query. What a subcommand's
//! arguments say is parsed into the request itself, whose comments are the subcommand's help.
//!
//! A request's `channel` is a configured name or an id. An answer's is the configured name, or the id of a channel that is
//! not configured. A `sink` is a configured name, and an optional channel or sink restricts a request to it. A `reason` is
//! its constant name, a `detail` says it in words. A cursor is the last offset that counts as processed,
//! `null` before the first event.

use clap::Args;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use api::Filter;
use channel::{LateDelivery, Sample};
use ledger::store::shared::InstanceId;
use ledger::{Cursor, GivenUp, Late, Quarantined};
use proof::event::{ChannelId, EventId, Offset};
use record::Readable;

/// Asks for the [`Report`](super::Report).
#[derive(Debug, Serialize, Deserialize)]
pub struct GetStatus {
    /// Of the instance that is asked alone: the others are not asked.
    #[serde(default)]
    pub here: bool,
}

/// Asks for the instances, see [`Cluster`](super::Cluster).
#[derive(Debug, Serialize, Deserialize)]
pub struct GetCluster {}

/// Asks for the last hour of channels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GetLastHour {
    /// Only these; all where none is named. Its JSON, as the request's query holds plain values.
    #[serde(default, with = "as_json")]
    pub channels: Vec<String>,
    /// As the instance that is asked has seen it: the others are not asked.
    #[serde(default)]
    pub here: bool,
}

/// Asks what is recorded of one event.
#[derive(Debug, Serialize, Deserialize)]
pub struct GetJourney {
    pub channel: String,
    pub offset: Offset,
}

/// Asks which events of a channel its ledger accounts for: see [`Accounts`](channel::Accounts).
#[derive(Debug, Serialize, Deserialize)]
pub struct GetAccounts {
    pub channel: String,
}

/// Asks for the deliveries since the last request. If there are none, the answer waits for one second.
#[derive(Debug, Serialize, Deserialize)]
pub struct WatchTail {
    /// Only this channel.
    pub channel: Option<String>,
    /// What this sink took. Without it each event is told once, however many sinks take it.
    pub sink: Option<String>,
    /// The `next` of the last answer. Without it nothing is told but where to go on from.
    pub from: Option<u64>,
    /// Only events that match. Its JSON, as the request's query holds plain values.
    #[serde(default, with = "as_json")]
    pub filter: Filter,
}

/// Reads the configuration and the secrets again.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reload {}

/// Says that an operator has seen what was lost to a damaged state.
#[derive(Debug, Serialize, Deserialize)]
pub struct AcknowledgeLost {}

/// List what is in the quarantine.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct ListQuarantine {
    /// Only this channel: its name in the configuration, or its UUID.
    pub channel: Option<String>,
}

/// Show one quarantined event with its bytes.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct ShowQuarantined {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The event's offset.
    pub offset: Offset,
    /// The event's id, if several events have this offset.
    #[arg(long)]
    #[serde(default)]
    pub event_id: Option<EventId>,
}

/// Verify quarantined events again with the signers of now, and deliver what holds.
///
/// This is how to recover from a signer rotation that was noticed late: correct the configuration, have the daemon read
/// it (SIGHUP), and retry. What holds goes to the sinks that passed it, as a late event; what still does not hold is
/// kept. Exits with 1 where anything was kept.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct RetryQuarantined {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The events' offsets.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    pub offsets: Vec<Offset>,
    /// All that the channel has in the quarantine, but for duplicates and contradictions.
    // Also without it, no offset means all: it is so that this is said.
    #[arg(long)]
    #[serde(skip)]
    pub all: bool,
    /// Of those only what was rejected for this reason, such as `too-few-signatures`. Duplicates (`duplicate-proof`) and
    /// contradictions (`contradiction`) are verified again only where their reason is named.
    #[arg(long)]
    pub reason: Option<String>,
}

/// Remove events from the quarantine. They cannot be brought back.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct DropQuarantined {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The events' offsets.
    #[arg(required_unless_present_any = ["reason", "all"], conflicts_with_all = ["reason", "all"])]
    pub offsets: Vec<Offset>,
    /// All that the channel has rejected for this reason, such as `proof-of-channel`: so an operator acknowledges them.
    #[arg(long, conflicts_with = "all")]
    #[serde(default)]
    pub reason: Option<String>,
    /// All that the channel has in the quarantine.
    #[arg(long)]
    #[serde(default)]
    pub all: bool,
}

/// List the dead letters.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct ListDeadLetters {
    /// Only this channel: its name in the configuration, or its UUID.
    pub channel: Option<String>,
    /// Only this sink.
    #[arg(long)]
    pub sink: Option<String>,
}

/// Show one dead letter with its event.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct ShowDeadLetter {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The event's offset.
    pub offset: Offset,
    /// The event's id, if several events have this offset.
    #[arg(long)]
    #[serde(default)]
    pub event_id: Option<EventId>,
    /// The sink that gave it up.
    #[arg(long)]
    pub sink: String,
}

/// Deliver dead letters once more, each with the id that it had.
///
/// They go to their sink as late events do, and are verified again before. What is refused once more, and for too long,
/// is a dead letter again.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct RedeliverDeadLetters {
    #[command(flatten)]
    pub which: DeadLetterSelection,
}

/// Remove dead letters. They cannot be brought back from here, only from the service: see `channeld replay`.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct DropDeadLetters {
    #[command(flatten)]
    pub which: DeadLetterSelection,
}

// A selection of a sink's dead letters: those to which all of this applies. (A doc comment would be the subcommand's help.)
#[derive(Clone, Debug, Default, Serialize, Deserialize, Args)]
pub struct DeadLetterSelection {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The sink that gave them up.
    #[arg(long)]
    pub sink: String,
    /// The events' offsets.
    #[arg(required_unless_present_any = ["all", "from", "to", "since", "until"])]
    pub offsets: Vec<Offset>,
    /// All of that sink.
    // Also without it, no restriction means all: it is so that this is said.
    #[arg(long, conflicts_with_all = ["offsets", "from", "to", "since", "until"])]
    #[serde(skip)]
    pub all: bool,
    /// Those at this offset or above.
    #[arg(long, value_name = "OFFSET")]
    pub from: Option<Offset>,
    /// Those at this offset or below.
    #[arg(long, value_name = "OFFSET")]
    pub to: Option<Offset>,
    /// Those given up at this time or later: RFC 3339, Unix seconds, or such as 1h for that long ago.
    #[arg(long, value_name = "TIME", value_parser = net::time::parse)]
    pub since: Option<Timestamp>,
    /// Those given up at this time or earlier.
    #[arg(long, value_name = "TIME", value_parser = net::time::parse)]
    pub until: Option<Timestamp>,
}

/// Delivers events of the past to one sink once more.
#[derive(Debug, Serialize, Deserialize)]
pub struct Redeliver {
    pub channel: String,
    pub sink: String,
    /// The events' bytes as the service gave them, each in base64.
    pub events: Vec<String>,
}

// Pauses or resumes a channel, or one of its sinks. Answered is whether that changed anything.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct SetPaused {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// Only this sink of it.
    #[arg(long)]
    pub sink: Option<String>,
    #[arg(skip)]
    pub paused: bool,
    /// When the pause ends by itself.
    #[arg(skip)]
    #[serde(default)]
    pub until: Option<Timestamp>,
}

/// Has a channel that waits for its next poll poll now. Answered is when that was asked: once the channel's `last_poll` is
/// later, it has been done.
#[derive(Debug, Serialize, Deserialize)]
pub struct PollNow {
    pub channel: String,
}

/// Show the cursors: the last offset up to which everything was delivered, set aside for its late proof, or quarantined.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct ListCursors {
    /// Only this channel: its name in the configuration, or its UUID.
    pub channel: Option<String>,
}

/// Set the cursors of a channel, or of one of its sinks.
///
/// Says first how many events would be delivered again or passed over, as a distance in offsets: there are at most that
/// many. Nothing is changed without --yes. A file sink passes over what it still holds of the events that come again.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct SetCursors {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// Only this sink of it.
    #[arg(long)]
    pub sink: Option<String>,
    #[arg(skip)]
    #[serde(default)]
    pub to: Cursor,
    /// Cursors below it stay.
    #[arg(skip)]
    #[serde(default)]
    pub only_back: bool,
    /// Whether to do it. Otherwise the answer describes the change.
    #[arg(skip)]
    pub apply: bool,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The request cannot be carried out as it is. Says what to ask instead. Status 400.
    #[error("{0}")]
    Usage(String),
    /// The configuration cannot be used. Says everything that is wrong with it. Status 422.
    #[error("{0}")]
    Config(String),
    /// It failed. Status 500.
    #[error("{0}")]
    Failed(String),
    /// Another instance owns the channel: that one is asked. Status 421, and another refusal.
    #[error("channel {channel} is owned by instance {name}")]
    #[serde(skip)]
    Elsewhere { channel: String, owner: InstanceId, name: String },
}

/// Something that is kept of a channel.
#[derive(Debug, Serialize, Deserialize)]
pub struct Entry<T> {
    pub channel: String,
    pub channel_id: ChannelId,
    #[serde(flatten)]
    pub facts: T,
}

/// The last hour of a channel, minute by minute, as far as the daemon has seen it.
#[derive(Debug, Serialize, Deserialize)]
pub struct LastHour {
    /// Ascending by time. The last is of the moment of the answer.
    pub samples: Vec<Sample>,
}

/// What is recorded of one event, besides its sinks' cursors.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Journey {
    /// Where sinks whose cursors have passed it are still owed it: its proof has not come, or it is delivered once more.
    pub late: Option<Late>,
    /// Where it is in the quarantine.
    pub quarantined: Option<Quarantined>,
    /// Of each sink that has given it up.
    pub dead_letters: Vec<DeadLetter>,
    /// Its late deliveries by the instance that answers, of the newest 64 of the channel since the daemon's start. Ascending by
    /// time.
    #[serde(default)]
    pub delivered_late: Vec<LateDelivery>,
}

/// A quarantined event with its bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct QuarantinedEvent {
    #[serde(flatten)]
    pub entry: Entry<Quarantined>,
    /// Its bytes as text, where they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its bytes, in base64.
    pub bytes_base64: String,
}

/// An event that was to be verified again.
#[derive(Debug, Serialize, Deserialize)]
pub struct Retried {
    pub offset: Offset,
    #[serde(flatten)]
    pub fate: Fate,
}

/// What became of an event that was to be verified again.
#[derive(Debug, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(tag = "fate", rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Fate {
    /// Its proof holds: it is on its way to the sinks that passed it.
    Delivering,
    /// It has no proof yet: the proof is waited for once more.
    Waiting,
    /// Its proof holds, but no cursor has passed it: it is read again from the service in order.
    #[strum(serialize = "read in order")]
    ReadInOrder,
    /// It is still rejected, and stays in the quarantine.
    Kept { reason: String, detail: String },
    /// It is not in the quarantine.
    #[strum(serialize = "not there")]
    NotThere,
}

/// What is known of a dead letter.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The sink that gave the event up.
    pub sink: String,
    #[serde(flatten)]
    pub facts: GivenUp,
}

/// A dead letter with its event.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeadLetterEvent {
    #[serde(flatten)]
    pub entry: Entry<DeadLetter>,
    /// As the service gave it.
    pub event: Box<RawValue>,
}

/// The cursor of a lane.
#[derive(Debug, Serialize, Deserialize)]
pub struct CursorPosition {
    pub sink: String,
    /// Whether the configuration has this lane.
    pub configured: bool,
    pub cursor: Cursor,
    /// Late events that are owed to the sink.
    pub owed: usize,
}

/// What sinks took, in the order in which they did.
#[derive(Debug, Serialize, Deserialize)]
pub struct TailedDeliveries {
    pub events: Vec<TailedEvent>,
    /// Deliveries that came faster than they were asked for: nothing is told of them.
    pub missed: u64,
    /// Where the next request goes on.
    pub next: u64,
    /// Where all channels were asked for: those that other instances work, with them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
}

/// An event that a sink took.
#[derive(Debug, Serialize, Deserialize)]
pub struct TailedEvent {
    pub sink: String,
    /// Whether the sink had taken events above it before: its proof came late, or an operator had it delivered.
    pub is_late: bool,
    /// The parts of its readable line.
    pub line: Readable,
    pub record: Box<RawValue>,
}

/// A member of a query that is no plain value, as its JSON.
mod as_json {
    use serde::de::{DeserializeOwned, Error as _};
    use serde::ser::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<T: Serialize, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&serde_json::to_string(value).map_err(S::Error::custom)?)
    }

    pub(super) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(text: D) -> Result<T, D::Error> {
        serde_json::from_str(&String::deserialize(text)?).map_err(D::Error::custom)
    }
}

/// A cursor that is, or would be, set.
#[derive(Debug, Serialize, Deserialize)]
pub struct CursorMove {
    pub sink: String,
    pub from: Cursor,
    pub to: Cursor,
    /// Offsets that are read again: the most events that can be repeated.
    pub repeated: u64,
    /// Offsets that are passed over: the most events that this sink never gets.
    pub passed_over: u64,
}
