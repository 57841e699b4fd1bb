//! What kind of service is simulated.

use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::random;

/// A simulated service's circumstances. The same options with the same seed give the same service, apart from the
/// time of day ([`ends_at`](Self::ends_at)) and the port.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// The one key that it accepts.
    pub api_key: String,
    /// The organisation whose events it has, in tenant `1`.
    pub org_id: String,
    /// How many channels it has.
    pub channels: usize,
    /// How many events each channel has when it starts.
    pub events: u64,
    /// New events a second in each channel.
    pub rate: f64,
    /// The share of events that never carry a proof, 0 to 1.
    pub unsigned: f64,
    /// Proofs that come after their events.
    pub late_proofs: Option<LateProofs>,
    /// The share of events whose proof does not hold, 0 to 1.
    pub forged: f64,
    /// The share of requests that are answered with a fault, 0 to 1.
    pub faults: f64,
    /// What everything that looks random is drawn from.
    pub seed: u64,
    /// Which page an `offset` asks for.
    pub window: Window,
    /// Whether the event at `offset` itself is returned again.
    pub inclusive: bool,
    /// What `has_more` speaks of.
    pub has_more: HasMore,
    /// Whether offsets have gaps.
    pub sparse: bool,
    /// When the last event of the backlog happened, in Unix seconds; now, where there is none. With it the backlog is
    /// the same to the byte in every run.
    pub ends_at: Option<i64>,
    /// Every record of the backlog is made before it answers, and kept: about 2.7 kB each. What is then measured beside it
    /// is not its signatures.
    pub prepared: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            api_key: random::api_key(0),
            org_id: "org_simulated".to_owned(),
            channels: 1,
            events: 0,
            rate: 0.0,
            unsigned: 0.0,
            late_proofs: None,
            forged: 0.0,
            faults: 0.0,
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

/// Which events a page holds where more than `limit` are newer than `offset` (spec/wire.md, "`offset` on poll", 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Window {
    /// Those just above `offset`.
    #[default]
    Oldest,
    /// The newest of all.
    Newest,
}

/// What `has_more` speaks of (spec/wire.md, "`offset` on poll", 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum HasMore {
    /// More events above `offset` than the page holds. Without `offset` that is: older ones.
    #[default]
    Remaining,
    /// Events older than the page, whatever `offset` is.
    Older,
}

/// Proofs that come after their events, written as `0.1:30s`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LateProofs {
    /// The share of the events with proofs, 0 to 1.
    pub share: f64,
    /// How long after an event its proof comes. Counted from the start for the events of the backlog.
    pub delay: Duration,
}

/// The text is not a share and a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a share from 0 to 1 and a duration, such as 0.1:30s")]
pub struct NotLateProofs;

impl FromStr for LateProofs {
    type Err = NotLateProofs;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (share, delay) = text.split_once(':').ok_or(NotLateProofs)?;
        let share: f64 = share.trim().parse().map_err(|_| NotLateProofs)?;
        let delay: jiff::SignedDuration = delay.trim().parse().map_err(|_| NotLateProofs)?;
        let delay = Duration::try_from(delay).map_err(|_| NotLateProofs)?;
        if !(0.0..=1.0).contains(&share) {
            return Err(NotLateProofs);
        }
        Ok(Self { share, delay })
    }
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
            assert_eq!(read(text), Err(NotLateProofs), "{text}");
        }
    }
}
