//! Waiting for another value of what is watched.

use tokio::sync::watch;

/// The next value that the receiver has not seen, when there is one. Where nobody sets one any more, there is none.
pub(crate) async fn newer<T: Clone>(watched: &mut watch::Receiver<T>) -> T {
    match watched.changed().await {
        Ok(()) => watched.borrow_and_update().clone(),
        Err(_) => std::future::pending().await,
    }
}
