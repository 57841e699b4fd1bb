//! Creates lanes and records for the tests of sinks.

use std::sync::Arc;

use uuid::Uuid;

use crate::{Delivery, LaneRef, Sink, Undelivered};
use proof::event::{ChannelId, EventId, Offset, RawEvent};
use proof::verify::{Address, SignerSet, Verdict, Verifier};
use record::{ChannelRef, Format, Lines, Message, Record, Shape};

/// A channel. The same number always gives the same channel.
pub(super) fn channel(number: u128) -> ChannelRef {
    ChannelRef { name: format!("channel-{number}").into(), id: ChannelId(Uuid::from_u128(number)) }
}

/// A lane of this channel.
pub(super) fn lane(channel: &ChannelRef) -> LaneRef {
    LaneRef { channel: channel.clone(), sink: "sink".into() }
}

/// Offers these messages to a sink.
pub(super) async fn deliver(sink: &dyn Sink, channel: &ChannelRef, messages: &[Message]) -> Result<(), Undelivered> {
    let (lane, through) = (lane(channel), messages.last().expect("a delivery is never empty").offset());
    sink.deliver(&Delivery { lane: &lane, epoch: 1, after: None, through, messages }).await
}

/// The record of a notice at `offset`. No two channels and offsets share an event id.
pub(super) fn record(channel: &ChannelRef, offset: i64) -> Message {
    let id = EventId(Uuid::from_u128((channel.id.0.as_u128() << 64) | u128::from(offset.unsigned_abs())));
    notice(channel, offset, &format!(r#""event_id":"{id}","#), "{}")
}

/// The record of another event at the same offset.
pub(super) fn record_of_another(channel: &ChannelRef, offset: i64) -> Message {
    let id = EventId(Uuid::from_u128((channel.id.0.as_u128() << 64) | u128::from(offset.unsigned_abs()) | 1 << 127));
    notice(channel, offset, &format!(r#""event_id":"{id}","#), "{}")
}

/// The record of a notice to which the service added these members.
pub(super) fn raw_record(channel: &ChannelRef, offset: i64, members: &str) -> Message {
    let id = EventId(Uuid::from_u128((channel.id.0.as_u128() << 64) | u128::from(offset.unsigned_abs())));
    notice(channel, offset, &format!(r#"{members},"event_id":"{id}","#), "{}")
}

/// The record of a notice about a wallet.
pub(super) fn record_about(channel: &ChannelRef, offset: i64, wallet: &str) -> Message {
    notice(channel, offset, "", &format!(r#"{{"wallet_id":"{wallet}"}}"#))
}

/// The same record in another shape.
pub(super) fn shaped(message: &Message, format: Format) -> Message {
    Message::new(&Arc::new(message.record().clone()), &Shape { format, ..Shape::default() })
}

/// The record of a notice without an event id.
pub(super) fn record_without_id(channel: &ChannelRef, offset: i64) -> Message {
    notice(channel, offset, "", "{}")
}

/// The records of notices at `offsets`.
pub(super) fn records(channel: &ChannelRef, offsets: impl IntoIterator<Item = i64>) -> Vec<Message> {
    offsets.into_iter().map(|offset| record(channel, offset)).collect()
}

/// The offset with this number.
pub(super) fn offset(number: i64) -> Offset {
    Offset::new(number).expect("tests use no negative offsets")
}

/// The records as lines, each with its line break.
pub(super) fn lines<'a>(records: impl IntoIterator<Item = &'a Message>) -> Vec<u8> {
    records.into_iter().flat_map(|record| [record.body(), &b"\n"[..]].concat()).collect()
}

fn notice(channel: &ChannelRef, offset: i64, id: &str, payload: &str) -> Message {
    let json =
        format!(r#"{{{id}"headers":{{"type":"wallet.status","offset":{offset},"proofs":[]}},"payload":{payload}}}"#);
    let raw = RawEvent::locate(json.into()).expect("a notice has an offset");
    let signers = SignerSet::new(vec![Address([1; 20])], 1).expect("one of one is a signer set");
    match Verifier::new(signers, Address([2; 20])).verify(raw) {
        Verdict::Unsigned(unsigned) => {
            Message::new(&Arc::new(Record::unsigned(channel, &unsigned, &mut Lines::default())), &Shape::default())
        }
        other => panic!("a notice is {}", other.name()),
    }
}

/// The record of a notice about an operation, whose id ends with `operation` and otherwise consists of zeros. `members` are further
/// members of its payload, each after a comma. The channel is `channel(1)`.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn record_of_operation(number: i64, operation: &str, status: &str, members: &str) -> Message {
    let id = uuid::Uuid::from_u128(u128::from_str_radix(operation, 16).expect("a hexadecimal number"));
    let payload = format!(r#"{{"operation_id":"{id}","status":"{status}"{members}}}"#);
    let mut record = record::testing::notice("operation.status", &payload);
    (record.channel, record.offset) = (channel(1), offset(number));
    Message::new(&Arc::new(record), &Shape::default())
}

/// All orders of these items.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(super) fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    let Some((first, others)) = items.split_first() else { return vec![Vec::new()] };
    let inserted = |order: Vec<T>| {
        (0..=order.len()).map(move |at| {
            let mut order = order.clone();
            order.insert(at, first.clone());
            order
        })
    };
    orders(others).into_iter().flat_map(inserted).collect()
}
