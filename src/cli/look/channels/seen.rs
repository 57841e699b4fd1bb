//! Collects the values that a channel's events and watchers name.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use strum::VariantArray;
use uuid::Uuid;

use crate::cli::exit::Failure;
use api::{ApiError, Client};
use channel::{Expect, Named, Names};
use proof::event::ChannelId;
use proof::verify::Verified;
use record;

/// Maximum number of watchers whose description is requested.
const WATCHERS: usize = 100;

/// The values that were seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) values: BTreeMap<Named, BTreeSet<String>>,
    /// Kinds of values that at least one event does not have.
    pub(super) unnamed: BTreeSet<Named>,
    /// The watchers that the service describes.
    described: BTreeSet<Uuid>,
}

/// The fields that are read from a watcher's description.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Description {
    workflow_id: Option<String>,
    chain_selector: Option<String>,
    address: Option<String>,
    service: Option<String>,
    events: Vec<String>,
}

impl Seen {
    /// Requests the descriptions of the watchers that the events name.
    pub(super) async fn watchers(
        &mut self,
        client: &Client,
        channel: ChannelId,
        events: &[Verified],
    ) -> Result<(), Failure> {
        let ids: BTreeSet<_> = events.iter().filter_map(watcher).collect();
        for id in ids.into_iter().take(WATCHERS) {
            let watcher = match client.watcher(channel, id).await {
                Ok(watcher) => watcher,
                Err(ApiError::NotFound(_)) => continue,
                Err(error) => return Err(Failure::api(format!("the watcher {id} could not be read"))(error)),
            };
            self.described.insert(id);
            let Description { workflow_id, chain_selector, address, service, events } =
                serde_json::from_slice(&watcher.json).unwrap_or_default();
            let named = [
                (Named::WorkflowId, workflow_id),
                (Named::ChainSelector, chain_selector),
                (Named::Address, address),
                (Named::Service, service),
            ];
            let named = named.into_iter().filter_map(|(what, value)| Some((what, value?)));
            for (what, value) in named.chain(events.into_iter().map(|name| (Named::Name, name))) {
                self.note(what, &value);
            }
        }
        Ok(())
    }

    /// Records the values that the channel's own events name.
    pub(super) fn events(&mut self, channel: ChannelId, events: &[Verified]) {
        let nothing = Expect::default();
        for verified in events {
            let is_described = watcher(verified).is_none_or(|id| self.described.contains(&id));
            if !is_described || nothing.check_event(channel, verified).is_err() {
                continue;
            }
            let signed = verified.event().payload.signed.as_deref().and_then(record::decode);
            let names = Names::of(verified.proof(), signed.as_ref().map(|signed| signed.get().as_bytes()));
            for what in Named::VARIANTS {
                match names.get(*what) {
                    Some(value) => self.note(*what, &value),
                    None => drop(self.unnamed.insert(*what)),
                }
            }
        }
    }

    /// Records a value, unless no event could match it.
    fn note(&mut self, what: Named, value: &str) {
        self.values.entry(what).or_default().extend(what.canonical(value));
    }
}

/// The watcher of an event, according to the service.
fn watcher(verified: &Verified) -> Option<Uuid> {
    #[derive(Deserialize)]
    struct Event {
        payload: Payload,
    }
    #[derive(Deserialize)]
    struct Payload {
        watcher_id: Option<Uuid>,
    }
    let Event { payload } = serde_json::from_slice(&verified.event().raw.json).ok()?;
    payload.watcher_id
}
