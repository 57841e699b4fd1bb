use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;

#[tokio::test]
async fn a_panic_goes_on_in_its_caller_and_stops_no_other_work() {
    let machine = ThisMachine::new();
    // More than there are threads to lose.
    for _ in 0..4 * machine.processors.current_num_threads() {
        let panics = machine.on_a_processor(|| panic!("it is said once"));
        AssertUnwindSafe(panics).catch_unwind().await.unwrap_err();
    }
    assert_eq!(machine.on_a_processor(|| 7).await, 7);
}

#[tokio::test]
async fn work_whose_caller_has_gone_is_not_begun() {
    let (machine, begun) = (ThisMachine::new(), Arc::<AtomicUsize>::default());
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    // All threads are busy until the sender is dropped.
    let busy = (0..machine.processors.current_num_threads()).map(|_| {
        let held = held.clone();
        machine.on_a_processor(move || held.lock().unwrap().recv().unwrap_err())
    });
    let mut busy = Box::pin(join_all(busy));
    assert!(busy.as_mut().now_or_never().is_none());
    let counts = || {
        let begun = begun.clone();
        machine.on_a_processor(move || begun.fetch_add(1, SeqCst))
    };
    assert!(counts().now_or_never().is_none(), "it is queued, and then dropped");
    let last = counts();
    drop(hold);
    assert_eq!(last.await, 0);
    busy.await;
}
