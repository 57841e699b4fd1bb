//! Helpers that wait for a task's result, for a newer value, or for a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio::task::JoinError;

/// Returns a task's result. A panic of the task continues in the caller.
pub async fn joined<T>(ended: Result<T, JoinError>) -> T {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(result) => result,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // A task that is awaited is cancelled only when the runtime shuts down. The runtime will not poll the caller again.
        Err(Err(_cancelled)) => std::future::pending().await,
    }
}

/// Locks a mutex, even if a thread panicked while it held the lock.
pub fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for the next value that the receiver has not seen. Waits forever after the sender is dropped.
pub async fn newer<T: Clone>(watched: &mut watch::Receiver<T>) -> T {
    match watched.changed().await {
        Ok(()) => watched.borrow_and_update().clone(),
        Err(_) => std::future::pending().await,
    }
}
