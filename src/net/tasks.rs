//! Waiting: for a task's result, for a newer value, and for what several parts share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinError;

/// A task's result. A panic of the task continues in the caller.
pub async fn joined<T>(ended: Result<T, JoinError>) -> T {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Only a runtime that shuts down cancels a task that is awaited. It will not poll the caller again.
        Err(Err(_cancelled)) => std::future::pending().await,
    }
}

/// What is shared, also after a part that held it has panicked.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The next value that the receiver has not seen. Waits for ever once the sender is dropped.
pub async fn newer<T: Clone>(watched: &mut watch::Receiver<T>) -> T {
    match watched.changed().await {
        Ok(()) => watched.borrow_and_update().clone(),
        Err(_) => std::future::pending().await,
    }
}
