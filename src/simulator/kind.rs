//! What an event is meant to be: its kind, and whether its proof holds.

use rand::Rng;

use super::misbehaviour::Misbehaviour;
use super::options::Options;
use super::random::{Purpose, draw};

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `watcher.event`, with a proof.
    WatcherEvent,
    /// `operation.status` at `confirmed`, with a proof.
    OperationConfirmed,
    /// `operation.status` at `accepted`: a notice.
    OperationAccepted,
    /// `operation.status` at `failed`: a notice, with its reason.
    OperationFailed,
    /// `query.status` at `completed`, with a proof.
    QueryCompleted,
    /// `query.status` at `accepted`: a notice.
    QueryAccepted,
    /// `watcher.status` at `active`: a notice.
    WatcherStatus,
    /// `wallet.status` at `deployed`: a notice.
    WalletStatus,
    /// A type that no client knows yet: a notice.
    Unknown,
}

impl Kind {
    /// `headers.type`.
    pub fn event_type(self) -> &'static str {
        match self {
            Self::WatcherEvent => "watcher.event",
            Self::OperationConfirmed | Self::OperationAccepted | Self::OperationFailed => "operation.status",
            Self::QueryCompleted | Self::QueryAccepted => "query.status",
            Self::WatcherStatus => "watcher.status",
            Self::WalletStatus => "wallet.status",
            Self::Unknown => "policy.status",
        }
    }

    /// `payload.status`, for the kinds that have one.
    pub fn status(self) -> Option<&'static str> {
        match self {
            Self::WatcherEvent => None,
            Self::OperationConfirmed => Some("confirmed"),
            Self::QueryCompleted => Some("completed"),
            Self::OperationAccepted | Self::QueryAccepted => Some("accepted"),
            Self::OperationFailed => Some("failed"),
            Self::WatcherStatus => Some("active"),
            Self::WalletStatus => Some("deployed"),
            Self::Unknown => Some("evaluated"),
        }
    }

    /// `payload.status_reason`, which only failures have.
    pub fn status_reason(self) -> &'static str {
        match self {
            Self::OperationFailed => "execution reverted",
            _ => "",
        }
    }

    /// Whether the network signs it.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::WatcherEvent | Self::OperationConfirmed | Self::QueryCompleted)
    }
}

/// An event to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSpec {
    /// As the service should: with a proof that holds, or a notice without one.
    Honest(Kind),
    /// Honest, but the proof is withheld: for the delay of the options, or until `Simulator::prove`.
    Late(Kind),
    /// A `watcher.event` whose proof does not hold.
    Forged(Tampering),
    /// An honest `watcher.event` whose record has no `event_id`, which the schema allows.
    WithoutId,
    /// A record with a readable offset, whose payload is none.
    Malformed,
    /// Payload and proof of another event, under an offset of its own: `Simulator::replay` and `Simulator::contradict`
    /// make it.
    Displaced(Original),
}

/// The id that a replay has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayedId {
    /// One of its own, by which the service gives it.
    New,
    /// The original's, by which the service gives the original.
    Same,
}

/// The event that payload and proof are taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    pub(super) channel: u64,
    pub(super) index: u64,
    pub(super) timestamp: i64,
    pub(super) deployment: u64,
    pub(super) kind: Kind,
    pub(super) id: ReplayedId,
}

/// How a proof was spoilt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tampering {
    /// The content was changed after the network signed it.
    ContentChanged,
    /// Enough signatures, but nobody of the signer set made them.
    Strangers,
    /// One signature less than required.
    TooFewSignatures,
    /// As many signatures as required, one of them twice.
    RepeatedSigner,
    /// A signature that is none.
    MalformedSignature,
    /// A valid report of somebody else's workflow.
    OtherOwner,
    /// A valid proof of another event.
    OtherEvent,
    /// A signed report that is too short.
    ReportTruncated,
    /// Two valid proofs.
    TwoProofs,
}

impl Tampering {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ContentChanged,
        Self::Strangers,
        Self::TooFewSignatures,
        Self::RepeatedSigner,
        Self::MalformedSignature,
        Self::OtherOwner,
        Self::OtherEvent,
        Self::ReportTruncated,
        Self::TwoProofs,
    ];
}

/// What a right verifier must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Honesty {
    /// The proof holds.
    Verifiable,
    /// A notice that nobody signs.
    Unsigned,
    /// A proof is due and is being withheld.
    Pending,
    /// The proof does not hold.
    Forged,
    /// Not a well-formed event.
    Malformed,
    /// Verifiable or unsigned by itself, but of another event than belongs there: to be noticed by who knows the other,
    /// or what stood there before.
    Displaced,
}

impl EventSpec {
    /// What the event is about. What is forged, malformed or without id is a `watcher.event`.
    pub fn kind(self) -> Kind {
        match self {
            Self::Honest(kind) | Self::Late(kind) => kind,
            Self::Forged(_) | Self::WithoutId | Self::Malformed => Kind::WatcherEvent,
            Self::Displaced(original) => original.kind,
        }
    }

    pub(super) fn honesty(self, withheld: bool) -> Honesty {
        match self {
            Self::Forged(_) => Honesty::Forged,
            Self::Malformed => Honesty::Malformed,
            Self::Displaced(_) => Honesty::Displaced,
            Self::Honest(kind) | Self::Late(kind) if !kind.is_signed() => Honesty::Unsigned,
            Self::Late(_) if withheld => Honesty::Pending,
            Self::Honest(_) | Self::Late(_) | Self::WithoutId => Honesty::Verifiable,
        }
    }
}

/// What an event is that nobody asked for in particular, by the shares of the options.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    seed: u64,
    unsigned: f64,
    forged: f64,
    late: f64,
}

impl Mix {
    pub(super) fn new(options: &Options) -> Self {
        let late = options.late_proofs.map_or(0.0, |late| late.share);
        Self { seed: options.seed, unsigned: options.unsigned, forged: options.forged, late }
    }

    /// The shares of a channel that misbehaves.
    pub(super) fn misbehaving(self, how: Option<Misbehaviour>) -> Self {
        let shares = how.and_then(Misbehaviour::shares);
        shares.map_or(self, |(unsigned, forged, late)| Self { unsigned, forged, late, ..self })
    }

    pub(super) fn spec(&self, channel: u64, index: u64) -> EventSpec {
        let mut rng = draw(self.seed, Purpose::Mix, channel, index);
        let mut happens = |share: f64| rng.random::<f64>() < share;
        let (forged, unsigned, late) = (happens(self.forged), happens(self.unsigned), happens(self.late));
        let choice = rng.random_range(0..90);
        match (forged, unsigned, late) {
            (true, ..) => EventSpec::Forged(Tampering::ALL[choice % Tampering::ALL.len()]),
            (_, true, _) => EventSpec::Honest(notice(choice)),
            (_, _, true) => EventSpec::Late(signed(choice)),
            _ => EventSpec::Honest(signed(choice)),
        }
    }
}

fn notice(choice: usize) -> Kind {
    [Kind::WatcherStatus, Kind::WalletStatus, Kind::OperationAccepted][choice % 3]
}

/// Mostly what watched contracts emit.
fn signed(choice: usize) -> Kind {
    match choice % 10 {
        0 => Kind::OperationConfirmed,
        1 => Kind::QueryCompleted,
        _ => Kind::WatcherEvent,
    }
}
