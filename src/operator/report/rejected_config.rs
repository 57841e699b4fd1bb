//! A configuration that was read again and could not be used.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::not_ready::{NotReady, NotReadyKind};

/// Why the daemon rejected a configuration. The configuration before it stays in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RejectedConfig {
    /// When the configuration was rejected with this error for the first time.
    pub since: Timestamp,
    /// The problems, one per line: each with its place and the remedy.
    pub error: String,
}

impl RejectedConfig {
    /// The daemon is not ready, because the next start would fail, and the operator's change is not in force.
    pub(super) fn reason(&self) -> NotReady {
        let (since, error) = (self.since, self.error.replace('\n', "; "));
        let detail = format!(
            "the configuration was rejected at {since:.0}: {error}. The previous one stays in force: correct the new one, then run `channeld reload`"
        );
        NotReady::new(NotReadyKind::ConfigRejected, detail)
    }
}
