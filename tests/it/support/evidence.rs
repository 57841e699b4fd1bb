//! A quarantine that takes no more.

use channeld::event::{ChannelId, Offset};
use channeld::state::{Commit, Evidence, MAX_QUARANTINED, Quarantined};

use super::Setup;

/// Leaves no room in the quarantine for anything more.
pub(crate) async fn fill_quarantine(setup: &Setup, channel: ChannelId) {
    let evidence = |number| {
        let offset = Offset::new(number).unwrap();
        let (reason, detail) = ("malformed".to_owned(), "a test".to_owned());
        let facts = Quarantined { offset, event_id: None, reason, detail, at: 0 };
        (channel, Evidence { facts, json: "{}".into() })
    };
    let quarantined = (1..=i64::try_from(MAX_QUARANTINED).unwrap()).map(evidence).collect();
    setup.state().commit(Commit { quarantined, ..Commit::default() }).await.unwrap();
}
