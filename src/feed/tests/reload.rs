//! A reload between two steps of a request.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::memory_table::MemoryTable;
use super::support::{MAX_WAIT, OPEN, settings};
use crate::Served;
use crate::state::FeedState;
use crate::state::limits::AnswerMemory;
use operator::feed::{FeedHandle, FeedMetrics};

#[tokio::test]
async fn a_change_of_a_replaced_table_is_not_taken_for_a_change_of_the_new_table() {
    let [old, new] = [Arc::<MemoryTable>::default(), Arc::default()];
    let served = watch::Sender::new(Arc::new(Served::new(settings(), old.clone())));
    let (operators, _queue) = FeedHandle::new("test".to_owned(), FeedMetrics::default());
    let state = FeedState {
        served: served.subscribe(),
        requests: Arc::default(),
        memory: AnswerMemory::new(64 << 20),
        most_requests: 1,
        stop: CancellationToken::new(),
        is_local: true,
        operators,
    };
    let (mut changes, deadline) = (state.changes(), Instant::now() + MAX_WAIT);
    for _ in 0..3 {
        old.deliver(OPEN, 1);
    }
    assert!(state.changed(&mut changes, deadline).await);
    served.send_replace(Arc::new(Served::new(settings(), new.clone())));
    assert_eq!(state.newest(OPEN, &mut changes).await.unwrap(), 3, "the change belongs to the old table");
    new.deliver(OPEN, 1);
    assert!(!state.changed(&mut changes, deadline).await, "the reload ends the wait");
    assert_eq!(state.newest(OPEN, &mut changes).await.unwrap(), 1);
}
