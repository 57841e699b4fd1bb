//! Sends requests to the daemon's control socket.
//!
//! # Invariants
//!
//! * **The daemon or nothing.** If no daemon answers, the state is not opened, because that would prevent a daemon from
//!   starting.
//! * **Every request names its sender** for the daemon's log.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::time::timeout;

use channel::Sample;
use net::Chain;
use net::tasks::lock;
use operator::api::{GetLastHour, GetStatus};
use operator::{self, Report, Request};

/// How old the report for the head of a page may be.
const LATELY: Duration = Duration::from_secs(2);

/// How long a page waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the head of a page waits for the daemon.
const BRIEFLY: Duration = Duration::from_secs(1);

/// The connection to the daemon, and its last report.
pub(super) struct Link {
    directory: PathBuf,
    who: String,
    lately: Mutex<Option<(Instant, Option<Arc<Report>>)>>,
}

impl Link {
    pub(super) fn new(directory: PathBuf, who: String) -> Self {
        Self { directory, who, lately: Mutex::default() }
    }

    /// Returns the daemon's answer. The error says in words that the daemon does not answer, or why it refuses.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, "").await
    }

    /// Like [`ask`](Self::ask), on behalf of a browser.
    pub(super) async fn ask_for<R: Request>(&self, browser: u64, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, &format!(", browser {browser}")).await
    }

    async fn ask_as<R: Request>(&self, request: &R, detail: &str) -> Result<R::Answer, String> {
        let by = format!("{} in the console{detail}", self.who);
        match timeout(PATIENCE, operator::ask(&self.directory, request, &by)).await {
            Ok(Ok(Some(answer))) => answer.map_err(|refusal| refusal.to_string()),
            Ok(Ok(None)) => {
                Err(format!("No daemon answers in {}: it is not running, or runs elsewhere.", self.directory.display()))
            }
            Ok(Err(error)) => Err(format!("The daemon did not answer: {}.", Chain(&error))),
            Err(_) => Err(format!("The daemon has not answered for {} s.", PATIENCE.as_secs())),
        }
    }

    pub(super) async fn report(&self) -> Result<Arc<Report>, String> {
        let report = self.ask(&GetStatus { here: false }).await.map(Arc::new);
        *lock(&self.lately) = Some((Instant::now(), report.as_ref().ok().cloned()));
        report
    }

    /// The samples of the last hour, by channel name.
    pub(super) async fn last_hour(&self, channels: Vec<String>) -> Result<BTreeMap<String, Vec<Sample>>, String> {
        let hours = self.ask(&GetLastHour { channels, here: false }).await?;
        Ok(hours.into_iter().map(|hour| (hour.channel, hour.facts.samples)).collect())
    }

    /// Returns a recent report; `None` if no daemon answers.
    pub(super) async fn lately(&self) -> Option<Arc<Report>> {
        let last = lock(&self.lately).clone();
        match last {
            Some((at, report)) if at.elapsed() < LATELY => report,
            _ => timeout(BRIEFLY, self.report()).await.ok()?.ok(),
        }
    }
}
