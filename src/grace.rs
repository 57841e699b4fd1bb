//! Time for what is in hand.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Runs `work`; `None` where it was told to `leave` and did not end within `grace`. When `stop` fires too, everything
/// ends, and whoever ends it decides for how long it waits.
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
