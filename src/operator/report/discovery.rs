//! The outcome of the last request for the service's list of channels. An error never makes the daemon unready.

use std::collections::BTreeSet;

use proof::event::ChannelId;

/// The last answer to the request for the list, with `[discover]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Whether the service was asked since the daemon started.
    pub has_asked: bool,
    /// Why the list could not be read, or why the channels in it could not be added.
    pub error: Option<String>,
    /// The listed channels that the daemon runs, or will run as soon as it has applied the answer.
    pub channels: BTreeSet<ChannelId>,
}

impl Discovery {
    pub(super) fn warning(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!("new channels of the organization are not added ([discover]): {error}"))
    }
}
