//! Keeps the events that sinks have accepted above their cursors, from one lane of a sink to the next.
//!
//! A sink that sends several events at a time can accept later events while it refuses an earlier one. The ledger records only
//! the cursor, which stays below the refused event. Without this memory, each pause of the channel and each change of the lane's
//! settings would deliver the accepted events again, for as long as the earlier event waits.
//!
//! The memory lasts as long as the process has the lease, so a restart can repeat the accepted events of a batch. So can a
//! change of the sink's own settings: the lane then has another sink, whose target may not have the events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::channel::settings::LaneSettings;
use net::tasks::lock;
use proof::event::EventKey;
use sink::Sink;

/// The accepted events above the cursors of a channel's lanes, by sink. For each sink, they are events of one batch.
#[derive(Debug, Default)]
pub(crate) struct AcceptedBeyond(Mutex<BTreeMap<Arc<str>, AcceptedEvents>>);

#[derive(Debug)]
struct AcceptedEvents {
    sink: Arc<dyn Sink>,
    events: BTreeSet<EventKey>,
}

impl AcceptedBeyond {
    /// Keeps the accepted events of a lane that ends.
    pub(super) fn keep(&self, lane: &LaneSettings, events: BTreeSet<EventKey>) {
        if !events.is_empty() {
            let accepted = AcceptedEvents { sink: lane.sink.clone(), events };
            lock(&self.0).insert(lane.name.clone(), accepted);
        }
    }

    /// Returns the accepted events for a lane that begins.
    pub(super) fn take(&self, lane: &LaneSettings) -> BTreeSet<EventKey> {
        let accepted = lock(&self.0).remove(&lane.name).filter(|kept| Arc::ptr_eq(&kept.sink, &lane.sink));
        accepted.map(|kept| kept.events).unwrap_or_default()
    }

    pub(crate) fn forget(&self, sink: &str) {
        lock(&self.0).remove(sink);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use async_trait::async_trait;
    use jiff::Timestamp;
    use tokio::time::sleep;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::run::tests::{channel, run_for};
    use crate::{Channel, Handle};
    use ledger::{Change, Commit, Cursor, Pause};
    use proof::event::Offset;
    use sink::{Delivery, Fault, SinkError, Undelivered};

    /// A sink that accepts five events, except the events 3 and 4.
    #[derive(Clone, Debug, Default)]
    struct RefusingSink {
        offers: Arc<Mutex<Vec<Vec<i64>>>>,
    }

    #[async_trait]
    impl Sink for RefusingSink {
        async fn deliver(&self, delivery: &Delivery<'_>) -> Result<(), Undelivered> {
            let keys: Vec<_> = delivery.messages.iter().map(record::Message::event_key).collect();
            lock(&self.offers).push(keys.iter().map(|key| key.offset.get()).collect());
            let is_refused = |key: &EventKey| [3, 4].contains(&key.offset.get());
            let Some(delivered) = keys.iter().position(is_refused) else { return Ok(()) };
            let beyond = keys[delivered..].iter().filter(|key| !is_refused(key)).copied().collect();
            let (message, fault) = ("answered 503".to_owned(), Fault::Target);
            Err(Undelivered { delivered, beyond, error: SinkError::Refused { message, retry_after: None, fault } })
        }
    }

    impl RefusingSink {
        fn take_offers(&self) -> Vec<Vec<i64>> {
            std::mem::take(&mut *lock(&self.offers))
        }
    }

    /// Pauses the channel, and calls `change` during the pause.
    async fn pause(handle: &Handle, change: impl AsyncFnOnce()) {
        handle.set_paused(None, Some(Pause { since: Timestamp::UNIX_EPOCH, until: None }));
        sleep(Duration::from_secs(100)).await;
        change().await;
        handle.set_paused(None, None);
    }

    /// Runs a channel until its sink has refused an event, lets an operator act, and returns the offers after that.
    async fn offers_after(act: impl AsyncFnOnce(&Channel, &Handle, &RefusingSink)) -> Vec<Vec<i64>> {
        let sink = RefusingSink::default();
        let (channel, handle) = channel(5, Arc::new(sink.clone()));
        let stop = CancellationToken::new();
        let acting = async {
            sleep(Duration::from_secs(100)).await;
            let offers = sink.take_offers();
            assert!(offers.len() > 1 && offers[0] == [1, 2, 3, 4, 5], "{offers:?}");
            assert!(offers[1..].iter().all(|offer| *offer == [3, 4]), "{offers:?}");
            act(&channel, &handle, &sink).await;
            sleep(Duration::from_secs(300)).await;
        };
        tokio::select! {
            () = acting => {}
            () = run_for(&channel, Duration::from_secs(3600), &stop) => panic!("too long"),
        }
        sink.take_offers()
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_or_a_change_of_the_lane_repeats_no_accepted_event() {
        let paused = offers_after(async |_, handle, _| pause(handle, async || {}).await).await;
        let changed = offers_after(async |channel, _, _| {
            channel.plan.send_modify(|plan| plan.lanes[0].gives_up_after = Some(Duration::from_secs(86_400)));
        });
        for offers in [paused, changed.await] {
            assert!(!offers.is_empty() && offers.iter().all(|offer| *offer == [3, 4]), "{offers:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn after_another_sink_or_a_set_cursor_accepted_events_are_delivered_again() {
        let replaced = offers_after(async |channel, _, sink| {
            channel.plan.send_modify(|plan| plan.lanes[0].sink = Arc::new(sink.clone()));
        });
        assert_eq!(replaced.await[0], [3, 4, 5]);
        for (through, expected) in [(1, &[2, 3, 4, 5][..]), (2, &[3, 4, 5]), (4, &[5])] {
            let offers = offers_after(async |_, handle, _| {
                let to = Cursor { through: Offset::new(through) };
                let set = async || {
                    let (set, owned) =
                        (Commit(vec![Change::SetCursor { sink: "sink".into(), to }]), handle.owned().unwrap());
                    owned.leased.commit(set).await.unwrap();
                    owned.forget_accepted("sink");
                };
                pause(handle, set).await;
            });
            assert_eq!(offers.await[0], expected);
        }
    }

    /// The sink accepted a later event before the pause, so the target is not at fault.
    #[tokio::test(start_paused = true)]
    async fn accepted_events_are_evidence_against_a_refused_event_after_a_pause() {
        let offers = offers_after(async |channel, handle, _| {
            channel.plan.send_modify(|plan| plan.lanes[0].gives_up_after = Some(Duration::from_secs(60)));
            pause(handle, async || {}).await;
            sleep(Duration::from_secs(300)).await;
            let ledger = handle.owned().unwrap().leased.ledger().clone();
            assert!(ledger.dead_letters().keys().any(|(key, _)| Some(key.offset) == Offset::new(3)), "{ledger:?}");
        });
        assert!(!offers.await.concat().contains(&5));
    }
}
