//! Sends requests to the daemon's control socket.
//!
//! # Invariants
//!
//! * **Only the daemon opens the state.** If no daemon answers, the console does not open the state itself, because no daemon
//!   could start while the state is open.
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
use operator::{self, Refusal, Report, Request};

/// How old the report for the head of a page may be.
const RECENT: Duration = Duration::from_secs(2);

/// How long a page waits for the daemon.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);

/// How long the head of a page waits for the daemon.
const HEADER_TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct DaemonConnection {
    directory: PathBuf,
    who: String,
    last_report: Mutex<Option<(Instant, Option<Arc<Report>>)>>,
}

impl DaemonConnection {
    pub(super) fn new(directory: PathBuf, who: String) -> Self {
        Self { directory, who, last_report: Mutex::default() }
    }

    /// Returns the daemon's answer. The error is a sentence: why the daemon does not answer, or why it refuses the
    /// request.
    pub(super) async fn ask<R: Request>(&self, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, "").await
    }

    /// Like [`ask`](Self::ask), on behalf of a browser.
    pub(super) async fn ask_for<R: Request>(&self, browser: u64, request: &R) -> Result<R::Answer, String> {
        self.ask_as(request, &format!(", browser {browser}")).await
    }

    async fn ask_as<R: Request>(&self, request: &R, detail: &str) -> Result<R::Answer, String> {
        self.try_ask(request, detail).await?.map_err(|refusal| refusal.to_string())
    }

    /// Returns the daemon's answer or refusal. The error is a sentence: why the daemon does not answer.
    pub(super) async fn try_ask<R: Request>(
        &self,
        request: &R,
        detail: &str,
    ) -> Result<Result<R::Answer, Refusal>, String> {
        let by = format!("{} in the console{detail}", self.who);
        match timeout(REQUEST_TIMEOUT, operator::ask(&self.directory, request, &by)).await {
            Ok(Ok(Some(answer))) => Ok(answer),
            Ok(Ok(None)) => Err(format!(
                "The daemon is unreachable: it is not running, or it does not use the directory {}.",
                self.directory.display()
            )),
            Ok(Err(error)) => Err(format!("The request to the daemon failed: {}.", Chain(&error))),
            Err(_) => Err(format!("The daemon did not respond within {} s.", REQUEST_TIMEOUT.as_secs())),
        }
    }

    pub(super) async fn report(&self) -> Result<Arc<Report>, String> {
        let report = self.ask(&GetStatus { here: false }).await.map(Arc::new);
        if let Ok(report) = &report {
            record::learn_networks(report.networks.iter().map(|(selector, name)| (*selector, name.as_str())));
        }
        *lock(&self.last_report) = Some((Instant::now(), report.as_ref().ok().cloned()));
        report
    }

    /// The samples of the last hour, by channel name.
    pub(super) async fn last_hour(&self, channels: Vec<String>) -> Result<BTreeMap<String, Vec<Sample>>, String> {
        let hours = self.ask(&GetLastHour { channels, here: false }).await?;
        Ok(hours.into_iter().map(|hour| (hour.channel, hour.facts.samples)).collect())
    }

    /// Returns a recent report; `None` if no daemon answers.
    pub(super) async fn recent_report(&self) -> Option<Arc<Report>> {
        let last = lock(&self.last_report).clone();
        match last {
            Some((at, report)) if at.elapsed() < RECENT => report,
            _ => timeout(HEADER_TIMEOUT, self.report()).await.ok()?.ok(),
        }
    }
}
