//! Shows deliveries to operators as they happen: see [`DeliveryTail`](channel::DeliveryTail).
//!
//! # Invariants
//!
//! * **No async thread is blocked.** Filters and lines are computed on threads for blocking work.

use std::time::Duration;

use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

use crate::api::{TailedDeliveries, TailedEvent, WatchTail};
use crate::{Operations, Refusal, check_sink};
use api::Filter;
use channel::{DeliveredEvent, DeliveryPage};
use proof::event::ChannelId;
use record::{self, Field, Readable, Rule};

/// How long an answer waits for a delivery.
const WAIT: Duration = Duration::from_secs(1);

/// The maximum number of deliveries that one answer examines.
const AT_ONCE: usize = 500;

impl Operations {
    /// Returns the deliveries since the last request. If no delivery is new, waits a short time for the next one.
    pub(crate) async fn watch_tail(&self, request: &WatchTail) -> Result<TailedDeliveries, Refusal> {
        if self.daemon.is_none() {
            return Err(Refusal::Failed("no daemon is running here: nothing is delivered".to_owned()));
        }
        let rules = search_rules(&request.filter)?;
        let watched_here = |channel: &String| self.watched_here(channel, request.sink.as_deref());
        let channel = request.channel.as_ref().map(watched_here).transpose()?;
        let tail = &self.handles.tail;
        if let Some(from) = request.from {
            tail.reaches(from, WAIT).await;
        }
        let DeliveryPage { deliveries, missed, next } = tail.look(request.from, AT_ONCE);
        let (created, sink) = (request.filter.created, request.sink.clone());
        let events = spawn_blocking(move || {
            // If no sink is named, each event is shown once, however many sinks accept it.
            let of_sink = |delivered: &DeliveredEvent| match &sink {
                Some(wanted) => **wanted == *delivered.sink,
                None => delivered.is_first,
            };
            let is_wanted = |delivered: &&DeliveredEvent| {
                let record = &delivered.record;
                channel.is_none_or(|channel| channel == record.channel.id)
                    && of_sink(delivered)
                    && created.takes(record.time)
                    && rules.takes(record.facts())
            };
            deliveries.iter().filter(is_wanted).map(event).collect()
        });
        let events = events.await.map_err(|error| Refusal::Failed(error.to_string()))?;
        let elsewhere = if channel.is_none() { self.elsewhere() } else { Vec::new() };
        Ok(TailedDeliveries { events, missed, next, elsewhere })
    }

    /// Returns the channel with this name, if this process runs it.
    fn watched_here(&self, name: &str, sink: Option<&str>) -> Result<ChannelId, Refusal> {
        let channel = self.find(name)?;
        let configured = self.configured(&channel)?;
        if let Some(sink) = sink {
            check_sink(&channel.name, sink, &configured.sinks)?;
        }
        match self.cluster.as_ref().and_then(|peers| peers.owner(channel.id)) {
            Some((owner, name)) if self.handles.of(channel.id).owned().is_none() => {
                Err(Refusal::Elsewhere { channel: channel.name.to_string(), owner, name })
            }
            _ => Ok(channel.id),
        }
    }

    /// Returns the channels that other instances run.
    fn elsewhere(&self) -> Vec<String> {
        let Some(peers) = &self.cluster else { return Vec::new() };
        let channels = self.channels.iter().map(|known| &known.channel);
        let channels = channels.filter(|channel| self.handles.of(channel.id).owned().is_none());
        let named = |name: &str, owner: String| format!("{name} (instance {owner})");
        channels.filter_map(|channel| Some(named(&channel.name, peers.owner(channel.id)?.1))).collect()
    }
}

/// Converts the filters of a search to rules on the contents of a record. The bounds on the time are not a part of the rules.
///
/// # Errors
/// If a record does not contain the value that a filter needs.
pub fn search_rules(filter: &Filter) -> Result<record::Filter, Refusal> {
    fn texts<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<String> {
        values.into_iter().map(|value| value.to_string()).collect()
    }
    if filter.chain_environment.is_some() {
        let message =
            "an event does not name its chain's environment: filter by its chain selector, or watch the service";
        return Err(Refusal::Usage(message.to_owned()));
    }
    let mut rule = Rule::from([
        (Field::Type, texts(&filter.types)),
        (Field::EventName, texts(&filter.event_name)),
        (Field::Address, texts(&filter.addresses)),
        (Field::ChainSelector, texts(&filter.chain_selectors)),
        (Field::WatcherId, texts(filter.watcher_id)),
        (Field::WalletId, texts(filter.wallet_id)),
        (Field::Service, texts(&filter.services)),
        (Field::Status, texts(&filter.statuses)),
        (Field::WalletOperationId, texts(&filter.wallet_operation_id)),
        (Field::OperationId, texts(&filter.operation_id)),
        (Field::QueryId, texts(&filter.query_id)),
    ]);
    rule.retain(|_, values| !values.is_empty());
    Ok(record::Filter::any_of(vec![rule]))
}

fn event(DeliveredEvent { sink, is_late, record, .. }: &DeliveredEvent) -> TailedEvent {
    let json = String::from_utf8_lossy(&record.json).into_owned();
    let json = RawValue::from_string(json).expect("a record is JSON");
    TailedEvent { sink: sink.to_string(), is_late: *is_late, line: Readable::of(record), record: json }
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::Record;
    use record::testing::{notice, proved};

    fn takes(filter: &Filter, record: &Record) -> bool {
        search_rules(filter).unwrap().takes(record.facts()) && filter.created.takes(record.time)
    }

    #[test]
    fn search_filters_use_the_signed_content() {
        let transfer = proved(r#""watcher_id":"W","timestamp":1715688015"#, r#"{"name":"Transfer","service":"dvp"}"#);
        let failed = notice("operation.status", r#"{"status":"failed","timestamp":1715688020}"#);
        let by = |change: fn(&mut Filter)| {
            let mut filter = Filter::default();
            change(&mut filter);
            (takes(&filter, &transfer), takes(&filter, &failed))
        };
        assert_eq!(by(|_| {}), (true, true));
        assert_eq!(by(|filter| filter.types = vec!["operation.status".into()]), (false, true));
        assert_eq!(by(|filter| filter.event_name = Some("Transfer".to_owned())), (true, false));
        assert_eq!(by(|filter| filter.services = vec!["other".to_owned(), "dvp".to_owned()]), (true, false));
        assert_eq!(by(|filter| filter.statuses = vec!["failed".to_owned()]), (false, true));
        assert_eq!(by(|filter| filter.created.gt = Some(1_715_688_015)), (false, true));
        assert_eq!(by(|filter| filter.created.lte = Some(1_715_688_015)), (true, false));
    }
}
