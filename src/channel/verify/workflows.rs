//! Remembers which channel first showed each workflow in a verified event. A workflow in two channels may be legitimate, so
//! it is reported only once.
//!
//! A channel's workflows are recorded in its ledger with the next batch, and are loaded from the ledger at a start. At most
//! [`WORKFLOWS`] workflows per channel are remembered. Further workflows are ignored.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

use ledger::{Change, Ledger, ShownWorkflow, WORKFLOWS, WorkflowId};
use net::tasks::lock;
use proof::event::ChannelId;

#[derive(Debug, Default)]
pub(crate) struct Workflows(Mutex<Index>);

#[derive(Debug, Default)]
struct Index {
    first: HashMap<WorkflowId, ChannelId>,
    shown: HashMap<ChannelId, BTreeMap<WorkflowId, ShownWorkflow>>,
}

impl Workflows {
    pub(crate) fn remember(&self, channel: ChannelId, known: &BTreeMap<WorkflowId, ShownWorkflow>) {
        let mut index = lock(&self.0);
        for (id, _) in known.iter().filter(|(_, shown)| shown.first_in.is_none()) {
            index.first.insert(*id, channel);
        }
        index.shown.insert(channel, known.clone());
    }

    /// Remembers the workflow of a verified event. If another channel showed this workflow first, the first call returns that
    /// channel. Later calls return `None`.
    pub(super) fn note(&self, channel: ChannelId, id: WorkflowId, since: impl Fn() -> i64) -> Option<ChannelId> {
        let mut index = lock(&self.0);
        let Index { first, shown } = &mut *index;
        let shown = shown.entry(channel).or_default();
        if shown.contains_key(&id) || shown.len() >= WORKFLOWS {
            return None;
        }
        let first_in = Some(*first.entry(id).or_insert(channel)).filter(|first| *first != channel);
        shown.insert(id, ShownWorkflow { first_in, since: since() });
        first_in
    }

    /// Returns the changes that record the channel's remembered workflows, except the workflows that the ledger already has.
    pub(crate) fn unrecorded(&self, channel: ChannelId, ledger: &Ledger) -> Vec<Change> {
        let (index, known) = (lock(&self.0), ledger.workflows());
        let Some(shown) = index.shown.get(&channel).filter(|shown| shown.len() != known.len()) else {
            return Vec::new();
        };
        let new = shown.iter().filter(|(id, _)| !known.contains_key(*id));
        new.map(|(id, shown)| Change::ShowWorkflow(*id, *shown)).collect()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_second_channel_with_a_workflow_learns_the_first_once() {
        let (workflows, [one, other]) = (Workflows::default(), [1, 2].map(|id| ChannelId(Uuid::from_u128(id))));
        let note = |channel, id: u8| workflows.note(channel, [id; 32], || 7);
        assert_eq!(
            [note(one, 1), note(one, 1), note(other, 1), note(other, 1), note(other, 2)],
            [None, None, Some(one), None, None]
        );
        let mut ledger = Ledger::default();
        ledger.apply(ledger::Commit(workflows.unrecorded(other, &ledger))).unwrap();
        assert_eq!(workflows.unrecorded(other, &ledger), []);

        let again = Workflows::default();
        again.remember(other, ledger.workflows());
        assert_eq!(again.note(one, [2; 32], || 9), Some(other), "also after a restart");
        assert_eq!(again.note(other, [1; 32], || 9), None, "it was reported before the restart");
    }

    #[test]
    fn the_number_of_noted_workflows_is_bounded() {
        let (workflows, channel) = (Workflows::default(), ChannelId(Uuid::from_u128(1)));
        for number in 0..2 * WORKFLOWS {
            let mut id = [0; 32];
            id[..8].copy_from_slice(&number.to_be_bytes());
            workflows.note(channel, id, || 7);
        }
        assert_eq!(workflows.unrecorded(channel, &Ledger::default()).len(), WORKFLOWS);
    }
}
