//! A quarantine that is full.

use ledger::{Change, Commit, QUARANTINE, Quarantined, QuarantinedEvent};
use proof::event::{ChannelId, Offset};

use super::Setup;

/// The first of the events that fill a quarantine: above all that a test has.
pub(crate) const FILLER: i64 = 1_000_001;

/// Leaves no room in a channel's quarantine for anything more.
pub(crate) async fn fill_quarantine(setup: &Setup, channel: ChannelId) {
    let event = |number| {
        let offset = Offset::new(number).unwrap();
        let (reason, detail) = ("malformed".to_owned(), "a test".to_owned());
        let facts = Quarantined {
            offset,
            event_id: None,
            reason,
            detail,
            at: 0,
            original: None,
            digest: None,
            received: None,
            bytes: 0,
        };
        Change::Quarantine(QuarantinedEvent { facts, json: "{}".into() })
    };
    let quarantined = (FILLER..).take(usize::try_from(QUARANTINE.events).unwrap()).map(event).collect();
    setup.commit(channel, Commit(quarantined)).await;
}
