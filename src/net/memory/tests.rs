use futures_util::FutureExt;

use super::*;

/// Two channels. A reservation of 100 bytes counts as 200 and fills the floor of a channel.
fn two() -> (Arc<Memory>, [Arc<ChannelMemory>; 2]) {
    let memory = Arc::<Memory>::default();
    memory.share_among(800, 2);
    let channels = [(); 2].map(|()| ChannelMemory::of(&memory));
    (memory, channels)
}

fn held(channel: &ChannelMemory) -> usize {
    let held = lock(&channel.held);
    (held.floor + held.common) / COPIES
}

#[test]
fn a_channel_always_has_its_minimum() {
    let (memory, [first, second]) = two();
    let everything = first.exceed(10_000);
    let mut floor = second.free();
    assert!(floor.grow(100));
    assert!(!floor.grow(1), "that would be common memory");
    assert_eq!(held(&second), 100);
    drop((everything, floor));
    assert_eq!((memory.held(), held(&first), held(&second)), (0, 0, 0));
}

#[test]
fn a_channel_can_use_its_share_or_one_body() {
    let (_, [first, _]) = two();
    let mut body = first.free();
    assert!(body.grow(100 + 150), "the floor, and more than a share");
    assert!(!body.grow(1));
    drop(body);
    let mut small = first.free();
    assert!(small.grow(100 + 10));
    assert!(!small.grow(100), "that would be more than a share");
    assert!(small.grow(90));
}

#[test]
fn a_channel_is_generous_until_half_of_its_share_is_used() {
    let memory = Arc::<Memory>::default();
    // Bytes count twice. Each floor is 25 bytes, and each channel may use 50 of the 200 common bytes.
    memory.share_among(800, 8);
    let channels = [(); 8].map(|()| ChannelMemory::of(&memory));
    let holds = |channel: &Arc<ChannelMemory>, bytes| {
        let mut body = channel.free();
        assert!(body.grow(bytes));
        body
    };
    let _little = holds(&channels[0], 25 + 20);
    assert!(channels[0].is_half_free());
    let _more = holds(&channels[0], 10);
    assert!(!channels[0].is_half_free());
    assert!(channels[1].is_half_free());
    let _others: Vec<_> = channels[2..].iter().map(|channel| holds(channel, 25 + 20)).collect();
    assert!(!channels[1].is_half_free(), "it uses nothing, but the others use too much");
}

#[tokio::test]
async fn waiting_channels_get_memory_first_and_in_order() {
    let memory = Arc::<Memory>::default();
    memory.share_among(800, 4);
    let channels = [(); 4].map(|()| ChannelMemory::of(&memory));
    let holder = channels[0].reserve(50 + 200).await;
    let [mut second, mut third] = [1, 2].map(|at| Box::pin(channels[at].reserve(50 + 150)));
    assert!(second.as_mut().now_or_never().is_none());
    assert!(third.as_mut().now_or_never().is_none());
    drop(holder);
    assert!(!channels[3].free().grow(50 + 1), "the second channel is next in line for it");
    assert!(channels[3].free().grow(50), "the floor is always available");
    assert!(third.as_mut().now_or_never().is_none(), "not before the second");
    let second = second.await;
    assert!(third.as_mut().now_or_never().is_none());
    drop(second);
    assert_eq!(held(&third.await.of), 200);
}

#[tokio::test]
async fn a_channel_blocked_by_its_own_events_delays_no_other() {
    let (_, [first, second]) = two();
    let in_hand = first.reserve(100 + 100).await;
    let mut next = Box::pin(first.reserve(100));
    assert!(next.as_mut().now_or_never().is_none(), "its share is taken");
    drop(second.reserve(100 + 100).now_or_never().expect("the memory is free"));
    drop(in_hand);
    next.await;
}

#[tokio::test]
async fn a_channel_uses_its_minimum_although_others_wait() {
    let memory = Arc::<Memory>::default();
    memory.share_among(800, 4);
    let channels = [(); 4].map(|()| ChannelMemory::of(&memory));
    let _holder = channels[0].reserve(50 + 200).await;
    let mut waits = Box::pin(channels[1].reserve(50 + 100));
    assert!(waits.as_mut().now_or_never().is_none());
    let in_hand = channels[2].exceed(50);
    let mut next = Box::pin(channels[2].reserve(50));
    assert!(next.as_mut().now_or_never().is_none());
    drop(in_hand);
    assert_eq!(next.await.bytes(), 50);
}

#[tokio::test]
async fn a_dropped_wait_ends() {
    let (_, [first, second]) = two();
    let holder = first.reserve(100 + 150).await;
    let mut waits = Box::pin(second.reserve(100 + 100));
    assert!(waits.as_mut().now_or_never().is_none());
    drop(waits);
    assert!(second.free().grow(100 + 50), "free memory can be used again");
    drop(holder);
}

#[test]
fn returned_memory_can_be_reserved_again() {
    let (memory, [first, second]) = two();
    let mut body = first.exceed(100 + 200);
    assert!(!second.free().grow(100 + 1));
    body.shrink_to(100 + 50);
    assert_eq!((body.bytes(), held(&first), memory.held() / COPIES), (150, 150, 150));
    assert!(second.free().grow(100 + 100));
    body.shrink_to(1_000);
    assert_eq!(held(&first), 150);
    body.shrink_to(50);
    assert_eq!((held(&first), memory.held() / COPIES), (50, 50));
}

#[test]
fn a_copy_is_counted_while_it_exists() {
    let (_, [first, _]) = two();
    let copy = first.copy(&[7; 60]);
    let slice = copy.slice(..1);
    drop(copy);
    assert_eq!(held(&first), 60);
    drop(slice);
    assert_eq!(held(&first), 0);
}

#[test]
fn a_page_leaves_half_of_the_minimum_free() {
    let (memory, [first, second]) = two();
    assert_eq!(first.room(), 75, "half of the floor and a share, less the records");
    let everything = second.exceed(10_000);
    assert_eq!(first.room(), 50 / 2);
    drop(everything);
    memory.share_among(1 << 30, 1);
    assert_eq!(first.room(), ((1 << 30) - FLOOR + FLOOR / 2) / COPIES / 2);
}
