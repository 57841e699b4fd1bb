//! The least progress there is: a task of the runtime that gets its turn.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

/// Between two beats.
const EVERY: Duration = Duration::from_millis(500);

/// How long none may come. A machine may be busy; a watchdog is for one that is stuck.
const STILL_AFTER: Duration = Duration::from_secs(10);

/// No task of the runtime gets its turn.
#[derive(Debug, thiserror::Error)]
#[error("the runtime has stood still for {} s", .0.as_secs())]
pub struct Still(Duration);

/// A task that beats, until this is dropped.
#[derive(Debug)]
pub struct Beat {
    last: Arc<Mutex<Instant>>,
    _task: JoinSet<()>,
}

impl Beat {
    /// Starts to beat, on the runtime's threads.
    #[must_use]
    pub fn start() -> Self {
        let last = Arc::new(Mutex::new(Instant::now()));
        let mut task = JoinSet::new();
        task.spawn(beat(last.clone()));
        Self { last, _task: task }
    }

    /// Whether it beats.
    ///
    /// # Errors
    /// [`Still`], where it has not for too long.
    pub fn check(&self) -> Result<(), Still> {
        let silence = self.last.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
        if silence > STILL_AFTER { Err(Still(silence)) } else { Ok(()) }
    }
}

async fn beat(last: Arc<Mutex<Instant>>) {
    loop {
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        tokio::time::sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_beats_until_its_task_gets_no_turn() {
        let beat = Beat::start();
        tokio::time::sleep(STILL_AFTER * 3).await;
        assert!(beat.check().is_ok());

        let still = Beat { last: beat.last.clone(), _task: JoinSet::new() };
        drop(beat);
        tokio::time::advance(STILL_AFTER.saturating_sub(EVERY)).await;
        assert!(still.check().is_ok());
        tokio::time::advance(EVERY * 2).await;
        assert!(still.check().unwrap_err().to_string().starts_with("the runtime has stood still for 1"));
    }
}
