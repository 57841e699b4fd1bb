//! How a misbehaving channel treats every request: hostile answers, hostile events, hostile pages.
//!
//! # Invariants
//!
//! * **Cheap for the simulator.** Large data is made once and shared. Endless data is sent only as fast as the client
//!   reads it, or slowly by the clock. Even a thousand misbehaving channels therefore use little processor time, and
//!   the client under test gets the rest.

use std::ops::RangeInclusive;
use std::str::FromStr;

use clap::ValueEnum;

use crate::event::padding::{DEEP, LARGE, MEDIUM, Padding, SMALL};
use crate::fault::Fault;

/// One year. No client should wait this long.
const ABSURD_RETRY_AFTER: &str = "31536000";

/// How a channel misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
#[expect(clippy::doc_markdown, reason = "help texts contain plain names")]
pub enum Misbehaviour {
    /// Requests get no answer
    Hang,
    /// The head of the answer arrives at one byte per second
    SlowHead,
    /// The body of the answer arrives at one byte per second, without end
    SlowBody,
    /// One 1xx answer arrives per second, and no final answer
    Informational,
    /// The body never ends
    EndlessBody,
    /// 500 with a body of 10 MB
    LargeError,
    /// A body of 1 MB that expands to 1 GiB
    GzipBomb,
    /// 429 with a Retry-After of one year
    RetryAfter,
    /// Events without a proof, 6 MB each, ten per page
    LargeNotices,
    /// Events with a valid proof, 6 MB each, ten per page
    LargeEvents,
    /// Events of 10 kB with invalid proofs
    Forged,
    /// Events of 1 MB whose proofs never arrive
    WithheldProofs,
    /// Events with and without proofs, whose JSON is 100,000 levels deep
    DeepJson,
    /// Pages are empty, but has_more is true
    EmptyPages,
    /// Every page contains the newest events, and has_more is true
    SamePage,
    /// Pages contain the events below the offset, and has_more is true
    Backwards,
    /// Requests are answered with this status and the error envelope. 404 means an archived channel, and 401 an unknown
    /// organization
    #[value(skip)]
    Status(u16),
}

/// Which channels misbehave, and how: `hang`, `3:404`, `1-999:all`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MisbehavingChannels {
    /// The indices of the channels in `Announcement::channels`.
    pub channels: RangeInclusive<usize>,
    /// `None` means that each channel misbehaves in a different way, in turn.
    pub how: Option<Misbehaviour>,
}

/// The text does not name channels and a misbehaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected [CHANNELS:]MISBEHAVIOUR, such as hang, 3:404 or 1-999:all; --help lists the misbehaviours")]
pub struct ParseMisbehaviourError;

impl Misbehaviour {
    fn read(text: &str) -> Option<Self> {
        let status = || text.parse().ok().filter(|status| (400..600).contains(status)).map(Self::Status);
        Self::from_str(text, false).ok().or_else(status)
    }

    /// Returns the fault that answers every request.
    pub(crate) fn fault(self) -> Option<Fault> {
        Some(match self {
            Self::Hang => Fault::Hang,
            Self::SlowHead => Fault::SlowHead,
            Self::SlowBody => Fault::SlowBody,
            Self::Informational => Fault::Informational,
            Self::EndlessBody => Fault::EndlessBody,
            Self::LargeError => Fault::LargeError,
            Self::GzipBomb => Fault::GzipBomb,
            Self::RetryAfter => Fault::RateLimited { retry_after: Some(ABSURD_RETRY_AFTER.to_owned()) },
            Self::EmptyPages => Fault::EmptyPage,
            Self::Status(status) => Fault::Status(status),
            _ => return None,
        })
    }

    /// Returns the shares of unsigned, forged and late events.
    pub(crate) fn shares(self) -> Option<(f64, f64, f64)> {
        Some(match self {
            // The content of these events does not matter. They are notices, because notices need no signatures.
            Self::LargeNotices | Self::SamePage | Self::Backwards => (1.0, 0.0, 0.0),
            Self::LargeEvents => (0.0, 0.0, 0.0),
            Self::Forged => (0.0, 1.0, 0.0),
            Self::WithheldProofs => (0.0, 0.0, 1.0),
            Self::DeepJson => (0.5, 0.0, 0.0),
            _ => return None,
        })
    }

    /// Whether clients never check a valid proof of a channel that misbehaves like this. All its proofs then contain
    /// the same signatures, which are computed once.
    pub(crate) fn is_unproved(self) -> bool {
        matches!(self, Self::Forged | Self::WithheldProofs | Self::DeepJson)
    }

    /// Returns the padding that makes every event large or deep.
    pub(crate) fn padding(self) -> Option<&'static Padding> {
        Some(match self {
            Self::LargeNotices | Self::LargeEvents => &LARGE,
            Self::WithheldProofs => &MEDIUM,
            Self::Forged => &SMALL,
            Self::DeepJson => &DEEP,
            _ => return None,
        })
    }
}

impl MisbehavingChannels {
    /// Returns how a channel misbehaves. The last entry that names the channel decides.
    pub(crate) fn of(all: &[Self], channel: usize) -> Option<Misbehaviour> {
        let last = all.iter().rfind(|misbehaving| misbehaving.channels.contains(&channel))?;
        let ways = Misbehaviour::value_variants();
        Some(last.how.unwrap_or(ways[(channel - last.channels.start()) % ways.len()]))
    }

    /// Returns the long help of the option, which lists every misbehaviour.
    pub(crate) fn help() -> String {
        let way = |way: &Misbehaviour| {
            let way = way.to_possible_value().expect("no way is hidden");
            format!("\n- {}: {}", way.get_name(), way.get_help().map(ToString::to_string).unwrap_or_default())
        };
        let ways: String = Misbehaviour::value_variants().iter().map(way).collect();
        format!(
            "Which channels misbehave, and how; may be given more than once\n\nCHANNELS is a number or a range, such as \
             1-999, counted from 0 in the printed list of channels. Without CHANNELS, all channels misbehave. HOW is one of:\n\n\
             - all: Each channel misbehaves in another of the ways below, in turn\n\
             - a status from 400 to 599: Requests are answered with this status and the service's error envelope. 404 means \
             an archived channel, and 401 an unknown organization{ways}"
        )
    }
}

impl FromStr for MisbehavingChannels {
    type Err = ParseMisbehaviourError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (channels, how) = text.rsplit_once(':').map_or((None, text), |(channels, how)| (Some(channels), how));
        let number = |text: &str| text.parse().map_err(|_| ParseMisbehaviourError);
        let channels = match channels.map(|channels| channels.split_once('-').unwrap_or((channels, channels))) {
            None => 0..=usize::MAX,
            Some((first, last)) => number(first)?..=number(last)?,
        };
        let how = match how {
            "all" => None,
            how => Some(Misbehaviour::read(how).ok_or(ParseMisbehaviourError)?),
        };
        if channels.is_empty() { Err(ParseMisbehaviourError) } else { Ok(Self { channels, how }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_misbehavior_are_assigned_in_turn() {
        let read = |text: &str| text.parse::<MisbehavingChannels>();
        let all = ["1-99:all", "7:hang"].map(|text| read(text).unwrap());
        let of = |channel| MisbehavingChannels::of(&all, channel);
        assert_eq!(
            (of(0), of(1), of(2), of(7)),
            (None, Some(Misbehaviour::Hang), Some(Misbehaviour::SlowHead), Some(Misbehaviour::Hang))
        );
        assert!(Misbehaviour::value_variants().iter().all(|way| (1..=33).any(|channel| of(channel) == Some(*way))));
        assert_eq!(
            read("deep-json"),
            Ok(MisbehavingChannels { channels: 0..=usize::MAX, how: Some(Misbehaviour::DeepJson) })
        );
        assert_eq!(read("3:404"), Ok(MisbehavingChannels { channels: 3..=3, how: Some(Misbehaviour::Status(404)) }));
        for text in
            ["", "shout", "200", "600", "1-2", ":hang", "x:hang", "3-2:hang", "1-:hang", "-1:hang", "1:hang:all"]
        {
            assert_eq!(read(text), Err(ParseMisbehaviourError), "{text}");
        }
    }
}
