//! Looks at the active file at regular intervals, because a file that another program has restored or replaced would otherwise
//! be noticed only at the next batch, and a quiet channel has none for hours.

use std::sync::Weak;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::sleep;

use super::blocking;
use super::journal::Journal;

/// The time between two looks.
const INTERVAL: Duration = Duration::from_secs(3);

/// Looks at the file until the sink is dropped.
pub(super) async fn watch(journal: Weak<Mutex<Journal>>) {
    let mut other = None;
    loop {
        sleep(INTERVAL).await;
        let Some(journal) = journal.upgrade() else { return };
        let mut journal = journal.lock_owned().await;
        other = blocking(move || journal.look(other)).await;
    }
}
