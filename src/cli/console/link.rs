//! The daemon, as it is asked at its control socket.
//!
//! # Invariants
//!
//! * **The daemon or nothing.** Where none answers, the state is not opened: it would keep a daemon from starting.
//! * **Who asks is said,** with every request, for the daemon's log.

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

/// How old the report may be that the head of each page is made of.
const LATELY: Duration = Duration::from_secs(2);

/// How long a page waits for the daemon.
const PATIENCE: Duration = Duration::from_secs(15);

/// How long the head of a page does.
const BRIEFLY: Duration = Duration::from_secs(1);

/// The connection to the daemon, and its last answers.
pub(super) struct Link {
    directory: PathBuf,
    who: String,
    lately: Mutex<Option<(Instant, Option<Arc<Report>>)>>,
}

impl Link {
    pub(super) fn new(directory: PathBuf, who: String) -> Self {
        Self { directory, who, lately: Mutex::default() }
    }

    /// What the daemon answers; an error, in words, where it does not, or refuses.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, "").await
    }

    /// As [`ask`](Self::ask), for one of the browsers.
    pub(super) async fn ask_for<R: Request>(&self, browser: u64, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, &format!(", browser {browser}")).await
    }

    async fn ask_as<R: Request>(&self, request: &R, detail: &str) -> Result<R::Answer, String> {
        let by = format!("{} at the console{detail}", self.who);
        match timeout(PATIENCE, operator::ask(&self.directory, request, &by)).await {
            Ok(Ok(Some(answer))) => answer.map_err(|refusal| refusal.to_string()),
            Ok(Ok(None)) => {
                Err(format!("No daemon answers in {}: it does not run, or runs elsewhere.", self.directory.display()))
            }
            Ok(Err(error)) => Err(format!("The daemon could not be asked: {}.", Chain(&error))),
            Err(_) => Err(format!("The daemon has not answered for {} s.", PATIENCE.as_secs())),
        }
    }

    pub(super) async fn report(&self) -> Result<Arc<Report>, String> {
        let report = self.ask(&GetStatus { here: false }).await.map(Arc::new);
        *lock(&self.lately) = Some((Instant::now(), report.as_ref().ok().cloned()));
        report
    }

    /// The last hour of those channels, by their names.
    pub(super) async fn last_hour(&self, channels: Vec<String>) -> Result<BTreeMap<String, Vec<Sample>>, String> {
        let hours = self.ask(&GetLastHour { channels, here: false }).await?;
        Ok(hours.into_iter().map(|hour| (hour.channel, hour.facts.samples)).collect())
    }

    /// The report of a moment ago; none where no daemon answers.
    pub(super) async fn lately(&self) -> Option<Arc<Report>> {
        let last = lock(&self.lately).clone();
        match last {
            Some((at, report)) if at.elapsed() < LATELY => report,
            _ => timeout(BRIEFLY, self.report()).await.ok()?.ok(),
        }
    }
}
