//! Waiting for a task that is a part of whoever waits.

use tokio::task::JoinError;

/// What a task gave. A panic in it goes on in the caller.
pub(crate) async fn joined<T>(ended: Result<T, JoinError>) -> T {
    match ended.map_err(JoinError::try_into_panic) {
        Ok(given) => given,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // Only a runtime that is being torn down ends a task that is waited for, or refuses one. It will not poll us again.
        Err(Err(_cancelled)) => std::future::pending().await,
    }
}
