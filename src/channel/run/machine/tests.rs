use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;

#[tokio::test]
async fn a_panic_reaches_its_caller_and_stops_no_other_work() {
    let processors = Arc::<Processors>::default();
    // Run more tasks than the pool has threads.
    for _ in 0..4 * processors.number() {
        let panics = processors.run(|| panic!("as the test wants"));
        AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
    }
    assert_eq!(processors.run(|| 7).await, 7);
}

#[tokio::test]
async fn work_whose_caller_was_dropped_does_not_start() {
    let (processors, begun) = (Arc::<Processors>::default(), Arc::<AtomicUsize>::default());
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    // All threads are busy until the sender is dropped.
    let busy = (0..processors.number()).map(|_| {
        let held = held.clone();
        processors.run(move || held.lock().unwrap().recv().unwrap_err())
    });
    let mut busy = Box::pin(join_all(busy));
    assert!(busy.as_mut().now_or_never().is_none());
    let counts = || {
        let begun = begun.clone();
        processors.run(move || begun.fetch_add(1, SeqCst))
    };
    assert!(counts().now_or_never().is_none(), "the work is queued, and its caller is then dropped");
    let last = counts();
    drop(hold);
    assert_eq!(last.await, 0);
    busy.await;
}

#[tokio::test]
async fn any_finished_work_counts_as_progress() {
    let processors = Arc::<Processors>::default();
    let work = |plug: std::sync::mpsc::Receiver<()>| processors.run(move || plug.recv().unwrap_err());
    let plugs: Vec<_> = (0..2 * processors.number()).map(|_| std::sync::mpsc::channel::<()>()).collect();
    let (mut hold, plugs): (Vec<_>, Vec<_>) = plugs.into_iter().unzip();
    let mut busy = Box::pin(join_all(plugs.into_iter().map(work)));
    assert!(busy.as_mut().now_or_never().is_none());
    let mut turn = Box::pin(processors.turn());
    assert!(turn.as_mut().now_or_never().is_none(), "no work is finished yet");
    // The first task ends, and the next queued task occupies the free thread.
    drop(hold.remove(0));
    turn.await;
    drop(hold);
    busy.await;
}
