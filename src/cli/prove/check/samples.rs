//! Sample deliveries for the rehearsal of a sink: the newest event of each of its channels that it would receive. If there is no
//! such event, a test event.

use std::sync::Arc;

use jiff::Timestamp;
use uuid::Uuid;

use crate::config::{self, Config};
use channel::UnsignedPolicy;
use proof::verify::Verdict;
use record::{Lines, Message, Record};
use sink::{Delivery, LaneRef};

/// One delivery for each channel of a sink.
pub(super) struct Samples(Vec<(LaneRef, [Message; 1])>);

/// The records of the events that the channel would deliver.
pub(super) fn deliverable(channel: &config::Channel, verdicts: &[Verdict]) -> Vec<Arc<Record>> {
    let config::Channel { channel, verification, .. } = channel;
    let mut lines = Lines::default().received(Timestamp::now());
    let record = |verdict: &Verdict| match verdict {
        Verdict::Verified(verified) if verification.expect.check_event(channel.id, verified).is_ok() => {
            Some(Record::verified(channel, verified, &mut lines))
        }
        Verdict::Unsigned(notice) if verification.unsigned == UnsignedPolicy::Deliver => {
            Some(Record::unsigned(channel, notice, &mut lines))
        }
        _ => None,
    };
    verdicts.iter().filter_map(record).map(Arc::new).collect()
}

impl Samples {
    /// The samples for the sink with this name. `newest` contains the deliverable events of each configured channel.
    pub(super) fn of(config: &Config, name: &str, newest: &[Vec<Arc<Record>>]) -> Self {
        let sink = &config.sinks[name];
        let channels = config.channels.iter().zip(newest);
        let channels = channels.filter(|(channel, _)| channel.sinks.iter().any(|each| each == name));
        let sample = |(channel, newest): (&config::Channel, &Vec<Arc<Record>>)| {
            let filter = channel.filters.get(name).or(sink.filter.as_ref());
            let takes = |record: &&Arc<Record>| filter.is_none_or(|filter| filter.takes(record.facts()));
            let record = newest.iter().find(takes).cloned().unwrap_or_else(|| Arc::new(test_event(channel, name)));
            let lane = LaneRef { channel: channel.channel.clone(), sink: name.into() };
            (lane, [Message::new(&record, &sink.shape)])
        };
        Self(channels.map(sample).collect())
    }

    pub(super) fn deliveries(&self) -> Vec<Delivery<'_>> {
        // A message that has no body is never offered to a sink.
        let shaped = self.0.iter().filter(|(_, messages)| messages[0].unshaped().is_none());
        shaped
            .map(|(lane, messages)| {
                let through = messages[0].offset();
                Delivery { lane, epoch: 0, after: None, through, messages }
            })
            .collect()
    }
}

fn test_event(channel: &config::Channel, sink: &str) -> Record {
    let mut record = Record::of_test(sink, Uuid::new_v4(), Timestamp::now());
    record.channel = channel.channel.clone();
    record
}
