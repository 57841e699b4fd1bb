//! A stream stores the position of each lane. The position is compared with the recorded state before it is used. An
//! event is identified by its offset and its id.

use std::sync::Arc;

use proof::event::EventKey;
use serde_json::{Value, json};
use sink::{Position, Sink, SinkError, Undelivered};

use super::direct::{DirectLane, at, key, keys, offset};

/// A stream whose contents the test reads and changes directly.
pub(crate) trait Altered {
    /// A new sink, as after a restart of the process.
    fn sink(&self) -> Arc<dyn Sink>;

    /// The events of a lane that readers see, in ascending order.
    async fn keys(&self, lane: &DirectLane) -> Vec<EventKey>;

    /// The stored position of a lane.
    async fn stored(&self, lane: &DirectLane) -> Option<Value>;

    /// Stores a position, or deletes it.
    async fn store(&self, lane: &DirectLane, position: Option<&Value>);
}

pub(crate) fn lane_of(stream: &impl Altered) -> DirectLane {
    DirectLane::new(stream.sink(), "direct")
}

/// A lane that has delivered these offsets.
pub(crate) async fn delivered(stream: &impl Altered, offsets: std::ops::RangeInclusive<i64>) -> DirectLane {
    let mut lane = lane_of(stream);
    lane.resume().await.unwrap();
    lane.deliver(&keys(offsets)).await.unwrap();
    lane
}

pub(crate) fn is_missing(position: &Position) -> bool {
    matches!(position, Position::Missing(_))
}

pub(crate) fn is_displaced(error: &Undelivered) -> bool {
    matches!(error, Undelivered { delivered: 0, error: SinkError::Displaced(_), .. })
}

/// The position contains the offset that the lane has reached. It can be read without taking over the lane.
pub(crate) async fn has_the_position_of_a_lane(stream: &impl Altered) {
    let mut lane = lane_of(stream);
    assert!(is_missing(&lane.sink.position(&lane.lane).await.unwrap()));
    lane.put(Some(5));
    assert_eq!(lane.resume().await.unwrap().position, at(5), "the recorded cursor becomes the position");
    lane.deliver(&keys(7..=9)).await.unwrap();
    let other = stream.sink();
    assert_eq!(other.position(&lane.lane).await.unwrap(), at(9));
    // A late delivery does not change the position.
    lane.deliver(&keys(6..=6)).await.unwrap();
    assert_eq!(other.position(&lane.lane).await.unwrap(), at(9));
    lane.deliver(&keys(10..=12)).await.unwrap();
    assert_eq!(lane.restarted(other).resume().await.unwrap().position, at(12));
    assert_eq!(stream.keys(&lane).await, keys(6..=12));
}

/// Two events at one offset are both published, and both are found again.
pub(crate) async fn distinguishes_two_events_at_one_offset(stream: &impl Altered) {
    let mut lane = lane_of(stream);
    lane.resume().await.unwrap();
    lane.deliver(&keys(1..=3)).await.unwrap();
    // A service that was restored from a backup uses offsets 2 and 3 again.
    lane.put(Some(1));
    assert_eq!(lane.resume().await.unwrap().held, keys(2..=3));
    lane.deliver_unrecorded(&[key(2, 22), key(3, 33)]).await.unwrap();
    assert_eq!(stream.keys(&lane).await, [key(1, 1), key(2, 2), key(2, 22), key(3, 3), key(3, 33)]);
    // After a crash, the sink finds all four events.
    let mut lane = lane.restarted(stream.sink());
    let held = lane.resume().await.unwrap().held;
    assert_eq!(held, [key(2, 2), key(2, 22), key(3, 3), key(3, 33)]);
    lane.deliver(&[key(2, 22), key(3, 33), key(4, 4)]).await.unwrap();
    assert_eq!(stream.keys(&lane).await, [key(1, 1), key(2, 2), key(2, 22), key(3, 3), key(3, 33), key(4, 4)]);
}

/// A pending event that the stream already contains is recognized by its offset and id.
pub(crate) async fn settles_a_pending_event_by_its_identity(stream: &impl Altered) {
    let mut lane = delivered(stream, 1..=5).await;
    lane.pending = [key(2, 2), key(3, 33)].into();
    lane.deliver_unrecorded(&[key(2, 2)]).await.unwrap();
    let mut lane = lane.restarted(stream.sink());
    assert_eq!(lane.resume().await.unwrap().held, [key(2, 2)]);
}

/// The position format of earlier versions contains only offsets.
pub(crate) async fn reads_the_position_of_an_older_version(stream: &impl Altered) {
    let mut lane = delivered(stream, 1..=4).await;
    let mut old = stream.stored(&lane).await.unwrap();
    for name in ["format", "through", "ids", "ends"] {
        old.as_object_mut().unwrap().remove(name);
    }
    (old["prior"], old["offsets"]) = (json!(2), json!([[3, 4]]));
    stream.store(&lane, Some(&old)).await;
    let sink = stream.sink();
    assert_eq!(sink.position(&lane.lane).await.unwrap(), at(4));
    // The older version crashed before it recorded that delivery.
    lane.put(Some(2));
    let mut lane = lane.restarted(sink);
    let resumed = lane.resume().await.unwrap();
    assert_eq!((resumed.position, resumed.held), (at(2), keys(3..=4).into_iter().collect()));
    lane.deliver(&keys(3..=5)).await.unwrap();
    assert_eq!(stream.keys(&lane).await, keys(1..=5));
    assert_eq!(lane.sink.position(&lane.lane).await.unwrap(), at(5));
}

/// A lane whose position is missing delivers nothing until an operator decides. Afterwards it repeats no event.
pub(crate) async fn gets_nothing_without_a_position_until_an_operator_decides(stream: &impl Altered) {
    let lane = delivered(stream, 1..=3).await;
    stream.store(&lane, None).await;
    let mut lane = lane.restarted(stream.sink());
    assert!(is_missing(&lane.sink.position(&lane.lane).await.unwrap()));
    for _ in 0..2 {
        assert!(is_missing(&lane.resume().await.unwrap().position));
        assert!(lane.deliver(&keys(4..=4)).await.is_err());
    }
    assert_eq!(stream.stored(&lane).await, None, "nothing is published");
    lane.put(None);
    let resumed = lane.resume().await.unwrap();
    assert_eq!((resumed.position, resumed.held), (Position::At(None), keys(1..=3).into_iter().collect()));
    lane.deliver(&keys(1..=2)).await.unwrap();
    assert_eq!(lane.sink.position(&lane.lane).await.unwrap(), at(2), "skipped events move the position too");
    lane.deliver(&keys(3..=4)).await.unwrap();
    assert_eq!(stream.keys(&lane).await, keys(1..=4));
}

/// An earlier position means that the stream was restored from a backup.
pub(crate) async fn returns_an_earlier_position(stream: &impl Altered) {
    let mut lane = delivered(stream, 1..=3).await;
    let earlier = stream.stored(&lane).await.unwrap();
    lane.deliver(&keys(4..=6)).await.unwrap();
    stream.store(&lane, Some(&earlier)).await;
    // The earlier position is noticed in the same process and after a restart.
    assert!(is_displaced(&lane.deliver(&keys(7..=7)).await.unwrap_err()));
    assert_eq!(lane.resume().await.unwrap().position, at(3));
    assert_eq!(lane.restarted(stream.sink()).resume().await.unwrap().position, at(3));
    assert_eq!(stream.keys(&lane).await, keys(1..=6), "nothing was published");
}

/// The sink refuses a delivery if the stored position differs from the expected one.
pub(crate) async fn refuses_a_delivery_after_another_position(stream: &impl Altered) {
    let mut lane = delivered(stream, 1..=3).await;
    let expected = lane.confirmed;
    lane.confirmed.as_mut().unwrap().position = Some(offset(2));
    assert!(is_displaced(&lane.deliver(&keys(4..=4)).await.unwrap_err()));
    lane.confirmed = expected;
    lane.resume().await.unwrap();
    lane.deliver(&keys(4..=4)).await.unwrap();
    assert_eq!(stream.keys(&lane).await, keys(1..=4));
}

/// An instance reports that another one has overtaken it, and does not take the lane back under the same lease.
pub(crate) async fn is_not_claimed_again_by_an_overtaken_instance(stream: &impl Altered) {
    let mut older = delivered(stream, 1..=3).await;
    let mut newer = older.restarted(stream.sink());
    newer.epoch = 2;
    newer.resume().await.unwrap();
    newer.deliver(&keys(4..=5)).await.unwrap();
    assert!(older.deliver(&keys(4..=5)).await.is_err());
    assert!(matches!(older.resume().await, Err(SinkError::Overtaken(_))));
    newer.deliver(&keys(6..=6)).await.unwrap();
    // With a new lease it may take the lane back.
    older.epoch = 3;
    assert_eq!(older.resume().await.unwrap().position, at(6));
    assert_eq!(stream.keys(&older).await, keys(1..=6));
}
