//! The requests of operators, and their answers.
//!
//! Answers, and the bodies of POST requests, are JSON. The fields of a GET request are in its query. The arguments of a
//! subcommand are parsed into the request itself, and the comments of the request are the help of the subcommand.
//!
//! The `channel` of a request is a configured name or an id. The `channel` of an answer is the configured name, or the id
//! if the channel is not configured. A `sink` is a configured name. If an optional channel or sink is given, the request
//! applies only to this channel or sink. A `reason` is the constant name of a reason, and a `detail` describes the reason
//! in words. A cursor is the last offset that counts as processed, or `null` before the first event.

use clap::{ArgGroup, Args};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::report::feed::FeedConsumer;
use api::Filter;
use channel::{LateDelivery, Sample};
use ledger::store::shared::InstanceId;
use ledger::{Cursor, DeadLetterFacts, PendingEvent, Quarantined, ReplayId};
use proof::event::{ChannelId, EventId, Offset};
use record::Readable;

/// Requests the [`Report`](super::Report).
#[derive(Debug, Serialize, Deserialize)]
pub struct GetStatus {
    /// Whether to report only the instance that receives the request, without the other instances.
    #[serde(default)]
    pub here: bool,
}

/// Requests the instances: see [`Cluster`](super::Cluster).
#[derive(Debug, Serialize, Deserialize)]
pub struct GetCluster {}

/// Requests the last hour of channels.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GetLastHour {
    /// The requested channels, or all channels if the list is empty.
    #[serde(default, with = "as_json")]
    pub channels: Vec<String>,
    /// Whether to return only the samples of the instance that receives the request.
    #[serde(default)]
    pub here: bool,
}

/// Requests the recorded data of one event.
#[derive(Debug, Serialize, Deserialize)]
pub struct GetJourney {
    pub channel: String,
    pub offset: Offset,
}

/// Requests the events that the ledger of a channel accounts for: see [`Accounts`](channel::Accounts).
#[derive(Debug, Serialize, Deserialize)]
pub struct GetAccounts {
    pub channel: String,
}

/// Requests the deliveries since the last request. If no delivery is new, the answer waits for the next one, at most
/// one second.
#[derive(Debug, Serialize, Deserialize)]
pub struct WatchTail {
    /// Only this channel.
    pub channel: Option<String>,
    /// Only deliveries to this sink. If no sink is given, each event is shown once, however many sinks accept it.
    pub sink: Option<String>,
    /// The `next` of the last answer. The first request has no `from`: its answer contains no event, only the `next`
    /// for the second request.
    pub from: Option<u64>,
    /// Only events that match.
    #[serde(default, with = "as_json")]
    pub filter: Filter,
}

/// Reads the configuration and the secrets again.
#[derive(Debug, Serialize, Deserialize)]
pub struct Reload {}

/// Acknowledges that an operator has seen the loss of data in a damaged state.
#[derive(Debug, Serialize, Deserialize)]
pub struct AcknowledgeLost {}

/// List the events in the quarantine.
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
    pub event_id: Option<EventId>,
}

/// Verify quarantined events again, and deliver the valid events.
///
/// The events are verified with the current signers. Use this command after a signer rotation that was noticed late:
/// correct the configuration, reload it (SIGHUP), and retry. A valid event is delivered late to the sinks whose
/// cursors have passed it. An event that is still rejected stays in the quarantine. Exits with 1 if any event stays there.
#[derive(Debug, Serialize, Deserialize, Args)]
#[command(
    group = ArgGroup::new("events").required(true).args(["offsets", "all"]),
    override_usage = "channeld quarantine retry [OPTIONS] <CHANNEL> <OFFSETS>...|--all"
)]
pub struct RetryQuarantined {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The offsets of the events.
    pub offsets: Vec<Offset>,
    /// Retry all quarantined events of the channel, except duplicates and contradictions.
    // An empty list of offsets selects all events, even without this flag. The command requires the flag, because an
    // operator could otherwise select all events by mistake.
    #[arg(long)]
    #[serde(skip)]
    pub all: bool,
    /// Only events that were rejected for this reason, such as `too-few-signatures`. Duplicates (`duplicate-proof`) and
    /// contradictions (`contradiction`) are verified again only if this flag names their reason.
    #[arg(long)]
    pub reason: Option<String>,
}

/// Remove events from the quarantine permanently.
#[derive(Debug, Serialize, Deserialize, Args)]
#[command(
    group = ArgGroup::new("events").required(true).args(["offsets", "reason", "all"]),
    override_usage = "channeld quarantine drop [OPTIONS] <CHANNEL> <OFFSETS>...|--reason <REASON>|--all"
)]
pub struct DropQuarantined {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The offsets of the events.
    // With a reason, only the events at these offsets that were rejected for it. The command takes one of the two.
    pub offsets: Vec<Offset>,
    /// Drop all events that the channel rejected for this reason, such as `proof-of-channel`. Dropping the events also
    /// acknowledges them.
    #[arg(long)]
    pub reason: Option<String>,
    /// Drop all quarantined events of the channel.
    #[arg(long)]
    #[serde(default)]
    pub all: bool,
}

/// List dead letters.
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
    pub event_id: Option<EventId>,
    /// The sink that gave up on the event.
    #[arg(long)]
    pub sink: String,
}

/// Replay dead letters, each with its original id.
///
/// The events are verified again and then sent to their sink as late deliveries. An event that the sink again refuses
/// for too long becomes a dead letter again.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct ReplayDeadLetters {
    #[command(flatten)]
    pub which: DeadLetterSelection,
}

/// Remove dead letters permanently.
///
/// To deliver these events later, read them from the service again: see `channeld replay`.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct DropDeadLetters {
    #[command(flatten)]
    pub which: DeadLetterSelection,
}

// Selects the dead letters of a sink that meet all of these conditions. This is not a doc comment, because a doc comment
// would become the help of the subcommand.
#[derive(Clone, Debug, Default, Serialize, Deserialize, Args)]
pub struct DeadLetterSelection {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The sink that gave up on the events.
    #[arg(long)]
    pub sink: String,
    /// The offsets of the events.
    #[arg(required_unless_present_any = ["all", "from", "to", "since", "until"])]
    pub offsets: Vec<Offset>,
    /// All dead letters of the channel and sink.
    // Required for the same reason as `RetryQuarantined::all`.
    #[arg(long, conflicts_with_all = ["offsets", "from", "to", "since", "until"])]
    #[serde(skip)]
    pub all: bool,
    /// Only dead letters at this offset or above.
    #[arg(long, value_name = "OFFSET")]
    pub from: Option<Offset>,
    /// Only dead letters at this offset or below.
    #[arg(long, value_name = "OFFSET")]
    pub to: Option<Offset>,
    /// Only events that became dead letters at this time or later: RFC 3339, Unix seconds, or an age such as 1h.
    #[arg(long, value_name = "TIME", value_parser = net::time::parse)]
    pub since: Option<Timestamp>,
    /// Only events that became dead letters at this time or earlier.
    #[arg(long, value_name = "TIME", value_parser = net::time::parse)]
    pub until: Option<Timestamp>,
}

/// Starts one replay for each sink: the channel delivers the events of a past range again.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartReplay {
    pub channel: String,
    /// Only this sink. Without it, every configured sink of the channel gets a replay.
    pub sink: Option<String>,
    /// The offset of the first event.
    pub from: Offset,
    /// The offset of the last event.
    pub to: Offset,
}

/// Requests the replays of one channel or of all channels, including the latest replays that have ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListReplays {
    pub channel: Option<String>,
}

/// Pauses, resumes or cancels a replay. Events that were already read are still delivered.
#[derive(Debug, Serialize, Deserialize)]
pub struct SetReplay {
    pub channel: String,
    pub id: ReplayId,
    pub action: ReplayAction,
}

/// A change of a replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplayAction {
    Pause,
    Resume,
    Cancel,
}

/// Delivers past events to one sink again, in one commit. The request contains the events. Their number is limited by the
/// channel's room for pending events.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReplayEvents {
    pub channel: String,
    pub sink: String,
    /// The bytes of the events as the service returned them, each in base64.
    pub events: Vec<String>,
}

// Pauses or resumes a channel, or one of its sinks. The answer says whether the request changed anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Args)]
pub struct SetPaused {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// Only this sink of the channel.
    #[arg(long)]
    pub sink: Option<String>,
    #[arg(skip)]
    pub paused: bool,
    /// When the pause ends automatically.
    #[arg(skip)]
    pub until: Option<Timestamp>,
    /// Whether the lane of a resumed sink may continue although the sink has lost its data.
    #[arg(skip)]
    #[serde(default)]
    pub accept_loss: bool,
}

/// Ends a channel's wait for its next poll, so that the channel polls now. The answer is the time of the request. The
/// poll is done when the channel's `last_poll` is later than this time.
#[derive(Debug, Serialize, Deserialize)]
pub struct PollNow {
    pub channel: String,
}

/// Show the cursor of each sink.
///
/// Every event up to the cursor was delivered, is pending until its proof arrives, or is in the quarantine.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct ListCursors {
    /// Only this channel: its name in the configuration, or its UUID.
    pub channel: Option<String>,
}

/// Set the cursors of a channel, or of one of its sinks.
///
/// First prints how many events would be delivered again or skipped. This number is a distance in offsets, so the
/// number of events can be lower. Without --yes, nothing is changed. A file sink skips repeated events that are still
/// in the file.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct SetCursors {
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// Only this sink of the channel.
    #[arg(long)]
    pub sink: Option<String>,
    #[arg(skip)]
    #[serde(default)]
    pub to: Cursor,
    /// Cursors below the target do not move.
    #[arg(skip)]
    #[serde(default)]
    pub only_back: bool,
    /// Whether to make the change. Otherwise the answer only describes it.
    #[arg(skip)]
    pub apply: bool,
}

/// Requests the cursor, the lag and the lease of each consumer of the feed.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListConsumers {}

// Sets the cursor of a consumer of the feed, and ends its lease. The path of the request contains the consumer and the channel. This
// is not a doc comment, because a doc comment would become the help of the subcommand.
#[derive(Debug, Serialize, Deserialize, Args)]
pub struct SetConsumerCursor {
    /// The name of the consumer in the configuration.
    pub consumer: String,
    /// The channel: its name in the configuration, or its UUID.
    pub channel: String,
    /// The new cursor: the position of the last event that counts as processed. The consumer receives the events above it next.
    #[arg(value_name = "POSITION", allow_negative_numbers = true)]
    pub through: i64,
}

/// Why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The request is wrong. The text describes the problem and a correct request. Status 400.
    #[error("{0}")]
    Usage(String),
    /// The daemon has no such part. Status 404.
    #[error("{0}")]
    NotFound(String),
    /// The configuration is invalid. The text lists every problem. Status 422.
    #[error("{0}")]
    Config(String),
    /// The operation failed. Status 500.
    #[error("{0}")]
    Failed(String),
    /// The recorded state of the channel cannot be read. Clients see it as [`Failed`](Self::Failed).
    #[error("{0}")]
    #[serde(skip)]
    Unreadable(String),
    /// Another instance owns the channel. If an operator sent the request, it is forwarded to that instance. If another
    /// instance sent the request, the answer has the status 421 and this text as [`Failed`](Self::Failed).
    #[error("channel {channel} is owned by instance {name}")]
    #[serde(skip)]
    Elsewhere { channel: String, owner: InstanceId, name: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub struct ChannelEntry<T> {
    pub channel: String,
    pub channel_id: ChannelId,
    #[serde(flatten)]
    pub facts: T,
}

/// The last hour of a channel, minute by minute, as far as the daemon has seen it.
#[derive(Debug, Serialize, Deserialize)]
pub struct LastHour {
    /// The samples in ascending order of time. The last sample describes the moment of the answer.
    pub samples: Vec<Sample>,
}

/// The recorded data of one event, without the cursors of its sinks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Journey {
    /// Set if the event is still due for sinks whose cursors have passed it, because its proof has not arrived or an
    /// operator replays it.
    pub late: Option<PendingEvent>,
    pub quarantined: Option<Quarantined>,
    /// One dead letter for each sink that gave up on the event.
    pub dead_letters: Vec<DeadLetter>,
    /// The late deliveries of the event, in ascending order of time. The instance that answers knows only late
    /// deliveries that it made itself, and remembers only the newest 64 of the channel since it started.
    #[serde(default)]
    pub delivered_late: Vec<LateDelivery>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct QuarantinedEvent {
    #[serde(flatten)]
    pub entry: ChannelEntry<Quarantined>,
    /// The bytes of the event as text, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    pub bytes_base64: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct RetriedEvent {
    pub offset: Offset,
    #[serde(flatten)]
    pub fate: Fate,
}

/// The outcome of the retry of a quarantined event.
#[derive(Debug, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(tag = "fate", rename_all = "snake_case")]
#[strum(serialize_all = "lowercase")]
pub enum Fate {
    /// The proof of the event is valid. The event will be delivered to the sinks whose cursors have passed it.
    Delivering,
    /// The event has no proof yet and is pending again.
    Waiting,
    /// The proof of the event is valid, but no cursor has passed the event. It is read again from the service in order.
    #[strum(serialize = "read in order")]
    ReadInOrder,
    /// The event is still rejected, and stays in the quarantine.
    Kept { reason: String, detail: String },
    /// The event is not in the quarantine.
    #[strum(serialize = "not there")]
    NotThere,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DeadLetter {
    /// The sink that gave up on the event.
    pub sink: String,
    #[serde(flatten)]
    pub facts: DeadLetterFacts,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct DeadLetterEvent {
    #[serde(flatten)]
    pub entry: ChannelEntry<DeadLetter>,
    /// The event as the service returned it.
    pub event: Box<RawValue>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct CursorPosition {
    pub sink: String,
    /// Whether the configuration has this lane.
    pub configured: bool,
    pub cursor: Cursor,
    /// How many late deliveries are still due for the sink.
    #[serde(rename = "owed")]
    pub due: usize,
}

/// Deliveries to sinks, in the order in which they were made.
#[derive(Debug, Serialize, Deserialize)]
pub struct TailedDeliveries {
    pub events: Vec<TailedEvent>,
    /// How many deliveries are missing, because deliveries were made faster than the client requested them.
    pub missed: u64,
    /// The `from` of the next request.
    pub next: u64,
    /// If all channels were requested: the channels that other instances run, each with the name of its instance.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub elsewhere: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct TailedEvent {
    pub sink: String,
    /// Whether the delivery is late: the sink had already accepted events with higher offsets. The proof of the event
    /// arrived late, or an operator replayed the event.
    pub is_late: bool,
    /// The parts of the readable line.
    pub line: Readable,
    pub record: Box<RawValue>,
}

/// Encodes a structured field as JSON, because the query of a request contains only plain values.
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

/// A cursor that was set, or would be set.
#[derive(Debug, Serialize, Deserialize)]
pub struct CursorMove {
    pub sink: String,
    pub from: Cursor,
    pub to: Cursor,
    /// How many offsets are read again. At most this many events can be repeated.
    pub repeated: u64,
    /// How many offsets are skipped. At most this many events never reach this sink.
    pub passed_over: u64,
}

/// The consumers of the feed.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConsumerList {
    /// One entry for each channel that a consumer may read.
    pub consumers: Vec<FeedConsumer>,
}

/// The cursor of a consumer that was set.
#[derive(Debug, Serialize, Deserialize)]
pub struct ConsumerCursorMove {
    pub consumer: String,
    pub channel: String,
    /// The cursor before the change.
    pub from: i64,
    pub to: i64,
}
