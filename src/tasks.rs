//! Waiting: for a task's result, for a newer value, for the end of work within a grace period.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinError;
use tokio_util::sync::CancellationToken;

/// A task's result. A panic of the task continues in the caller.
pub(crate) async fn joined<T>(ended: Result<T, JoinError>) -> T {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Only a runtime that shuts down cancels a task that is awaited. It will not poll the caller again.
        Err(Err(_cancelled)) => std::future::pending().await,
    }
}

/// The next value that the receiver has not seen. Waits for ever once the sender is dropped.
pub(crate) async fn newer<T: Clone>(watched: &mut watch::Receiver<T>) -> T {
    match watched.changed().await {
        Ok(()) => watched.borrow_and_update().clone(),
        Err(_) => std::future::pending().await,
    }
}

/// Runs `work`; `None` where it did not end within `grace` after `leave` fired. Once `stop` has fired too, the grace period
/// of the whole process applies instead, and the caller enforces it.
pub(crate) async fn within_grace<T>(
    work: impl Future<Output = T>,
    leave: CancellationToken,
    stop: CancellationToken,
    grace: Duration,
) -> Option<T> {
    let expired = async {
        leave.cancelled().await;
        if stop.is_cancelled() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(grace).await;
    };
    tokio::select! { biased; ended = work => Some(ended), () = expired => None }
}
