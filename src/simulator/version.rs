//! The versions of the service's API.

/// A version of the API that the simulator can play.
///
/// | | 0.4.0 | 0.7.0 | 0.8.0 |
/// |---|---|---|---|
/// | `GET /channels`, `GET /networks` | no | yes | yes |
/// | `chain_event.confidence` | no | yes | yes |
/// | proofs of failed queries | no | no | yes |
/// | status `reverted` of operations | no | no | yes |
/// | `confidence_level` of watchers | no | no | yes |
///
/// According to spec/wire.md, the status `reverted` is new in 0.8.0. The versions of the other rows are assumptions: a
/// client must support every combination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum ApiVersion {
    /// Version 0.4.0.
    #[value(name = "0.4.0")]
    V0_4_0,
    /// Version 0.7.0.
    #[value(name = "0.7.0")]
    V0_7_0,
    /// Version 0.8.0.
    #[default]
    #[value(name = "0.8.0")]
    V0_8_0,
}

impl ApiVersion {
    /// Whether the service lists its channels and its networks.
    pub fn has_lists(self) -> bool {
        self >= Self::V0_7_0
    }

    /// Whether a signed log states its confidence.
    pub fn has_confidence(self) -> bool {
        self >= Self::V0_7_0
    }

    /// Whether a watcher states its confidence level.
    pub fn has_confidence_level(self) -> bool {
        self >= Self::V0_8_0
    }
}
