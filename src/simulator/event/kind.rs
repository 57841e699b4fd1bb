//! The intended nature of an event: its kind, and whether its proof is valid.

use rand::Rng;

use crate::misbehaviour::Misbehaviour;
use crate::options::Options;
use crate::random::{Purpose, draw};
use crate::version::ApiVersion;

/// The type and the status of an event.
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
    /// `operation.status` at `reverted`, with a proof and its reason.
    OperationReverted,
    /// `query.status` at `completed`, with a proof.
    QueryCompleted,
    /// `query.status` at `failed`, with a proof: the query failed on the chain.
    QueryFailed,
    /// `query.status` at `failed`: a notice. The query was never sent.
    QueryNotSent,
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
    /// All kinds.
    pub const ALL: [Self; 12] = [
        Self::WatcherEvent,
        Self::OperationConfirmed,
        Self::OperationAccepted,
        Self::OperationFailed,
        Self::OperationReverted,
        Self::QueryCompleted,
        Self::QueryFailed,
        Self::QueryNotSent,
        Self::QueryAccepted,
        Self::WatcherStatus,
        Self::WalletStatus,
        Self::Unknown,
    ];

    /// Returns the kind of event that this version of the API publishes instead.
    #[must_use]
    pub fn published_by(self, version: ApiVersion) -> Self {
        match self {
            Self::OperationReverted if version < ApiVersion::V0_8_0 => Self::OperationFailed,
            Self::QueryFailed if version < ApiVersion::V0_8_0 => Self::QueryNotSent,
            kind => kind,
        }
    }

    /// Returns `headers.type`.
    pub fn event_type(self) -> &'static str {
        match self {
            Self::WatcherEvent => "watcher.event",
            Self::OperationConfirmed | Self::OperationAccepted | Self::OperationFailed | Self::OperationReverted => {
                "operation.status"
            }
            Self::QueryCompleted | Self::QueryFailed | Self::QueryNotSent | Self::QueryAccepted => "query.status",
            Self::WatcherStatus => "watcher.status",
            Self::WalletStatus => "wallet.status",
            Self::Unknown => "policy.status",
        }
    }

    /// Returns `payload.status`, for the kinds that have one.
    pub fn status(self) -> Option<&'static str> {
        match self {
            Self::WatcherEvent => None,
            Self::OperationConfirmed => Some("confirmed"),
            Self::QueryCompleted => Some("completed"),
            Self::OperationAccepted | Self::QueryAccepted => Some("accepted"),
            Self::OperationFailed | Self::QueryFailed | Self::QueryNotSent => Some("failed"),
            Self::OperationReverted => Some("reverted"),
            Self::WatcherStatus => Some("active"),
            Self::WalletStatus => Some("deployed"),
            Self::Unknown => Some("evaluated"),
        }
    }

    /// Returns `payload.status_reason`. Only failures of operations have one.
    pub fn status_reason(self) -> &'static str {
        match self {
            Self::OperationFailed | Self::OperationReverted => "execution reverted",
            _ => "",
        }
    }

    /// Whether the network signs the event.
    pub fn is_signed(self) -> bool {
        matches!(
            self,
            Self::WatcherEvent
                | Self::OperationConfirmed
                | Self::OperationReverted
                | Self::QueryCompleted
                | Self::QueryFailed
        )
    }
}

/// An event to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSpec {
    /// As a correct service publishes it: with a valid proof, or a notice without a proof.
    Honest(Kind),
    /// Honest, but the proof is withheld: for the delay in the options, or until `Simulator::prove`.
    Late(Kind),
    /// A `watcher.event` whose proof is invalid.
    Forged(Tampering),
    /// An honest `watcher.event` whose record has no `event_id`, which the schema allows.
    WithoutId,
    /// A record with a readable offset, whose payload is invalid.
    Malformed,
    /// The payload and proof of another event, under an offset of its own. `Simulator::replay` and `Simulator::contradict`
    /// create it.
    Displaced(Original),
}

/// The id of a replayed event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayedId {
    /// A new id, by which the service returns the replayed event.
    New,
    /// The id of the original, by which the service returns the original.
    Same,
}

/// The event that provides the payload and the proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Original {
    pub(crate) channel: u64,
    pub(crate) index: u64,
    pub(crate) timestamp: i64,
    pub(crate) deployment: u64,
    pub(crate) kind: Kind,
    pub(crate) id: ReplayedId,
}

/// How a proof was tampered with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tampering {
    /// The content was changed after the network signed it.
    ContentChanged,
    /// Enough signatures, but none from a member of the signer set.
    Strangers,
    /// One signature fewer than required.
    TooFewSignatures,
    /// The required number of signatures, but two of them are the same.
    RepeatedSigner,
    /// A signature that is malformed.
    MalformedSignature,
    /// A valid report of another owner's workflow.
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

/// The verdict that a correct verifier must reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Honesty {
    /// The proof is valid.
    Verifiable,
    /// A notice without a signature.
    Unsigned,
    /// A proof is required and is being withheld.
    Pending,
    /// The proof is invalid.
    Forged,
    /// Not a well-formed event.
    Malformed,
    /// The event is verifiable or unsigned, but it belongs elsewhere. A verifier can notice this only if it knows the
    /// other event, or the event that was at this offset before.
    Displaced,
}

impl EventSpec {
    /// Returns the kind of the event. Forged and malformed events, and events without an id, are a `watcher.event`.
    pub fn kind(self) -> Kind {
        match self {
            Self::Honest(kind) | Self::Late(kind) => kind,
            Self::Forged(_) | Self::WithoutId | Self::Malformed => Kind::WatcherEvent,
            Self::Displaced(original) => original.kind,
        }
    }

    /// Returns the event that this version of the API publishes instead.
    pub(crate) fn published_by(self, version: ApiVersion) -> Self {
        match self {
            Self::Honest(kind) => Self::Honest(kind.published_by(version)),
            Self::Late(kind) => Self::Late(kind.published_by(version)),
            other => other,
        }
    }

    pub(crate) fn honesty(self, withheld: bool) -> Honesty {
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

/// Chooses the nature of an event that no test asked for, according to the shares in the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mix {
    seed: u64,
    version: ApiVersion,
    unsigned: f64,
    forged: f64,
    late: f64,
}

impl Mix {
    pub(crate) fn new(options: &Options) -> Self {
        let late = options.late_proofs.map_or(0.0, |late| late.share);
        Self {
            seed: options.seed,
            version: options.api_version,
            unsigned: options.unsigned,
            forged: options.forged,
            late,
        }
    }

    /// Returns the shares in a channel that misbehaves like this. Most misbehaviors do not change the shares.
    pub(crate) fn misbehaving(self, how: Option<Misbehaviour>) -> Self {
        let shares = how.and_then(Misbehaviour::shares);
        shares.map_or(self, |(unsigned, forged, late)| Self { unsigned, forged, late, ..self })
    }

    pub(crate) fn spec(&self, channel: u64, index: u64) -> EventSpec {
        let mut rng = draw(self.seed, Purpose::Mix, channel, index);
        let mut happens = |share: f64| rng.random::<f64>() < share;
        let (forged, unsigned, late) = (happens(self.forged), happens(self.unsigned), happens(self.late));
        let choice = rng.random_range(0..90);
        let spec = match (forged, unsigned, late) {
            (true, ..) => EventSpec::Forged(Tampering::ALL[choice % Tampering::ALL.len()]),
            (_, true, _) => EventSpec::Honest(notice(choice)),
            (_, _, true) => EventSpec::Late(signed(choice)),
            _ => EventSpec::Honest(signed(choice)),
        };
        spec.published_by(self.version)
    }
}

fn notice(choice: usize) -> Kind {
    [Kind::WatcherStatus, Kind::WalletStatus, Kind::OperationAccepted][choice % 3]
}

/// Returns a signed kind. Most are logs of watched contracts, and few are failures.
fn signed(choice: usize) -> Kind {
    match (choice, choice % 10) {
        (80, _) => Kind::OperationReverted,
        (81, _) => Kind::QueryFailed,
        (_, 0) => Kind::OperationConfirmed,
        (_, 1) => Kind::QueryCompleted,
        _ => Kind::WatcherEvent,
    }
}
